"""A game in a terminal, at its real speed: two pixels per character, in 24-bit colours."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TextIO

import cv2
import numpy as np

from a2c.config import UserError

LEAST_COLUMNS, LEAST_ROWS = 40, 15
TEXT_ROWS = 2

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"  # alternate screen, hidden cursor, cleared
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"


class Screen:
    """Uses the whole terminal while entered, and restores it however the block ends.

    Args:
        stream: the terminal.

    Raises:
        UserError: if the stream is not a terminal, or is too small.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        if not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            raise UserError("--terminal needs a terminal to play in, and the output goes elsewhere; leave it out.")
        columns, rows = self._size()
        if columns < LEAST_COLUMNS or rows < LEAST_ROWS:
            raise UserError(
                f"--terminal needs at least {LEAST_COLUMNS} columns and {LEAST_ROWS} rows, and this terminal has "
                f"{columns} and {rows}; make it larger."
            )

    def __enter__(self) -> Screen:
        self._shown = np.zeros((0, 0, 6), np.int16)
        self._due = time.monotonic()
        self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        self._write(_LEAVE)

    def frame(self, picture: np.ndarray, lines: Sequence[str], *, seconds: float, pixel_aspect: float = 1.0) -> None:
        """Show a frame for `seconds`; if the terminal is too slow, frames are skipped to keep the speed.

        Args:
            picture: [H, W, 3] uint8.
            lines: at most `TEXT_ROWS` below it, cut at the terminal's edge.
            seconds: until the next frame.
            pixel_aspect: width of a pixel over its height.
        """
        now = time.monotonic()
        if now < self._due + seconds:
            time.sleep(max(0.0, self._due - now))
            self._draw(picture, lines, pixel_aspect)
        self._due += seconds

    def _draw(self, picture: np.ndarray, lines: Sequence[str], pixel_aspect: float) -> None:
        columns, rows = self._size()
        cells = half_blocks(picture, columns, max(1, rows - TEXT_ROWS), pixel_aspect)
        text = ""
        if cells.shape != self._shown.shape:  # the first frame, or another size
            self._shown = np.full(cells.shape, -1, np.int16)
            text = "\x1b[0m\x1b[2J"
        text += changes(self._shown, cells)
        for i, line in enumerate(lines[: max(0, rows - 1)]):
            text += f"\x1b[0m\x1b[{len(cells) + 1 + i};1H{line[:columns]}\x1b[K"
        self._shown = cells
        self._write(text)

    def _size(self) -> tuple[int, int]:
        return os.get_terminal_size(self.stream.fileno())

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def half_blocks(picture: np.ndarray, columns: int, rows: int, pixel_aspect: float = 1.0) -> np.ndarray:
    """A picture [H, W, 3] uint8 as characters: [rows, columns, 6] int16, the colours of upper and lower half.

    It is as large as fits and keeps its proportions; half a character counts as a square.
    """
    height, width, _ = picture.shape
    scale = min(columns / (width * pixel_aspect), 2 * rows / height)
    across, down = max(1, int(width * pixel_aspect * scale)), max(1, int(height * scale / 2))
    halves = cv2.resize(picture, (across, 2 * down), interpolation=cv2.INTER_AREA)
    cells: np.ndarray = np.concatenate([halves[0::2], halves[1::2]], axis=2).astype(np.int16)
    return cells


def changes(before: np.ndarray, after: np.ndarray) -> str:
    """The text that turns one screen into the other, both as from `half_blocks`; only the differences are written."""
    text: list[str] = []
    colours = cursor = None
    for row, column in np.argwhere((before != after).any(axis=2)).tolist():
        if cursor != (row, column):
            text.append(f"\x1b[{row + 1};{column + 1}H")
        cell = tuple(after[row, column].tolist())
        if cell != colours:
            text.append("\x1b[38;2;{};{};{};48;2;{};{};{}m".format(*cell))
        text.append("▀")
        colours, cursor = cell, (row, column + 1)
    return "".join(text)
