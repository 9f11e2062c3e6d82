"""Optimizers and their schedules. They get gradients already clipped by their global norm."""

from __future__ import annotations

from typing import Any

import keras

from a2c.config import OptimizerConfig


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


def build_optimizer(config: OptimizerConfig, *, total_updates: int) -> keras.optimizers.Optimizer:
    """Build the optimizer that `config` names.

    Args:
        config: name and hyperparameters.
        total_updates: optimizer steps of the whole run; the linear schedule reaches 0 there.
    """
    learning_rate: Any = config.learning_rate
    if config.schedule == "linear":
        learning_rate = keras.optimizers.schedules.PolynomialDecay(config.learning_rate, total_updates, 0.0)
    if config.name == "adam":
        return keras.optimizers.Adam(learning_rate, beta_1=config.beta_1, beta_2=config.beta_2, epsilon=config.epsilon)
    return RMSPropTF1(learning_rate, rho=config.rho, epsilon=config.epsilon)
