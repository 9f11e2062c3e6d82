"""Keras actor-critic networks: observations [N, *obs] -> (logits [N, A], values [N]), float32.

Weights are orthogonal with gain sqrt 2 in the trunk, 0.01 in the policy head, 1 in the value head; biases are
zero (openai/baselines `common/models.py`, `a2c/utils.py`). Every initializer has its own seed, because an
unseeded one draws differently in eager and graph execution.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from a2c.config import ModelConfig, UserError
from a2c.extensions import as_user_error, find_extension, is_extension

Convolutions = tuple[tuple[int, int, int], ...]  # filters, kernel, stride of each

NATURE: Convolutions = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih et al. 2015
SMALL: Convolutions = ((16, 8, 4), (32, 4, 2))  # Mnih et al. 2013 and the A3C paper's feed-forward network
MOTION_GAIN = 4.0  # a small ball changes a grey level by 0.2 or less
IMPALA = (16, 32, 32)  # filters of the residual sections: Espeholt et al. 2018, arXiv 1802.01561


def build_model(
    config: ModelConfig, observation_space: Any, num_actions: int, *, seed: int, dtype: str = "float32"
) -> keras.Model:
    """Build the network that `config` names.

    Args:
        config: the network's name and sizes.
        observation_space: Gymnasium Box of one observation: uint8 pixels [C, H, W] or [H, W, C], or a vector.
        num_actions: A.
        seed: of the initial weights.
        dtype: Keras dtype policy of the trunk; the heads are always float32.

    Returns:
        A Keras model: observations [N, *obs] -> (logits [N, A] float32, values [N] float32).

    Raises:
        UserError: if the network does not fit the observations.
    """
    if is_extension(config.name):
        return _own_model(config.name, observation_space, num_actions, seed=seed, dtype=dtype)
    shape = tuple(observation_space.shape)
    name = config.name
    is_image = len(shape) == 3 and observation_space.dtype == np.uint8
    if name == "auto":
        name = "nature" if is_image else "mlp"
    if is_image != (name != "mlp"):
        kind = "uint8 images" if is_image else f"{observation_space.dtype} arrays of shape {shape}"
        raise UserError(f"model.name={name} does not fit observations that are {kind}; use model.name=auto.")
    seeds = np.random.default_rng(seed)
    trunk = _Trunk(dtype, seeds, motion=config.pixels == "motion")
    observations = keras.Input(shape, dtype=str(observation_space.dtype), name="observations")
    if name == "mlp":
        floats = trunk.flat_floats(observations)
    else:
        floats = trunk.pixels(observations, standardized=config.pixels == "standardized")
    features = trunk.features(name, floats, config)
    logits = trunk.head("policy", num_actions, 0.01)(features)
    if config.separate_value:
        trunk = _Trunk(dtype, seeds, "value_", motion=config.pixels == "motion")
        features = trunk.features(name, floats, config)
    value = trunk.head("value", 1, 1.0)(features)
    value = keras.layers.Reshape((), name="values", dtype="float32")(value)
    return keras.Model(observations, (logits, value), name=name)


def _own_model(name: str, observation_space: Any, num_actions: int, *, seed: int, dtype: str) -> keras.Model:
    """The network of a user's `module:builder`, with the arguments and the outputs of `build_model`."""
    build = find_extension(name, "model")
    with as_user_error(f"The network of {name} cannot be built"):
        model = build(observation_space, num_actions, seed=seed, dtype=dtype)
    shapes = [tuple(output.shape) for output in getattr(model, "outputs", ())]
    if shapes != [(None, num_actions), (None,)]:
        raise UserError(
            f"The network of {name} has outputs of shapes {shapes}, and needs logits (None, {num_actions}) and values "
            "(None,); end the latter with keras.layers.Reshape(())."
        )
    return model


def weight_shapes(config: ModelConfig, observation_space: Any, num_actions: int) -> list[tuple[int, ...]]:
    """The shapes of the variables of `build_model`'s network, in order, without allocating them.

    Args:
        config: the network's name and sizes.
        observation_space: as for `build_model`.
        num_actions: A.

    Raises:
        UserError: if the network does not fit the observations.
    """

    def build() -> list[tuple[int, ...]]:
        # in this scope the variables are never initialized
        with keras.StatelessScope(initialize_variables=False):
            return [tuple(v.shape) for v in build_model(config, observation_space, num_actions, seed=0).variables]

    # in a new thread: Keras lists uninitialized variables by thread, and would initialize them in its next scope
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(build).result()


class PixelsToFloats(keras.layers.Layer):
    """uint8 [N, C, H, W] or [N, H, W, C] -> floats [N, H, W, C]. The smaller outer axis is the channels.

    Args:
        standardized: False: x / 255. True: (x - mean) / standard deviation, of each observation.
        **kwargs: of every Keras layer.
    """

    def __init__(self, *, standardized: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.standardized = standardized

    def call(self, pixels: tf.Tensor) -> tf.Tensor:
        """Transpose the bytes, then cast them: a quarter of the memory traffic of the other order."""
        if pixels.shape[1] < pixels.shape[3]:
            pixels = tf.transpose(pixels, [0, 2, 3, 1])
        if not self.standardized:
            return tf.cast(pixels, self.compute_dtype) * tf.cast(1 / 255, self.compute_dtype)
        x = tf.cast(pixels, tf.float32) * (1 / 255)
        x -= tf.reduce_mean(x, axis=[1, 2, 3], keepdims=True)
        variance = tf.reduce_mean(tf.square(x), axis=[1, 2, 3], keepdims=True)
        return tf.cast(x * tf.math.rsqrt(variance + 1e-4), self.compute_dtype)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The output shape, without a call of the layer: Keras asks for it when the model is built."""
        n, a, b, c = input_shape
        return (n, b, c, a) if a < c else (n, a, b, c)  # type: ignore[operator]


class MotionConv2D(keras.layers.Conv2D):
    """A convolution of the newest frame and of the changes from each frame to the next, these `MOTION_GAIN` times.

    What stands still cancels out of the changes, so they show a small ball as strongly as a large background. They are
    a linear map of the frames [N, H, W, C], newest last. So the kernel is mapped and not the frames, which is free.
    """

    def call(self, frames: tf.Tensor) -> tf.Tensor:
        """Convolve the frames."""
        return self.convolution_op(frames, self.frame_kernel())

    def frame_kernel(self) -> tf.Tensor:
        """The kernel for the frames themselves: frame j is in change j - 1 with a plus and in change j with a minus."""
        changes, newest = MOTION_GAIN * self.kernel[:, :, :-1], self.kernel[:, :, -1:]
        return tf.concat([tf.zeros_like(newest), changes], axis=2) + tf.concat([-changes, newest], axis=2)


class Bias(keras.layers.Layer):
    """x + b over the last axis.

    The built-in bias of a convolution is BiasAdd. oneDNN fuses its gradient with the convolution's in graphs but not
    in eager execution, so the two differ in the last bits. The gradient of a plain addition is never fused.
    """

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Create the bias: one zero for each channel."""
        self.bias = self.add_weight(shape=(input_shape[-1],), initializer="zeros", name="bias")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Add the bias."""
        return x + self.bias


class MaxPool(keras.layers.Layer):
    """Max pooling with 3 x 3 windows and stride 2: [N, H, W, C] -> [N, H / 2, W / 2, C], rounded up.

    oneDNN rewrites the pooling and its gradient in graphs but not in eager execution, and then sums overlapping
    windows in another order. So each of the two is a compiled function here, in eager execution too.
    """

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Fix the signatures, for any batch size, so that nothing is traced twice."""
        x, y = (
            tf.TensorSpec((None, *shape[1:]), self.compute_dtype)
            for shape in (input_shape, self.compute_output_shape(input_shape))
        )
        pool = tf.function(_max_pool, input_signature=(x,))
        gradient = tf.function(_max_pool_gradient, input_signature=(x, y))
        self.pool = tf.custom_gradient(lambda x: (pool(x), lambda upstream: gradient(x, upstream)))

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Pool the windows."""
        return self.pool(x)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """See `PixelsToFloats`."""
        n, height, width, channels = input_shape
        return (n, -(-height // 2), -(-width // 2), channels)  # type: ignore[operator]


def _max_pool(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.max_pool2d(x, 3, 2, "SAME")


def _max_pool_gradient(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = _max_pool(x)  # again: oneDNN rewrites the gradient only if its pooling is in the same graph
    return tape.gradient(y, x, output_gradients=upstream)


# the layers of `build_model`'s networks, each with its allowed activations: see `check_layers`
LINEAR, TANH = keras.activations.linear, keras.activations.tanh
PROVEN_LAYERS: dict[type, tuple[Any, ...]] = {
    **dict.fromkeys((keras.layers.InputLayer, keras.layers.Flatten, keras.layers.Reshape, keras.layers.Add), (None,)),
    **dict.fromkeys((keras.layers.ReLU, PixelsToFloats, Bias, MaxPool), (None,)),
    **dict.fromkeys((keras.layers.Conv2D, MotionConv2D, keras.layers.Dense), (LINEAR,)),
    keras.layers.Activation: (LINEAR, TANH),
}


def check_layers(model: keras.Model) -> None:
    """Check that a model has only layers that were shown to give the same bits in eager and graph execution.

    Only the layers of `build_model`'s networks were compared.

    Raises:
        UserError: for the first other layer.
    """
    # the operations of a functional model are its layers and bare keras.ops; other models do not list theirs
    for layer in getattr(model, "operations", [model]):
        kind = type(layer)
        if isinstance(layer, keras.layers.Conv2D) and layer.use_bias:
            raise UserError(
                f"The Conv2D layer {layer.name!r} is not exact, since oneDNN fuses the gradient of its bias in graphs; "
                "use use_bias=False and a2c.networks.model.Bias after it, or runtime.numerics=fast."
            )
        if getattr(layer, "activation", None) not in PROVEN_LAYERS.get(kind, ()):
            raise UserError(
                f"The layer {layer.name!r} ({kind.__name__}) was never shown to be exact; use the layers of the "
                "networks in a2c.networks.model, with ReLU() and Activation('tanh') as layers of their own, or "
                "runtime.numerics=fast."
            )


class _Trunk:
    """Makes the layers of one network, with its dtype, seeds, and names that do not depend on the process."""

    def __init__(self, dtype: str, seeds: np.random.Generator, prefix: str = "", *, motion: bool) -> None:
        self.dtype = dtype
        self.seeds = seeds
        self.prefix = prefix  # of the names of layers
        self.layers = 0
        self.next_conv = MotionConv2D if motion else keras.layers.Conv2D

    def orthogonal(self, gain: float) -> keras.initializers.Initializer:
        return keras.initializers.Orthogonal(gain, seed=int(self.seeds.integers(2**31)))

    def named(self, kind: str) -> dict[str, str]:
        self.layers += 1
        return {"name": f"{self.prefix}{kind}_{self.layers}", "dtype": self.dtype}

    def features(self, name: str, floats: Any, config: ModelConfig) -> Any:
        if name == "mlp":
            return self.mlp(floats, config.hidden_sizes)
        if name == "impala":
            return self.impala(floats, IMPALA, 256)
        own, units = (NATURE, 512) if name == "nature" else (SMALL, 256)
        return self.convolutions(floats, own if config.conv_layers is None else config.conv_layers, units)

    def pixels(self, observations: Any, *, standardized: bool) -> Any:
        return PixelsToFloats(standardized=standardized, dtype=self.dtype, name="pixels")(observations)

    def flat_floats(self, observations: Any) -> Any:
        x = keras.layers.Flatten(name="flatten", dtype="float32")(observations)
        return keras.layers.Activation("linear", dtype=self.dtype)(x)

    def relu(self, x: Any) -> Any:
        return keras.layers.ReLU(dtype=self.dtype)(x)

    def conv(self, x: Any, filters: int, kernel: int, stride: int, padding: str = "valid") -> Any:
        kind, self.next_conv = self.next_conv, keras.layers.Conv2D
        layer = kind(
            filters,
            kernel,
            stride,
            padding=padding,
            use_bias=False,
            kernel_initializer=self.orthogonal(np.sqrt(2)),
            **self.named("conv"),
        )
        return Bias(**self.named("bias"))(layer(x))

    def dense(self, x: Any, units: int) -> Any:
        initializer = self.orthogonal(np.sqrt(2))
        return keras.layers.Dense(units, kernel_initializer=initializer, **self.named("dense"))(x)

    def head(self, name: str, units: int, gain: float) -> keras.layers.Layer:
        return keras.layers.Dense(units, kernel_initializer=self.orthogonal(gain), dtype="float32", name=name)

    def convolutions(self, x: Any, layers: Convolutions, units: int) -> Any:
        for filters, kernel, stride in layers:
            if min(x.shape[1:3]) < kernel:
                raise UserError(
                    f"The images are too small for the model: a convolution of {kernel} x {kernel} meets "
                    f"{x.shape[1]} x {x.shape[2]} pixels; raise env.screen_size (Atari games), or set "
                    "smaller model.conv_layers."
                )
            x = self.relu(self.conv(x, filters, kernel, stride))
        return self.relu(self.dense(keras.layers.Flatten(dtype=self.dtype)(x), units))

    def impala(self, x: Any, sections: tuple[int, ...], units: int) -> Any:
        for filters in sections:
            x = self.conv(x, filters, 3, 1, "same")
            x = MaxPool(dtype=self.dtype)(x)
            for _ in range(2):
                y = self.conv(self.relu(x), filters, 3, 1, "same")
                y = self.conv(self.relu(y), filters, 3, 1, "same")
                x = keras.layers.Add(dtype=self.dtype)([x, y])
        x = keras.layers.Flatten(dtype=self.dtype)(self.relu(x))
        return self.relu(self.dense(x, units))

    def mlp(self, x: Any, hidden_sizes: tuple[int, ...]) -> Any:
        for units in hidden_sizes:
            x = keras.layers.Activation("tanh", dtype=self.dtype)(self.dense(x, units))
        return x
