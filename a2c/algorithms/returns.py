"""Returns and advantages: pure time-major functions, all by one reverse recursion.

T = rollout_length, B = num_envs. Row t: obs_t -> action_t -> reward_t; values[t] = V(obs_t).
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from a2c.shapes import check_shapes


class Targets(NamedTuple):
    """The targets of the losses; no gradient flows through either."""

    advantages: tf.Tensor  # [T, B] float32
    returns: tf.Tensor  # [T, B] float32: advantages + values, the target of the value function


def reverse_recursion(deltas: tf.Tensor, decays: tf.Tensor) -> tf.Tensor:
    """x_t = delta_t + decay_t * x_{t+1} for t = T-1 ... 0, with x_T = 0.

    Args:
        deltas: [T, B] float32.
        decays: [T, B] float32; 0 stops the recursion after row t.

    Returns:
        [T, B] float32.

    Raises:
        ValueError: if they do not have the same static shape [T, B].
    """
    check_shapes("reverse_recursion", 2, deltas=deltas, decays=decays)
    x = tf.zeros_like(deltas[0])
    rows: list[tf.Tensor] = []
    # unrolled: T is static and small, and a tf.while_loop costs more than its body
    for delta, decay in zip(tf.unstack(deltas)[::-1], tf.unstack(decays)[::-1], strict=True):
        x = delta + decay * x
        rows.append(x)
    return tf.stack(rows[::-1])


def gae(
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    ends: tf.Tensor,
    final_values: tf.Tensor,
    values: tf.Tensor,
    bootstrap_value: tf.Tensor,
    *,
    gae_lambda: float,
) -> Targets:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, eq. 16).

    delta_t = r_t + discount_t V'_t - V(s_t)
    A_t = delta_t + discount_t lambda A_{t+1}; the second term is 0 if row t is an end

    Inside an episode V'_t = V(s_{t+1}) and discount_t = gamma. If it terminated, or a lost life cuts the return,
    discount_t = 0. If it was truncated, only the time was up: discount_t = gamma and
    V'_t = V(last observation) = final_values_t. lambda = 1 gives n-step returns (`n_step_returns`).

    Args:
        rewards, discounts, final_values, values: [T, B] float32.
        ends: [T, B] bool: the return ends with row t.
        bootstrap_value: [B] float32, V of the observation after row T-1.
        gae_lambda: in [0, 1].

    Raises:
        ValueError: if ranks or shapes do not match, naming the arguments and their shapes.
    """
    check_shapes("gae", 2, rewards=rewards, discounts=discounts, ends=ends, final_values=final_values, values=values)
    check_shapes("gae", 1, bootstrap_value=bootstrap_value, values_of_one_row=values[0])
    values = tf.stop_gradient(values)
    next_values = tf.concat([values[1:], tf.stop_gradient(bootstrap_value)[None]], axis=0)
    # after an end, row t+1 belongs to another return: its value must not leak into this one
    next_values = tf.where(ends, final_values, next_values)
    deltas = rewards + discounts * next_values - values
    advantages = reverse_recursion(deltas, continuing(discounts, ends) * gae_lambda)
    return Targets(advantages, advantages + values)


def n_step_returns(
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    ends: tf.Tensor,
    final_values: tf.Tensor,
    bootstrap_value: tf.Tensor,
) -> tf.Tensor:
    """R_t = r_t + discount_t R_{t+1}, R_T = V(s_T); ends as in `gae` (Mnih et al. 2016, algorithm S3).

    Shapes and errors as in `gae`. Returns [T, B] float32.
    """
    check_shapes("n_step_returns", 2, rewards=rewards, discounts=discounts, ends=ends, final_values=final_values)
    check_shapes("n_step_returns", 1, bootstrap_value=bootstrap_value, rewards_of_one_row=rewards[0])
    decays = continuing(discounts, ends)
    received = rewards + (discounts - decays) * final_values
    last = received[-1] + decays[-1] * tf.stop_gradient(bootstrap_value)
    return reverse_recursion(tf.concat([received[:-1], last[None]], axis=0), decays)


def continuing(discounts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """The discounts [T, B] inside episodes, 0 at every end."""
    return tf.where(ends, tf.zeros_like(discounts), discounts)


class Moments(NamedTuple):
    """Mean and population variance, of one set or of several sets of the same size."""

    mean: tf.Tensor
    variance: tf.Tensor


def moments(x: tf.Tensor) -> Moments:
    """The moments of all entries of x; scalars."""
    mean = tf.reduce_mean(x)
    return Moments(mean, tf.reduce_mean(tf.square(x - mean)))


def pooled(each: Moments) -> Moments:
    """The moments of the union of N sets of the same size, from the moments [N] of each; scalars.

    By the law of total variance: the mean of the variances plus the variance of the means.
    """
    among = moments(each.mean)
    return Moments(among.mean, tf.reduce_mean(each.variance) + among.variance)


def normalize(advantages: tf.Tensor, over: Moments | None = None) -> tf.Tensor:
    """(A - mean) / (std + 1e-8), with the population standard deviation.

    Args:
        advantages: [T, B] float32.
        over: moments of the joint batch, if these are a slice of it; default: the moments of `advantages`.
    """
    mean, variance = moments(advantages) if over is None else over
    return (advantages - mean) / (tf.sqrt(variance) + 1e-8)


def explained_variance(errors: Moments, returns: Moments) -> tf.Tensor:
    """1 - Var(returns - values) / Var(returns): 1 is perfect, 0 no better than a constant. Scalar float32."""
    return 1.0 - errors.variance / (returns.variance + 1e-8)
