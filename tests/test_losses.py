"""The loss against per-sample Python loops in float64, its gradients against formulas, and the shapes it refuses."""

import math

import numpy as np
import pytest
import tensorflow as tf

from a2c.algorithms.losses import entropy, policy_gradient_loss, value_loss

T, B, A = 4, 3, 5


def sample(seed: int = 0) -> dict[str, tf.Tensor]:
    """A different number of rows, environments and actions, so that no two axes can be taken for each other."""
    rng = np.random.default_rng(seed)
    return {
        "logits": tf.constant(2.0 * rng.normal(size=(T, B, A)), tf.float32),
        "values": tf.constant(rng.normal(size=(T, B)), tf.float32),
        "actions": tf.constant(rng.permutation(np.arange(T * B) % A).reshape(T, B), tf.int32),  # every action occurs
        "advantages": tf.constant(rng.normal(size=(T, B)) + 0.5, tf.float32),
        "returns": tf.constant(rng.normal(size=(T, B)) + 1.0, tf.float32),
    }


def probabilities(logits) -> np.ndarray:
    exponentials = np.exp(np.asarray(logits, np.float64))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def terms(inputs) -> tuple[tf.Tensor, ...]:
    """Policy loss, value loss and entropy."""
    policy_loss = policy_gradient_loss(inputs["logits"], inputs["actions"], inputs["advantages"])
    return policy_loss, value_loss(inputs["values"], inputs["returns"]), entropy(inputs["logits"])


def loop(inputs) -> tuple[float, ...]:
    """The same three, sample by sample, in Python floats."""
    pi = probabilities(inputs["logits"])
    policy = value = entropy_ = 0.0
    for t in range(T):
        for b in range(B):
            action = int(inputs["actions"][t, b])
            policy -= math.log(pi[t, b, action]) * float(inputs["advantages"][t, b])
            value += (float(inputs["returns"][t, b]) - float(inputs["values"][t, b])) ** 2
            entropy_ -= sum(p * math.log(p) for p in pi[t, b])
    n = T * B
    return policy / n, value / n, entropy_ / n


@pytest.mark.parametrize("seed", range(4))
def test_every_term_is_that_of_a_loop_over_samples(seed):
    inputs = sample(seed)
    found = terms(inputs)
    assert [float(x) for x in found] == pytest.approx(loop(inputs), rel=1e-5)
    assert all(x.dtype == tf.float32 and x.shape == () for x in found)


def test_a_hand_made_sample():
    """pi = (1/4, 3/4), action 0, advantage 2, value 1, return 4."""
    logits = tf.constant([[[0.0, math.log(3.0)]]])
    policy_loss = policy_gradient_loss(logits, tf.constant([[0]]), tf.constant([[2.0]]))
    assert float(policy_loss) == pytest.approx(2 * 1.3862944, rel=1e-6)  # -2 log 1/4
    assert float(value_loss(tf.constant([[1.0]]), tf.constant([[4.0]]))) == pytest.approx(9.0, rel=1e-6)
    assert float(entropy(logits)) == pytest.approx(0.5623351, rel=1e-6)


def test_the_policy_gradient_is_the_score_times_the_advantage():
    """d/dlogits of -log pi(a) A is (pi - one_hot(a)) A, over the number of samples."""
    inputs = sample()
    with tf.GradientTape() as tape:
        tape.watch(inputs["logits"])
        loss = policy_gradient_loss(inputs["logits"], inputs["actions"], inputs["advantages"])
    score = probabilities(inputs["logits"]) - np.eye(A)[inputs["actions"].numpy()]
    wanted = score * inputs["advantages"].numpy()[..., None] / (T * B)
    np.testing.assert_allclose(tape.gradient(loss, inputs["logits"]), wanted, rtol=1e-5, atol=1e-7)


def test_the_value_gradient_has_no_half():
    inputs = sample()
    with tf.GradientTape() as tape:
        tape.watch(inputs["values"])
        loss = value_loss(inputs["values"], inputs["returns"])
    wanted = -2 * (inputs["returns"].numpy() - inputs["values"].numpy()) / (T * B)
    np.testing.assert_allclose(tape.gradient(loss, inputs["values"]), wanted, rtol=1e-5, atol=1e-7)


def test_the_entropy_gradient_is_that_of_finite_differences():
    logits = sample()["logits"]
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = entropy(logits)
    gradient = tape.gradient(loss, logits).numpy()
    wide = logits.numpy().astype(np.float64)

    def entropy64(x):
        pi = probabilities(x)
        return -(pi * np.log(pi)).sum(axis=-1).mean()

    wanted = np.zeros_like(wide)
    for index in np.ndindex(*wide.shape):
        up, down = wide.copy(), wide.copy()
        up[index] += 1e-5
        down[index] -= 1e-5
        wanted[index] = (entropy64(up) - entropy64(down)) / 2e-5
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_no_gradient_reaches_the_advantages_or_the_returns(mode):
    inputs = sample()
    function = terms if mode == "eager" else tf.function(terms)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([inputs[name] for name in ("logits", "values", "advantages", "returns")])
        total = sum(function(inputs))
    for name in ("advantages", "returns"):
        assert tape.gradient(total, inputs[name]) is None, name
    for name in ("logits", "values"):
        assert np.all(tape.gradient(total, inputs[name]).numpy() != 0), name


def test_an_advantage_made_of_the_values_does_not_train_the_critic():
    inputs = sample()
    values = inputs["values"]
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss = policy_gradient_loss(inputs["logits"], inputs["actions"], inputs["returns"] - values)
    assert tape.gradient(loss, values) is None


def test_a_step_down_the_policy_loss_makes_a_good_action_likelier_and_a_bad_one_rarer():
    logits, actions = tf.zeros((2, 1, A)), tf.constant([[3], [3]])
    advantages = tf.constant([[1.0], [-1.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = policy_gradient_loss(logits, actions, advantages)
    after = probabilities(logits - tape.gradient(loss, logits))
    assert after[0, 0, 3] > 1 / A > after[1, 0, 3]


def test_a_step_down_the_sum_raises_the_entropy_and_brings_the_value_to_the_return():
    inputs = sample() | {"advantages": tf.zeros((T, B))}
    with tf.GradientTape() as tape:
        tape.watch([inputs["logits"], inputs["values"]])
        policy_loss, error, bonus = terms(inputs)
        total = policy_loss + 0.25 * error - 0.01 * bonus
    d_logits, d_values = tape.gradient(total, [inputs["logits"], inputs["values"]])
    assert float(entropy(inputs["logits"] - 10.0 * d_logits)) > float(bonus)
    assert float(value_loss(inputs["values"] - d_values, inputs["returns"])) < float(error)


def test_entropy_is_log_a_for_the_uniform_policy_and_less_for_any_other():
    assert float(entropy(tf.fill((T, B, A), 7.0))) == pytest.approx(math.log(A), rel=1e-6)
    for seed in range(5):
        assert 0 < float(entropy(sample(seed)["logits"])) < math.log(A)
    certain = float(entropy(tf.constant([[[0.0, 1000.0, -1000.0]]])))
    assert certain == 0.0  # and no NaN from 0 log 0


def test_huge_logits_keep_losses_and_gradients_finite():
    inputs = sample() | {"logits": 1000.0 * sample()["logits"]}
    with tf.GradientTape() as tape:
        tape.watch(inputs["logits"])
        total = sum(terms(inputs))
    assert np.isfinite(float(total))
    assert np.isfinite(tape.gradient(total, inputs["logits"]).numpy()).all()


@pytest.mark.parametrize("name", ["values", "actions", "advantages", "returns"])
@pytest.mark.parametrize(
    "shape", [(B, T), (T, B, 1), (T * B,), (T * B, 1), (1, 1), (T, 1), (1, B), ()], ids=lambda shape: str(shape)
)
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_every_wrong_shape_is_refused_with_both_shapes(name, shape, mode):
    inputs = sample()
    inputs[name] = tf.zeros(shape, inputs[name].dtype)
    function = terms if mode == "eager" else tf.function(terms)
    with pytest.raises(ValueError) as error:
        function(inputs)
    message = str(error.value)
    assert name in message
    assert str(shape) in message
    assert str((T, B)) in message


@pytest.mark.parametrize("shape", [(T, A), (T * B, A), (B, T, A), (T, B, 1, A), (T, 1, A), (1, B, A)], ids=str)
def test_logits_of_a_wrong_shape_are_refused(shape):
    inputs = sample() | {"logits": tf.zeros(shape)}
    with pytest.raises(ValueError, match="logits") as error:
        terms(inputs)
    assert str(shape) in str(error.value) or str(shape[:-1]) in str(error.value)


def test_flat_arguments_are_refused_even_where_they_agree():
    """Losses of n samples look like [n]; time-major [T, B] is asked for everywhere, so a lost axis is noticed."""
    with pytest.raises(ValueError, match=r"values must have rank 2, got shape \(6,\)"):
        value_loss(tf.zeros(6), tf.zeros(6))
    with pytest.raises(ValueError, match=r"logits must have rank 3, got shape \(6, 2\)"):
        policy_gradient_loss(tf.zeros((6, 2)), tf.zeros(6, tf.int32), tf.zeros(6))
    with pytest.raises(ValueError, match=r"logits must have rank 3, got shape \(6, 2\)"):
        entropy(tf.zeros((6, 2)))
