"""A2C against whole updates written by hand in NumPy; what an update depends on; its one signature."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GAMMA, MODES, VECTORS, A, B, T, make_rollout, make_trajectory, run_config
from gymnasium.spaces import Box
from numpy_reference import NumpyA2C, NumpyNetwork, gae
from updates import set_weights, weights_of

from a2c.algorithms.a2c import A2C, Trajectory
from a2c.algorithms.algorithm import build_algorithm
from a2c.algorithms.gradient_step import GradientStep
from a2c.algorithms.sections import A2CSection
from a2c.config import OptimizerConfig, UserError
from a2c.data.collector import aligned
from a2c.networks.optimizer import build_optimizer

pytestmark = pytest.mark.usefixtures("exact_numerics")


def a2c_on(
    space: Box, model: dict, algorithm: A2CSection, optimizer, num_envs: int = B, *, max_grad_norm: float, mode: str
) -> A2C:
    """With weights that prefer something, and a step that applies this optimizer."""
    config = run_config(model, {}, mode, num_envs=num_envs, **algorithm.model_dump())
    a2c = build_algorithm(config, space, A)
    set_weights(a2c.policy.model)
    weights, signature = a2c.policy.model.trainable_variables, a2c.learn.signature
    a2c.learn = GradientStep(a2c._loss, weights, optimizer, signature, max_grad_norm=max_grad_norm, mode=mode)
    return a2c


def mlp_a2c(algorithm: A2CSection, optimizer, *, max_grad_norm: float, mode: str) -> A2C:
    return a2c_on(VECTORS, {"hidden_sizes": (8, 6)}, algorithm, optimizer, max_grad_norm=max_grad_norm, mode=mode)


def algorithm_config(**changes) -> A2CSection:
    return A2CSection(rollout_length=T, gamma=GAMMA, value_loss_coef=0.4, entropy_coef=0.05, **changes)


ESTIMATORS = [
    {"gae_lambda": 1.0},
    {"gae_lambda": 0.95},
    {"gae_lambda": 0.95, "normalize_advantages": True},
    {"gae_lambda": 1.0, "normalize_advantages": True},
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_gradients_are_those_of_the_numpy_reference(estimator, mode):
    """Plain descent of rate 1 without clipping: the change of the weights is the gradient itself."""
    a2c = mlp_a2c(algorithm_config(**estimator), keras.optimizers.SGD(1.0), max_grad_norm=1e9, mode=mode)
    before, trajectory = weights_of(a2c.policy.model), make_trajectory(0)
    network = NumpyNetwork(before, OptimizerConfig(), 1e9)
    reference = NumpyA2C(network, algorithm_config(**estimator))
    wanted_losses, wanted = reference.gradients(trajectory)
    losses, after = a2c.learn(trajectory), weights_of(a2c.policy.model)
    assert before.keys() == wanted.keys()
    for path, gradient in wanted.items():
        assert np.any(np.abs(gradient) > 1e-3), path
        np.testing.assert_allclose(before[path] - after[path], gradient, rtol=1e-4, atol=5e-7, err_msg=path)
    assert float(losses["grad_norm"]) == pytest.approx(wanted_losses["grad_norm"], rel=1e-5)


EAGER = [(e, c, o, "eager") for e in ESTIMATORS for c in ("active", "inactive") for o in ("rmsprop", "adam")]
GRAPH = [(e, c, o, "graph") for e, (_, c, o, _) in zip(ESTIMATORS, EAGER, strict=False)]  # tracing takes its time


@pytest.mark.parametrize(("estimator", "clip", "optimizer", "mode"), EAGER + GRAPH, ids=str)
def test_consecutive_updates_are_those_of_the_numpy_reference(estimator, clip, optimizer, mode):
    """Losses and weights after each of 5 updates; float32 against float64 within 2e-4 relative, 2e-5 absolute."""
    config = OptimizerConfig(
        name=optimizer, learning_rate=0.02, epsilon=1e-3, max_grad_norm={"active": 0.1, "inactive": 50}[clip]
    )
    a2c = mlp_a2c(
        algorithm_config(**estimator),
        build_optimizer(config, total_steps=5),
        max_grad_norm=config.max_grad_norm,
        mode=mode,
    )
    start = weights_of(a2c.policy.model)
    reference = NumpyA2C(NumpyNetwork(start, config, config.max_grad_norm), algorithm_config(**estimator))
    for step in range(5):
        trajectory = make_trajectory(step)
        wanted = reference.update(trajectory)
        assert (wanted["grad_norm"] > config.max_grad_norm) == (clip == "active")
        losses = a2c.learn(trajectory)
        assert set(wanted) == {metric.name for metric in A2CSection.METRICS}
        for name, value in losses.items():
            assert value.dtype == tf.float32
            assert float(value) == pytest.approx(wanted[name], rel=2e-4, abs=2e-5), (step, name)
        for path, weight in weights_of(a2c.policy.model).items():
            np.testing.assert_allclose(
                weight, reference.network.weights[path], rtol=2e-4, atol=2e-5, err_msg=f"{step} {path}"
            )
    moved = max(float(np.max(np.abs(weight - start[path]))) for path, weight in weights_of(a2c.policy.model).items())
    assert moved > 100 * 2e-5  # so the tolerance is small against what was learned


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [("linear", [0.02, 0.015, 0.01, 0.005, 0.0]), ("cooldown", [0.02, 0.02, 0.02, 0.02, 0.0])],
)
def test_the_learning_rate_reported_is_the_one_that_was_used(schedule, wanted):
    """The schedules from inside `update`, of four steps; then the rate is 0 and the weights rest."""
    config = OptimizerConfig(learning_rate=0.02, schedule=schedule)
    a2c = mlp_a2c(algorithm_config(), build_optimizer(config, total_steps=4), max_grad_norm=0.5, mode="graph")
    rates, moved = [], []
    for step in range(5):
        before = weights_of(a2c.policy.model)
        rates.append(float(a2c.learn(make_trajectory(step))["learning_rate"]))
        moved.append(any(np.any(before[path] != weight) for path, weight in weights_of(a2c.policy.model).items()))
    assert rates == pytest.approx(wanted, abs=1e-8)
    assert moved == [True, True, True, True, False]


@pytest.mark.parametrize("mode", MODES)
def test_clipping_keeps_the_direction_and_limits_the_global_norm(mode):
    steps = {}
    for norm in (1e9, 0.01):
        a2c = mlp_a2c(algorithm_config(), keras.optimizers.SGD(1.0), max_grad_norm=norm, mode=mode)
        before = weights_of(a2c.policy.model)
        a2c.learn(make_trajectory(0))
        steps[norm] = np.concatenate([(before[p] - w).ravel() for p, w in weights_of(a2c.policy.model).items()]).astype(
            float
        )
    assert np.linalg.norm(steps[0.01]) == pytest.approx(0.01, rel=1e-4)
    np.testing.assert_allclose(steps[0.01], steps[1e9] * 0.01 / np.linalg.norm(steps[1e9]), atol=2e-7)


def test_what_final_values_say_without_an_end_changes_nothing():
    results = []
    for changed in (False, True):
        a2c = mlp_a2c(algorithm_config(), keras.optimizers.SGD(1.0), max_grad_norm=1e9, mode="eager")
        trajectory = make_trajectory(0)
        if changed:
            final_values = np.where(trajectory.ends, trajectory.final_values, np.float32(50))
            trajectory = trajectory._replace(final_values=final_values)
        a2c.learn(trajectory)
        results.append(weights_of(a2c.policy.model))
    for path, weight in results[0].items():
        np.testing.assert_array_equal(weight, results[1][path])


# --- convolutions: one tape for each sample -----------------------------------------------------------------------


IMAGES = Box(0, 255, (4, 20, 20), np.uint8)
TINY = ((4, 4, 4), (6, 3, 1))


@pytest.mark.parametrize("pixels", ["scaled", "standardized"])
@pytest.mark.parametrize("mode", MODES)
def test_a_convolutional_update_is_the_sum_of_per_sample_gradients(mode, pixels):
    t, b = 4, 3
    network = {"name": "small", "conv_layers": TINY, "pixels": pixels}
    algorithm = algorithm_config(gae_lambda=0.95).model_copy(update={"rollout_length": t})
    a2c = a2c_on(IMAGES, network, algorithm, keras.optimizers.SGD(1.0), b, max_grad_norm=1e9, mode=mode)
    model = a2c.policy.model
    trajectory = make_trajectory(0, IMAGES, t=t, b=b)
    values = np.array([[float(model(trajectory.observations[i, j][None])[1][0]) for j in range(b)] for i in range(t)])
    bootstrap = np.array([float(model(x[None])[1][0]) for x in trajectory.bootstrap_observations[0]])
    advantages = gae(trajectory, values, bootstrap, 0.95)
    wanted = {v.path: np.zeros(v.shape) for v in model.trainable_variables}
    for i in range(t):
        for j in range(b):
            with tf.GradientTape() as tape:
                logits, value = model(trajectory.observations[i, j][None])
                log_pi = tf.nn.log_softmax(logits[0])
                policy = -log_pi[int(trajectory.actions[i, j])] * float(advantages[i, j])
                critic = (float(advantages[i, j] + values[i, j]) - value[0]) ** 2
                loss = policy + 0.4 * critic + 0.05 * tf.reduce_sum(tf.exp(log_pi) * log_pi)
            gradients = tape.gradient(loss, model.trainable_variables)
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                wanted[variable.path] += gradient.numpy().astype(np.float64) / (t * b)
    before = weights_of(a2c.policy.model)
    a2c.learn(trajectory)
    for path, weight in weights_of(a2c.policy.model).items():
        scale = np.max(np.abs(wanted[path]))
        assert scale > 1e-4, path
        np.testing.assert_allclose(
            before[path] - weight, wanted[path], rtol=1e-3, atol=2e-4 * scale + 3e-7, err_msg=path
        )


# --- the signature ----------------------------------------------------------------------------------------------------


def in_place(array: np.ndarray) -> np.ndarray:
    """At an address that suits TensorFlow, so that it makes no copy."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def preferring(mode: str = "graph") -> A2C:
    """Its policy is far from uniform."""
    a2c = build_algorithm(run_config({"name": "mlp"}, {}, mode), VECTORS, A)
    a2c.policy.model.get_layer("policy").bias.assign([0.0, 1.0, -1.0])
    return a2c


def test_a_trajectory_may_be_written_over_after_its_update():
    written, kept = preferring(), preferring()
    for step in range(3):
        trajectory = Trajectory(*(in_place(array) for array in make_trajectory(step, t=5, b=4)))
        losses = written.learn(trajectory)
        for array in trajectory:
            array[...] = 1
        for name, then in kept.learn(make_trajectory(step, t=5, b=4)).items():
            np.testing.assert_array_equal(losses[name], then)
    for path, weight in weights_of(written.policy.model).items():
        np.testing.assert_array_equal(weight, weights_of(kept.policy.model)[path])


def test_an_array_of_another_type_is_refused():
    a2c, trajectory = preferring(), make_trajectory(0, t=5, b=4)
    with pytest.raises(ValueError, match=r"^rewards: expected float32 \(5, 4\), not float64 \(5, 4\)"):
        a2c.learn(trajectory._replace(rewards=trajectory.rewards.astype(np.float64)))


@pytest.mark.parametrize("wrong", [{"t": 4, "b": 4}, {"t": 5, "b": 3}, {"t": 4, "b": 5}], ids=str)
def test_a_trajectory_of_another_shape_is_refused_and_changes_nothing(wrong):
    a2c = preferring()
    before = weights_of(a2c.policy.model)
    with pytest.raises(ValueError, match=r"expected float32 .*, not float32 "):
        a2c.learn(make_trajectory(0, **wrong))
    for path, weight in weights_of(a2c.policy.model).items():
        np.testing.assert_array_equal(weight, before[path])


# --- from facts to what is learned ------------------------------------------------------------------------------------


def test_what_is_learned_from_the_facts_of_a_rollout():
    """Row by row in Python: rewards and discounts, ends, and the value where time ran out."""
    for cut, clip in ((True, True), (True, False), (False, False)):
        config = run_config(
            {"name": "mlp"}, {}, "graph", env={"cut_on_life_loss": cut, "reward_clipping": "sign" if clip else "none"}
        )
        a2c, rollout = build_algorithm(config, VECTORS, A), make_rollout(3, t=5, b=4)
        trajectory, last = a2c.trajectory(rollout), iter(rollout.last_observations)
        for row in np.ndindex(5, 4):
            over = rollout.terminated[row] or (cut and rollout.life_lost[row])
            value = a2c.policy.value(next(last)[None])[0] if rollout.truncated[row] else 0.0
            assert trajectory.rewards[row] == (np.sign(rollout.rewards[row]) if clip else rollout.rewards[row])
            assert trajectory.discounts[row] == np.float32(0.0 if over else GAMMA)
            assert trajectory.ends[row] == (over or rollout.truncated[row])
            assert trajectory.final_values[row] == pytest.approx(0.0 if over else value, abs=1e-6)
        np.testing.assert_array_equal(trajectory.observations, rollout.observations[:5])
        np.testing.assert_array_equal(trajectory.bootstrap_observations[0], rollout.observations[5])
        assert len(rollout.last_observations) == rollout.truncated.sum() > 1


def test_a_layer_that_was_never_compared_is_an_error_if_exactness_was_asked_for(monkeypatch):
    def gelu(*arguments, **options) -> keras.Model:
        observations = keras.Input(VECTORS.shape)
        hidden = keras.layers.Dense(4, activation="gelu", name="mine")(observations)
        values = keras.layers.Reshape(())(keras.layers.Dense(1)(hidden))
        return keras.Model(observations, (keras.layers.Dense(A)(hidden), values))

    monkeypatch.setattr("a2c.algorithms.policy.build_model", gelu)
    build_algorithm(run_config({"name": "mlp"}, {}, "graph", runtime={"numerics": "fast"}), VECTORS, A)
    with pytest.raises(UserError, match="'mine'"):
        build_algorithm(run_config({"name": "mlp"}, {}, "graph"), VECTORS, A)
