"""The compiled step of a policy along the natural gradient, inside a trust region.

P = number of weights of the policy's network, T = rollout_length, B = num_envs, A = num_actions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import keras
import tensorflow as tf

from a2c.algorithms.gradient_step import Batch, Metrics
from a2c.algorithms.losses import entropy, log_prob
from a2c.algorithms.parts import as_rows, by_parts
from a2c.algorithms.trust_region import (
    Product,
    TrustRegion,
    conjugate_gradients,
    fisher_product,
    flat,
    line_search,
    mean_kl,
    surrogate_loss,
    unflat,
    whole_step,
)
from a2c.data.rollout import Array
from a2c.execution.compile import Compiled, Tap, untapped


class PolicyBatch(NamedTuple):
    """The batch of a policy step."""

    observations: Array  # [T, B, *obs]
    actions: Array  # [T, B] int32, drawn by the current policy
    advantages: Array  # [T, B] float32


class Expansion(NamedTuple):
    """The surrogate to first order and the KL to second order, around the weights of a policy."""

    weights: tf.Tensor  # [P] float32
    logits: tf.Tensor  # [T, B, A] float32
    loss: tf.Tensor  # float32 scalar
    gradient: tf.Tensor  # of the loss, [P]
    grad_norm: tf.Tensor  # float32 scalar
    curvature: Product  # of the KL: the damped Fisher matrix


class NaturalGradientStep:
    """A compiled step of a policy inside a trust region: a `Step` without optimizer and without state.

    Args:
        network: of the policy alone: observations [N, *obs] -> logits [N, A].
        signature: of a batch.
        region: the limits of the step.
        mode: see `Compiled`.
        parts: number of parts that every batch is split into, one core each.
    """

    def __init__(
        self, network: keras.Model, signature: PolicyBatch, region: TrustRegion, *, mode: str, parts: int = 1
    ) -> None:
        self.network = network
        self.variables = network.trainable_variables
        self.signature = signature
        self.region = region
        self.parts = parts
        self.compiled = Compiled(self.apply, mode, signature, as_operation=True)
        # compiled in eager execution too: eager tapes add a sum over no axis after x + bias, so the contributions of
        # input, kernel and bias would be added in another order
        self._fisher_product = tf.function(
            lambda weights, v, rows: fisher_product(lambda at: self._forward(at, rows), weights, v), autograph=False
        )

    def __call__(self, batch: Batch) -> Metrics:
        """See `Step`."""
        return self.compiled(batch)  # type: ignore[no-any-return]

    def apply(self, batch: Batch, tap: Tap = untapped) -> Metrics:
        """The step before it is compiled. It assigns the weights once, if the line search accepts new ones."""
        around = self._expand(batch, tap)
        step = self._whole_step(around, tap)

        def evaluate(weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            logits = self._logits(weights, batch.observations)
            return _loss(logits, around.logits, batch), mean_kl(around.logits, logits)

        found = line_search(evaluate, around.weights, step, around.loss, self.region)
        tf.cond(found.is_accepted, lambda: self._assign(found.weights), lambda: None)
        return {
            "policy_loss": tf.where(found.is_accepted, tap("new_policy_loss", found.loss), around.loss),
            "entropy": tap("entropy", entropy(around.logits)),
            "kl": tf.where(found.is_accepted, tap("kl", found.kl), 0.0),
            "step_fraction": tf.where(found.is_accepted, tap("step_fraction", found.fraction), 0.0),
            "policy_grad_norm": around.grad_norm,
            "step_norm": tf.norm(step),
        }

    def gradients(self, batch: Batch, tap: Tap = untapped) -> tuple[list[tf.Tensor], Expansion]:
        """The whole step of each variable along the natural gradient, and the expansion it was computed from."""
        around = self._expand(batch, tap)
        return unflat(self._whole_step(around, tap), self.variables), around

    def is_finite(self, metrics: Metrics) -> bool:
        """Whether surrogate, gradient and step were finite; if not, the line search accepted nothing."""
        return all(math.isfinite(float(metrics[name])) for name in ("policy_loss", "policy_grad_norm", "step_norm"))

    def _expand(self, batch: PolicyBatch, tap: Tap) -> Expansion:
        weights = flat([tf.convert_to_tensor(v) for v in self.variables])
        with tf.GradientTape() as tape:
            tape.watch(weights)
            logits = tap("logits", self._logits(weights, batch.observations))
            loss = tap("policy_loss", _loss(logits, logits, batch))
        gradient = tap("policy_gradient", tape.gradient(loss, weights))
        grad_norm = tap("policy_grad_norm", tf.norm(gradient))
        some = as_rows(batch.observations[:: self.region.fisher_stride])

        def curvature(v: tf.Tensor) -> tf.Tensor:
            return self._fisher_product(weights, v, some) + self.region.cg_damping * v

        return Expansion(weights, logits, loss, gradient, grad_norm, curvature)

    def _whole_step(self, around: Expansion, tap: Tap) -> tf.Tensor:
        """The step [P] along -F^-1 g (descent) to the border of the trust region."""
        direction = conjugate_gradients(around.curvature, -around.gradient, iterations=self.region.cg_iterations)
        direction = tap("natural_gradient", direction)
        return tap("whole_step", whole_step(around.curvature, direction, max_kl=self.region.max_kl))

    def _logits(self, weights: tf.Tensor, observations: tf.Tensor) -> tf.Tensor:
        """Logits [T, B, A] of the network with the given weights [P], for observations [T, B, *obs]."""
        return tf.reshape(self._forward(weights, as_rows(observations)), [*observations.shape[:2], -1])

    def _forward(self, weights: tf.Tensor, observations: tf.Tensor) -> tf.Tensor:
        """Logits [N, A] for observations [N, *obs]."""
        values, fixed = unflat(weights, self.variables), self.network.non_trainable_variables
        return by_parts(lambda part: self.network.stateless_call(values, fixed, part)[0], observations, self.parts)

    def _assign(self, weights: tf.Tensor) -> None:
        for variable, value in zip(self.variables, unflat(weights, self.variables), strict=True):
            variable.assign(value)


def _loss(logits: tf.Tensor, old_logits: tf.Tensor, batch: PolicyBatch) -> tf.Tensor:
    return surrogate_loss(log_prob(logits, batch.actions), log_prob(old_logits, batch.actions), batch.advantages)
