"""The actions of the running series of episodes: with their seeds, all that an exact resume needs."""

from __future__ import annotations

import numpy as np


class ActionLog:
    """One row of actions per step; each environment's running series is a suffix of its column.

    Memory is bounded by the longest running series: rows before the start of all series are dropped.
    """

    def __init__(self, num_envs: int, num_actions: int) -> None:
        self.dtype = np.min_scalar_type(num_actions - 1)
        self._row_bytes = num_envs * self.dtype.itemsize
        self._rows = bytearray()  # which drops what is at its front without a copy
        self._starts = np.zeros(num_envs, np.int64)

    @property
    def lengths(self) -> np.ndarray:
        """Steps done in each running series: [B] int64."""
        return len(self._rows) // self._row_bytes - self._starts

    def append(self, actions: np.ndarray) -> None:
        """Add the actions [B] of one step."""
        self._rows += actions.astype(self.dtype).tobytes()

    def restart(self, mask: np.ndarray) -> None:
        """Start new series for the environments in mask [B] bool, and forget their running ones."""
        self._starts[mask] += self.lengths[mask]
        first = int(self._starts.min())
        del self._rows[: first * self._row_bytes]
        self._starts -= first

    def aligned(self) -> tuple[np.ndarray, np.ndarray]:
        """The last L rows [L, B], L = length of the longest series, and the first row [B] of each series in them."""
        # a copy, since nothing can be added to a bytearray while an array shows it
        return np.frombuffer(self._rows, self.dtype).reshape(-1, len(self._starts)).copy(), self._starts.copy()

    def pack(self) -> tuple[np.ndarray, np.ndarray]:
        """The running series concatenated, [sum of lengths], and their lengths [B] int64."""
        rows, starts = self.aligned()
        return np.concatenate([rows[start:, index] for index, start in enumerate(starts)]), self.lengths

    def load(self, actions: np.ndarray, lengths: np.ndarray) -> None:
        """Replace this log by a packed one: all series end at the last row."""
        rows = np.zeros((int(lengths.max()), len(lengths)), self.dtype)
        self._starts = len(rows) - lengths.astype(np.int64)
        for index, series in enumerate(np.split(actions, np.cumsum(lengths)[:-1])):
            rows[self._starts[index] :, index] = series
        self._rows = bytearray(rows)
