"""A sum tree: draws indices in proportion to their weights, in O(log N), for a whole batch at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

WIDTH = 32  # children of a node: 4 levels for a million weights, each a few NumPy calls


class SumTree:
    """Weights of the indices 0 to N - 1, at first 0; every node is the sum of its children (Schaul et al. 2016, B.2.1).

    A sum is always computed anew, never changed by a difference. So all sums are a function of the weights, with the
    same bits whatever the order in which these were set.

    Args:
        size: N.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._levels: list[np.ndarray] = []  # from the weights up; each a whole number of nodes' children
        while not self._levels or size > 1:
            size = -(-size // WIDTH)  # number of parents
            self._levels.append(np.zeros(size * WIDTH))

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._levels[-1].sum())

    @property
    def weights(self) -> np.ndarray:
        """All weights [N] float64; to be changed by `set` only."""
        return self._levels[0][: self.size]

    def set(self, indices: np.ndarray, weights: np.ndarray | float) -> None:
        """Set the weights of indices [K] to [K] numbers that are not negative; of equal indices the last counts."""
        self._levels[0][indices] = weights
        for below, above in pairwise(self._levels):
            indices = indices // WIDTH
            above[indices] = below.reshape(-1, WIDTH)[indices].sum(axis=1)

    def find(self, masses: np.ndarray) -> np.ndarray:
        """The index [K] at which the cumulative sum of the weights first exceeds each of masses [K] in [0, total).

        Its weight is never 0, whatever the rounding of the sums.
        """
        nodes, each = np.zeros(len(masses), np.int64), np.arange(len(masses))
        sums = np.zeros((len(masses), WIDTH + 1))
        for level in reversed(self._levels):
            np.cumsum(level.reshape(-1, WIDTH)[nodes], axis=1, out=sums[:, 1:])
            masses = np.minimum(masses, np.nextafter(sums[:, -1], 0.0))  # the sum above was rounded otherwise
            children = (sums[:, 1:] <= masses[:, None]).sum(axis=1)
            masses = masses - sums[each, children]
            nodes = nodes * WIDTH + children
        return nodes
