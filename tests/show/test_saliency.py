"""The saliency of functions of which it is known what they look at."""

from __future__ import annotations

import numpy as np
import pytest

from a2c.show.saliency import GRID, effects

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [42, 84])
@pytest.mark.parametrize(("row", "column"), [(4, 4), (30, 11), (20, 37)])
def test_a_function_of_one_pixel_is_moved_there_and_nowhere_else(size, row, column):
    image = RNG.integers(256, size=(size, size, 4), dtype=np.uint8)
    scale = size // 42
    image[row * scale, column * scale, 3] = 255

    def f(images: np.ndarray) -> np.ndarray:
        assert images.dtype == np.uint8
        assert images.shape[1:] == image.shape
        return images[:, row * scale, column * scale, 3].astype(np.float32)

    found = effects(f, image)
    assert found.shape == (GRID, GRID)
    there = (int((row + 0.5) * GRID / 42), int((column + 0.5) * GRID / 42))
    assert np.unravel_index(found.argmax(), found.shape) == there
    distances = np.hypot(*(np.indices(found.shape) - np.array(there)[:, None, None]))
    assert found[distances > 5].max() == 0


def test_what_is_even_cannot_be_blurred():
    """Nothing is there to be seen, so nothing can be taken away: the sum of all pixels stays as it is."""
    even = np.full((42, 42, 1), 90, np.uint8)
    assert effects(lambda images: images.sum(axis=(1, 2, 3), dtype=np.float32), even).max() == 0


def test_the_effect_is_the_distance_whichever_way_it_goes():
    """A bright dot on black at the centre of a spot: all of it but what the blur leaves there is taken away."""
    image = np.zeros((80, 80, 1), np.uint8)
    image[42, 42] = 200
    up = effects(lambda images: images[:, 42, 42, 0].astype(np.float32), image)
    down = effects(lambda images: -images[:, 42, 42, 0].astype(np.float32), image)
    np.testing.assert_array_equal(up, down)
    left_by_the_blur = 200 / (2 * np.pi * 3**2)  # Gaussian of 3 pixels on 80
    assert up.max() == pytest.approx(200 - left_by_the_blur, abs=2)


def test_channels_first_is_the_same_image():
    image = RNG.integers(256, size=(42, 42, 4), dtype=np.uint8)
    weights = RNG.normal(size=image.shape).astype(np.float32)
    first = effects(lambda images: np.einsum("nhwc,hwc->n", images, weights), image)
    second = effects(lambda images: np.einsum("nchw,hwc->n", images, weights), np.moveaxis(image, 2, 0).copy())
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1)
