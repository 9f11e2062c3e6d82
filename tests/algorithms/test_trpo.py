"""TRPO against explicit matrices, closed forms and whole steps in NumPy float64; what must not move does not."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import MODES, VECTORS, A, make_rollout, run_config
from gymnasium.spaces import Box
from numpy_reference import NumpyNetwork, gae
from updates import set_weights

from a2c import extensions
from a2c.algorithms.algorithm import build_algorithm
from a2c.algorithms.natural_gradient import NaturalGradientStep, PolicyBatch
from a2c.algorithms.objective import Objective
from a2c.algorithms.on_policy import minibatches, outcomes
from a2c.algorithms.trpo import TRPO
from a2c.algorithms.trust_region import (
    TrustRegion,
    conjugate_gradients,
    fisher_product,
    flat,
    line_search,
    mean_kl,
    surrogate_loss,
    unflat,
)
from a2c.config import UserError, build_config, load_config
from a2c.run.incident import nonfinite_stage
from a2c.run.lookup import find_checkpoint
from a2c.run.training import train

pytestmark = pytest.mark.usefixtures("exact_numerics")
T, B = 8, 4
MLP = {"name": "mlp", "hidden_sizes": (5,), "separate_value": True}
CONV = {"name": "small", "conv_layers": ((4, 4, 4), (8, 4, 2)), "separate_value": True, "pixels": "standardized"}
IMPALA = {"name": "impala", "separate_value": True}
PIXELS = Box(0, 255, (36, 36, 1), np.uint8)
ADAM = {"name": "adam", "learning_rate": 0.01}
REGION = TrustRegion(max_kl=0.01, cg_iterations=10, cg_damping=0.1, fisher_stride=1, backtracks=10, backtrack_ratio=0.8)


def trpo(mode: str = "eager", model: dict[str, Any] = MLP, space: Box = VECTORS, **algorithm: Any) -> TRPO:
    """With weights of a policy that prefers something: fresh ones hide mistakes."""
    settings = {"name": "trpo", "rollout_length": T, "value_minibatches": 2, "value_epochs": 2, **algorithm}
    config = run_config(model, ADAM, mode, num_envs=B, env={"reward_clipping": "none"}, **settings)
    built = build_algorithm(config, space, A)
    set_weights(built.policy.model)
    return built


def rollout_of(seed: int, space: Box = VECTORS):
    return make_rollout(seed, space, t=T, b=B)


def bits(variables: Any) -> list[bytes]:
    return [variable.numpy().tobytes() for variable in variables]


def everything(algorithm: TRPO) -> list[bytes]:
    return bits(v for group in algorithm.variables.values() for v in group)


def softmax(logits: np.ndarray) -> np.ndarray:
    exps = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


def kl(old_logits: np.ndarray, logits: np.ndarray) -> float:
    old, new = softmax(old_logits.astype(np.float64)), softmax(logits.astype(np.float64))
    return float((old * (np.log(old) - np.log(new))).sum(axis=-1).mean())


# --- the pure functions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 12])
def test_conjugate_gradients_solve_what_numpy_solves(size):
    rng = np.random.default_rng(size)
    root = rng.normal(size=(size, size))
    matrix, b = root @ root.T + np.eye(size), rng.normal(size=size)
    x = conjugate_gradients(lambda v: tf.linalg.matvec(tf.constant(matrix, tf.float32), v), f32(b), iterations=30)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=1e-3, atol=1e-4)


def test_conjugate_gradients_stop_when_they_are_done_or_told_to():
    calls = []

    def double(v):
        calls.append(v)
        return 2.0 * v

    np.testing.assert_array_equal(conjugate_gradients(double, f32([4, 2]), iterations=9), [2, 1])
    assert len(calls) == 1
    np.testing.assert_array_equal(conjugate_gradients(double, f32([0, 0]), iterations=9), [0, 0])
    assert len(calls) == 1
    diagonal = f32(np.arange(1, 20))
    one, all_ = (conjugate_gradients(lambda v: diagonal * v, f32(np.ones(19)), iterations=n) for n in (1, 40))
    np.testing.assert_allclose(one, np.full(19, 0.1), rtol=1e-6)  # rr / pAp = 19 / 190
    np.testing.assert_allclose(all_, 1 / np.arange(1, 20), rtol=1e-4)


def f32(values: Any) -> tf.Tensor:
    return tf.constant(np.asarray(values), tf.float32)


def mlp_jacobian(weights: dict[str, np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of one hidden layer of tanh, by hand: d logits / d weights [n, A, P] and the logits [n, A]."""
    hidden = np.tanh(x @ weights["dense_1/kernel"] + weights["dense_1/bias"])
    out = weights["policy/kernel"]  # [H, A]
    slope = (1 - hidden**2)[:, :, None] * out  # d logits / d the layer's input [n, H, A]
    eye = np.eye(out.shape[1])
    blocks = [
        np.einsum("ni,nha->naih", x, slope),
        np.einsum("nha->nah", slope),
        np.einsum("nh,ac->nahc", hidden, eye),
        np.broadcast_to(eye, (len(x), *eye.shape)),
    ]
    logits = hidden @ out + weights["policy/bias"]
    return np.concatenate([block.reshape(len(x), out.shape[1], -1) for block in blocks], axis=2), logits


def explicit_fisher(jacobian: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """1/N sum_n sum_a pi(a) s s^T with the scores s = d log pi(a) / d weights: its definition. [P, P]."""
    probs = softmax(logits)
    scores = jacobian - np.einsum("na,nap->np", probs, jacobian)[:, None]
    return np.einsum("na,nap,naq->pq", probs, scores, scores) / len(probs)


def actor_weights(step: NaturalGradientStep) -> dict[str, np.ndarray]:
    return {v.path: v.numpy().astype(np.float64) for v in step.variables}


def test_the_fisher_product_is_that_of_the_explicit_matrix():
    step = trpo().steps["policy"]
    observations = rollout_of(1).observations[:-1]
    jacobian, logits = mlp_jacobian(actor_weights(step), observations.reshape(T * B, -1).astype(np.float64))
    matrix = explicit_fisher(jacobian, logits)
    weights = flat([tf.convert_to_tensor(v) for v in step.variables])
    np.testing.assert_allclose(step._logits(weights, tf.constant(observations)), logits.reshape(T, B, A), atol=1e-5)
    rows = tf.constant(observations.reshape(T * B, -1))
    for seed in range(3):
        v = np.random.default_rng(seed).normal(size=matrix.shape[0])
        found = fisher_product(lambda w: step._forward(w, rows), weights, f32(v))
        np.testing.assert_allclose(found, matrix @ v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [pytest.param(CONV, id="conv"), pytest.param(IMPALA, id="impala", marks=pytest.mark.integration)],
)
def test_the_fisher_product_goes_through_every_layer(model):
    """v^T F v is the variance of J v under the policy, with J v by forward differentiation."""
    step = trpo(model=model, space=PIXELS).steps["policy"]
    rows = tf.constant(rollout_of(1, PIXELS).observations[0])
    weights = flat([tf.convert_to_tensor(v) for v in step.variables])
    rng = np.random.default_rng(0)
    v = flat([f32(rng.normal(size=x.shape) / np.sqrt(np.prod(x.shape))) for x in step.variables])
    curvature = float(tf.reduce_sum(v * fisher_product(lambda w: step._forward(w, rows), weights, v)))
    with tf.autodiff.ForwardAccumulator(weights, v) as forward:
        logits = step._forward(weights, rows)
    probs, moved = softmax(logits.numpy().astype(np.float64)), forward.jvp(logits).numpy()
    variances = (probs * moved**2).sum(axis=-1) - (probs * moved).sum(axis=-1) ** 2
    assert curvature == pytest.approx(variances.mean(), rel=1e-4)
    assert curvature > 1e-3


def test_kl_and_surrogate_are_those_of_numpy():
    rng = np.random.default_rng(3)
    old, new = rng.normal(size=(2, T, B, A))
    assert float(mean_kl(f32(old), f32(new))) == pytest.approx(kl(old, new), rel=1e-5)
    advantages, ratios = rng.normal(size=(T, B)), rng.uniform(0.5, 2, size=(T, B))
    loss = surrogate_loss(f32(np.log(ratios)), f32(np.zeros((T, B))), f32(advantages))
    assert float(loss) == pytest.approx(-(ratios * advantages).mean(), rel=1e-5)
    for function, arguments in ((mean_kl, (old, new[:1])), (surrogate_loss, (advantages[0], ratios, ratios))):
        with pytest.raises(ValueError, match=function.__name__):
            function(*map(f32, arguments))


@pytest.mark.parametrize(
    ("losses", "kls", "wanted"),
    [
        ([-1, -1, -1], [0.01, 0, 0], (1, 1.0)),  # the whole step; max_kl itself is allowed
        ([-1, -1, -1], [0.011, 0.005, 0], (2, 0.5)),
        ([0, 0.1, -1], [0, 0, 0], (3, 0.25)),  # as good as before is no improvement
        ([np.nan, -1, -1], [0, np.nan, np.inf], (3, None)),
        ([-np.inf, -1, 1], [np.nan, 0.5, 0], (3, None)),
    ],
)
def test_the_line_search_takes_the_first_step_that_improves_within_the_region(losses, kls, wanted):
    tried = []

    def evaluate(weights):
        tried.append(weights.numpy().tolist())
        return f32(losses[len(tried) - 1]), f32(kls[len(tried) - 1])

    region = REGION._replace(backtracks=3, backtrack_ratio=0.5)
    found = line_search(evaluate, f32([1, 2]), f32([4, -8]), f32(0), region)
    assert tried == [[5, -6], [3, -2], [2, 0]][: wanted[0]]
    assert bool(found.is_accepted) == (wanted[1] is not None)
    if wanted[1] is not None:
        assert float(found.fraction) == wanted[1]
        assert found.weights.numpy().tolist() == tried[-1]


def test_unflat_is_the_inverse_of_flat():
    variables = trpo().policy.model.trainable_variables
    for there, back in zip(variables, unflat(flat(variables), variables), strict=True):
        np.testing.assert_array_equal(there, back)


# --- the step -------------------------------------------------------------------------------------------------


def reference_step(jacobian, logits_of, weights, actions, advantages, region, some):
    """The whole of it in float64, with np.linalg.solve; returns new weights, KL and fraction of the step."""
    logits = logits_of(weights)
    n = np.arange(len(actions))
    probs = softmax(logits)
    d_logits = (np.eye(A)[actions] - probs) * advantages[:, None] / len(actions)
    gradient = np.einsum("na,nap->p", d_logits, jacobian)
    matrix = explicit_fisher(jacobian[some], logits[some]) + region.cg_damping * np.eye(len(weights))
    direction = np.linalg.solve(matrix, gradient)
    whole = np.sqrt(2 * region.max_kl / (direction @ matrix @ direction)) * direction
    for tries in range(region.backtracks):
        fraction = region.backtrack_ratio**tries
        new = logits_of(weights + fraction * whole)
        gain = (softmax(new)[n, actions] / probs[n, actions] * advantages).mean() - advantages.mean()
        if gain > 0 and kl(logits, new) <= region.max_kl:
            return weights + fraction * whole, kl(logits, new), fraction
    return weights, 0.0, 0.0


@pytest.mark.parametrize("max_kl", [0.01, 0.3])
@pytest.mark.parametrize("stride", [1, 3])
def test_a_whole_step_is_that_of_numpy(stride, max_kl):
    """The gradient, the solution, the length and the line search."""
    algorithm = trpo(cg_iterations=60, fisher_stride=stride, max_kl=max_kl)
    step, rollout = algorithm.steps["policy"], rollout_of(2)
    observations = rollout.observations[:-1].reshape(T * B, -1).astype(np.float64)
    start = actor_weights(step)
    jacobian, _ = mlp_jacobian(start, observations)
    shapes = [w.shape for w in start.values()]
    cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]

    def logits_of(vector):
        parts = (part.reshape(shape) for part, shape in zip(np.split(vector, cuts), shapes, strict=True))
        return mlp_jacobian(dict(zip(start, parts, strict=True)), observations)[1]

    name, batch = next(algorithm.batches(rollout, 0))
    assert name == "policy"
    assert abs(batch.advantages.mean()) < 1e-6
    some = np.arange(T * B).reshape(T, B)[::stride].ravel()
    before = np.concatenate([w.ravel() for w in start.values()])
    after, wanted_kl, fraction = reference_step(
        jacobian, logits_of, before, rollout.actions.ravel(), batch.advantages.ravel().astype(float), step.region, some
    )
    metrics = step(batch)
    moved = np.concatenate([w.ravel() for w in actor_weights(step).values()])
    assert fraction > 0
    assert float(metrics["step_fraction"]) == pytest.approx(fraction, rel=1e-6)
    assert float(metrics["kl"]) == pytest.approx(wanted_kl, rel=2e-3)
    np.testing.assert_allclose(moved - before, after - before, atol=2e-3 * np.abs(after - before).max())


@pytest.mark.parametrize("mode", MODES)
def test_the_step_of_a_softmax_bandit_is_its_closed_form(mode):
    """Two arms, of which the second has probability p: the biases move by (-x, x), with 1/2 p (1 - p) (2 x)^2 = max_kl.

    The gradient of the surrogate by the biases is p (1 - p) (A_1 - A_0) (-1, 1); observations are 0.
    """
    observations = keras.Input((1,), name="observations")
    layer = keras.layers.Dense(2, kernel_initializer="zeros", name="policy")
    network = keras.Model(observations, layer(observations))
    p = 0.3  # of arm 1
    layer.bias.assign([0.0, np.log(p / (1 - p))])
    rows = (10, 1)
    specs = (((*rows, 1), tf.float32), (rows, tf.int32), (rows, tf.float32))
    region = REGION._replace(cg_damping=1e-6, max_kl=1e-4)
    step = NaturalGradientStep(network, PolicyBatch(*(tf.TensorSpec(*spec) for spec in specs)), region, mode=mode)
    actions = np.array([[0]] * 7 + [[1]] * 3, np.int32)
    batch = PolicyBatch(np.zeros((*rows, 1), np.float32), actions, np.where(actions == 1, 0.7, -0.3).astype(np.float32))
    metrics = step(batch)
    x = np.sqrt(region.max_kl / (2 * p * (1 - p)))
    moved = layer.bias.numpy() - [0, np.log(p / (1 - p))]
    fraction = float(metrics["step_fraction"])
    assert fraction in (1.0, pytest.approx(0.8))
    np.testing.assert_allclose(moved, fraction * np.array([-x, x]), rtol=1e-3)
    assert float(metrics["policy_grad_norm"]) == pytest.approx(p * (1 - p) * np.sqrt(2), rel=1e-5)
    np.testing.assert_array_equal(layer.kernel, 0)


def test_kl_is_never_above_max_kl():
    """Measured anew, in float64, over rollouts of many policies; and most of the region is used."""
    algorithm = trpo("graph")
    step, kls = algorithm.steps["policy"], []
    for seed in range(40):
        set_weights(algorithm.policy.model, seed=seed)
        batch = next(algorithm.batches(rollout_of(seed), 0))[1]
        seen = batch.observations.reshape(T * B, -1)
        old = step.network(seen).numpy()
        metrics = step(batch)
        kls.append(kl(old, step.network(seen).numpy()))
        assert float(metrics["kl"]) == pytest.approx(kls[-1], rel=2e-3, abs=1e-7)
        assert 0 <= float(metrics["step_fraction"]) <= 1
    assert max(kls) <= 0.01 * (1 + 1e-4)
    assert np.median(kls) > 0.005


NOTHING_TO_GAIN = {}, 0.0
TOO_LONG = {"backtracks": 1, "max_kl": 30.0, "cg_damping": 1e-3}, 1.0


@pytest.mark.parametrize(
    ("mode", "settings", "times"), [("eager", *NOTHING_TO_GAIN), ("eager", *TOO_LONG), ("graph", *TOO_LONG)]
)
def test_a_failed_line_search_leaves_the_policy_exactly_as_it_is(mode, settings, times):
    """And is reported; the value function is fitted all the same."""
    algorithm = trpo(mode, **settings)
    step = algorithm.steps["policy"]
    before = bits(step.variables)
    steps = {**algorithm.steps, "policy": lambda b: step(b._replace(advantages=np.float32(times) * b.advantages))}
    found = algorithm.update(rollout_of(4), 0, steps)
    assert found.failed is None
    assert found.gradient_steps == 5
    assert float(found.metrics["step_fraction"]) == float(found.metrics["kl"]) == 0
    assert float(found.metrics["policy_loss"]) == pytest.approx(0, abs=1e-6)  # of normalised advantages
    assert bits(step.variables) == before
    assert np.isfinite(float(found.metrics["value_loss"]))


@pytest.mark.parametrize("mode", MODES)
def test_what_is_not_finite_is_not_applied_and_is_found(mode):
    algorithm = trpo(mode)
    rollout = rollout_of(5)
    algorithm.update(rollout, 0)
    before = everything(algorithm)
    rewards, observations = rollout.rewards.copy(), rollout.observations.copy()
    rewards[2, 1] = np.nan
    observations[3, 2] = np.inf
    for broken, stage in (
        (rollout._replace(rewards=rewards), "batch.advantages"),
        (rollout._replace(observations=observations), "batch.observations"),
    ):
        update = algorithm.update(broken, 1)
        name, batch = update.failed
        assert (name, update.gradient_steps) == ("policy", 0)
        assert nonfinite_stage(algorithm.steps[name], batch) == stage
        assert everything(algorithm) == before
    # the square of these overflows, after the policy's step: that is made, with finite advantages
    update = algorithm.update(rollout._replace(rewards=rollout.rewards * np.float32(1e25)), 1)
    assert update.failed[0] == "value"
    assert update.gradient_steps == 1
    fit = {id(v) for v in algorithm.critic.variables}
    assert bits(v for v in algorithm.policy.model.variables if id(v) in fit) == bits(algorithm.critic.variables)


def test_a_policy_beyond_all_numbers_stays_as_it_is():
    algorithm = trpo()
    step = algorithm.steps["policy"]
    step.variables[-2].assign(step.variables[-2] * 1e38)
    before = everything(algorithm)
    update = algorithm.update(rollout_of(6), 0)
    assert update.failed[0] == "policy"
    assert nonfinite_stage(step, update.failed[1]).startswith("stage ")
    assert everything(algorithm) == before


# --- the algorithm --------------------------------------------------------------------------------------------


def test_the_policy_step_and_the_fit_of_values_do_not_move_each_other():
    algorithm = trpo()
    actor, critic = algorithm.steps["policy"].variables, algorithm.critic.trainable_variables
    assert {id(v) for v in actor}.isdisjoint(id(v) for v in critic)
    assert len(actor) + len(critic) == len(algorithm.policy.model.trainable_variables)
    batches = algorithm.batches(rollout_of(0), 0)
    name, batch = next(batches)
    for kept, changed in ((critic, actor), *[(actor, critic)] * 4):
        before = bits(kept), bits(changed)
        metrics = algorithm.steps[name](batch)
        assert bits(kept) == before[0]
        assert bits(changed) != before[1]
        if kept is critic or name == "value":
            try:
                name, batch = batches.send(metrics)
            except StopIteration:
                break


def rows_of(algorithm: TRPO, updates: int) -> list[np.ndarray]:
    """Those of each minibatch that the value function is fitted to."""
    config, seed = algorithm.config, algorithm.shuffle_seed
    found = minibatches((T, B), config.value_minibatches, epochs=config.value_epochs, seed=seed, updates=updates)
    return list(found)


def test_the_fit_takes_every_row_of_every_environment_once_an_epoch():
    algorithm = trpo(value_minibatches=4, value_epochs=3)
    rows = rows_of(algorithm, 5)
    assert [part.shape for part in rows] == [(2, B)] * 12
    epochs = [np.concatenate(rows[i : i + 4]) for i in (0, 4, 8)]
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch, axis=0), np.tile(np.arange(T)[:, None], B))
    assert np.any(epochs[0] != epochs[1])
    assert np.any(epochs[0][:, 0] != epochs[0][:, 1])
    assert np.any(np.concatenate(rows_of(algorithm, 6))[:T] != epochs[0])
    again = trpo(value_minibatches=4, value_epochs=3)
    np.testing.assert_array_equal(np.stack(rows), np.stack(rows_of(again, 5)))


def test_the_fit_of_values_is_that_of_numpy():
    """GAE, the rows of each minibatch, the loss, Adam; and the advantages that the policy got."""
    algorithm, rollout = trpo(), rollout_of(3)
    weights = {v.path.removeprefix("value_"): v.numpy() for v in algorithm.critic.trainable_variables}
    none = {"policy/kernel": np.zeros((5, A)), "policy/bias": np.zeros(A)}
    settings = run_config(MLP, ADAM, "eager").optimizer
    network = NumpyNetwork({**weights, **none}, settings, settings.max_grad_norm)
    seen = rollout.observations.astype(np.float64)
    found = outcomes(rollout, algorithm.policy.value, Objective(0.9, cut_on_life_loss=True, clip_rewards=False))
    values = rollout.said["values"].astype(np.float64)
    advantages = gae(found, values, network.forward(seen[-1])[2], gae_lambda=0.95)
    returns, losses = advantages + values, []
    for rows in rows_of(algorithm, 9):
        flat_rows = seen[rows, np.arange(B)].reshape(rows.size, -1)
        activations, _, guesses = network.forward(flat_rows)
        errors = returns[rows, np.arange(B)].ravel() - guesses
        losses.append((errors**2).mean())
        gradients = network.backward(activations, np.zeros((rows.size, A)), -2 * errors[:, None] / rows.size)
        network.descend({path: gradients[path] for path in weights})
    batch = next(algorithm.batches(rollout, 9))[1]
    wanted = (advantages - advantages.mean()) / advantages.std()
    np.testing.assert_allclose(batch.advantages, wanted, rtol=1e-4, atol=1e-5)
    metrics = algorithm.update(rollout, 9).metrics
    assert float(metrics["value_loss"]) == pytest.approx(np.mean(losses), rel=1e-4)
    for variable in algorithm.critic.trainable_variables:
        path = variable.path.removeprefix("value_")
        np.testing.assert_allclose(variable.numpy(), network.weights[path], rtol=1e-4, atol=1e-5, err_msg=path)
        assert np.abs(variable.numpy() - weights[path]).max() > 5e-3


@pytest.mark.parametrize(
    ("model", "space"),
    [
        pytest.param(CONV, PIXELS, id="conv"),
        pytest.param(IMPALA, PIXELS, id="impala", marks=pytest.mark.integration),
    ],
)
def test_eager_and_graph_make_the_same_updates_bit_for_bit(model, space):
    found = []
    for mode in ("eager", "graph"):
        algorithm, metrics = trpo(mode, model, space, fisher_stride=3), []
        for number in range(4):
            metrics.append(algorithm.update(rollout_of(number, space), number).metrics)
        assert set(metrics[0]) >= {metric.name for metric in algorithm.config.METRICS}
        found.append((everything(algorithm), [{name: float(x) for name, x in each.items()} for each in metrics]))
    assert found[0] == found[1]
    assert any(each["step_fraction"] > 0 for each in found[0][1])


def catch(total_env_steps: int, **runtime: Any):
    values = {
        "total_env_steps": total_env_steps,
        "env": {"id": "Catch", "num_envs": 4, "screen_size": 36},
        "model": CONV,
        "algorithm": {"name": "trpo", "rollout_length": 16, "value_minibatches": 4, "value_epochs": 1},
        "optimizer": {"name": "adam"},
        "logging": {"every_updates": 1, "trackers": []},
        "runtime": runtime,
    }
    return build_config(values, where="test")


@pytest.mark.integration
def test_a_resumed_run_of_pixels_has_the_bits_of_one_never_stopped(tmp_path):
    train(catch(3 * 64, mode="eager"), tmp_path / "whole")
    train(catch(2 * 64, mode="eager"), tmp_path / "stopped")
    train(catch(3 * 64, mode="eager"), tmp_path / "stopped", resume=True)
    whole, stopped = (find_checkpoint(tmp_path / name).bits for name in ("whole", "stopped"))
    assert whole.keys() == stopped.keys()
    assert [name for name in whole if whole[name] != stopped[name]] == []


@pytest.mark.slow
def test_catch_is_learned_in_both_modes_with_the_same_bits(tmp_path):
    found = []
    for mode in ("graph", "eager"):
        config, source = load_config(
            env_id="Catch", overrides={"runtime.mode": mode}, assignments=["algorithm.name=trpo"]
        )
        assert source == "catch-trpo"
        assert train(config, tmp_path / mode).counters.return_mean > 0.8
        found.append(find_checkpoint(tmp_path / mode).bits)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runtime": {"strategy": "mirrored"}}, "runtime.strategy=mirrored does not go with algorithm.name=trpo"),
        ({"model": {"separate_value": False}}, "set model.separate_value=true"),
        (
            {"algorithm": {"rollout_length": 10, "value_minibatches": 4}},
            "cannot be cut into algorithm.value_minibatches=4",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(change, message):
    values = catch(640).model_dump(mode="json")
    values = {name: {**x, **change.get(name, {})} if isinstance(x, dict) else x for name, x in values.items()}
    with pytest.raises(UserError, match=message):
        build_config(values, where="test")


def test_a_network_that_shares_layers_between_policy_and_values_is_told():
    """A fit of the values would move the policy, and its trust region would hold nothing."""

    def shared(space, num_actions, *, seed, dtype):
        observations = keras.Input(space.shape)
        features = keras.layers.Dense(4, name="features")(observations)
        values = keras.layers.Reshape(())(keras.layers.Dense(1)(features))
        return keras.Model(observations, (keras.layers.Dense(num_actions)(features), values))

    with pytest.raises(UserError, match=r"^TRPO fits the values apart .* shares features/kernel between them; build"):
        trpo(model={"name": extensions.register(shared), "separate_value": True})
