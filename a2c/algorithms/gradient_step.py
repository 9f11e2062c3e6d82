"""One compiled gradient step on one batch: forward, tape, mean over replicas, clip, apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from a2c.execution.compile import Compiled, Tap, untapped
from a2c.replicas import ALONE, Replicas
from a2c.returns import Moments, explained_variance, pooled

Metrics = dict[str, tf.Tensor]  # float32 scalars by name
Batch = Any  # a named tuple of tensors or arrays, each [t, B, ...]
Pool = Callable[[Moments], Moments]  # the moments of a slice -> those of the joint batch


class Fit(NamedTuple):
    """What a loss function returns for a batch, or for a replica's slice of one."""

    loss: tf.Tensor  # scalar, what is minimised
    metrics: Metrics  # means over the batch
    errors: Moments  # of returns - values
    returns: Moments


LossFunction = Callable[[Batch, Tap, Pool], Fit]


class GradientStep:
    """A compiled step of an optimizer on a loss.

    With several replicas each works on its slice of the B environments, and the step is that of their joint batch.

    Args:
        loss: of a batch; it calls the network.
        variables: that are trained.
        optimizer: built here, so that its slots exist before anything is traced or restored.
        signature: of a batch: the same structure, of TensorSpecs.
        max_grad_norm: of the global norm of all gradients.
        mode: see `Compiled`.
        replicas: within whose scope variables and optimizer were made.
    """

    def __init__(
        self,
        loss: LossFunction,
        variables: Sequence[Any],
        optimizer: keras.optimizers.Optimizer,
        signature: Batch,
        *,
        max_grad_norm: float,
        mode: str,
        replicas: Replicas = ALONE,
    ) -> None:
        self.loss = loss
        self.variables = list(variables)
        self.optimizer = optimizer
        self.signature = signature
        self.max_grad_norm = max_grad_norm
        self.replicas = replicas
        with replicas.scope():
            optimizer.build(self.variables)
        self.compiled = Compiled(self.apply, mode, signature, as_operation=replicas.strategy is None)

    def __call__(self, batch: Batch) -> Metrics:
        """One step; the metrics are tensors, read them only when they are shown.

        If they are not finite (`is_finite`) variables and optimizer stay as they are.
        """
        return self.compiled(batch)  # type: ignore[no-any-return]

    def apply(self, batch: Batch, tap: Tap = untapped) -> Metrics:
        """The step before it is compiled.

        `tap` is for looking at the numbers on their way; one that returns what it is given changes nothing.
        """
        clipped, all_metrics = self.replicas.run(lambda b: self._clipped_gradients(b, tap), batch)
        metrics: Metrics = self.replicas.first(all_metrics)

        def apply() -> None:
            self.replicas.apply(self.optimizer, clipped, self.variables)

        tf.cond(tf.math.is_finite(metrics["total_loss"]) & tf.math.is_finite(metrics["grad_norm"]), apply, lambda: None)
        return metrics

    def gradients(self, batch: Batch, tap: Tap = untapped, pool: Pool = lambda own: own) -> tuple[list[tf.Tensor], Fit]:
        """The gradients of the loss of a batch of tensors, of any number of environments; and the fit."""
        with tf.GradientTape() as tape:
            fit = self.loss(batch, tap, pool)
        return tap_each(tap, "gradient", self.variables, tape.gradient(fit.loss, self.variables)), fit

    def _clipped_gradients(self, batch: Batch, tap: Tap) -> tuple[list[tf.Tensor], Metrics]:
        """Those of the joint batch, from one replica's slice of it: first the mean, then its norm is clipped."""
        gradients, fit = self.gradients(self._slice(batch), tap, self._pooled)
        each = self.replicas.marked(tf.stack([*fit.errors, *fit.returns]))
        count = len(gradients)
        means = self.replicas.mean([*gradients, fit.loss, *fit.metrics.values(), each])
        gradients, (total_loss, *metrics, each) = means[:count], means[count:]
        clipped, grad_norm = tf.clip_by_global_norm(gradients, self.max_grad_norm)
        grad_norm = tap("grad_norm", grad_norm)
        clipped = tap_each(tap, "clipped_gradient", self.variables, clipped)
        errors, returns = pooled(Moments(each[:, 0], each[:, 1])), pooled(Moments(each[:, 2], each[:, 3]))
        return clipped, {
            "total_loss": total_loss,
            **dict(zip(fit.metrics, metrics, strict=True)),
            "explained_variance": explained_variance(errors, returns),
            "grad_norm": grad_norm,
            "learning_rate": tf.convert_to_tensor(self.optimizer.learning_rate),
        }

    def _slice(self, batch: Batch) -> Batch:
        """This replica's environments."""
        return tf.nest.map_structure(lambda field: self.replicas.slice(field, axis=1), batch)

    def _pooled(self, own: Moments) -> Moments:
        (each,) = self.replicas.mean([self.replicas.marked(tf.stack(own))])
        return pooled(Moments(each[:, 0], each[:, 1]))


def is_finite(metrics: Metrics) -> bool:
    """Whether the loss and the gradients of a step were finite, so that it was applied."""
    return bool(tf.math.is_finite(metrics["total_loss"]) & tf.math.is_finite(metrics["grad_norm"]))


def in_parts(batch: tf.Tensor, parts: int) -> list[tf.Tensor]:
    """A batch [N, ...] in so many parts of N / parts rows, in their order: each is the work of one core."""
    if parts == 1:
        return [batch]
    cut = tf.split(tf.reshape(batch, [parts, -1]), parts)  # long rows are not copied
    return [tf.reshape(part, [-1, *batch.shape[1:]]) for part in cut]


def tap_each(tap: Tap, stage: str, variables: Sequence[Any], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Show the tensors of all variables, the last layer's first: the order in which gradients are computed."""
    shown = [tap(f"{stage} {v.path}", x) for v, x in zip(reversed(variables), reversed(tensors), strict=True)]
    return shown[::-1]
