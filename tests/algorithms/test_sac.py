"""Discrete SAC against updates written by hand in NumPy; eager against graph; its target entropy."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import VECTORS, A, make_rollout, run_config
from numpy_reference import NumpyNetwork, NumpySAC, softmax
from updates import recorded, set_weights, weights_of

from a2c.algorithms.algorithm import build_algorithm
from a2c.algorithms.losses import soft_values
from a2c.algorithms.sac import SAC
from a2c.analysis import numerics

pytestmark = pytest.mark.usefixtures("exact_numerics")
T, B, N = 6, 4, 16
MODEL = {"name": "mlp", "hidden_sizes": (8, 6)}
ADAM = {"name": "adam", "learning_rate": 0.02, "epsilon": 1e-3, "max_grad_norm": 1e4}
QUICK = {"learning_starts": 2 * T * B, "gradient_steps": 3, "batch_size": N, "replay_capacity": 60}
FAST = {"polyak": 0.1, "target_entropy": 0.6, "first_temperature": 0.3, "value_loss_coef": 0.4}


def sac(mode: str = "graph", **algorithm: Any) -> SAC:
    """With weights of networks that prefer something, each of its own."""
    env = {"id": "Chain", "reward_clipping": "none"}
    config = run_config(
        MODEL, ADAM, mode, num_envs=B, env=env, name="sac", **{"rollout_length": T, **QUICK, **FAST, **algorithm}
    )
    built = build_algorithm(config, VECTORS, A)
    assert isinstance(built, SAC)
    set_weights(built.policy.model, *built.critics, *built.targets, kernel=1.5, bias=0.3)
    return built


def reference_of(algorithm: SAC) -> NumpySAC:
    optimizer = run_config(MODEL, ADAM, "graph").optimizer

    def network(model: Any) -> NumpyNetwork:
        unused = {"value/kernel": np.zeros((6, 1)), "value/bias": np.zeros(1)}  # of critics
        return NumpyNetwork({**unused, **weights_of(model)}, optimizer, optimizer.max_grad_norm)

    return NumpySAC(
        network(algorithm.policy.model),
        [network(model) for model in algorithm.critics],
        [network(model) for model in algorithm.targets],
        NumpyNetwork({"log": algorithm.log_temperature.numpy()}, optimizer, optimizer.max_grad_norm),
        algorithm.config,
        cut_on_life_loss=True,
        target_entropy=0.6 * np.log(A),
    )


@pytest.mark.parametrize(
    ("mode", "n_step"), [("eager", 1), ("eager", 3), pytest.param("graph", 3, marks=pytest.mark.integration)]
)
def test_whole_updates_are_those_of_the_numpy_reference(mode, n_step, monkeypatch):
    """Metrics, all networks and the temperature after each of 4 updates of 3 steps; float32 against float64."""
    algorithm = sac(mode, n_step=n_step)
    reference, drawn = reference_of(algorithm), recorded(algorithm, monkeypatch)
    assert algorithm.update(make_rollout(9, t=T, b=B), 0).gradient_steps == 0
    for number in range(1, 5):
        drawn.clear()
        found = algorithm.update(make_rollout(number, t=T, b=B), number)
        wanted = [reference.update(samples) for samples in drawn]
        assert found.gradient_steps == 3 * len(wanted) == 9
        for name in wanted[0]:
            mean = np.mean([losses[name] for losses in wanted])
            assert float(found.metrics[name]) == pytest.approx(mean, rel=1e-3, abs=1e-4), (number, name)
        pairs = zip(
            (algorithm.policy.model, *algorithm.critics, *algorithm.targets),
            (reference.policy, *reference.critics, *reference.targets),
            strict=True,
        )
        for model, of in pairs:
            for path, weight in weights_of(model).items():
                np.testing.assert_allclose(weight, of.weights[path], rtol=1e-3, atol=2e-4, err_msg=path)
        temperature = float(np.exp(reference.temperature.weights["log"]))
        assert float(found.metrics["temperature"]) == pytest.approx(temperature, rel=1e-4)
    assert abs(temperature - 0.3) > 0.01
    assert set(found.metrics) >= {metric.name for metric in algorithm.config.METRICS}


def test_eager_and_graph_make_the_same_updates_bit_for_bit():
    found = []
    for mode in ("eager", "graph"):
        algorithm = sac(mode, n_step=3)
        metrics = [algorithm.update(make_rollout(number, t=T, b=B), number).metrics for number in range(5)]
        variables = [v.numpy().tobytes() for group in algorithm.variables.values() for v in group]
        found.append((variables, [{name: float(x) for name, x in each.items()} for each in metrics]))
    assert found[0] == found[1]


@pytest.mark.integration
def test_a_comparison_of_modes_goes_back_to_all_networks():
    algorithms = [sac(mode, learning_starts=0, gradient_steps=1) for mode in ("eager", "graph")]
    found = numerics.find_where(*algorithms, [make_rollout(number, t=T, b=B) for number in range(2)])
    assert (found.update, found.first, found.changed_by_observing) == (None, None, ())
    assert len({stage.stage for stage in found.stages}) == len(found.stages) > 100


def test_every_optimizer_and_network_is_saved_by_name():
    algorithm = sac()
    assert list(algorithm.variables) == [
        *("model", "critics", "targets", "temperature"),
        *("critics optimizer", "policy optimizer", "temperature optimizer"),
    ]
    count = len(algorithm.variables["critics"])
    assert count == len(algorithm.variables["targets"]) == 2 * 6  # without the heads that are not used
    saved = {id(v) for group in algorithm.variables.values() for v in group}
    learned = [v for step in algorithm.steps.values() for v in (*step.variables, *step.optimizer.variables)]
    assert {id(v) for v in learned} <= saved


def test_targets_copy_what_is_not_trained():
    def model(mean: str) -> keras.Model:
        statistics = keras.layers.BatchNormalization(moving_mean_initializer=mean, beta_initializer=mean)
        return keras.Sequential([keras.Input((2,)), statistics])

    algorithm = sac()
    algorithm.critics, algorithm.targets = [model("ones")], [model("zeros")]
    algorithm._follow_critics()
    found = {variable.name: variable.numpy()[0] for variable in algorithm.targets[0].variables}
    assert (found["beta"], found["moving_mean"]) == (np.float32(FAST["polyak"]), 1.0)


def test_soft_values_by_hand():
    logits, q_values = np.array([[0.0, 1.0, -2.0], [3.0, 0.0, 0.0]]), np.array([[1.0, -1.0, 2.0], [0.5, 4.0, 0.0]])
    pi, log_pi = softmax(logits)
    inputs = [tf.constant(x, tf.float32) for x in (logits, q_values, 0.7)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        found = soft_values(*inputs)
    np.testing.assert_allclose(found, (pi * (q_values - 0.7 * log_pi)).sum(axis=1), rtol=1e-5)
    assert tape.gradient(found, inputs)[1:] == [None, None]
    with pytest.raises(ValueError, match=r"soft_values: .*the same"):
        soft_values(inputs[0], inputs[1][:1], 0.1)
