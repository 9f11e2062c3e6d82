"""The actions of the running series of episodes: with their seeds, all that an exact resume needs."""

from __future__ import annotations

import numpy as np

_FIRST_CAPACITY = 1024  # rows


class ActionLog:
    """One row of actions per step; each environment's running series is a suffix of its column.

    Memory is bounded by the longest running series: rows before the start of all series are dropped.
    """

    def __init__(self, num_envs: int, num_actions: int) -> None:
        self.dtype = np.min_scalar_type(num_actions - 1)
        self._rows = np.zeros((_FIRST_CAPACITY, num_envs), self.dtype)
        self._end = 0
        self._starts = np.zeros(num_envs, np.int64)

    @property
    def lengths(self) -> np.ndarray:
        """Steps done in each running series: [B] int64."""
        return self._end - self._starts

    def append(self, actions: np.ndarray) -> None:
        """Add the actions [B] of one step."""
        if self._end == len(self._rows):
            self._make_room()
        self._rows[self._end] = actions
        self._end += 1

    def restart(self, mask: np.ndarray) -> None:
        """Start new series for the environments in mask [B] bool, and forget their running ones."""
        self._starts[mask] = self._end

    def aligned(self) -> tuple[np.ndarray, np.ndarray]:
        """The last L rows [L, B], L = length of the longest series, and the first row [B] of each series in them."""
        first = self._starts.min()
        return self._rows[first : self._end], self._starts - first

    def pack(self) -> tuple[np.ndarray, np.ndarray]:
        """The running series concatenated, [sum of lengths], and their lengths [B] int64."""
        columns = [self._rows[start : self._end, index] for index, start in enumerate(self._starts)]
        return np.concatenate(columns), self.lengths

    def load(self, actions: np.ndarray, lengths: np.ndarray) -> None:
        """Replace this log by a packed one: all series end at the last row."""
        self._end = int(lengths.max())
        self._starts = self._end - lengths.astype(np.int64)
        self._rows = np.zeros((max(_FIRST_CAPACITY, self._end), len(lengths)), self.dtype)
        for index, series in enumerate(np.split(actions, np.cumsum(lengths)[:-1])):
            self._rows[self._starts[index] : self._end, index] = series

    def _make_room(self) -> None:
        running, self._starts = self.aligned()
        self._end = len(running)
        rows = np.zeros((max(_FIRST_CAPACITY, 2 * self._end), running.shape[1]), self.dtype)
        rows[: self._end] = running
        self._rows = rows
