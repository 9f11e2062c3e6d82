"""The seconds of training, and the speed of each lap."""

from __future__ import annotations

import time

from a2c.run.counters import Counters


class Stopwatch:
    """Counts the seconds of training into the counters, and the agent steps per second of each lap."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.time = time.perf_counter()
        self._start_lap()

    def tick(self) -> None:
        """Count the time since the last tick or skip."""
        now = time.perf_counter()
        self.counters.seconds += now - self.time
        self.time = now

    def skip(self) -> None:
        """Do not count the time since the last tick."""
        self.time = time.perf_counter()

    def lap(self) -> float:
        """End a lap; returns its agent steps per second."""
        speed = (self.counters.env_steps - self.lap_env_steps) / (self.counters.seconds - self.lap_seconds)
        self._start_lap()
        return speed

    def _start_lap(self) -> None:
        self.lap_env_steps, self.lap_seconds = self.counters.env_steps, self.counters.seconds
