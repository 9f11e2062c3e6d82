"""Part one to three of `compare --eager`: is a difference found exactly where it was planted?"""

import numpy as np
import pytest
import tensorflow as tf
from conftest import VECTORS, make_rollout

from a2c.algorithms.a2c import A2C
from a2c.algorithms.algorithm import Algorithm, build_algorithm
from a2c.analysis import numerics
from a2c.config import Config, RuntimeConfig, build_config, dump_config
from a2c.data.rollout import Rollout
from a2c.execution import runtime

pytestmark = pytest.mark.usefixtures("exact_numerics")
T, B, A = 3, 2, 3


def config(mode: str, hidden_sizes: tuple[int, ...] = (4,), **optimizer) -> Config:
    values = {
        "env": {"num_envs": B},
        "model": {"name": "mlp", "hidden_sizes": hidden_sizes},
        "algorithm": {"rollout_length": T, "normalize_advantages": True, "gae_lambda": 0.9},
        "optimizer": {"learning_rate": 0.01, **optimizer},
        "runtime": {"mode": mode},
    }
    return build_config(values, where="test")


def learners(**settings) -> tuple[Algorithm, Algorithm]:
    eager, graph = (build_algorithm(config(mode, **settings), VECTORS, A) for mode in ("eager", "graph"))
    return eager, graph


def rollouts(count: int) -> list[Rollout]:
    return [make_rollout(seed, VECTORS, A, T, B) for seed in range(count)]


STAGES = (
    "observations logits values bootstrap_value returns advantages normalized_advantages "
    "policy_loss value_loss entropy total_loss"
).split()
VARIABLES = ["dense_1/kernel", "dense_1/bias", "value/kernel", "value/bias", "policy/kernel", "policy/bias"]


def test_every_stage_is_named_in_the_order_of_computation():
    eager, graph = learners(name="adam")
    found = [stage.stage for stage in numerics.find_where(eager, graph, rollouts(1)).stages]
    gradients = [f"gradient {path}" for path in reversed(VARIABLES)]
    clipped = [f"clipped_gradient {path}" for path in reversed(VARIABLES)]
    slots = [name for name in found if name.startswith("slot")]
    weights = [f"weight {path}" for path in VARIABLES]
    assert found == [*STAGES, *gradients, "grad_norm", *clipped, *slots, *weights]
    moments = [f"slot {p.replace('/', '_')}_{m}" for p in VARIABLES for m in ("momentum", "velocity")]
    assert slots == ["slot iteration", "slot learning_rate", *moments]


def one_ulp(value):
    """The first element moves to the next number above it; counters and pixels by one."""
    if isinstance(value, tf.Tensor):
        up = tf.math.nextafter(value, tf.constant(np.inf, value.dtype))
        first = tf.reshape(tf.range(tf.size(value)) == 0, tf.shape(value))
        return tf.where(first, up, value)
    changed = value.copy().reshape(-1)
    changed[0] = np.nextafter(changed[0], np.float32(np.inf)) if value.dtype.kind == "f" else changed[0] + 1
    return changed.reshape(value.shape)


BETWEEN = [path.replace("/", "_") for path in VARIABLES[1:-1]]  # slots have such names


SOME = ["normalized_advantages", "gradient policy/bias", "clipped_gradient policy/bias"]
SOME += ["slot policy_bias_velocity", "weight dense_1/kernel"]


@pytest.mark.parametrize("planted", SOME)
def test_one_ulp_planted_at_a_stage_of_each_kind_is_found_at_exactly_that_stage(planted, adams):
    assert_found(planted, *adams)


@pytest.fixture(scope="module")
def adams():
    """Learners, how they begin, and what they learn from."""
    runtime.setup(RuntimeConfig())
    both = learners(name="adam")
    return both, tuple(map(numerics.snapshot, both)), rollouts(1)


def assert_found(planted, both, starts, data):
    for learner, start in zip(both, starts, strict=True):
        numerics.restore(learner, start)
    where = numerics.find_where(*both, data, lambda name, value: one_ulp(value) if name == planted else value)
    assert where.first == planted
    stage = next(stage for stage in where.stages if stage.stage == planted)
    assert (stage.differing, stage.max_ulps) == (1, 1)


@pytest.mark.parametrize(
    ("optimizer", "left_out", "stages"),
    [
        pytest.param("rmsprop", BETWEEN, 6, marks=pytest.mark.integration),
        pytest.param("adam", BETWEEN, 24, marks=pytest.mark.integration),
        pytest.param("rmsprop", [], 14, marks=pytest.mark.slow),
        pytest.param("adam", [], 44, marks=pytest.mark.slow),
    ],
    ids=["rmsprop", "adam", "rmsprop-all", "adam-all"],
)
def test_one_ulp_planted_at_any_stage_is_found_at_exactly_that_stage(optimizer, left_out, stages):
    """Of the stages that each variable has, the first variable's and the last one's; the slow suite has all."""
    both, data = learners(name=optimizer), rollouts(1)
    starts = tuple(map(numerics.snapshot, both))
    names = [stage.stage for stage in numerics.find_where(*both, data).stages]
    if optimizer == "rmsprop":
        names = [name for name in names if name.startswith(("slot", "weight"))]  # the rest is as with Adam
    names = [name for name in names if not any(variable in name.replace("/", "_") for variable in left_out)]
    assert len(names) == stages
    for planted in names:
        assert_found(planted, both, starts, data)


def test_equal_modes_are_called_equal_and_updated_as_often_as_asked():
    eager, graph = learners()
    where = numerics.find_where(eager, graph, rollouts(4))
    assert (where.update, where.updates, where.first) == (None, 4, None)
    assert where.differing_variables == where.changed_by_observing == ()
    assert int(graph.learn.optimizer.iterations) == 1  # left after the first update, which was looked at again


def test_the_update_that_differs_is_named_and_looked_at_from_the_weights_before_it():
    """What is planted here is no stage: from the third update on the graph learns at another rate."""
    eager, graph = learners(name="adam")
    data = rollouts(4)

    def changing():
        for number, rollout in enumerate(data, 1):
            if number == 3:
                graph.learn.optimizer.learning_rate.assign(0.02)
            yield rollout

    where = numerics.find_where(eager, graph, changing())
    assert (where.update, where.updates, where.first) == (3, 3, "slot learning_rate")
    assert "weight policy/kernel" in where.differing_variables
    assert "slot policy_kernel_momentum" not in where.differing_variables


def test_what_fast_graphs_do_to_tanh_is_found_in_the_logits():
    runtime.setup(RuntimeConfig(numerics="fast"))
    where = numerics.find_where(*learners(hidden_sizes=(64, 64)), rollouts(1))
    assert (where.update, where.first) == (1, "logits")


class Shy(A2C):
    """Adds a layer whose product, bias and tanh a graph fuses, unless somebody reads what is between them."""

    def _forward(self, trajectory, tap):
        logits, values, bootstrap_value = super()._forward(trajectory, tap)
        flat = tf.reshape(logits, [T * B, A])
        mixed = tf.nn.bias_add(tf.linalg.matmul(flat, tf.constant(MIXING)), tf.constant(MIXING[0]))
        return tf.reshape(tf.tanh(tap("halfway", mixed)), logits.shape), values, bootstrap_value


MIXING = np.random.default_rng(1).normal(size=(A, A)).astype(np.float32)


def test_the_reader_is_told_when_looking_changed_the_result(monkeypatch):
    runtime.setup(RuntimeConfig(numerics="fast"))
    monkeypatch.setattr("a2c.algorithms.a2c.A2C", Shy)
    where = numerics.find_where(*learners(hidden_sizes=(), name="adam"), rollouts(1))
    assert (where.update, where.first) == (1, None)
    assert any(name.startswith("weight policy") for name in where.changed_by_observing)


def test_growth_measures_weights_and_moments_of_the_same_updates():
    eager, graph = learners(name="adam")
    assert all(
        group == numerics.Distance(0.0, 0.0)
        for update in numerics.growth(eager, graph, rollouts(3))
        for group in update.values()
    )
    eager, graph = learners(name="adam")
    graph.policy.model.get_layer("policy").bias.assign([1e-3, 0.0, 0.0])
    first, second = numerics.growth(eager, graph, rollouts(2))
    assert set(first) == {"weights", "momentum", "velocity"}
    assert 0 < first["weights"].relative < 1e-2
    assert first["weights"].max_abs == pytest.approx(1e-3, rel=0.1)
    assert second["momentum"].relative > 0


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_growth_measures_the_other_networks_of_an_algorithm_under_their_names(name):
    section = {"name": name, "rollout_length": T, "replay_capacity": 256}
    changes = {"algorithm": section, "optimizer": {"name": "adam"}}
    algorithm = build_algorithm(build_config({**dump_config(config("eager")), **changes}, where="test"), VECTORS, A)
    groups, networks = numerics.variable_groups(algorithm), algorithm.variables
    others = {"dqn": ["target"], "sac": ["critics", "targets"]}[name]
    assert sorted(groups) == sorted(["weights", *others, "momentum", "velocity"])
    for group, variables in (("weights", "model"), *zip(others, others, strict=True)):
        assert groups[group].size == sum(np.prod(variable.shape) for variable in networks[variables])


def test_agreement_counts_variables_after_the_first_and_after_the_last_update():
    assert numerics.agree(*learners(name="adam"), rollouts(3)) == numerics.Agreement(3, 20, 20, 20)
    eager, graph = learners(name="adam")
    graph.policy.model.get_layer("value").bias.assign([1e-7])
    found = numerics.agree(eager, graph, rollouts(3))
    assert found.equal <= found.equal_after_one < 20
    assert not found.complete
    assert not numerics.Agreement(updates=2, variables=5, equal_after_one=4, equal=5).complete


def test_distance_by_hand():
    found = numerics.distance(np.array([3.0, 4.0], np.float32), np.array([3.0, 4.5], np.float32))
    assert found == numerics.Distance(relative=0.1, max_abs=0.5)
    assert numerics.distance(np.zeros(2, np.float32), np.zeros(2, np.float32)).relative == 0
    assert numerics.distance(np.zeros(2, np.float32), np.ones(2, np.float32)).relative == np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_ulps_are_counted_across_zero_and_exponents(dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    one = dtype(1)
    first = np.array([1, 1, -1, 0, -tiny, 2, 0, np.inf], dtype)
    second = np.array(
        [
            1,
            np.nextafter(one, dtype(2)),
            np.nextafter(-one, dtype(-2)),
            tiny,
            tiny,
            np.nextafter(dtype(2), one),
            -0.0,
            np.finfo(dtype).max,
        ],
        dtype,
    )
    np.testing.assert_array_equal(numerics.ulp_distance(first, second), [0, 1, 1, 1, 3, 1, 1, 1])
    np.testing.assert_array_equal(numerics.ulp_distance(second, first), [0, 1, 1, 1, 3, 1, 1, 1])


def test_integers_and_booleans_are_compared_by_value_and_shapes_are_not_broadcast():
    np.testing.assert_array_equal(
        numerics.ulp_distance(np.array([1, 250], np.uint8), np.array([3, 0], np.uint8)), [2, 250]
    )
    np.testing.assert_array_equal(numerics.ulp_distance(np.array([True]), np.array([False])), [1])
    with pytest.raises(ValueError, match=r"float32 \(2,\) cannot be compared with float32 \(1,\)"):
        numerics.ulp_distance(np.zeros(2, np.float32), np.zeros(1, np.float32))


def test_a_stage_of_nans_is_a_difference_without_end():
    first, second = np.array([1.0, np.nan], np.float32), np.array([np.nan, np.nan], np.float32)
    found = numerics.compare_arrays("logits", first, second)
    assert found.differing == 1
    assert found.max_abs == np.inf


def test_recorded_rollouts_come_back_as_they_were(tmp_path):
    recorded = numerics.record(
        build_config({"env": {"id": "CartPole-v1", "num_envs": 2}, "algorithm": {"rollout_length": 4}}, where="test"), 3
    )
    numerics.save_rollouts(tmp_path / "t.npz", recorded)
    loaded = numerics.load_rollouts(tmp_path / "t.npz", 2)
    assert len(loaded) == 2
    for ours, theirs in zip(loaded, recorded, strict=False):
        for name, array in ours.arrays().items():
            np.testing.assert_array_equal(array, theirs.arrays()[name])
    assert not np.array_equal(recorded[0].observations, recorded[1].observations)
