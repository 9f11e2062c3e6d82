"""Perturbation saliency: which parts of an observation affect a number that the network outputs.

Greydanus et al. 2018 (arXiv 1711.00138, section 2.2): blur a spot of the observation, so that its content is lost, and
measure how far the number moves. No gradients are used: they show the effect of an invisible change, and the authors
found their maps hard to read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import cv2
import numpy as np

GRID = 16  # spots in each direction: the paper's are 5 pixels apart on 80
SPOT = 5 / 80  # standard deviation of a spot, as a share of the side
BLUR = 3 / 80  # standard deviation of the blur, likewise


def effects(f: Callable[[np.ndarray], np.ndarray], image: np.ndarray) -> np.ndarray:
    """How far blurring each spot moves f: |f(blurred there) - f(as it is)|; the paper shows half its square.

    Args:
        f: images [N, *obs] uint8 -> [N] float32.
        image: [H, W, C] or [C, H, W] uint8; all channels are blurred at once, each by itself.

    Returns:
        [GRID, GRID] float32, first row at the top.
    """
    pixels = channels_last(image)
    height, width, _ = pixels.shape
    exact = pixels.astype(np.float32)
    blurred = cv2.GaussianBlur(exact, (0, 0), sigmaX=BLUR * width, sigmaY=BLUR * height).reshape(exact.shape)
    perturbed = np.rint(exact + spots(height, width) * (blurred - exact)).astype(np.uint8)
    if pixels.shape != image.shape:
        perturbed = np.moveaxis(perturbed, 3, 1)
    moved: np.ndarray = f(np.concatenate([image[None], perturbed]))
    distances: np.ndarray = np.abs(moved[1:] - moved[0])
    return distances.reshape(GRID, GRID)


@cache
def spots(height: int, width: int) -> np.ndarray:
    """Gaussian spots with a peak of 1 on an even grid, [GRID x GRID, H, W, 1] float32, row by row."""
    down, across = (_bells(length) for length in (height, width))
    masks: np.ndarray = np.einsum("ih,jw->ijhw", down, across)
    return masks.reshape(GRID * GRID, height, width, 1)


def is_image(observation: np.ndarray) -> bool:
    """Whether the network treats an observation as an image."""
    return observation.ndim == 3 and observation.dtype == np.uint8


def channels_last(image: np.ndarray) -> np.ndarray:
    """[H, W, C] of an image whose smaller outer axis is the channels, as the network takes it."""
    return np.moveaxis(image, 0, 2) if image.shape[0] < image.shape[2] else image


def _bells(length: int) -> np.ndarray:
    """The spots along one axis, [GRID, length] float32."""
    centres = (np.arange(GRID) + 0.5) * length / GRID - 0.5
    distances = (np.arange(length) - centres[:, None]) / (SPOT * length)
    bells: np.ndarray = np.exp(-0.5 * distances**2).astype(np.float32)
    return bells
