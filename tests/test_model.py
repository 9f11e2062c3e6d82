"""The networks: sizes counted by hand, initial weights, pixels, precision, and the observations they refuse."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box

import a2c.networks.model
from a2c.config import ModelConfig, UserError
from a2c.networks.model import Bias, MaxPool, MotionConv2D, PixelsToFloats, build_model, check_layers

TINY = ((4, 4, 4), (8, 4, 2))


def image_space(*shape: int) -> Box:
    return Box(0, 255, shape, np.uint8)


def vector_space(size: int) -> Box:
    return Box(-1, 1, (size,), np.float32)


def build(space: Box, num_actions: int = 6, seed: int = 0, dtype: str = "float32", **config) -> keras.Model:
    return build_model(ModelConfig(**config), space, num_actions, seed=seed, dtype=dtype)


def tiny(seed: int = 0, **config) -> keras.Model:
    return build(image_space(4, 42, 42), seed=seed, name="small", conv_layers=TINY, **config)


def images(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(n, *shape), dtype=np.uint8)


@pytest.mark.parametrize(
    ("space", "num_actions", "config", "count"),
    [
        # 8x8x4x32+32, 4x4x32x64+64, 3x3x64x64+64, 7x7x64x512+512, 512x6+6, 512+1
        (image_space(4, 84, 84), 6, {"name": "nature"}, 8_224 + 32_832 + 36_928 + 1_606_144 + 3_078 + 513),
        (image_space(4, 84, 84), 18, {"name": "nature"}, 8_224 + 32_832 + 36_928 + 1_606_144 + 9_234 + 513),
        # 8x8x4x16+16, 4x4x16x32+32, 9x9x32x256+256, 256x6+6, 256+1
        (image_space(4, 84, 84), 6, {"name": "small"}, 4_112 + 8_224 + 663_808 + 1_542 + 257),
        # 3x3x4x16+16 and four of 3x3x16x16+16; 3x3x16x32+32 and four of 3x3x32x32+32; five of those;
        # 84 -> 42 -> 21 -> 11, 11x11x32x256+256; heads
        (
            image_space(4, 84, 84),
            6,
            {"name": "impala"},
            (592 + 4 * 2_320) + (4_640 + 4 * 9_248) + 5 * 9_248 + 991_488 + 1_542 + 257,
        ),
        # 4x64+64, 64x64+64, 64x2+2, 64+1
        (vector_space(4), 2, {"name": "mlp"}, 320 + 4_160 + 130 + 65),
        (vector_space(3), 5, {"name": "mlp", "hidden_sizes": (7,)}, 28 + 40 + 8),
        # 42 -> 10 -> 4: 4x4x4x4+4, 4x4x4x8+8, 4x4x8x256+256, heads
        (image_space(4, 42, 42), 6, {"name": "small", "conv_layers": TINY}, 260 + 520 + 33_024 + 1_542 + 257),
        (image_space(4, 42, 42), 6, {"name": "nature", "conv_layers": TINY}, 260 + 520 + 66_048 + 3_078 + 513),
        # one channel, and one layer only: 16 -> 7: 3x3x1x2+2, 7x7x2x256+256
        (image_space(1, 16, 16), 6, {"name": "small", "conv_layers": ((2, 3, 2),)}, 20 + 25_344 + 1_542 + 257),
    ],
)
def test_parameter_counts(space, num_actions, config, count):
    model = build(space, num_actions, **config)
    assert model.count_params() == count
    assert sum(int(np.prod(v.shape)) for v in model.trainable_variables) == count  # and all of it is trained


@pytest.mark.parametrize(("space", "name"), [(image_space(4, 84, 84), "nature"), (vector_space(4), "mlp")])
def test_auto_takes_nature_for_images_and_mlp_for_vectors(space, name):
    auto, named = build(space), build(space, name=name)
    assert auto.name == name
    assert auto.count_params() == named.count_params()


def test_only_bytes_of_rank_three_are_images():
    """Floats of that rank are numbers, not pixels to be divided by 255: auto flattens them."""
    floats = Box(-1, 1, (2, 8, 8), np.float32)
    assert build(floats).name == "mlp"
    with pytest.raises(UserError, match=r"model\.name=small does not fit"):
        build(floats, name="small")


NETWORKS = {
    "nature": (image_space(4, 42, 42), {"name": "nature"}),
    "small": (image_space(4, 42, 42), {"name": "small"}),
    "impala": (image_space(4, 20, 20), {"name": "impala"}),
    "mlp": (vector_space(5), {"name": "mlp"}),
}


@pytest.mark.parametrize("network", NETWORKS)
def test_kernels_are_orthogonal_with_their_gains_and_biases_zero(network):
    space, config = NETWORKS[network]
    model = build(space, **config)
    gains = {"policy": 0.01, "value": 1.0}
    kernels = 0
    for variable in model.trainable_variables:
        layer, kind = variable.path.split("/")[-2:]
        if kind == "bias":
            np.testing.assert_array_equal(variable.numpy(), np.zeros(variable.shape))
            continue
        kernels += 1
        matrix = variable.numpy().astype(np.float64).reshape(-1, variable.shape[-1])
        gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
        gain = gains.get(layer, np.sqrt(2))
        np.testing.assert_allclose(gram / gain**2, np.eye(len(gram)), atol=1e-5, err_msg=variable.path)
    assert kernels == {"nature": 6, "small": 5, "impala": 18, "mlp": 4}[network]


@pytest.mark.parametrize("network", NETWORKS)
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(network):
    space, config = NETWORKS[network]
    first, again, other = build(space, seed=3, **config), build(space, seed=3, **config), build(space, seed=4, **config)
    for a, b, c in zip(first.trainable_variables, again.trainable_variables, other.trainable_variables, strict=True):
        assert a.path == b.path  # names do not depend on what else was built in this process
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        assert a.path.endswith("bias") or np.any(a.numpy() != c.numpy()), a.path


def test_layers_of_equal_shape_start_with_different_weights():
    """One seed for all initializers would give twin layers."""
    model = build(vector_space(8), hidden_sizes=(8, 8, 8))
    a, b, c = (v.numpy() for v in model.trainable_variables if v.shape == (8, 8))
    assert np.any(a != b)
    assert np.any(b != c)
    assert np.any(a != c)


def test_building_a_model_does_not_touch_the_global_generators():
    keras.utils.set_random_seed(0)
    wanted = np.random.rand(3), tf.random.uniform((3,)).numpy()
    keras.utils.set_random_seed(0)
    tiny(seed=5)
    np.testing.assert_array_equal(np.random.rand(3), wanted[0])
    np.testing.assert_array_equal(tf.random.uniform((3,)).numpy(), wanted[1])


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("network", NETWORKS)
def test_outputs_are_float32_logits_and_values_of_rank_one(network, dtype):
    space, config = NETWORKS[network]
    model = build(space, num_actions=7, dtype=dtype, **config)
    observations = images(3, *space.shape) if space.dtype == np.uint8 else np.ones((3, *space.shape), np.float32)
    logits, values = model(observations)
    assert (logits.dtype, values.dtype) == (tf.float32, tf.float32)
    assert (logits.shape, values.shape) == ((3, 7), (3,))
    assert [tuple(shape) for shape in model.output_shape] == [(None, 7), (None,)]
    assert model.input.dtype == space.dtype.name
    assert np.isfinite(logits).all()
    assert np.isfinite(values).all()
    assert all(v.dtype == "float32" for v in model.trainable_variables)


def test_mixed_precision_computes_the_trunk_in_bfloat16_and_the_heads_in_float32():
    model = build(image_space(4, 42, 42), name="small", conv_layers=TINY, dtype="mixed_bfloat16")
    heads = {"policy", "value", "values"}
    trunk = [layer for layer in model.layers if layer.name not in heads | {"observations"}]
    assert {layer.compute_dtype for layer in trunk} == {"bfloat16"}
    assert {model.get_layer(name).compute_dtype for name in heads} == {"float32"}
    exact = tiny()
    exact.set_weights(model.get_weights())
    x = images(8, 4, 42, 42)
    values, wanted = model(x)[1].numpy(), exact(x)[1].numpy()
    assert np.any(values != wanted)
    np.testing.assert_allclose(values, wanted, atol=0.05 * np.max(np.abs(wanted)))


@pytest.mark.parametrize("pixels", ["scaled", "standardized", "motion"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_first_and_channels_last_are_the_same_network(channels, pixels):
    config = {"name": "small", "conv_layers": TINY, "pixels": pixels}
    first = build(image_space(channels, 42, 36), **config)
    last = build(image_space(42, 36, channels), **config)
    for a, b in zip(first.trainable_variables, last.trainable_variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    x = images(3, channels, 42, 36)
    for a, b in zip(first(x), last(np.moveaxis(x, 1, -1)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shape", [(4, 6, 5), (6, 5, 4)])
def test_scaled_pixels_against_numpy(shape):
    x = images(3, *shape)
    x[0].flat[:2] = 0, 255
    wanted = (np.moveaxis(x, 1, -1) if shape[0] == 4 else x).astype(np.float64) / 255
    ours = PixelsToFloats(standardized=False)(x)
    np.testing.assert_allclose(ours, wanted, rtol=1e-6)
    assert ours.numpy().min() == 0.0
    assert ours.numpy().max() == 1.0


@pytest.mark.parametrize("shape", [(4, 6, 5), (6, 5, 4)])
def test_standardized_pixels_against_numpy(shape):
    """Each observation by its own mean and deviation, over all of its frames: a dark one and a bright one."""
    x = images(3, *shape)
    x[0] = x[0] // 8
    x[1] = 200 + x[1] // 8
    wide = (np.moveaxis(x, 1, -1) if shape[0] == 4 else x).astype(np.float64) / 255
    mean, variance = wide.mean(axis=(1, 2, 3), keepdims=True), wide.var(axis=(1, 2, 3), keepdims=True)
    ours = PixelsToFloats(standardized=True)(x)
    np.testing.assert_allclose(ours, (wide - mean) / np.sqrt(variance + 1e-4), rtol=1e-4, atol=1e-5)
    assert abs(ours.numpy()[0].mean()) < 1e-5
    assert ours.numpy()[2].std() == pytest.approx(1.0, abs=1e-2)


def test_a_blank_screen_standardizes_to_zero():
    blank = np.full((2, 4, 6, 5), 77, np.uint8)
    np.testing.assert_allclose(PixelsToFloats(standardized=True)(blank), np.zeros((2, 6, 5, 4)), atol=1e-4)


def test_standardized_pixels_are_used_by_the_network():
    """An observation and the same one at half contrast look almost alike; scaled, they do not."""
    x = images(2, 4, 42, 42)
    dim = (x // 2 + 20).astype(np.uint8)
    gap = {}
    for pixels in ("scaled", "standardized"):
        model = tiny(pixels=pixels)
        values, others = model(x)[1].numpy(), model(dim)[1].numpy()
        gap[pixels] = np.max(np.abs(values - others)) / np.max(np.abs(values))
    assert gap["standardized"] < 0.05 < gap["scaled"]


@pytest.mark.parametrize("channels", [1, 4])
def test_motion_is_a_convolution_of_the_changes_and_the_newest_frame(channels):
    """The folded kernel on the frames, against the plain kernel on the changes themselves, in float64."""
    layer = MotionConv2D(5, 4, 2, use_bias=False)
    frames = images(3, 12, 10, channels) / np.float32(255)
    ours = layer(frames)
    wide = frames.astype(np.float64)
    seen = np.concatenate([4 * np.diff(wide, axis=-1), wide[..., -1:]], axis=-1)
    wanted = tf.nn.conv2d(seen, layer.kernel.numpy().astype(np.float64), 2, "VALID")
    np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["small", "impala"])
def test_motion_changes_the_first_convolution_of_each_trunk_alone(name):
    model = build(image_space(4, 36, 36), name=name, pixels="motion", separate_value=True)
    kinds = {layer.name: type(layer) for layer in model.layers if isinstance(layer, keras.layers.Conv2D)}
    assert {name for name, kind in kinds.items() if kind is MotionConv2D} == {"conv_1", "value_conv_1"}
    assert len(kinds) > 2


def test_a_still_background_cancels_out_of_the_changes():
    """Without the newest frame's kernel, a bright screen and a dark one look alike as long as nothing moves."""
    model = tiny(pixels="motion")
    conv = model.get_layer("conv_1")
    conv.kernel.assign(conv.kernel * np.array([1, 1, 1, 0], np.float32)[:, None])
    still = np.repeat(images(2, 1, 42, 42), 4, axis=1)
    logits, values = model(still)
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-5)
    np.testing.assert_allclose(values[0], values[1], atol=1e-5)
    moved = np.array(still)
    moved[:, -1, 20:24, 20:24] ^= 64
    assert np.max(np.abs(model(moved)[1] - values)) > 1e-2


def test_an_observation_is_judged_alone():
    """No layer mixes the observations of a batch."""
    for model in (tiny(pixels="standardized"), build(image_space(4, 20, 20), name="impala")):
        x = images(4, *model.input_shape[1:])
        together = model(x)
        for i in range(4):
            logits, values = model(x[i : i + 1])
            np.testing.assert_allclose(logits[0], together[0][i], rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(values[0], together[1][i], rtol=1e-4, atol=1e-6)


def numpy_convolution(x, kernel, bias, stride):
    """Valid cross-correlation of [N, H, W, C] with [k, k, C, F], then the ReLU."""
    k = kernel.shape[0]
    rows, columns = (x.shape[1] - k) // stride + 1, (x.shape[2] - k) // stride + 1
    out = np.zeros((len(x), rows, columns, kernel.shape[-1]))
    for i in range(rows):
        for j in range(columns):
            patch = x[:, i * stride : i * stride + k, j * stride : j * stride + k]
            out[:, i, j] = np.tensordot(patch, kernel, axes=3)
    return np.maximum(out + bias, 0)


def randomised(model: keras.Model) -> dict[str, np.ndarray]:
    """Give every bias a value that can be seen; return all weights as float64 by path."""
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign_add(0.1 * rng.normal(size=variable.shape).astype(np.float32))
    return {v.path: v.numpy().astype(np.float64) for v in model.trainable_variables}


def test_the_convolutional_network_against_numpy():
    model = tiny()
    w = randomised(model)
    pixels = images(3, 4, 42, 42)
    x = np.moveaxis(pixels, 1, -1) / 255
    kernels = [w[path] for path in w if path.startswith("conv")]
    biases = [w[path] for path in w if path.startswith("bias")]
    for kernel, bias, stride in zip(kernels, biases, (4, 2), strict=True):
        x = numpy_convolution(x, kernel, bias, stride)
    (dense,) = (path.rsplit("/", 1)[0] for path in w if path.startswith("dense") and path.endswith("kernel"))
    x = np.maximum(x.reshape(3, -1) @ w[f"{dense}/kernel"] + w[f"{dense}/bias"], 0)
    logits, values = model(pixels)
    np.testing.assert_allclose(logits, x @ w["policy/kernel"] + w["policy/bias"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values, (x @ w["value/kernel"] + w["value/bias"])[:, 0], rtol=1e-4, atol=1e-5)


def test_the_mlp_flattens_and_uses_tanh():
    model = build(Box(-1, 1, (2, 3), np.float32), hidden_sizes=(8, 5))
    w = randomised(model)
    hidden = [w[path] for path in w if path.startswith("dense")]
    observations = np.random.default_rng(1).normal(size=(4, 2, 3)).astype(np.float32)
    x = np.tanh(np.tanh(observations.reshape(4, 6) @ hidden[0] + hidden[1]) @ hidden[2] + hidden[3])
    logits, values = model(observations)
    np.testing.assert_allclose(logits, x @ w["policy/kernel"] + w["policy/bias"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(values, (x @ w["value/kernel"] + w["value/bias"])[:, 0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["nature", "small", "impala"])
def test_a_network_for_images_refuses_vectors(name):
    with pytest.raises(
        UserError, match=rf"model\.name={name} does not fit .* arrays of shape \(4,\); use model\.name=auto"
    ):
        build(vector_space(4), name=name)


def test_the_mlp_refuses_images():
    with pytest.raises(
        UserError, match=r"model\.name=mlp does not fit observations that are uint8 images; use model\.name=auto"
    ):
        build(image_space(4, 84, 84), name="mlp")


@pytest.mark.parametrize(("name", "smallest"), [("nature", 36), ("small", 20)])
def test_a_screen_too_small_for_the_convolutions_is_told_in_one_sentence(name, smallest):
    """Nature needs 36: (36 - 8) / 4 + 1 = 8, (8 - 4) / 2 + 1 = 3, one place for 3 x 3; the small one needs 20."""
    build(image_space(4, smallest, smallest), name=name)
    with pytest.raises(UserError, match=r"^The images are too small .*; raise env\.screen_size"):
        build(image_space(4, smallest - 1, smallest - 1), name=name)


# --- max pooling ----------------------------------------------------------------------------------------------------


def numpy_max_pool(x, upstream):
    """Windows of 3 x 3, two apart, as few cells of padding as will do, the odd one at the end; and the gradient.

    A window's gradient goes to the first of its largest numbers, row by row; windows overlap, so it is summed.
    """
    n, height, width, channels = x.shape
    rows, columns = -(-height // 2), -(-width // 2)
    top, left = (2 * rows + 1 - height) // 2, (2 * columns + 1 - width) // 2
    y, gradient = np.zeros((n, rows, columns, channels)), np.zeros(x.shape)
    for b, i, j, c in np.ndindex(y.shape):
        r, s = max(2 * i - top, 0), max(2 * j - left, 0)
        window = x[b, r : 2 * i - top + 3, s : 2 * j - left + 3, c]
        y[b, i, j, c] = window.max()
        k, m = np.unravel_index(window.argmax(), window.shape)
        gradient[b, r + k, s + m, c] += upstream[b, i, j, c]
    return y, gradient


def pooled(pool, x, upstream):
    """The maxima, and the gradient of their sum weighted with `upstream`."""
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = pool(x)
    return y, tape.gradient(y, x, output_gradients=upstream)


POOLED = {"even": (4, 6), "odd": (5, 7), "even and odd": (6, 5), "one cell": (1, 1), "smaller than a window": (2, 3)}


@pytest.mark.parametrize("equal_numbers", [False, True])
@pytest.mark.parametrize("size", POOLED)
def test_max_pooling_and_the_sum_of_its_overlapping_gradients_against_numpy(size, equal_numbers):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, *POOLED[size], 2)).astype(np.float32)
    x = np.round(x) if equal_numbers else x
    rows, columns = (-(-side // 2) for side in POOLED[size])
    upstream = rng.normal(size=(3, rows, columns, 2)).astype(np.float32)
    wanted, wanted_gradient = numpy_max_pool(x, upstream)
    layer = MaxPool()
    assert layer.compute_output_shape(x.shape) == wanted.shape
    y, gradient = pooled(layer, x, upstream)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_allclose(gradient, wanted_gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_max_pooling_is_tensorflows_own(dtype):
    """In bfloat16 a sum of up to four gradients is rounded to 8 bits on the way."""
    x = tf.cast(tf.random.stateless_normal((4, 11, 10, 16), (1, 2)), dtype)
    upstream = tf.cast(tf.random.stateless_normal((4, 6, 5, 16), (3, 4)), dtype)
    y, gradient = pooled(MaxPool(dtype=dtype), x, upstream)
    wanted, wanted_gradient = pooled(lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"), x, upstream)
    assert (y.dtype, gradient.dtype) == (dtype, dtype)
    np.testing.assert_array_equal(y, wanted)
    atol = {"float32": 1e-6, "bfloat16": 0.04}[dtype]
    np.testing.assert_allclose(tf.cast(gradient, "float32"), tf.cast(wanted_gradient, "float32"), atol=atol)


def test_max_pooling_is_traced_once_for_all_batch_sizes(monkeypatch):
    """Once alone, and once with its gradient."""
    traced = []
    plain = a2c.networks.model._max_pool
    monkeypatch.setattr(a2c.networks.model, "_max_pool", lambda x: traced.append(x.shape) or plain(x))
    layer = MaxPool()
    for n in (4, 1, 7, 4):
        pooled(layer, np.ones((n, 6, 6, 2), np.float32), np.ones((n, 3, 3, 2), np.float32))
    assert [tuple(shape) for shape in traced] == [(None, 6, 6, 2)] * 2


def test_networks_of_several_sizes_and_precisions_pool_in_one_process():
    for side, dtype in ((20, "float32"), (21, "mixed_bfloat16"), (35, "float32"), (20, "mixed_bfloat16")):
        model = build(image_space(4, side, side), name="impala", dtype=dtype)
        for n in (2, 5):
            assert model(images(n, 4, side, side))[1].shape == (n,)


# --- layers of which it is known that eager and graph give the same bits --------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("network", NETWORKS)
def test_the_layers_of_every_network_are_proven(network, dtype):
    space, config = NETWORKS[network]
    check_layers(build(space, dtype=dtype, **config))


class MyRelu(keras.layers.ReLU):
    """A subclass may do anything."""


UNPROVEN = {
    "a bias of its own": (
        lambda x: keras.layers.Conv2D(2, 3, name="mine")(x),
        r"^The Conv2D layer 'mine' .* oneDNN fuses the gradient of its bias in graphs; use use_bias=False and .*Bias",
    ),
    "an activation": (
        lambda x: keras.layers.Conv2D(2, 3, activation="relu", use_bias=False, name="mine")(x),
        r"^The layer 'mine' \(Conv2D\) was never shown to be exact; use .*, or runtime\.numerics=fast\.$",
    ),
    "a dense activation": (lambda x: keras.layers.Dense(2, activation="gelu", name="mine")(x), r"'mine' \(Dense\)"),
    "another activation": (lambda x: keras.layers.Activation("gelu", name="mine")(x), r"'mine' \(Activation\)"),
    "another layer": (lambda x: keras.layers.LayerNormalization(name="mine")(x), r"'mine' \(LayerNormalization\)"),
    "Keras' pooling": (lambda x: keras.layers.MaxPooling2D(name="mine")(x), r"'mine' \(MaxPooling2D\)"),
    "a subclass": (lambda x: MyRelu(name="mine")(x), r"'mine' \(MyRelu\)"),
    "a bare operation": (lambda x: keras.ops.sin(x), r"\(Sin\)"),
    "a model": (lambda x: keras.Sequential([keras.layers.ReLU()], name="mine")(x), r"'mine' \(Sequential\)"),
}


@pytest.mark.parametrize("layer", UNPROVEN)
def test_a_layer_that_was_not_compared_is_refused_by_name(layer):
    make, message = UNPROVEN[layer]
    x = keras.Input((8, 8, 3))
    with pytest.raises(UserError, match=message):
        check_layers(keras.Model(x, keras.layers.Flatten()(make(x))))


def test_the_first_of_two_unproven_layers_is_named():
    x = keras.Input((8, 8, 3))
    y = keras.layers.AveragePooling2D(2, name="first")(Bias()(x))
    with pytest.raises(UserError, match="'first'"):
        check_layers(keras.Model(x, keras.layers.LayerNormalization(name="second")(y)))


def test_a_model_whose_call_is_its_own_is_refused():
    class Mine(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(UserError, match=r"'mine' \(Mine\)"):
        check_layers(Mine(name="mine"))
