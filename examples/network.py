"""A network of your own: a function with the arguments of `build` below; this one is for uint8 images.

In this folder:

    a2c train --env Catch --model network:build --run-dir runs/mine
    a2c eval runs/mine --model network:build

No command imports code that you do not name. For `train`, `--set model.name=network:build` is the same. From Python:
`train(config, run_dir, model=build)`.
"""

import keras
import numpy as np

from a2c.networks.model import Bias, PixelsToFloats


def build(observation_space, num_actions: int, *, seed: int, dtype: str) -> keras.Model:
    """Two convolutions, and a dense layer for each head.

    Args:
        observation_space: Gymnasium Box of one observation.
        num_actions: A.
        seed: of the weights. Give each initializer a seed; without one, eager and graph draw different weights.
        dtype: of the layers; the heads are float32.

    Returns:
        observations [N, *obs] -> (logits [N, A], values [N]).
    """
    seeds = np.random.default_rng(seed)

    def orthogonal(gain: float = np.sqrt(2)) -> keras.initializers.Initializer:
        return keras.initializers.Orthogonal(gain, seed=int(seeds.integers(2**31)))

    def hidden(x):
        return keras.layers.ReLU(dtype=dtype)(keras.layers.Dense(64, kernel_initializer=orthogonal(), dtype=dtype)(x))

    observations = keras.Input(observation_space.shape, dtype=str(observation_space.dtype))
    x = PixelsToFloats(standardized=True, dtype=dtype)(observations)
    for filters in (8, 16):
        # a bias of Conv2D's own is not exact, so it needs runtime.numerics=fast: see check_layers
        x = keras.layers.Conv2D(filters, 4, 3, use_bias=False, kernel_initializer=orthogonal(), dtype=dtype)(x)
        x = keras.layers.ReLU(dtype=dtype)(Bias(dtype=dtype)(x))
    x = keras.layers.Flatten(dtype=dtype)(x)
    logits = keras.layers.Dense(num_actions, kernel_initializer=orthogonal(0.01), dtype="float32")(hidden(x))
    values = keras.layers.Dense(1, kernel_initializer=orthogonal(1.0), dtype="float32")(hidden(x))
    return keras.Model(observations, (logits, keras.layers.Reshape((), dtype="float32")(values)))
