"""What the tests of whole updates share: weights that prefer something, and what was drawn from a replay."""

from typing import Any

import keras
import numpy as np
import pytest


def set_weights(*models: Any, seed: int = 7, kernel: float = 1.0, bias: float = 0.1) -> None:
    """Weights of networks that prefer something, and biases that are not zero: fresh ones hide mistakes."""
    rng = np.random.default_rng(seed)
    for model in models:
        for variable in model.trainable_variables:
            scale = bias if variable.path.endswith("bias") else kernel / np.sqrt(np.prod(variable.shape[:-1]))
            variable.assign((scale * rng.normal(size=variable.shape)).astype(np.float32))


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Copies of its trainable variables, by their paths."""
    return {variable.path: variable.numpy().copy() for variable in model.trainable_variables}


def recorded(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The samples of all draws to come, copied: the next draw overwrites them."""
    found, sample = [], algorithm.memory.sample

    def record(number: int, rng: np.random.Generator) -> Any:
        samples = sample(number, rng)
        found.append(type(samples)(*(array.copy() for array in samples)))
        return samples

    monkeypatch.setattr(algorithm.memory, "sample", record)
    return found


def with_statistics(space: Any, num_actions: int, *, seed: int, dtype: str) -> keras.Model:
    """A network with variables that are not trained."""
    observations = keras.Input(space.shape)
    x = keras.layers.BatchNormalization(moving_mean_initializer="ones")(keras.layers.Dense(8)(observations))
    y = keras.layers.BatchNormalization()(keras.layers.Dense(8)(observations))
    values = keras.layers.Reshape(())(keras.layers.Dense(1)(y))
    return keras.Model(observations, (keras.layers.Dense(num_actions)(x), values))
