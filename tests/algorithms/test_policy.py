"""Policies: what they draw, from what, and what they say beside it."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import VECTORS, A, run_config

from a2c.algorithms.algorithm import build_algorithm
from a2c.algorithms.policy import ActorCriticPolicy

pytestmark = pytest.mark.usefixtures("exact_numerics")


def preferring(mode: str = "graph", **algorithm) -> ActorCriticPolicy:
    """A policy that is far from uniform."""
    policy = build_algorithm(run_config({"name": "mlp"}, {}, mode, **algorithm), VECTORS, A).policy
    policy.model.get_layer("policy").bias.assign([0.0, 1.0, -1.0])
    return policy


def observations(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, *VECTORS.shape)).astype(np.float32)


def test_all_batch_sizes_and_seeds_have_one_trace():
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
    policy = preferring(mode)
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
