"""The start of a game as a small animated GIF, for the trackers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from io import BytesIO
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image

from a2c.config import EnvConfig, UserError
from a2c.envs import make_filmed_env
from a2c.evaluation.evaluate import PlayedGame
from a2c.show.game import replay

FPS = 15  # at most
SECONDS = 30  # at most
HEIGHT = 210  # at most: that of Atari's screen


class Gif(NamedTuple):
    """An animation, and its size in pixels."""

    encoded: bytes
    width: int
    height: int


def thumbnail(config: EnvConfig, game: PlayedGame, *, on_frame: Callable[[], None] = lambda: None) -> Gif | None:
    """The first 30 seconds of a game; None if its environment has no pictures or raises, or the game goes another way.

    Args:
        config: of the environment.
        game: that was played in it.
        on_frame: called for each frame; may raise to stop.
    """
    try:
        with closing(make_filmed_env(config)) as env:
            every = max(1, round(env.frames_per_second / FPS))  # of the emulator's frames
            fps = env.frames_per_second / every
            pictures: list[np.ndarray] = []
            for frame, picture in enumerate(picture for step in replay(env, game) for picture in step.pictures):
                on_frame()
                if frame % every == 0:
                    pictures.append(_shrunk(picture))
                if len(pictures) >= SECONDS * fps:
                    break
    except UserError:
        return None
    height, width, _ = pictures[0].shape
    return Gif(encode_gif(pictures, fps), width, height)


def encode_gif(pictures: Sequence[np.ndarray], frames_per_second: float) -> bytes:
    """An endless GIF of pictures [H, W, 3] uint8."""
    first, *others = (Image.fromarray(picture).quantize(dither=Image.Dither.NONE) for picture in pictures)
    # a GIF counts hundredths of a second: each frame starts at the nearest
    starts = 10 * np.rint(np.arange(len(pictures) + 1) * 100 / frames_per_second).astype(int)
    buffer = BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=np.diff(starts).tolist(), loop=0)
    return buffer.getvalue()


def _shrunk(picture: np.ndarray) -> np.ndarray:
    height, width, _ = picture.shape
    if height <= HEIGHT:
        return picture
    size = max(1, round(width * HEIGHT / height)), HEIGHT
    smaller: np.ndarray = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    return smaller
