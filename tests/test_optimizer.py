"""The optimizers against their formulas in NumPy (float64), and the schedule at its landmarks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from a2c.config import OptimizerConfig
from a2c.networks.optimizer import RMSPropTF1, build_optimizer

SHAPES = ((3, 4), (4,))
STEPS = 6


def start() -> list[keras.Variable]:
    rng = np.random.default_rng(0)
    return [keras.Variable(rng.normal(size=shape).astype(np.float32)) for shape in SHAPES]


def gradients(scale: float = 1.0) -> list[list[np.ndarray]]:
    """Different for each step and entry, over several orders of magnitude, so that epsilon's place shows."""
    rng = np.random.default_rng(1)
    return [
        [(scale * rng.normal(size=s) * 10.0 ** rng.integers(-4, 1, size=s)).astype(np.float32) for s in SHAPES]
        for _ in range(STEPS)
    ]


def run(optimizer, steps) -> list[list[np.ndarray]]:
    """The weights after every step."""
    variables = start()
    optimizer.build(variables)
    history = []
    for step in steps:
        optimizer.apply_gradients(zip(map(keras.ops.convert_to_tensor, step), variables, strict=True))
        history.append([variable.numpy() for variable in variables])
    return history


def numpy_rmsprop(steps, *, rates, rho, epsilon, initial, inside=True) -> list[list[np.ndarray]]:
    """tf.compat.v1.train.RMSPropOptimizer without momentum, from its documentation."""
    weights = [variable.numpy().astype(np.float64) for variable in start()]
    mean_squares = [np.full(shape, initial, np.float64) for shape in SHAPES]
    history = []
    for rate, step in zip(rates, steps, strict=True):
        for i, gradient in enumerate(step):
            mean_squares[i] = rho * mean_squares[i] + (1 - rho) * gradient.astype(np.float64) ** 2
            root = np.sqrt(mean_squares[i] + epsilon) if inside else np.sqrt(mean_squares[i]) + epsilon
            weights[i] = weights[i] - rate * gradient / root
        history.append([w.copy() for w in weights])
    return history


def numpy_adam(steps, *, rates, beta_1, beta_2, epsilon) -> list[list[np.ndarray]]:
    """Kingma and Ba 2015, the efficient form at the end of section 2: epsilon beside the uncorrected root."""
    weights = [variable.numpy().astype(np.float64) for variable in start()]
    m, v = [np.zeros(s) for s in SHAPES], [np.zeros(s) for s in SHAPES]
    history = []
    for k, (rate, step) in enumerate(zip(rates, steps, strict=True), start=1):
        alpha = rate * np.sqrt(1 - beta_2**k) / (1 - beta_1**k)
        for i, gradient in enumerate(step):
            wide = gradient.astype(np.float64)
            m[i] = beta_1 * m[i] + (1 - beta_1) * wide
            v[i] = beta_2 * v[i] + (1 - beta_2) * wide**2
            weights[i] = weights[i] - alpha * m[i] / (np.sqrt(v[i]) + epsilon)
        history.append([w.copy() for w in weights])
    return history


def assert_close(history, wanted):
    for step, (ours, theirs) in enumerate(zip(history, wanted, strict=True)):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=f"step {step}")


def largest_difference(history, other) -> float:
    return max(
        float(np.max(np.abs(a - b))) for xs, ys in zip(history, other, strict=True) for a, b in zip(xs, ys, strict=True)
    )


RMSPROP = OptimizerConfig(learning_rate=0.05, rho=0.9, epsilon=1e-2)
RATES = [0.05] * STEPS


def test_rmsprop_is_tf1s_over_several_steps():
    optimizer = build_optimizer(RMSPROP, total_steps=100)
    assert isinstance(optimizer, RMSPropTF1)
    assert_close(
        run(optimizer, gradients()), numpy_rmsprop(gradients(), rates=RATES, rho=0.9, epsilon=1e-2, initial=1.0)
    )


def test_the_rmsprop_oracle_tells_all_known_forms_apart():
    """Guards the test above: zeros for ones, or epsilon outside the root, must be further off than its tolerance."""
    ours = run(build_optimizer(RMSPROP, total_steps=100), gradients())
    zeros = numpy_rmsprop(gradients(), rates=RATES, rho=0.9, epsilon=1e-2, initial=0.0)
    assert largest_difference(ours, zeros) > 1e-2
    keras_default = run(keras.optimizers.RMSprop(0.05, rho=0.9, epsilon=1e-2), gradients())
    assert_close(keras_default, zeros)  # so this is what Keras does, and what ours must not
    outside = numpy_rmsprop(gradients(), rates=RATES, rho=0.9, epsilon=1e-2, initial=1.0, inside=False)
    assert largest_difference(ours, outside) > 1e-4


def test_accumulators_are_ones_after_build_and_nothing_else_is():
    optimizer = build_optimizer(OptimizerConfig(), total_steps=100)
    variables = start()
    before = [variable.numpy() for variable in variables]
    optimizer.build(variables)
    accumulators = [v for v in optimizer.variables if v.path.split("/")[-1].endswith("velocity")]
    assert [tuple(v.shape) for v in accumulators] == list(SHAPES)
    for accumulator in accumulators:
        np.testing.assert_array_equal(accumulator.numpy(), np.ones(accumulator.shape))
    assert int(optimizer.iterations) == 0
    for variable, old in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)


def test_the_first_step_is_a_warm_up_and_not_300_times_too_large():
    """g = 1e-4: lr g / sqrt(0.99 + epsilon) with ones; lr g / sqrt(epsilon) with zeros, 315 times as much."""
    config, tiny = OptimizerConfig(), [np.full(shape, 1e-4, np.float32) for shape in SHAPES]
    step = {}
    for name, optimizer in (
        ("ours", build_optimizer(config, total_steps=100)),
        ("zeros", keras.optimizers.RMSprop(config.learning_rate, rho=config.rho, epsilon=config.epsilon)),
    ):
        variables = [keras.Variable(np.zeros(shape, np.float32)) for shape in SHAPES]
        optimizer.build(variables)
        optimizer.apply_gradients(zip(map(keras.ops.convert_to_tensor, tiny), variables, strict=True))
        step[name] = -variables[0].numpy()[0, 0]
    assert step["ours"] == pytest.approx(7e-4 * 1e-4 / np.sqrt(0.99 + 1e-10 + 1e-5), rel=1e-5)
    assert 300 < step["zeros"] / step["ours"] < 330


def test_adam_is_the_papers():
    config = OptimizerConfig(name="adam", learning_rate=0.05, beta_1=0.8, beta_2=0.95, epsilon=1e-3)
    wanted = numpy_adam(gradients(), rates=RATES, beta_1=0.8, beta_2=0.95, epsilon=1e-3)
    assert_close(run(build_optimizer(config, total_steps=100), gradients()), wanted)
    other_betas = numpy_adam(gradients(), rates=RATES, beta_1=0.9, beta_2=0.999, epsilon=1e-3)
    assert largest_difference(wanted, other_betas) > 1e-2


@pytest.mark.parametrize("name", ["rmsprop", "adam"])
def test_the_linear_schedule_is_used_by_every_step_and_ends_at_zero(name):
    """The step k of n is made with lr (1 - k / n), k from 0; after the last the rate is 0 and stays there."""
    config = OptimizerConfig(name=name, learning_rate=0.05, schedule="linear", epsilon=1e-2)
    optimizer = build_optimizer(config, total_steps=4)
    rates = [0.05, 0.0375, 0.025, 0.0125, 0.0, 0.0]
    if name == "adam":
        wanted = numpy_adam(gradients(), rates=rates, beta_1=0.9, beta_2=0.999, epsilon=1e-2)
    else:
        wanted = numpy_rmsprop(gradients(), rates=rates, rho=0.99, epsilon=1e-2, initial=1.0)
    assert_close(run(optimizer, gradients()), wanted)


@pytest.mark.parametrize("total_steps", [16, 1_000])
@pytest.mark.parametrize(
    ("schedule", "landmarks"),
    [
        ("linear", {0: 1, 0.5: 0.5, 0.75: 0.25, 1: 0, 2: 0}),
        ("cooldown", {0: 1, 0.5: 1, 0.75: 1, 0.875: 0.5, 1: 0, 2: 0}),
    ],
)
def test_the_schedules_at_their_landmarks(schedule, landmarks, total_steps):
    optimizer = build_optimizer(OptimizerConfig(schedule=schedule), total_steps=total_steps)
    for part, wanted in landmarks.items():
        optimizer.iterations.assign(int(part * total_steps))
        assert float(optimizer.learning_rate) == pytest.approx(7e-4 * wanted, rel=1e-5, abs=1e-12)


@pytest.mark.usefixtures("exact_numerics")
@pytest.mark.parametrize("schedule", ["linear", "cooldown"])
def test_the_rates_of_a_schedule_have_the_same_bits_in_a_graph(schedule):
    optimizer = build_optimizer(OptimizerConfig(schedule=schedule), total_steps=97)
    graph = tf.function(lambda: tf.convert_to_tensor(optimizer.learning_rate))
    rates = []
    for step in range(98):
        optimizer.iterations.assign(step)
        rates.append(optimizer.learning_rate.numpy())
        assert rates[-1].tobytes() == graph().numpy().tobytes(), step
    assert len(set(rates)) > 20


@pytest.mark.parametrize("name", ["rmsprop", "adam"])
def test_the_constant_schedule_stays(name):
    optimizer = build_optimizer(OptimizerConfig(name=name, learning_rate=1e-3), total_steps=10)
    optimizer.iterations.assign(10)
    assert float(optimizer.learning_rate) == pytest.approx(1e-3)
