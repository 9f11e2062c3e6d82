"""Losses: policy gradient, surrogates, value, entropy; and of Q-values. Pure functions of tensors and floats.

All losses are means over [T, B]; the entropy sums over actions. The total of actor-critic algorithms, policy_loss +
value_loss_coef * value_loss - entropy_coef * entropy, is minimised. T = rollout_length, B = num_envs, A = num_actions.
"""

from __future__ import annotations

import tensorflow as tf

from a2c.shapes import check_shapes


def log_prob(logits: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
    """The log-probabilities log pi(a_t | s_t) [T, B] of actions [T, B] int32 under logits [T, B, A].

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("log_prob", 3, logits=logits)
    check_shapes("log_prob", 2, actions=actions, logits_of_one_action=logits[..., 0])
    return tf.gather(tf.nn.log_softmax(logits), actions, batch_dims=2)


def policy_gradient_loss(logits: tf.Tensor, actions: tf.Tensor, advantages: tf.Tensor) -> tf.Tensor:
    """-mean_t,b[ log pi(a_t | s_t) A_t ] (Sutton et al. 2000; Mnih et al. 2016, arXiv 1602.01783).

    The advantage is a constant weight: no gradient flows into it, so the policy loss never trains the critic.

    Args:
        logits: [T, B, A] float32, of the policy in training.
        actions: [T, B] int32.
        advantages: [T, B] float32.

    Raises:
        ValueError: if ranks or shapes do not match, naming the arguments and their shapes.
    """
    check_shapes("policy_gradient_loss", 3, logits=logits)
    check_shapes("policy_gradient_loss", 2, actions=actions, advantages=advantages, logits_of_one_action=logits[..., 0])
    return -tf.reduce_mean(log_prob(logits, actions) * tf.stop_gradient(advantages))


def value_loss(values: tf.Tensor, returns: tf.Tensor) -> tf.Tensor:
    """mean_t,b[ (R_t - V(s_t))^2 ], without the factor 1/2, as in OpenAI's and Stable-Baselines3's A2C.

    d(loss)/d(value) = -2 advantage / (T B). No gradient flows into the returns.

    Args:
        values, returns: [T, B] float32.

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("value_loss", 2, values=values, returns=returns)
    return tf.reduce_mean(tf.square(tf.stop_gradient(returns) - values))


def clipped_surrogate_loss(
    log_probs: tf.Tensor, old_log_probs: tf.Tensor, advantages: tf.Tensor, clip_range: tf.Tensor | float
) -> tuple[tf.Tensor, tf.Tensor]:
    """-mean_t,b[ min(r A, clip(r, 1 - e, 1 + e) A) ], r = pi(a | s) / pi_old(a | s) (Schulman et al. 2017, eq. 7).

    Args:
        log_probs, old_log_probs, advantages: [T, B] float32; gradients flow into `log_probs` only.
        clip_range: e.

    Returns:
        The loss, and the fraction of rows whose ratio is outside the range; float32 scalars.

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("clipped_surrogate_loss", 2, log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages)
    advantages = tf.stop_gradient(advantages)
    ratios = tf.exp(log_probs - tf.stop_gradient(old_log_probs))
    clipped = tf.clip_by_value(ratios, 1.0 - clip_range, 1.0 + clip_range)
    is_outside = tf.abs(tf.stop_gradient(ratios) - 1.0) > clip_range
    loss = -tf.reduce_mean(tf.minimum(ratios * advantages, clipped * advantages))
    return loss, tf.reduce_mean(tf.cast(is_outside, tf.float32))


def approximate_kl(log_probs: tf.Tensor, old_log_probs: tf.Tensor) -> tf.Tensor:
    """mean_t,b[ r - 1 - log r ], an estimate of KL(pi_old, pi) that is never negative (Schulman 2020, "k3").

    Args:
        log_probs, old_log_probs: [T, B] float32, of actions drawn from pi_old; no gradient flows.

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("approximate_kl", 2, log_probs=log_probs, old_log_probs=old_log_probs)
    log_ratios = tf.stop_gradient(log_probs - old_log_probs)
    return tf.reduce_mean(tf.exp(log_ratios) - 1.0 - log_ratios)


def clipped_value_loss(
    values: tf.Tensor, old_values: tf.Tensor, returns: tf.Tensor, clip_range: float | None
) -> tf.Tensor:
    """`value_loss`; with a clip range, of the larger error: that of the values or of the clipped ones (baselines' PPO).

    Args:
        values, old_values, returns: [T, B] float32; gradients flow into `values` only.
        clip_range: largest difference of clipped values from old values; None = no clipping.

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("clipped_value_loss", 2, values=values, old_values=old_values, returns=returns)
    if clip_range is None:
        return value_loss(values, returns)
    old_values, returns = tf.stop_gradient(old_values), tf.stop_gradient(returns)
    near = old_values + tf.clip_by_value(values - old_values, -clip_range, clip_range)
    return tf.reduce_mean(tf.maximum(tf.square(returns - values), tf.square(returns - near)))


def entropy(logits: tf.Tensor) -> tf.Tensor:
    """mean_t,b[ -sum_a pi(a | s_t) log pi(a | s_t) ] in nats, for logits [T, B, A]; at most log A.

    Raises:
        ValueError: if the rank of logits is not 3.
    """
    check_shapes("entropy", 3, logits=logits)
    log_probs = tf.nn.log_softmax(logits)
    return -tf.reduce_mean(tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=-1))


def duelling_q_values(advantages: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Q(s, a) = V(s) + A(s, a) - mean_a'[ A(s, a') ], [N, A] (Wang et al. 2016, arXiv 1511.06581, eq. 9).

    Args:
        advantages: [N, A] float32.
        values: [N] float32.

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("duelling_q_values", 2, advantages=advantages)
    check_shapes("duelling_q_values", 1, values=values, advantages_of_one_action=advantages[:, 0])
    return values[:, None] + advantages - tf.reduce_mean(advantages, axis=1, keepdims=True)


def huber_loss(errors: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """mean_t,b[ w h(e) ], h(e) = e^2 / 2 if |e| <= 1, else |e| - 1/2 (Huber 1964; Mnih et al. 2015 clip its gradient).

    d(loss)/d(error) = w clip(e, -1, 1) / (T B). No gradient flows into the weights.

    Args:
        errors, weights: [T, B] float32.

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("huber_loss", 2, errors=errors, weights=weights)
    size = tf.abs(errors)
    small = tf.minimum(size, 1.0)  # h = small (|e| - small / 2) in both cases
    return tf.reduce_mean(tf.stop_gradient(weights) * small * (size - 0.5 * small))


def soft_values(logits: tf.Tensor, q_values: tf.Tensor, temperature: tf.Tensor | float) -> tf.Tensor:
    """V(s) = sum_a pi(a | s) (Q(s, a) - alpha log pi(a | s)), [N] (Christodoulou 2019, arXiv 1910.07207, eq. 10).

    Its mean is what the policy of SAC maximises (eq. 12). No gradient flows into Q and the temperature.

    Args:
        logits, q_values: [N, A] float32.
        temperature: alpha.

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("soft_values", 2, logits=logits, q_values=q_values)
    log_probs = tf.nn.log_softmax(logits)
    gains = tf.stop_gradient(q_values) - tf.stop_gradient(temperature) * log_probs
    return tf.reduce_sum(tf.exp(log_probs) * gains, axis=-1)
