"""The A2C loss: policy gradient, value, entropy, and their sum. Pure functions of tensors and floats.

All losses are means over [T, B]; the entropy sums over actions. Signs: everything here is minimised, so the
sum is policy_loss + value_loss_coef * value_loss - entropy_coef * entropy. T = rollout_length, B = num_envs,
A = num_actions.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from a2c.shapes import check_shapes


class LossParts(NamedTuple):
    """The terms of the loss, each a float32 scalar before its coefficient."""

    policy_loss: tf.Tensor
    value_loss: tf.Tensor
    entropy: tf.Tensor


def policy_gradient_loss(logits: tf.Tensor, actions: tf.Tensor, advantages: tf.Tensor) -> tf.Tensor:
    """-mean_t,b[ log pi(a_t | s_t) A_t ] (Sutton et al. 2000; Mnih et al. 2016, arXiv 1602.01783).

    The advantage is a weight, not a function of the parameters: no gradient flows into it, so the policy's
    loss never trains the critic.

    Args:
        logits: [T, B, A] float32, of the policy that is being trained.
        actions: [T, B] int32.
        advantages: [T, B] float32.

    Raises:
        ValueError: where ranks or shapes do not match, naming the arguments and their shapes.
    """
    check_shapes("policy_gradient_loss", 3, logits=logits)
    check_shapes("policy_gradient_loss", 2, actions=actions, advantages=advantages, logits_of_one_action=logits[..., 0])
    log_probs = tf.gather(tf.nn.log_softmax(logits), actions, batch_dims=2)  # [T, B]
    return -tf.reduce_mean(log_probs * tf.stop_gradient(advantages))


def value_loss(values: tf.Tensor, returns: tf.Tensor) -> tf.Tensor:
    """mean_t,b[ (R_t - V(s_t))^2 ], without a half, as in OpenAI's and Stable-Baselines3's A2C.

    d(loss)/d(value) = -2 advantage / (T B). No gradient flows into the returns.

    Args:
        values, returns: [T, B] float32.

    Raises:
        ValueError: where ranks or shapes do not match.
    """
    check_shapes("value_loss", 2, values=values, returns=returns)
    return tf.reduce_mean(tf.square(tf.stop_gradient(returns) - values))


def entropy(logits: tf.Tensor) -> tf.Tensor:
    """mean_t,b[ -sum_a pi(a | s_t) log pi(a | s_t) ] in nats, of logits [T, B, A]; at most log A.

    Raises:
        ValueError: unless logits have rank 3.
    """
    check_shapes("entropy", 3, logits=logits)
    log_probs = tf.nn.log_softmax(logits)
    return -tf.reduce_mean(tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=-1))


def a2c_loss(
    logits: tf.Tensor,
    values: tf.Tensor,
    actions: tf.Tensor,
    advantages: tf.Tensor,
    returns: tf.Tensor,
    *,
    value_loss_coef: float,
    entropy_coef: float,
) -> tuple[tf.Tensor, LossParts]:
    """The sum that one update minimises, and its parts. Shapes and errors as in the three functions above."""
    parts = LossParts(
        policy_loss=policy_gradient_loss(logits, actions, advantages),
        value_loss=value_loss(values, returns),
        entropy=entropy(logits),
    )
    return parts.policy_loss + value_loss_coef * parts.value_loss - entropy_coef * parts.entropy, parts
