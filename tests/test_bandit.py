"""The two-armed bandit whose loss learns in a Python loop and not with arrays.

A loss summed sample by sample and one written with arrays are the same mathematics, unless advantages [n, 1] meet
log-probabilities [n]: their product is [n, n], and its mean is mean(advantage) x mean(log-probability), which has
forgotten which advantage belongs to which action. The array loss must be the loop's; the mistake must be refused.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from a2c.config import ModelConfig
from a2c.losses import a2c_loss, policy_gradient_loss
from a2c.model import build_model

N = 24
COEFS = {"value_loss_coef": 0.5, "entropy_coef": 0.01}
SEEDS = range(4)


class _Vector:
    """As much of a Gymnasium space as a model is built from."""

    shape = (2,)
    dtype = np.dtype(np.float32)


def network(seed: int) -> keras.Model:
    return build_model(ModelConfig(hidden_sizes=(8,)), _Vector(), 2, seed=seed)


def pulls(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations [N, 2], arms [N], and rewards [N]: arm 1 pays twice as often."""
    rng = np.random.default_rng(seed)
    arms = rng.integers(2, size=N).astype(np.int32)
    rewards = (rng.random(N) < np.where(arms == 1, 0.8, 0.4)).astype(np.float32)
    return rng.normal(size=(N, 2)).astype(np.float32), arms, rewards


def loop_loss(model, observations, arms, rewards):
    """One sample at a time: a Python float for every weight, a scalar for every term."""
    total = 0.0
    for observation, arm, reward in zip(observations, arms, rewards, strict=True):
        logits, value = model(observation[None])
        log_probs = tf.nn.log_softmax(logits[0])
        advantage = float(reward) - float(value[0])
        entropy = -tf.reduce_sum(tf.exp(log_probs) * log_probs)
        total += -log_probs[int(arm)] * advantage + 0.5 * (float(reward) - value[0]) ** 2 - 0.01 * entropy
    return total / N


def array_loss(model, observations, arms, rewards):
    """The same pulls as one rollout of N rows in one environment."""
    logits, values = model(observations)
    logits, values, rewards = logits[:, None], values[:, None], rewards[:, None]
    total, _ = a2c_loss(logits, values, arms[:, None], rewards - values, rewards, **COEFS)
    return total


def log_probs_and_column_of_advantages(model, observations, arms, rewards):
    logits, values = model(observations)
    log_probs = tf.gather(tf.nn.log_softmax(logits), arms, batch_dims=1)
    return log_probs, tf.stop_gradient(rewards[:, None] - values[:, None])  # [N] and [N, 1]


def broadcast_policy_loss(model, observations, arms, rewards):
    log_probs, advantages = log_probs_and_column_of_advantages(model, observations, arms, rewards)
    product = log_probs * advantages
    assert product.shape == (N, N)
    return -tf.reduce_mean(product)


def matched_policy_loss(model, observations, arms, rewards):
    logits, values = model(observations)
    return policy_gradient_loss(logits[:, None], arms[:, None], (rewards - values)[:, None])


def loss_and_gradients(loss, model, *data) -> tuple[float, list[np.ndarray]]:
    with tf.GradientTape() as tape:
        value = loss(model, *data)
    gradients = tape.gradient(value, model.trainable_variables)
    return float(value), [gradient.numpy() for gradient in gradients if gradient is not None]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_loop_and_the_arrays_give_the_same_loss_and_gradients(seed):
    model, data = network(seed), pulls(seed)
    loop, loop_gradients = loss_and_gradients(loop_loss, model, *data)
    arrays, array_gradients = loss_and_gradients(array_loss, model, *data)
    assert arrays == pytest.approx(loop, rel=1e-5)
    assert len(loop_gradients) == len(model.trainable_variables)
    for ours, theirs in zip(array_gradients, loop_gradients, strict=True):
        assert np.any(theirs != 0)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_broadcast_mistake_is_the_product_of_two_means_and_another_gradient(seed):
    model, data = network(seed), pulls(seed)
    mistake, mistaken = loss_and_gradients(broadcast_policy_loss, model, *data)
    log_probs, advantages = log_probs_and_column_of_advantages(model, *data)
    assert mistake == pytest.approx(-float(tf.reduce_mean(log_probs)) * float(tf.reduce_mean(advantages)), rel=1e-5)
    _, right = loss_and_gradients(matched_policy_loss, model, *data)
    wrong, correct = (np.concatenate([g.ravel() for g in gradients]) for gradients in (mistaken, right))
    assert np.linalg.norm(wrong - correct) > 0.1 * np.linalg.norm(correct)


def test_our_losses_refuse_the_shapes_of_the_mistake():
    logits, actions, column = tf.zeros((N, 1, 2)), tf.zeros((N, 1), tf.int32), tf.zeros((N, 1))
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
        a2c_loss(logits, column, actions, column, tf.transpose(column), **COEFS)


def probability_of_the_better_arm(loss, seed: int, updates: int = 60) -> float:
    """Learn from one's own pulls, at first-seen speed: plain gradient descent with a large step."""
    model, rng = network(seed), np.random.default_rng(seed)
    observations = np.ones((N, 2), np.float32)
    for _ in range(updates):
        logits, _ = model(observations[:1])
        arms = (rng.random(N) < tf.nn.softmax(logits)[0, 1].numpy()).astype(np.int32)
        rewards = (rng.random(N) < np.where(arms == 1, 0.9, 0.1)).astype(np.float32)
        _, gradients = loss_and_gradients(loss, model, observations, arms, rewards)
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
            variable.assign_sub(0.2 * gradient)
    return float(tf.nn.softmax(model(observations[:1])[0])[0, 1])


@pytest.mark.parametrize("seed", [0, 1])
def test_the_array_loss_learns_the_better_arm(seed):
    assert probability_of_the_better_arm(array_loss, seed) > 0.9


def test_the_broadcast_mistake_does_not_learn_it():
    def mistaken(model, *data):
        _, values = model(data[0])
        return broadcast_policy_loss(model, *data) + 0.5 * tf.reduce_mean((data[2] - values) ** 2)

    assert min(probability_of_the_better_arm(mistaken, seed) for seed in (0, 1)) < 0.75
