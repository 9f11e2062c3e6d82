"""Under `exact` graphs give the bits of eager execution, for every supported combination; and what would not."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import VECTORS, A, make_trajectory, run_config
from gymnasium.spaces import Box

from a2c.algorithms.a2c import Trajectory
from a2c.algorithms.algorithm import build_algorithm
from a2c.config import Config, RuntimeConfig
from a2c.execution import runtime
from a2c.execution.machine import allowed_cores
from a2c.networks.model import Bias, MaxPool

pytestmark = pytest.mark.usefixtures("exact_numerics")


def images(size: int) -> Box:
    return Box(0, 255, (size, size, 4), np.uint8)


# each with the smallest images it takes; IMPALA's are pooled at an even and at an odd size: 20, 10, 5
NETWORKS = {
    "nature": (images(36), {"name": "nature"}),
    "small standardized": (images(20), {"name": "small", "pixels": "standardized"}),
    "impala": (images(20), {"name": "impala"}),
    "mlp": (VECTORS, {"name": "mlp"}),
    "small motion": (images(20), {"name": "small", "pixels": "motion"}),  # apart from the orthogonal arrays
}


def make_trajectories(config: Config, space: Box) -> list[Trajectory]:
    """Five, to be used in turn. The upper half of an image is blank, so that max pooling meets equal numbers."""
    t, b = config.algorithm.rollout_length, config.env.num_envs
    trajectories = [make_trajectory(seed, space, t=t, b=b) for seed in range(5)]
    for trajectory in trajectories if space.dtype == np.uint8 else []:
        trajectory.observations[..., : space.shape[1] // 2, :] = 0
    return trajectories


def run(
    config: Config, space: Box, updates: int, act_every: int = 1, own_actions: bool = True
) -> dict[str, np.ndarray]:
    """Act and update; every action, logit, value and loss on the way, every weight and optimizer variable after it."""
    a2c = build_algorithm(config, space, A)
    policy = a2c.policy
    trajectories = make_trajectories(config, space)
    start = {v.path: v.numpy() for v in policy.model.trainable_variables}
    found = {}
    for step in range(updates):
        trajectory = trajectories[step % len(trajectories)]
        if step % act_every == 0:
            last = trajectory.bootstrap_observations[0]
            actions, said = policy.explore(last, np.array([config.seed, step], np.int64))
            found[f"logits {step}"], found[f"values {step}"] = said["logits"], policy.value(last)
            if own_actions:
                trajectory = trajectory._replace(actions=np.stack([*trajectory.actions[1:], actions]))
                found[f"actions {step}"] = actions
        for name, loss in a2c.learn(trajectory).items():
            found[f"{name} {step}"] = loss.numpy()
    for variable in policy.model.trainable_variables:
        found[variable.path] = variable.numpy()
        assert np.all(np.isfinite(found[variable.path])), variable.path
        assert np.any(found[variable.path] != start[variable.path]), f"{variable.path} has learned nothing"
    for index, variable in enumerate(a2c.variables["optimizer"]):  # their paths count the optimizers of the process
        found[f"optimizer {index}: {variable.name}"] = variable.numpy()
    return found


def differing(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> list[str]:
    assert first.keys() == second.keys()
    return [name for name in first if np.asarray(first[name]).tobytes() != np.asarray(second[name]).tobytes()]


# powers of two would be multiplied and divided by without rounding, in whatever order
ODD_NUMBERS = {"gamma": 0.97, "value_loss_coef": 0.41, "entropy_coef": 0.033}
SETTINGS = (tuple(NETWORKS)[:4], ("float32", "mixed_bfloat16"), ("rmsprop", "adam"), (1.0, 0.95), (False, True))


def eight(other: bool) -> list[tuple]:
    """Combinations that hold each pair of settings: an orthogonal array, and another that shares none with it."""
    found = []
    for network, precision in itertools.product(range(4), range(2)):
        low, high = network & 1, network >> 1
        row = (network, precision, precision ^ low ^ other, precision ^ high, precision ^ low ^ high)
        found.append(tuple(values[i] for values, i in zip(SETTINGS, row, strict=True)))
    return found


UPDATES = [
    *((*combination, 10) for combination in eight(False)),
    ("small motion", "float32", "adam", 0.95, True, 10),
    ("small motion", "mixed_bfloat16", "rmsprop", 1.0, False, 10),
    *(pytest.param(*combination, 25, marks=pytest.mark.integration) for combination in eight(True)),
    *(pytest.param(*combination, 200, marks=pytest.mark.slow) for combination in itertools.product(*SETTINGS)),
]


def test_every_pair_of_settings_is_among_eight_combinations():
    for combinations in (eight(False), eight(True)):
        for one, other in itertools.combinations(range(5), 2):
            pairs = {(each[one], each[other]) for each in combinations}
            assert len(pairs) == len(SETTINGS[one]) * len(SETTINGS[other])
    assert len({*eight(False), *eight(True)}) == 16


@pytest.mark.parametrize(("network", "precision", "optimizer", "gae_lambda", "normalized", "updates"), UPDATES)
def test_every_combination_gives_the_same_bits_in_both_modes(
    network, precision, optimizer, gae_lambda, normalized, updates
):
    """200 updates of every supported combination, 10 or 25 of eight; a schedule where advantages are normalised."""
    runtime.setup(RuntimeConfig(precision=precision))
    space, model = NETWORKS[network]
    applied = {"name": optimizer, "max_grad_norm": 0.37, "schedule": "linear" if normalized else "constant"}
    estimator = {"gae_lambda": gae_lambda, "normalize_advantages": normalized, **ODD_NUMBERS}
    eager, graph = (
        run(run_config(model, applied, mode, precision, **estimator), space, updates, act_every=5)
        for mode in ("eager", "graph")
    )
    assert differing(eager, graph) == []
    assert len({eager[f"total_loss {step}"].tobytes() for step in range(updates)}) == updates


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("nature", "float32"),
        pytest.param("nature", "mixed_bfloat16", marks=pytest.mark.integration),
        pytest.param("impala", "float32", marks=pytest.mark.integration),
        pytest.param("impala", "mixed_bfloat16", marks=pytest.mark.integration),
    ],
)
def test_eager_and_graph_give_the_same_bits_at_the_size_of_atari(name, precision):
    """Kernels and threads divide 96 images of 84 x 84 in other ways than a few small ones."""
    runtime.setup(RuntimeConfig(precision=precision))
    eager, graph = (
        run(run_config({"name": name}, {}, mode, precision, num_envs=16), images(84), updates=3)
        for mode in ("eager", "graph")
    )
    assert differing(eager, graph) == []


def test_the_same_seed_gives_the_same_bits_again_and_another_seed_others():
    config = run_config({"name": "mlp"}, {"name": "adam"}, "graph")
    first = run(config, VECTORS, updates=3)
    assert differing(first, run(config, VECTORS, updates=3)) == []
    other = run(config.model_copy(update={"seed": 1}), VECTORS, updates=3)
    assert {"policy/kernel", "logits 0", "total_loss 0"} <= set(differing(first, other))


@pytest.mark.integration
@pytest.mark.parametrize(
    "network",
    ["mlp", *(pytest.param(name, marks=pytest.mark.integration) for name in ("small standardized", "impala"))],
)
def test_xla_runs_and_is_close_to_graph(network):
    """Three updates; XLA fuses and reorders sums, so all agrees within 1e-3 relative and 1e-5 absolute.

    On given actions: XLA's random bits are not TensorFlow's, so that the same seed draws other ones.
    """
    space, model = NETWORKS[network]
    wanted = run(run_config(model, {}, "graph"), space, updates=3, own_actions=False)
    config = run_config(model, {}, "xla")
    runtime.setup(config.runtime)
    found = run(config, space, updates=3, own_actions=False)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-5, err_msg=name)


# --- what would differ ----------------------------------------------------------------------------------------------


ROUNDED_DIFFERENTLY = {  # by the pass of the graph optimizer that is named
    "constant folding: x / 3 becomes x * (1 / 3)": lambda x: x / 3.0,
    "constant folding: two constants become one": lambda x: (x * 3.0) * 0.7,
    "arithmetic optimization: advantages, normalised": lambda x: (x - tf.reduce_mean(x)) / tf.math.reduce_std(x),
    "remapping: product, bias and tanh become one kernel": lambda x: tf.tanh(tf.linalg.matmul(x, x) + x[0]),
}


@pytest.mark.parametrize("expression", ROUNDED_DIFFERENTLY)
def test_exact_numerics_keep_the_bits_of_every_expression_that_a_graph_would_rewrite(expression):
    function = ROUNDED_DIFFERENTLY[expression]
    x = tf.constant(np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32))
    np.testing.assert_array_equal(tf.function(function)(x), function(x))


def convolution(filters: int, kernel: int, stride: int, *, use_bias: bool = False) -> keras.layers.Layer:
    initializer = keras.initializers.GlorotUniform(seed=filters)
    return keras.layers.Conv2D(filters, kernel, stride, use_bias=use_bias, kernel_initializer=initializer)


LAYERS = {  # the first ones of the Nature network and of IMPALA
    "a convolution's own bias": lambda: [convolution(32, 8, 4, use_bias=True), convolution(64, 4, 2, use_bias=True)],
    "Bias": lambda: [convolution(32, 8, 4), Bias(), convolution(64, 4, 2), Bias()],
    "Keras' max pooling": lambda: [
        convolution(16, 3, 1),
        keras.layers.MaxPooling2D(3, 2, "same"),
        convolution(16, 3, 1),
    ],
    "MaxPool": lambda: [convolution(16, 3, 1), MaxPool(), convolution(16, 3, 1)],
}


@pytest.mark.parametrize("layers", LAYERS)
def test_why_there_are_layers_of_our_own(layers):
    """oneDNN changes the gradients of Keras' layers in graphs, whatever is switched off; those of ours it does not.

    (Which batches it changes depends on the processor: without AVX-512, max pooling differs with 7 rows and not with
    96; with one thread the convolutions' biases do not. If it leaves Keras' layers alone, this test says that ours are
    not needed.)
    """
    model = keras.Sequential([keras.Input((84, 84, 4)), *LAYERS[layers]()])
    batches = [tf.constant(np.random.default_rng(0).random((n, 84, 84, 4), np.float32)) for n in (96, 7)]

    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x)))
        return tape.gradient(loss, model.trainable_variables)

    pairs = [pair for x in batches for pair in zip(gradients(x), tf.function(gradients)(x), strict=True)]
    threads = tf.config.threading.get_intra_op_parallelism_threads() or allowed_cores()  # an earlier test may set it
    same = {"Bias", "MaxPool"} | ({"a convolution's own bias"} if threads == 1 else set())
    assert any(np.any(eager != graph) for eager, graph in pairs) is (layers not in same)
