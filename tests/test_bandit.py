"""The two-armed bandit whose loss learns in a loop and not with arrays: one mathematics, unless shapes broadcast.

The array loss must be the loop's; the mistake must be refused.
"""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from a2c.algorithms.losses import policy_gradient_loss, value_loss
from a2c.analysis.studies.bandit import (
    LOSSES,
    PAYS,
    PULLS,
    BanditResult,
    Gap,
    Pulls,
    array_loss,
    broadcast_loss,
    broadcast_policy_loss,
    build_network,
    compare_losses,
    draw_pulls,
    largest_gap,
    learn,
    loop_loss,
    loss_and_gradients,
    random_pulls,
)

SEEDS = range(4)


def matched_policy_loss(network, pulls):
    """The policy's part of the array loss."""
    logits, values = network(pulls.observations)
    return policy_gradient_loss(logits[:, None], pulls.arms[:, None], (pulls.rewards - values)[:, None])


def vector(gradients) -> np.ndarray:
    return np.concatenate([gradient.numpy().ravel() for gradient in gradients if gradient is not None])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_loop_and_the_arrays_give_the_same_loss_and_gradients(seed):
    network, pulls = build_network(seed), random_pulls(seed)
    loop, loop_gradients = loss_and_gradients(loop_loss, network, pulls)
    arrays, array_gradients = loss_and_gradients(array_loss, network, pulls)
    assert float(arrays) == pytest.approx(float(loop), rel=1e-5)
    assert len(loop_gradients) == len(network.trainable_variables)
    for ours, theirs in zip(array_gradients, loop_gradients, strict=True):
        assert np.any(theirs.numpy() != 0)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_broadcast_mistake_is_the_product_of_two_means_and_another_gradient(seed):
    network, pulls = build_network(seed), random_pulls(seed)
    mistake, wrong = loss_and_gradients(broadcast_policy_loss, network, pulls)
    logits, values = network(pulls.observations)
    log_probs = np.take_along_axis(tf.nn.log_softmax(logits).numpy(), pulls.arms.numpy()[:, None], axis=1)
    advantages = pulls.rewards.numpy() - values.numpy()
    assert float(mistake) == pytest.approx(-log_probs.mean() * advantages.mean(), rel=1e-5)
    _, right = loss_and_gradients(matched_policy_loss, network, pulls)
    assert np.linalg.norm(vector(wrong) - vector(right)) > 0.1 * np.linalg.norm(vector(right))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mistake_is_the_array_loss_in_all_but_the_policy(seed):
    network, pulls = build_network(seed), random_pulls(seed)
    rest = [
        loss(network, pulls) - policy(network, pulls)
        for loss, policy in ((array_loss, matched_policy_loss), (broadcast_loss, broadcast_policy_loss))
    ]
    assert float(rest[0]) == pytest.approx(float(rest[1]), rel=1e-5)


def test_of_the_expected_gradient_the_mistake_leaves_one_part_in_n():
    n, network = 2, build_network(0)
    chances = tf.nn.softmax(network(tf.ones((1, 2)))[0])[0].numpy()
    expected = {broadcast_policy_loss: 0.0, matched_policy_loss: 0.0}
    for outcome in itertools.product(itertools.product((0, 1), (0, 1)), repeat=n):  # of all pulls: arm, reward
        arms, rewards = zip(*outcome, strict=True)
        pulls = Pulls(tf.ones((n, 2)), tf.constant(arms), tf.constant(rewards, tf.float32))
        chance = np.prod([chances[arm] * (PAYS[arm] if reward else 1 - PAYS[arm]) for arm, reward in outcome])
        for loss in expected:
            expected[loss] = expected[loss] + chance * vector(loss_and_gradients(loss, network, pulls)[1])
    wrong, right = expected.values()
    assert np.linalg.norm(right) > 0.1
    np.testing.assert_allclose(n * wrong, right, atol=1e-6)


def test_our_losses_refuse_the_shapes_of_the_mistake():
    logits, actions, column = tf.zeros((PULLS, 1, 2)), tf.zeros((PULLS, 1), tf.int32), tf.zeros((PULLS, 1))
    policy_gradient_loss(logits, actions, column)  # n rows of one environment, all alike: right
    with pytest.raises(ValueError, match=r"logits must have rank 3, got shape \(24, 2\)"):
        policy_gradient_loss(logits[:, 0], actions[:, 0], column)
    with pytest.raises(ValueError, match=r"actions must have rank 2, got shape \(24,\).*advantages \(24, 1\)"):
        policy_gradient_loss(logits, actions[:, 0], column)
    with pytest.raises(ValueError, match=r"advantages must have rank 2, got shape \(24,\)"):
        policy_gradient_loss(logits, actions, column[:, 0])
    with pytest.raises(ValueError, match=r"actions has shape \(24, 1\) but advantages has shape \(1, 24\)"):
        policy_gradient_loss(logits, actions, tf.transpose(column))
    with pytest.raises(ValueError, match=r"values has shape \(24, 1\) but returns has shape \(1, 24\)"):
        value_loss(column, tf.transpose(column))


@pytest.fixture(scope="module")
def compared() -> tuple[BanditResult, int]:
    calls: list[None] = []
    return compare_losses(seeds=[0, 1], on_progress=lambda: calls.append(None)), len(calls)


def test_the_loop_and_the_arrays_learn_the_better_arm_and_the_mistake_does_not(compared):
    result, _ = compared
    assert result.learned == {"loop": 2, "array": 2, "broadcast mistake": 0}
    assert min(result.final_probabilities["loop"] + result.final_probabilities["array"]) > 0.95
    assert max(result.final_probabilities["broadcast mistake"]) < 0.75


def test_the_loop_and_the_arrays_see_the_same_pulls_and_learn_the_same(compared):
    result, _ = compared
    curves = {(curve.loss, curve.seed): np.array(curve.probabilities) for curve in result.curves}
    assert set(curves) == set(itertools.product(LOSSES, (0, 1)))
    for seed in (0, 1):
        assert curves["loop", seed].shape == (result.updates,)
        np.testing.assert_allclose(curves["loop", seed], curves["array", seed], atol=1e-5)
        assert np.abs(curves["broadcast mistake", seed] - curves["array", seed]).max() > 0.1
    assert np.abs(curves["array", 0] - curves["array", 1]).max() > 0.01


def test_learning_is_gradient_descent_on_pulls_of_ones_own():
    network, rng, states = build_network(1), np.random.default_rng(1), np.ones((PULLS, 2), np.float32)
    preferences = [tf.nn.softmax(network(states)[0])[0, 1]]
    _, gradients = loss_and_gradients(array_loss, network, draw_pulls(rng, states, float(preferences[0])))
    for variable, gradient in zip(network.trainable_variables, gradients, strict=True):
        variable.assign_sub(0.2 * gradient)
    preferences.append(tf.nn.softmax(network(states)[0])[0, 1])
    assert learn("array", 1, updates=1).probabilities == (pytest.approx(float(preferences[1]), rel=1e-5),)
    assert abs(float(preferences[1] - preferences[0])) > 0.01


def test_a_comparison_says_how_far_the_losses_are_apart(compared):
    result, progress = compared
    assert progress == 6
    assert largest_gap([Gap(1, 4), Gap(3, 2)]) == Gap(3, 4)
    assert 0 <= result.loop_from_array.loss < 1e-6
    assert 0 < result.loop_from_array.gradients < 1e-6
    assert result.mistake_from_array.loss > 1e-5
    assert result.mistake_from_array.gradients > 0.01
    assert "loop 2, array 2, broadcast mistake 0" in result.sentences()[-1]
    headings, rows = result.table()
    assert [row[:2] for row in rows] == [("loop", "2 of 2"), ("array", "2 of 2"), ("broadcast mistake", "0 of 2")]
    assert {len(row) for row in rows} == {len(headings)}


def values_and_gradients(critic) -> tuple[np.ndarray, np.ndarray]:
    with tf.GradientTape() as tape:
        values = critic(random_pulls(0).observations)
        loss = tf.reduce_mean(tf.square(3.0 - values))
    return values.numpy(), vector(tape.gradient(loss, critic.trainable_variables))


def test_a_critic_that_ends_in_a_softmax_of_one_unit_is_constantly_one_and_has_no_gradient():
    critic = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "softmax")])
    with pytest.warns(UserWarning, match="will always return the value 1"):
        values, gradients = values_and_gradients(critic)
    assert np.all(values == 1)
    assert not np.any(gradients)
    critic.layers[-1].activation = None
    values, gradients = values_and_gradients(critic)
    assert np.unique(values).size == PULLS
    assert np.all(gradients != 0)


def test_activations_kept_between_steps_have_no_gradient_or_that_of_old_weights():
    network, pulls = build_network(0), random_pulls(0)
    logits, values = network(pulls.observations)  # while acting, as a rollout could store them
    with tf.GradientTape() as tape:
        advantages = (pulls.rewards - values)[:, None]
        loss = policy_gradient_loss(logits[:, None], pulls.arms[:, None], advantages)
    assert tape.gradient(loss, network.trainable_variables) == [None] * len(network.trainable_variables)

    _, before = loss_and_gradients(array_loss, network, pulls)
    with tf.GradientTape() as tape:  # one tape around acting, an update, and learning
        loss = array_loss(network, pulls)
        for variable, gradient in zip(network.trainable_variables, before, strict=True):
            variable.assign_sub(gradient)
    stale = vector(tape.gradient(loss, network.trainable_variables))
    _, now = loss_and_gradients(array_loss, network, pulls)
    np.testing.assert_array_equal(stale, vector(before))
    assert np.linalg.norm(stale - vector(now)) > 0.1 * np.linalg.norm(vector(now))
