"""The games that end during training, counted in the same order for any number of workers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from a2c.data.rollout import Episode
from a2c.execution.replicas import Replicas
from a2c.run.counters import Counters


class Games:
    """The games that ended in the environments of all workers since they were last counted."""

    def __init__(self, counters: Counters, replicas: Replicas, on_game: Callable[[float, int], None]) -> None:
        self.counters = counters
        self.on_game = on_game  # called with the return and length of each game that is counted
        self.replicas = replicas
        self._ended: list[tuple[int, int, float, int]] = []  # update, row, return, length; of this worker

    def add(self, episodes: list[tuple[int, Episode]]) -> None:
        """Note the games that ended in this worker's environments in the update just counted."""
        self._ended.extend((self.counters.updates, row, e.episode_return, e.length) for row, e in episodes)
        if self._ended and self.replicas.workers == 1:  # else counting means communication
            self.count()

    def count(self) -> None:
        """Count the games of all workers, in the order in which one worker with all environments would."""
        mine = np.array(self._ended, np.float64).reshape(-1, 4)
        ended = np.concatenate([worker["games"] for worker in self.replicas.gather({"games": mine})])
        for _, _, episode_return, length in ended[np.lexsort((ended[:, 1], ended[:, 0]))].tolist():
            self.counters.count(episode_return, int(length))
            self.on_game(episode_return, int(length))
        self._ended.clear()
