"""One compiled gradient step on one batch: forward, tape, mean over replicas, clip, apply."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import keras
import tensorflow as tf

from a2c.algorithms.returns import Moments, explained_variance, pooled
from a2c.config import UserError
from a2c.execution.compile import Compiled, Tap, untapped
from a2c.execution.replicas import ALONE, Replicas
from a2c.shapes import check_shapes

Metrics = dict[str, tf.Tensor]  # float32 by name: scalars, and what is told of each row, such as DQN's td_errors
Batch = Any  # a named tuple of tensors or arrays, each [t, B, ...]
Pool = Callable[[Moments], Moments]  # the moments of a slice -> those of the joint batch

DECISIVE = ("total_loss", "grad_norm")  # the metrics of which all must be finite, or a step is not applied


class Fit(NamedTuple):
    """The result of a loss function for a batch, or for a replica's slice of one."""

    loss: tf.Tensor  # scalar, to be minimised
    metrics: Metrics  # means over the batch; GradientStep adds total_loss, explained_variance, grad_norm, learning_rate
    errors: Moments | None = None  # of returns - values; without them there is no explained_variance
    returns: Moments | None = None


LossFunction = Callable[[Batch, Tap, Pool], Fit]


@runtime_checkable
class Step(Protocol):
    """A step of an update: a compiled function of one batch that changes the variables it trains.

    Attributes:
        signature: the structure of a batch, as TensorSpecs.
        compiled: `apply`, compiled as the mode says.
    """

    signature: Batch
    compiled: Compiled

    def __call__(self, batch: Batch) -> Metrics:
        """Make the step; if it is not finite, nothing changes."""
        ...

    def apply(self, batch: Batch, tap: Tap = untapped) -> Metrics:
        """The step before it is compiled; see `GradientStep.apply`."""
        ...

    def gradients(self, batch: Batch, tap: Tap = untapped) -> tuple[list[tf.Tensor], Any]:
        """The gradients before they are clipped, or the whole step before a line search, and how they were found.

        Nothing is applied.
        """
        ...

    def is_finite(self, metrics: Metrics) -> bool:
        """Whether the step with these metrics was finite."""
        ...


class GradientStep:
    """A compiled optimizer step on a loss.

    Each of several replicas works on its slice of the B environments; the step is that of the joint batch.

    Args:
        loss: of a batch; it calls the network.
        variables: those to train.
        optimizer: built here, so that its slots exist before anything is traced or restored.
        signature: the structure of a batch, as TensorSpecs.
        max_grad_norm: limit of the global norm of all gradients.
        mode: see `Compiled`.
        replicas: variables and optimizer were made in their scope.
        apply_to: the variables that the gradients are applied to, one for each of `variables`; default: `variables`.
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
        apply_to: Sequence[Any] | None = None,
    ) -> None:
        self.loss = loss
        self.variables = list(variables)
        self.apply_to = self.variables if apply_to is None else list(apply_to)
        self.optimizer = optimizer
        if not hasattr(signature, "_fields"):
            raise UserError(f"The signature of a GradientStep is a {type(signature).__name__}; make it a named tuple.")
        self.signature = signature
        self.max_grad_norm = max_grad_norm
        self.replicas = replicas
        with replicas.scope():
            optimizer.build(self.apply_to)
        self.compiled = Compiled(self.apply, mode, signature, as_operation=replicas.strategy is None)

    def __call__(self, batch: Batch) -> Metrics:
        """Make one step. The metrics are tensors: read them only to show them.

        If the loss or the gradients are not finite (`is_finite`), variables and optimizer do not change.
        """
        return self.compiled(batch)  # type: ignore[no-any-return]

    def apply(self, batch: Batch, tap: Tap = untapped) -> Metrics:
        """The step before it is compiled.

        `tap` sees the intermediate tensors; if it returns them as they are, it changes nothing.
        """
        clipped, all_metrics = self.replicas.run(lambda b: self.clipped_gradients(b, tap), batch)
        metrics: Metrics = self.replicas.first(all_metrics)
        finite = [tf.math.is_finite(metrics[name]) for name in DECISIVE]
        tf.cond(tf.reduce_all(finite), lambda: self.apply_gradients(clipped), lambda: None)
        return metrics

    def gradients(self, batch: Batch, tap: Tap = untapped, pool: Pool = lambda own: own) -> tuple[list[tf.Tensor], Fit]:
        """The gradients of the loss on a batch of tensors (any number of environments), and the fit."""
        with tf.GradientTape() as tape:
            fit = self.loss(batch, tap, pool)
            if not isinstance(fit, Fit):
                raise TypeError(f"the loss of a GradientStep has to return a Fit, not {type(fit).__name__}")
            check_shapes("the loss of a GradientStep", 0, loss=fit.loss)
            fit = fit._replace(loss=tap("total_loss", fit.loss))
        return tap_each(tap, "gradient", self.variables, tape.gradient(fit.loss, self.variables)), fit

    def is_finite(self, metrics: Metrics) -> bool:
        """Whether the loss and the gradients of a step were finite, so that it was applied."""
        return all(math.isfinite(float(metrics[name])) for name in DECISIVE)

    def apply_gradients(self, clipped: Sequence[Any]) -> None:
        """One optimizer step with the result of `clipped_gradients`."""
        self.replicas.apply(self.optimizer, clipped, self.apply_to)

    def clipped_gradients(self, batch: Batch, tap: Tap = untapped) -> tuple[list[tf.Tensor], Metrics]:
        """The gradients of the joint batch, from one replica's slice: averaged first, then clipped by their norm."""
        gradients, fit = self.gradients(self._slice(batch), tap, self._pooled)
        told = [tf.stack([*fit.errors, *fit.returns])] if fit.errors and fit.returns else []
        count, named = len(gradients), len(fit.metrics)
        means = self.replicas.mean([*gradients, fit.loss, *fit.metrics.values(), *map(self.replicas.marked, told)])
        gradients, (total_loss, *rest) = means[:count], means[count:]
        clipped, grad_norm = tf.clip_by_global_norm(gradients, self.max_grad_norm)
        grad_norm = tap("grad_norm", grad_norm)
        clipped = tap_each(tap, "clipped_gradient", self.variables, clipped)
        return clipped, {
            "total_loss": total_loss,
            **dict(zip(fit.metrics, rest[:named], strict=True)),
            **({"explained_variance": _explained(rest[-1])} if told else {}),
            "grad_norm": grad_norm,
            "learning_rate": tf.convert_to_tensor(self.optimizer.learning_rate),
        }

    def _slice(self, batch: Batch) -> Batch:
        """The part of a batch with this replica's environments."""
        return tf.nest.map_structure(lambda field: self.replicas.slice(field, axis=1), batch)

    def _pooled(self, own: Moments) -> Moments:
        (each,) = self.replicas.mean([self.replicas.marked(tf.stack(own))])
        return pooled(Moments(each[:, 0], each[:, 1]))


def _explained(each: tf.Tensor) -> tf.Tensor:
    """The explained variance of the joint batch, from the moments [replicas, 4] of errors and returns."""
    return explained_variance(pooled(Moments(each[:, 0], each[:, 1])), pooled(Moments(each[:, 2], each[:, 3])))


def tap_each(tap: Tap, stage: str, variables: Sequence[Any], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Pass the tensors of all variables to `tap`, last layer first: the order in which gradients are computed.

    None, of a variable that the loss does not reach, stays None.
    """
    pairs = zip(reversed(variables), reversed(tensors), strict=True)
    shown = [None if x is None else tap(f"{stage} {v.path}", x) for v, x in pairs]
    return shown[::-1]
