"""Optimizers and their schedules. They get gradients already clipped by their global norm."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from a2c.config import OptimizerConfig

COOLDOWN = 0.25  # the part of a run in which the schedule of this name falls


class RMSPropTF1(keras.optimizers.RMSprop):
    """RMSProp as in TensorFlow 1, and so in OpenAI's A2C.

    s <- rho s + (1 - rho) g^2,   w <- w - lr g / sqrt(s + epsilon),   s_0 = 1

    Epsilon is inside the root, as in Keras 3 (outside in PyTorch). The accumulator starts at ones (zeros in Keras and
    PyTorch). With ones the first ~1,000 updates are a warm-up; with zeros and small clipped gradients the first update
    is 1/sqrt(epsilon), about 300, times larger. Stable-Baselines3 found that A2C needs this form to learn reliably
    (`RMSpropTFLike`).
    """

    def build(self, variables: list[Any]) -> None:
        """Create the slots; every accumulator starts at ones."""
        super().build(variables)
        for accumulator in self._velocities:
            accumulator.assign(keras.ops.ones_like(accumulator))


class FusedAdam(keras.optimizers.Adam):
    """Adam (Kingma and Ba 2015, the efficient form at the end of section 2), one operation for each variable.

    Keras makes 14 of it, which pass over the weights one after another: twice the time, and other last bits. For
    float32 variables, without Keras's `amsgrad`.
    """

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: tf.Tensor) -> None:
        """Update a variable and its two moments."""
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=_handle(variable),
            m=_handle(self._momentums[index]),
            v=_handle(self._velocities[index]),
            beta1_power=tf.pow(self.beta_1, step),
            beta2_power=tf.pow(self.beta_2, step),
            lr=tf.cast(learning_rate, tf.float32),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


class Cooldown(keras.optimizers.schedules.LearningRateSchedule):
    """A constant rate that falls linearly to 0 over the last quarter of `total_steps` (Hägele et al. 2024)."""

    def __init__(self, learning_rate: float, total_steps: int) -> None:
        self.learning_rate, self.total_steps = learning_rate, total_steps

    def __call__(self, step: Any) -> tf.Tensor:
        """The rate of a step, float32."""
        left = 1 - tf.cast(step, tf.float32) / self.total_steps
        return self.learning_rate * tf.clip_by_value(left / COOLDOWN, 0.0, 1.0)


def _handle(variable: Any) -> tf.Tensor:
    """Of a Keras variable, or of a TensorFlow one."""
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle


def build_optimizer(config: OptimizerConfig, *, total_steps: int) -> keras.optimizers.Optimizer:
    """Build the optimizer that `config` names.

    Args:
        config: name and hyperparameters.
        total_steps: of the optimizer, in the whole run; a schedule that falls reaches 0 there.
    """
    learning_rate: Any = config.learning_rate
    if config.schedule == "linear":
        learning_rate = keras.optimizers.schedules.PolynomialDecay(config.learning_rate, total_steps, 0.0)
    elif config.schedule == "cooldown":
        learning_rate = Cooldown(config.learning_rate, total_steps)
    if config.name == "adam":
        return FusedAdam(learning_rate, beta_1=config.beta_1, beta_2=config.beta_2, epsilon=config.epsilon, name="adam")
    return RMSPropTF1(learning_rate, rho=config.rho, epsilon=config.epsilon)
