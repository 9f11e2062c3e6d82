"""The learner against whole updates written by hand in NumPy; tracing; acting."""

import dataclasses
import threading
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GAMMA, VECTORS, A, B, T, make_trajectory, run_config
from gymnasium.spaces import Box

from a2c import runtime
from a2c.config import AlgorithmConfig, ModelConfig, OptimizerConfig, RuntimeConfig, UserError
from a2c.learner import Learner, build_learner, compiled
from a2c.model import build_model
from a2c.optimizer import build_optimizer
from a2c.rollout import _aligned
from a2c.trajectory import Losses, Trajectory

pytestmark = pytest.mark.usefixtures("exact_numerics")


def set_weights(model: keras.Model, seed: int = 7) -> None:
    """Weights of a policy that prefers something and biases that are not zero: fresh ones hide mistakes."""
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        scale = 0.1 if variable.path.endswith("bias") else 1 / np.sqrt(np.prod(variable.shape[:-1]))
        variable.assign((scale * rng.normal(size=variable.shape)).astype(np.float32))


def mlp_learner(algorithm: AlgorithmConfig, optimizer, *, max_grad_norm: float, mode: str) -> Learner:
    model = build_model(ModelConfig(hidden_sizes=(8, 6)), VECTORS, A, seed=1)
    set_weights(model)
    return Learner(model, optimizer, algorithm, num_envs=B, max_grad_norm=max_grad_norm, mode=mode)


def weights_of(learner: Learner) -> dict[str, np.ndarray]:
    return {v.path: v.numpy().copy() for v in learner.model.trainable_variables}


# --- a whole update in NumPy, float64, every derivative by hand -----------------------------------------------


@dataclasses.dataclass
class NumpyA2C:
    """tanh MLP of two layers with two heads, GAE, the A2C loss, clipping, RMSProp of TF1 or Adam."""

    weights: dict[str, np.ndarray]
    algorithm: AlgorithmConfig
    optimizer: OptimizerConfig
    max_grad_norm: float

    def __post_init__(self):
        self.weights = {path: w.astype(np.float64) for path, w in self.weights.items()}
        ones = self.optimizer.name == "rmsprop"
        self.second = {path: np.full(w.shape, float(ones)) for path, w in self.weights.items()}
        self.first = {path: np.zeros(w.shape) for path, w in self.weights.items()}
        self.steps = 0
        layers = sorted({path.split("/")[0] for path in self.weights} - {"policy", "value"})
        self.layers = layers  # dense_1, dense_2

    def forward(self, x):
        """Observations [n, d] -> activations of every layer, logits [n, A], values [n]."""
        activations = [x]
        for layer in self.layers:
            x = np.tanh(x @ self.weights[f"{layer}/kernel"] + self.weights[f"{layer}/bias"])
            activations.append(x)
        logits = x @ self.weights["policy/kernel"] + self.weights["policy/bias"]
        values = x @ self.weights["value/kernel"] + self.weights["value/bias"]
        return activations, logits, values[:, 0]

    def advantages(self, trajectory, values, bootstrap_values):
        """GAE as a double sum: A_t = sum_k (product of gamma lambda over rows t..k-1) delta_k, up to the first end."""
        t_max, num_envs = values.shape
        out = np.zeros((t_max, num_envs))
        for b in range(num_envs):
            for t in range(t_max):
                weight = 1.0
                for k in range(t, t_max):
                    if trajectory.ends[k, b]:
                        following = float(trajectory.final_values[k, b])
                    else:
                        following = values[k + 1, b] if k + 1 < t_max else bootstrap_values[b]
                    discount = float(trajectory.discounts[k, b])
                    out[t, b] += weight * (float(trajectory.rewards[k, b]) + discount * following - values[k, b])
                    if trajectory.ends[k, b]:
                        break
                    weight *= discount * self.algorithm.gae_lambda
        return out

    def gradients(self, trajectory):
        """The losses and the gradients before clipping."""
        t, b = trajectory.rewards.shape
        n = t * b
        stored = trajectory.observations.reshape(n, -1).astype(np.float64)
        activations, logits, values = self.forward(stored)
        bootstrap = self.forward(trajectory.bootstrap_observation.astype(np.float64))[2]
        advantages = self.advantages(trajectory, values.reshape(t, b), bootstrap).reshape(n)
        returns = advantages + values
        if self.algorithm.normalize_advantages:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        logits = logits - logits.max(axis=1, keepdims=True)
        pi = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        log_pi = np.log(pi)
        actions = trajectory.actions.reshape(n)
        entropies = -(pi * log_pi).sum(axis=1)
        losses = {
            "policy_loss": -np.mean(log_pi[np.arange(n), actions] * advantages),
            "value_loss": np.mean((returns - values) ** 2),
            "entropy": entropies.mean(),
            "explained_variance": 1 - np.var(returns - values) / np.var(returns),
        }
        c_v, c_e = self.algorithm.value_loss_coef, self.algorithm.entropy_coef
        losses["total_loss"] = losses["policy_loss"] + c_v * losses["value_loss"] - c_e * losses["entropy"]
        d_logits = (pi - np.eye(pi.shape[1])[actions]) * advantages[:, None] / n
        d_logits += c_e * pi * (log_pi + entropies[:, None]) / n
        d_values = (-2 * c_v * (returns - values) / n)[:, None]
        x = activations[-1]
        gradients = {
            "policy/kernel": x.T @ d_logits,
            "policy/bias": d_logits.sum(axis=0),
            "value/kernel": x.T @ d_values,
            "value/bias": d_values.sum(axis=0),
        }
        d_x = d_logits @ self.weights["policy/kernel"].T + d_values @ self.weights["value/kernel"].T
        for layer, output, below in zip(self.layers[::-1], activations[:0:-1], activations[-2::-1], strict=True):
            d_x = d_x * (1 - output**2)
            gradients[f"{layer}/kernel"] = below.T @ d_x
            gradients[f"{layer}/bias"] = d_x.sum(axis=0)
            d_x = d_x @ self.weights[f"{layer}/kernel"].T
        losses["grad_norm"] = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        return losses, gradients

    def update(self, trajectory):
        losses, gradients = self.gradients(trajectory)
        scale = min(1.0, self.max_grad_norm / losses["grad_norm"])
        config = self.optimizer
        losses["learning_rate"] = config.learning_rate
        self.steps += 1
        for path, gradient in gradients.items():
            g = scale * gradient
            if config.name == "rmsprop":
                self.second[path] = config.rho * self.second[path] + (1 - config.rho) * g**2
                self.weights[path] -= config.learning_rate * g / np.sqrt(self.second[path] + config.epsilon)
            else:
                self.first[path] = config.beta_1 * self.first[path] + (1 - config.beta_1) * g
                self.second[path] = config.beta_2 * self.second[path] + (1 - config.beta_2) * g**2
                correction = np.sqrt(1 - config.beta_2**self.steps) / (1 - config.beta_1**self.steps)
                step = correction * self.first[path] / (np.sqrt(self.second[path]) + config.epsilon)
                self.weights[path] -= config.learning_rate * step
        return losses


def algorithm_config(**changes) -> AlgorithmConfig:
    return AlgorithmConfig(rollout_length=T, gamma=GAMMA, value_loss_coef=0.4, entropy_coef=0.05, **changes)


ESTIMATORS = [
    {"gae_lambda": 1.0},
    {"gae_lambda": 0.95},
    {"gae_lambda": 0.95, "normalize_advantages": True},
    {"gae_lambda": 1.0, "normalize_advantages": True},
]


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_gradients_are_those_of_the_numpy_reference(estimator, mode):
    """Plain descent of rate 1 without clipping: the change of the weights is the gradient itself."""
    learner = mlp_learner(algorithm_config(**estimator), keras.optimizers.SGD(1.0), max_grad_norm=1e9, mode=mode)
    before, trajectory = weights_of(learner), make_trajectory(0)
    reference = NumpyA2C(before, algorithm_config(**estimator), OptimizerConfig(), 1e9)
    wanted_losses, wanted = reference.gradients(trajectory)
    losses, after = learner.update(trajectory), weights_of(learner)
    assert before.keys() == wanted.keys()
    for path, gradient in wanted.items():
        assert np.any(np.abs(gradient) > 1e-3), path
        np.testing.assert_allclose(before[path] - after[path], gradient, rtol=1e-4, atol=5e-7, err_msg=path)
    assert float(losses.grad_norm) == pytest.approx(wanted_losses["grad_norm"], rel=1e-5)


EAGER = [(e, c, o, "eager") for e in ESTIMATORS for c in ("active", "inactive") for o in ("rmsprop", "adam")]
GRAPH = [(e, c, o, "graph") for e, (_, c, o, _) in zip(ESTIMATORS, EAGER, strict=False)]  # tracing takes its time


@pytest.mark.parametrize(("estimator", "clip", "optimizer", "mode"), EAGER + GRAPH, ids=str)
def test_consecutive_updates_are_those_of_the_numpy_reference(estimator, clip, optimizer, mode):
    """Losses and weights after each of 5 updates; float32 against float64 within 2e-4 relative, 2e-5 absolute."""
    config = OptimizerConfig(
        name=optimizer, learning_rate=0.02, epsilon=1e-3, max_grad_norm={"active": 0.1, "inactive": 50}[clip]
    )
    learner = mlp_learner(
        algorithm_config(**estimator),
        build_optimizer(config, total_updates=5),
        max_grad_norm=config.max_grad_norm,
        mode=mode,
    )
    start = weights_of(learner)
    reference = NumpyA2C(start, algorithm_config(**estimator), config, config.max_grad_norm)
    for step in range(5):
        trajectory = make_trajectory(step)
        wanted = reference.update(trajectory)
        assert (wanted["grad_norm"] > config.max_grad_norm) == (clip == "active")
        losses = learner.update(trajectory)
        assert set(wanted) == set(Losses._fields)
        for name, value in losses._asdict().items():
            assert value.dtype == tf.float32
            assert float(value) == pytest.approx(wanted[name], rel=2e-4, abs=2e-5), (step, name)
        for path, weight in weights_of(learner).items():
            np.testing.assert_allclose(weight, reference.weights[path], rtol=2e-4, atol=2e-5, err_msg=f"{step} {path}")
    moved = max(float(np.max(np.abs(weight - start[path]))) for path, weight in weights_of(learner).items())
    assert moved > 100 * 2e-5  # so the tolerance is small against what was learned


def test_the_learning_rate_reported_is_the_one_that_was_used():
    """The linear schedule from inside `update`: 1, 3/4, 1/2, 1/4 of the rate, then 0 and the weights rest."""
    config = OptimizerConfig(learning_rate=0.02, schedule="linear")
    learner = mlp_learner(algorithm_config(), build_optimizer(config, total_updates=4), max_grad_norm=0.5, mode="graph")
    rates, moved = [], []
    for step in range(5):
        before = weights_of(learner)
        rates.append(float(learner.update(make_trajectory(step)).learning_rate))
        moved.append(any(np.any(before[path] != weight) for path, weight in weights_of(learner).items()))
    assert rates == pytest.approx([0.02, 0.015, 0.01, 0.005, 0.0], abs=1e-8)
    assert moved == [True, True, True, True, False]


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_clipping_keeps_the_direction_and_limits_the_global_norm(mode):
    steps = {}
    for norm in (1e9, 0.01):
        learner = mlp_learner(algorithm_config(), keras.optimizers.SGD(1.0), max_grad_norm=norm, mode=mode)
        before = weights_of(learner)
        learner.update(make_trajectory(0))
        steps[norm] = np.concatenate([(before[p] - w).ravel() for p, w in weights_of(learner).items()]).astype(float)
    assert np.linalg.norm(steps[0.01]) == pytest.approx(0.01, rel=1e-4)
    np.testing.assert_allclose(steps[0.01], steps[1e9] * 0.01 / np.linalg.norm(steps[1e9]), atol=2e-7)


def test_what_the_update_must_not_depend_on():
    """The logits of the policy that acted (on-policy: none is needed), and what `final_values` say without an end."""
    results = []
    for changed in (False, True):
        learner = mlp_learner(algorithm_config(), keras.optimizers.SGD(1.0), max_grad_norm=1e9, mode="graph")
        trajectory = make_trajectory(0)
        if changed:
            final_values = np.where(trajectory.ends, trajectory.final_values, np.float32(50))
            trajectory = trajectory._replace(
                behaviour_logits=trajectory.behaviour_logits + 9, final_values=final_values
            )
        learner.update(trajectory)
        results.append(weights_of(learner))
    for path, weight in results[0].items():
        np.testing.assert_array_equal(weight, results[1][path])


# --- convolutions: one tape for each sample -----------------------------------------------------------------------


IMAGES = Box(0, 255, (4, 20, 20), np.uint8)
TINY = ((4, 4, 4), (6, 3, 1))


@pytest.mark.parametrize("pixels", ["scaled", "standardized"])
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_convolutional_update_is_the_sum_of_per_sample_gradients(mode, pixels):
    t, b = 4, 3
    model = build_model(ModelConfig(name="small", conv_layers=TINY, pixels=pixels), IMAGES, A, seed=1)
    set_weights(model)
    algorithm = algorithm_config(gae_lambda=0.95).model_copy(update={"rollout_length": t})
    learner = Learner(model, keras.optimizers.SGD(1.0), algorithm, num_envs=b, max_grad_norm=1e9, mode=mode)
    trajectory = make_trajectory(0, IMAGES, t=t, b=b)
    values = np.array([[float(model(trajectory.observations[i, j][None])[1][0]) for j in range(b)] for i in range(t)])
    bootstrap = np.array([float(model(x[None])[1][0]) for x in trajectory.bootstrap_observation])
    advantages = NumpyA2C({}, algorithm, OptimizerConfig(), 1.0).advantages(trajectory, values, bootstrap)
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
    before = weights_of(learner)
    learner.update(trajectory)
    for path, weight in weights_of(learner).items():
        scale = np.max(np.abs(wanted[path]))
        assert scale > 1e-4, path
        np.testing.assert_allclose(
            before[path] - weight, wanted[path], rtol=1e-3, atol=2e-4 * scale + 3e-7, err_msg=path
        )


# --- tracing, acting ------------------------------------------------------------------------------------------------


def preferring(mode: str = "graph") -> Learner:
    """A learner whose policy is far from uniform."""
    learner = build_learner(run_config({"name": "mlp"}, {}, mode), VECTORS, A)
    learner.model.get_layer("policy").bias.assign([0.0, 1.0, -1.0])
    return learner


def observations(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, *VECTORS.shape)).astype(np.float32)


@pytest.fixture
def traces(monkeypatch) -> Counter[str]:
    """How often Python ran through each function that is compiled."""
    counted: Counter[str] = Counter()

    def count(name: str) -> None:
        function = getattr(Learner, name)

        def counting(*inputs):
            counted[name] += 1
            return function(*inputs)

        monkeypatch.setattr(Learner, name, counting)

    for name in ("apply_update", "_sample_actions", "_greedy_actions", "_values"):
        count(name)
    return counted


def test_update_is_traced_once(traces):
    learner = preferring()
    for step in range(4):
        learner.update(make_trajectory(step, t=5, b=4))
    assert traces["apply_update"] == 1


def test_acting_and_valuing_are_traced_once_for_all_batch_sizes_and_seeds(traces):
    learner = preferring()
    for n in (4, 1, 7, 4):
        actions, logits = learner.act(observations(n), np.array([n, 2**40 + n], np.int64))
        assert (actions.shape, actions.dtype, logits.shape, logits.dtype) == ((n,), np.int32, (n, A), np.float32)
        greedy, values = learner.act_greedily(observations(n)), learner.value(observations(n))
        assert (greedy.shape, greedy.dtype, values.shape, values.dtype) == ((n,), np.int32, (n,), np.float32)
    assert traces["_sample_actions"] == traces["_greedy_actions"] == traces["_values"] == 1


@pytest.mark.parametrize(("as_operation", "gpu"), [(True, False), (False, False), (True, True)])
def test_an_operation_runs_in_the_calling_thread(as_operation, gpu, monkeypatch):
    """There it meets the caches of what the thread did before, and nobody has to be woken."""

    def where(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda zero: zero + threading.get_native_id(), [0 * tf.reduce_sum(x)], tf.float64)

    monkeypatch.setattr("a2c.learner.sees_gpu", lambda: gpu)
    execute = compiled(where, "graph", tf.TensorSpec((None,), tf.float64), as_operation=as_operation)
    in_the_calling_thread = {bool(execute(np.ones(n)).numpy() == threading.get_native_id()) for n in (3, 4, 3)}
    assert in_the_calling_thread == {as_operation and not gpu}


@pytest.mark.usefixtures("exact_numerics")
@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_an_operation_is_rewritten_as_a_function_is(numerics):
    """Grappler turns the division into a product, unless numerics are exact."""

    def third(x: tf.Tensor) -> tf.Tensor:
        return x / 3.0

    x = np.random.default_rng(1).random(10_000, np.float32)
    runtime.setup(RuntimeConfig(numerics=numerics))
    operation, function = (
        compiled(third, "graph", tf.TensorSpec(x.shape, tf.float32), as_operation=how)(x).numpy()
        for how in (True, False)
    )
    np.testing.assert_array_equal(operation, function)
    assert (operation == x / np.float32(3)).all() == (numerics == "exact")


def test_an_error_in_an_operation_says_in_which():
    def pick(x: tf.Tensor) -> tf.Tensor:
        return tf.gather(x, tf.cast(x[0], tf.int32))

    execute = compiled(pick, "graph", tf.TensorSpec((2,), tf.float32), as_operation=True)
    assert execute(np.float32([1, 5])).numpy() == 5
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"9 is not in \[0, 2\).*pick"):
        execute(np.float32([9, 5]))


def aligned(array: np.ndarray) -> np.ndarray:
    """At an address that suits TensorFlow, so that it makes no copy."""
    copy = _aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def test_an_operation_reads_arrays_where_they_are():
    """What is returned as it was given is seen to be the same memory."""
    operation, function = (
        compiled(tf.identity, "graph", tf.TensorSpec((None,), tf.float32), as_operation=how) for how in (True, False)
    )
    array = aligned(np.zeros(100, np.float32))
    read, copied = operation(array), function(array)
    array[:] = 7
    assert (read.numpy() == 7).all()
    assert (copied.numpy() == 0).all()


def test_arrays_may_lie_anyhow_in_memory():
    execute = compiled(tf.square, "graph", tf.TensorSpec((None, 2), tf.float32), as_operation=True)
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    odd = np.empty(table.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(3, 4)
    odd[:] = table
    for x in (table[:, ::2], table[::-1, 1:3], odd[:, :2], table[:0, :2], table.T[:, :2]):
        np.testing.assert_array_equal(execute(x), np.square(x))


def test_a_trajectory_may_be_written_over_after_its_update():
    written, kept = preferring(), preferring()
    for step in range(3):
        trajectory = Trajectory(*(aligned(array) for array in make_trajectory(step, t=5, b=4)))
        losses = written.update(trajectory)
        for array in trajectory:
            array[...] = 1
        for now, then in zip(losses, kept.update(make_trajectory(step, t=5, b=4)), strict=True):
            np.testing.assert_array_equal(now, then)
    for path, weight in weights_of(written).items():
        np.testing.assert_array_equal(weight, weights_of(kept)[path])


def test_an_array_of_another_type_is_refused():
    learner, trajectory = preferring(), make_trajectory(0, t=5, b=4)
    with pytest.raises(ValueError, match=r"expected float32 \(5, 4\), not float64 \(5, 4\)"):
        learner.update(trajectory._replace(rewards=trajectory.rewards.astype(np.float64)))


@pytest.mark.parametrize("wrong", [{"t": 4, "b": 4}, {"t": 5, "b": 3}, {"t": 4, "b": 5}], ids=str)
def test_a_trajectory_of_another_shape_is_refused_and_not_traced_again(wrong):
    learner = preferring()
    before = weights_of(learner)
    with pytest.raises(ValueError, match=r"expected float32 .*, not float32 "):
        learner.update(make_trajectory(0, **wrong))
    for path, weight in weights_of(learner).items():
        np.testing.assert_array_equal(weight, before[path])


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_acting_changes_no_variable(mode):
    learner = preferring(mode)
    learner.update(make_trajectory(0, t=5, b=4))
    variables = (*learner.model.variables, *learner.optimizer.variables)
    before = [variable.numpy().copy() for variable in variables]
    learner.act(observations(4), np.array([1, 2], np.int64))
    learner.act_greedily(observations(4))
    learner.value(observations(4))
    for variable, old in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old, err_msg=variable.path)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_logits_values_and_greedy_actions_are_the_models(mode):
    learner, x = preferring(mode), observations(6)
    set_weights(learner.model)
    logits, values = (output.numpy() for output in learner.model(x))
    np.testing.assert_allclose(learner.act(x, np.array([0, 0], np.int64))[1], logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(learner.value(x), values, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(learner.act_greedily(x), logits.argmax(axis=1))
    assert len(set(logits.argmax(axis=1))) > 1


def test_the_draw_depends_on_its_seed_only():
    """Not on global generators, on draws before it, or on the mode; and on both halves of the seed."""
    x, graph, eager = observations(64), preferring(), preferring("eager")
    seed = np.array([3, 5], np.int64)
    wanted, _ = graph.act(x, seed)
    tf.random.set_seed(99)
    np.random.seed(99)
    graph.act(x, np.array([8, 8], np.int64))
    np.testing.assert_array_equal(graph.act(x, seed)[0], wanted)
    np.testing.assert_array_equal(eager.act(x, seed)[0], wanted)
    for other in ([3, 6], [4, 5], [5, 3], [3, 5 + 2**40]):
        assert np.any(graph.act(x, np.array(other, np.int64))[0] != wanted), other


def test_the_draw_under_xla_depends_on_its_seed_only():
    x, learner = observations(64), preferring("xla")
    first, again, other = (learner.act(x, np.array(seed, np.int64))[0] for seed in ([3, 5], [3, 5], [3, 6]))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)


@pytest.mark.parametrize(("draws", "mode"), [("one batch", "graph"), ("many steps", "graph"), ("one batch", "xla")])
def test_actions_are_drawn_as_often_as_the_policy_says(draws, mode):
    """Pearson's chi-square over 3 actions: 2 degrees of freedom exceed 18.4 once in 10,000 times."""
    learner = preferring(mode)
    if draws == "one batch":
        x = np.repeat(observations(1), 4_000, axis=0)
        actions, logits = learner.act(x, np.array([1, 2], np.int64))
    else:
        steps = [learner.act(observations(1), np.array([7, step], np.int64)) for step in range(2_000)]
        actions, logits = np.concatenate([step[0] for step in steps]), steps[0][1]
    pi = np.exp(logits[0]) / np.exp(logits[0]).sum()
    expected = len(actions) * pi
    assert expected.min() > 100
    assert expected.max() > 3 * expected.min()
    counts = np.bincount(actions, minlength=A)
    assert ((counts - expected) ** 2 / expected).sum() < 18.4


def test_setup_may_be_repeated_but_not_with_other_threads_once_tensorflow_runs():
    preferring().value(observations(1))
    runtime.setup(RuntimeConfig())
    with pytest.raises(UserError, match=r"runtime\.threads=7 comes too late"):
        runtime.setup(RuntimeConfig(threads=7))
    said = []
    runtime.setup(RuntimeConfig(threads=7), warn=said.append)
    assert len(said) == 1
    assert said[0].startswith("runtime.threads=7 comes too late")


def test_a_layer_that_was_never_compared_is_refused_where_exactness_was_asked_for():
    observations = keras.Input((3,))
    hidden = keras.layers.Dense(4, activation="gelu", name="mine")(observations)
    values = keras.layers.Reshape(())(keras.layers.Dense(1)(hidden))
    model = keras.Model(observations, (keras.layers.Dense(A)(hidden), values))
    settings = {"num_envs": 2, "max_grad_norm": 0.5}
    Learner(model, keras.optimizers.Adam(), algorithm_config(), **settings)
    with pytest.raises(UserError, match="'mine'"):
        Learner(model, keras.optimizers.Adam(), algorithm_config(), **settings, exact=True)
