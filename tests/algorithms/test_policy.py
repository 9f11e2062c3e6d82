"""Policies: what they draw, from what, and what they say beside it."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import VECTORS, A, run_config
from updates import with_statistics

from a2c import extensions
from a2c.algorithms.algorithm import build_algorithm
from a2c.algorithms.policy import HELD, SPELL, ActorCriticPolicy, held_uniform

pytestmark = pytest.mark.usefixtures("exact_numerics")


def preferring(mode: str = "graph", **algorithm) -> ActorCriticPolicy:
    """A policy that is far from uniform."""
    policy = build_algorithm(run_config({"name": "mlp"}, {}, mode, **algorithm), VECTORS, A).policy
    policy.model.get_layer("policy").bias.assign([0.0, 1.0, -1.0])
    return policy


def observations(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, *VECTORS.shape)).astype(np.float32)


def test_batches_of_any_size_are_acted_on():
    policy = preferring()
    for n in (4, 1, 7, 4):
        actions, said = policy.explore(observations(n), np.array([n, 2**40 + n], np.int64))
        assert (actions.shape, actions.dtype) == ((n,), np.int32)
        assert (said["logits"].shape, said["logits"].dtype) == ((n, A), np.float32)
        greedy, values = policy.act_greedily(observations(n)), policy.value(observations(n))
        assert (greedy.shape, greedy.dtype, values.shape, values.dtype) == ((n,), np.int32, (n,), np.float32)


@pytest.mark.parametrize(("algorithm", "said"), [("a2c", {"logits": (A,)}), ("ppo", {"logits": (A,), "values": ()})])
def test_what_is_said_is_what_was_announced(algorithm, said):
    policy = preferring(name=algorithm, **({"num_minibatches": 5} if algorithm == "ppo" else {}))
    assert policy.says == said
    _, spoken = policy.explore(observations(6), np.array([1, 2], np.int64))
    assert {name: array.shape for name, array in spoken.items()} == {name: (6, *inner) for name, inner in said.items()}


def test_acting_draws_what_exploring_draws():
    policy, seed = preferring(), np.array([1, 2], np.int64)
    np.testing.assert_array_equal(policy.act(observations(50), seed), policy.explore(observations(50), seed)[0])


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_acting_changes_no_variable(mode):
    own = run_config({"name": extensions.register(with_statistics)}, {}, mode, runtime={"numerics": "fast"})
    policy = build_algorithm(own, VECTORS, A).policy
    before = [variable.numpy().copy() for variable in policy.model.variables]
    policy.act(observations(4), np.array([1, 2], np.int64))
    policy.act_greedily(observations(4))
    policy.value(observations(4))
    policy.look(observations(4))
    for variable, old in zip(policy.model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old, err_msg=variable.path)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_logits_values_and_greedy_actions_are_the_models(mode):
    policy, x = preferring(mode), observations(6)
    policy.model.get_layer("policy").kernel.assign(np.random.default_rng(7).normal(size=(64, A)))
    logits, values = (output.numpy() for output in policy.model(x))
    close = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(policy.explore(x, np.array([0, 0], np.int64))[1]["logits"], logits, **close)
    np.testing.assert_allclose(policy.value(x), values, **close)
    np.testing.assert_array_equal(policy.act_greedily(x), logits.argmax(axis=1))
    assert len(set(logits.argmax(axis=1))) > 1
    log_probabilities, seen = policy.look(x)
    np.testing.assert_allclose(seen, values, **close)
    np.testing.assert_allclose(log_probabilities, tf.nn.log_softmax(logits).numpy(), **close)


def test_the_draw_depends_on_its_seed_only():
    """Not on global generators, on draws before it, or on the mode; and on both halves of the seed."""
    x, graph, eager = observations(64), preferring(), preferring("eager")
    seed = np.array([3, 5], np.int64)
    wanted = graph.act(x, seed)
    tf.random.set_seed(99)
    np.random.seed(99)
    graph.act(x, np.array([8, 8], np.int64))
    np.testing.assert_array_equal(graph.act(x, seed), wanted)
    np.testing.assert_array_equal(eager.act(x, seed), wanted)
    for other in ([3, 6], [4, 5], [5, 3], [3, 5 + 2**40]):
        assert np.any(graph.act(x, np.array(other, np.int64)) != wanted), other


def test_the_draw_under_xla_depends_on_its_seed_only():
    x, policy = observations(64), preferring("xla")
    first, again, other = (policy.act(x, np.array(seed, np.int64)) for seed in ([3, 5], [3, 5], [3, 6]))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)


@pytest.mark.parametrize(("draws", "mode"), [("one batch", "graph"), ("many steps", "graph"), ("one batch", "xla")])
def test_actions_are_drawn_as_often_as_the_policy_says(draws, mode):
    """Pearson's chi-square over 3 actions: 2 degrees of freedom exceed 18.4 once in 10,000 times."""
    policy = preferring(mode)
    if draws == "one batch":
        x = np.repeat(observations(1), 4_000, axis=0)
        actions, said = policy.explore(x, np.array([1, 2], np.int64))
    else:
        steps = [policy.explore(observations(1), np.array([7, step], np.int64)) for step in range(2_000)]
        actions, said = np.concatenate([step[0] for step in steps]), steps[0][1]
    logits = said["logits"]
    pi = np.exp(logits[0]) / np.exp(logits[0]).sum()
    expected = len(actions) * pi
    assert expected.min() > 100
    assert expected.max() > 3 * expected.min()
    counts = np.bincount(actions, minlength=A)
    assert ((counts - expected) ** 2 / expected).sum() < 18.4


def drawn(hold: int, steps: range, rows: int = 400) -> np.ndarray:
    """The random numbers [steps, rows, A] of a row of draws."""
    return np.stack([held_uniform((rows, A), tf.constant([7, t], tf.int64), hold).numpy() for t in steps])


def test_numbers_that_nobody_holds_are_those_of_tensorflow():
    wanted = tf.random.stateless_uniform((400, A), [7, 3], alg="philox").numpy()
    np.testing.assert_array_equal(drawn(1, range(3, 4))[0], wanted)
    fresh = np.any(drawn(5, range(3, 4))[0] != wanted, axis=1)
    assert 0 < fresh.sum() < 400 / 4


def test_an_eighth_of_the_rows_hold_their_numbers_for_a_spell_and_change_them_in_time():
    """400 rows: 28 more or fewer than an eighth are held once in 40,000 times."""
    hold = 5
    numbers = drawn(hold, range(2 * SPELL * hold))
    same = np.all(numbers[1:] == numbers[:-1], axis=2)
    for start in (0, SPELL * hold):
        kept = same[start]
        assert abs(kept.sum() - 400 * HELD) < 28
        for t in range(start, start + SPELL * hold - 1):
            np.testing.assert_array_equal(same[t], kept if (t + 1) % hold else np.zeros(400, bool), err_msg=str(t))
    assert np.any(same[0] != same[SPELL * hold])


def test_the_actors_of_a3c_hold_too():
    (actor, *_) = build_algorithm(
        run_config({"name": "mlp"}, {}, "graph", name="a3c", noise_hold=1000), VECTORS, A
    ).actors
    x = np.repeat(observations(1), 400, axis=0)
    explored = np.stack([actor.policy.explore(x, np.array([7, t], np.int64))[0] for t in range(60)])
    assert 24 < np.all(explored == explored[0], axis=0).sum() < 80


@pytest.mark.parametrize(("name", "more"), [("a2c", {}), ("a3c", {}), ("ppo", {"num_minibatches": 5})])
def test_exploring_holds_and_acting_does_not(name, more):
    policy, x = preferring(name=name, noise_hold=1000, **more), np.repeat(observations(1), 400, axis=0)
    seeds = [np.array([7, t], np.int64) for t in range(60)]
    explored = np.stack([policy.explore(x, seed)[0] for seed in seeds])
    acted = np.stack([policy.act(x, seed) for seed in seeds])
    assert 24 < np.all(explored == explored[0], axis=0).sum() < 80
    assert not np.any(np.all(acted == acted[0], axis=0))


def test_held_numbers_are_the_same_in_eager_and_in_graph():
    x, seed = observations(64), np.array([7, 2**40], np.int64)
    graph, eager = (preferring(mode, noise_hold=16).explore(x, seed)[0] for mode in ("graph", "eager"))
    np.testing.assert_array_equal(graph, eager)


def test_actions_of_held_numbers_are_drawn_as_often_as_the_policy_says():
    """Rows in their spell, one draw of each; Pearson's chi-square as above."""
    policy, x = preferring(noise_hold=4), np.repeat(observations(1), 4_000, axis=0)
    counts, expected = np.zeros(A), np.zeros(A)
    for spell in range(4):
        start = spell * SPELL * 4
        kept = np.all(np.equal(*drawn(4, range(start, start + 2), 4_000)), axis=1)
        actions, said = policy.explore(x, np.array([7, start], np.int64))
        counts += np.bincount(actions[kept], minlength=A)
        expected += kept.sum() * tf.nn.softmax(said["logits"][0]).numpy()
    assert expected.min() > 100
    assert ((counts - expected) ** 2 / expected).sum() < 18.4
