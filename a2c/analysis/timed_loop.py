"""The training loop that `a2c bench` times, and the clock on its parts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from a2c.algorithms.algorithm import Algorithm, Update
from a2c.config import Config
from a2c.data.collector import RolloutCollector
from a2c.run.counters import Counters
from a2c.run.metrics import Writers, make_record
from a2c.run.stopwatch import Stopwatch
from a2c.run.training import weights_of

EMULATOR, RESETS, FORWARD, TRANSFER = "emulator", "resets", "policy forward", "transfer"
UPDATE, PYTHON, LOGGING, WAITING = "update", "Python", "logging", "waiting"
ROWS = (EMULATOR, RESETS, FORWARD, TRANSFER, UPDATE, PYTHON, LOGGING, WAITING)


@dataclass
class Loop:
    """The loop of `train` without evaluations and checkpoints, some updates at a time."""

    config: Config
    algorithm: Algorithm
    collector: RolloutCollector
    writers: Writers
    counters: Counters = field(default_factory=Counters)

    def __post_init__(self) -> None:
        self.stopwatch = Stopwatch(self.counters)

    def run(self, updates: int) -> float:
        """Run `updates` more updates; returns agent steps per second."""
        start = time.perf_counter()
        for _ in range(updates):
            update, episodes = self.algorithm.iterate(self.collector, self.counters.updates)
            frames_per_step = self.collector.envs.frames_per_step
            self.counters.advance(self.config.env_steps_per_update, frames_per_step, update.gradient_steps)
            for _, episode in episodes:
                self.counters.count(episode.episode_return, episode.length)
            self.stopwatch.tick()
            if self.counters.updates % self.config.logging.every_updates == 0:
                self.log(update)
        wait_for(update.metrics)
        return updates * self.config.env_steps_per_update / (time.perf_counter() - start)

    def log(self, update: Update) -> None:
        """Write one line of metrics."""
        record = make_record(self.counters, update.metrics, self.config.algorithm.METRICS, self.stopwatch.lap())
        self.writers.write(record, lambda: weights_of(self.algorithm.policy.model))


class _Running(threading.local):
    """The state of the clock in one thread."""

    row: str | None = None
    since = 0.0
    share = 1.0  # weight of this thread's time in the loop's time


class Clock:
    """The seconds of each row. At any moment time is added to one row: that of the innermost call that has a row.

    If the groups of environments play in separate threads, the seconds are the mean over the groups.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(ROWS, 0.0)
        self._running = _Running()
        self._lock = threading.Lock()

    def switch(self, row: str | None) -> str | None:
        """Add time to `row` from now on, or to none; returns the row before."""
        now, running = time.perf_counter(), self._running
        before = running.row
        if before is not None:
            with self._lock:
                self.seconds[before] += running.share * (now - running.since)
        running.row, running.since = row, now
        return before

    def timed_group(self, do: Callable[[int], Any], groups: int) -> Callable[[int], Any]:
        """`do` for one of `groups` groups, timed in its thread; time without another row goes to `PYTHON`."""

        def call(index: int) -> Any:
            self._running.share = 1 / groups
            self.switch(PYTHON)
            try:
                return do(index)
            finally:
                self.switch(None)

        return call

    def timed_groups(self, each_group: Callable[..., Any], groups: int) -> Callable[..., Any]:
        """`each_group` of a collector: its time is theirs, and `WAITING` gets what the slowest took beyond the mean."""

        def call(do: Callable[[int], Any]) -> Any:
            before = self.switch(None)
            start, counted = self._running.since, sum(self.seconds.values())
            try:
                return each_group(self.timed_group(do, groups))
            finally:
                self.switch(before)
                self.seconds[WAITING] += self._running.since - start - (sum(self.seconds.values()) - counted)

        return call

    def timed(self, row: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` with its time added to `row`, except calls inside it that have another row."""

        def call(*inputs: Any) -> Any:
            before = self.switch(row)
            try:
                return function(*inputs)
            finally:
                self.switch(before)

        return call

    def timed_work(self, row: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """As `timed`, for a compiled function, until its work is done; converting arrays to tensors is included."""

        def work(*inputs: Any) -> Any:
            outputs = function(*inputs)
            wait_for(outputs)
            return outputs

        return self.timed(row, work)


@contextmanager
def clocks_on(clock: Clock, loop: Loop) -> Iterator[None]:
    """Time the parts of a loop within the context."""
    algorithm, collector, acting = loop.algorithm, loop.collector, loop.algorithm.acting()
    simulators = [group.envs._simulator for group in collector.groups]
    calls = (
        *((simulator, "step", EMULATOR) for simulator in simulators),
        *((simulator, "reset", RESETS) for simulator in simulators),
        (collector, "explore", TRANSFER),  # all of it except the compiled function; A3C calls its actors'
        *((policy, "explore", TRANSFER) for policy in acting),
        (loop, "log", LOGGING),
    )
    compiled = dict.fromkeys((*algorithm.learning(), *algorithm.traced), UPDATE)
    compiled |= {each: FORWARD for policy in acting for each in policy.compiled.values()}  # some are `traced` too
    with ExitStack() as stack:
        for owner, name, row in calls:
            stack.enter_context(_replaced(owner, name, clock.timed(row, getattr(owner, name))))
        for function, row in compiled.items():
            stack.enter_context(_replaced(function, "execute", clock.timed_work(row, function.execute)))
        if len(collector.groups) > 1:
            each_group = clock.timed_groups(collector.each_group, len(simulators))
            stack.enter_context(_replaced(collector, "each_group", each_group))
        clock.switch(PYTHON)  # all the rest
        yield
        clock.switch(None)


@contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)


def wait_for(outputs: Any) -> None:
    """Wait until outputs are computed: a GPU may still be at work when a call returns."""
    tf.nest.flatten(outputs)[0].numpy()
