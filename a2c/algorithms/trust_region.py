"""Natural gradient steps of a policy inside a trust region: pure functions.

P = number of weights of the policy's network, T = rollout_length, B = num_envs, A = num_actions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from a2c.shapes import check_shapes

RESIDUAL = 1e-5  # of conjugate gradients, relative to the right-hand side: float32 gives little more precision

Product = Callable[[tf.Tensor], tf.Tensor]  # a vector [P] -> a symmetric matrix [P, P] times it


class TrustRegion(NamedTuple):
    """The size limit of a step, and how the step is found."""

    max_kl: float  # limit of the KL between the old and the new policy, in nats
    cg_iterations: int  # at most
    cg_damping: float  # added to the diagonal of the Fisher matrix
    fisher_stride: int  # the Fisher matrix uses every n-th row of a batch
    backtracks: int  # number of step lengths to try
    backtrack_ratio: float  # of each step length to the one before


def mean_kl(old_logits: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """mean_t,b[ sum_a pi_old(a | s) (log pi_old(a | s) - log pi(a | s)) ] in nats; float32 scalar.

    Args:
        old_logits, logits: [T, B, A] float32.

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("mean_kl", 3, old_logits=old_logits, logits=logits)
    old_log_probs = tf.nn.log_softmax(old_logits)
    divergences = tf.exp(old_log_probs) * (old_log_probs - tf.nn.log_softmax(logits))
    return tf.reduce_mean(tf.reduce_sum(divergences, axis=-1))


def surrogate_loss(log_probs: tf.Tensor, old_log_probs: tf.Tensor, advantages: tf.Tensor) -> tf.Tensor:
    """-mean_t,b[ pi(a | s) / pi_old(a | s) A ] (Schulman et al. 2015, eq. 14, with the sign reversed); float32 scalar.

    Args:
        log_probs, old_log_probs, advantages: [T, B] float32; gradients flow into `log_probs` alone.

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("surrogate_loss", 2, log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages)
    ratios = tf.exp(log_probs - tf.stop_gradient(old_log_probs))
    return -tf.reduce_mean(ratios * tf.stop_gradient(advantages))


def fisher_product(logits_of: Callable[[tf.Tensor], tf.Tensor], weights: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """F v [P], with F the mean Fisher matrix of a softmax policy.

    F v = mean_n[ J^T (diag(pi) - pi pi^T) J v ] with J = d logits / d weights [A, P] of one observation. F is the
    Hessian of `mean_kl` where both policies are the same (Schulman et al. 2015, appendix C.1). J^T u is linear in u,
    and J v is its gradient with respect to u, so no layer needs a second derivative.

    Args:
        logits_of: weights [P] -> logits [N, A].
        weights: [P] float32, the point at which F is taken.
        v: [P] float32.

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("fisher_product", 1, weights=weights, v=v)
    with tf.GradientTape() as outer:
        with tf.GradientTape(persistent=True) as inner:
            inner.watch(weights)
            logits = logits_of(weights)
        u = tf.zeros_like(logits)
        outer.watch(u)
        pulled_back = inner.gradient(logits, weights, output_gradients=u)  # J^T u
    moved = outer.gradient(pulled_back, u, output_gradients=v)  # J v [N, A]
    probs = tf.nn.softmax(logits)
    centred = probs * (moved - tf.reduce_sum(probs * moved, axis=-1, keepdims=True))
    return inner.gradient(logits, weights, output_gradients=centred / float(logits.shape[0]))


def conjugate_gradients(product: Product, b: tf.Tensor, *, iterations: int) -> tf.Tensor:
    """Solve A x = b for x [P], with a positive definite A (Hestenes and Stiefel 1952); `b` = 0 gives 0.

    Args:
        product: v -> A v.
        b: [P] float32.
        iterations: at most; stops early if the residual is at most `RESIDUAL` times b, or is not finite.

    Raises:
        ValueError: if the rank of `b` is not 1.
    """
    check_shapes("conjugate_gradients", 1, b=b)
    enough = RESIDUAL**2 * _dot(b, b)

    def goes_on(x: tf.Tensor, r: tf.Tensor, p: tf.Tensor, rr: tf.Tensor) -> tf.Tensor:
        return rr > enough

    def iterate(x: tf.Tensor, r: tf.Tensor, p: tf.Tensor, rr: tf.Tensor) -> tuple[tf.Tensor, ...]:
        a_p = product(p)
        alpha = rr / _dot(p, a_p)
        x, r = x + alpha * p, r - alpha * a_p
        new_rr = _dot(r, r)
        return x, r, r + new_rr / rr * p, new_rr

    start = (tf.zeros_like(b), b, b, _dot(b, b))
    x, *_ = tf.while_loop(goes_on, iterate, start, maximum_iterations=iterations)
    return x


def whole_step(product: Product, direction: tf.Tensor, *, max_kl: float) -> tf.Tensor:
    """sqrt(2 max_kl / x^T A x) x: the step [P] along x to a KL of max_kl, if the KL is quadratic (appendix C).

    0 if the curvature x^T A x is not positive.
    """
    curvature = _dot(direction, product(direction))
    scale = tf.where(curvature > 0, tf.sqrt(2.0 * max_kl / curvature), 0.0)
    return scale * direction


class LineSearch(NamedTuple):
    """The result of a line search."""

    is_accepted: tf.Tensor  # bool scalar
    tries: tf.Tensor  # int32 scalar
    fraction: tf.Tensor  # of the whole step, at the last try; the next three belong to this try
    weights: tf.Tensor  # [P] float32
    loss: tf.Tensor  # float32 scalar
    kl: tf.Tensor  # float32 scalar, nats


def line_search(
    evaluate: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    weights: tf.Tensor,
    step: tf.Tensor,
    loss: tf.Tensor,
    region: TrustRegion,
) -> LineSearch:
    """Try the whole step, then shorter ones, until the loss is below `loss` and the KL at most max_kl (appendix C).

    A loss or KL that is not finite is not accepted.

    Args:
        evaluate: weights [P] -> loss and KL, float32 scalars.
        weights, step: [P] float32.
        loss: at `weights`.
        region: max_kl, backtracks, backtrack_ratio.

    Raises:
        ValueError: if ranks or shapes do not match.
    """
    check_shapes("line_search", 1, weights=weights, step=step)
    fractions = tf.constant([region.backtrack_ratio**i for i in range(region.backtracks)])

    def attempt(before: LineSearch) -> tuple[LineSearch]:
        fraction = fractions[before.tries]
        tried = weights + fraction * step
        new_loss, kl = evaluate(tried)
        accepted = (new_loss < loss) & (kl <= region.max_kl)
        return (LineSearch(accepted, before.tries + 1, fraction, tried, new_loss, kl),)

    start = LineSearch(tf.constant(False), tf.constant(0), tf.constant(0.0), weights, loss, tf.constant(0.0))
    found: tuple[LineSearch] = tf.while_loop(
        lambda found: ~found.is_accepted, attempt, (start,), maximum_iterations=region.backtracks
    )
    return found[0]


def flat(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """All entries as one vector [P]."""
    return tf.concat([tf.reshape(x, [-1]) for x in tensors], axis=0)


def unflat(vector: tf.Tensor, variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """A vector [P], split into the shapes of `variables`: the inverse of `flat`."""
    sizes = [v.shape.num_elements() for v in variables]
    return [tf.reshape(x, v.shape) for x, v in zip(tf.split(vector, sizes), variables, strict=True)]


def _dot(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(x * y)
