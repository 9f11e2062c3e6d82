"""Environments in groups that are stepped independently, but saved and restored as one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from a2c.envs.vector import VecEnv, read_state
from a2c.execution.machine import stay_on

PATIENCE = 5.0  # seconds for the groups to finish if a signal ends the program
LOOK_SECONDS = 1.0  # Python sees a signal that comes just before a wait only when that wait ends


class Group(NamedTuple):
    """Some environments, and the core of their thread, None = any."""

    envs: VecEnv
    core: int | None = None


class VecEnvGroups:
    """P groups of B / P environments each: group g has the rows from g B / P on.

    The state is that of one `VecEnv` with all of them, so a run can resume with another number of groups.

    Args:
        groups: of equal size and of the same kind.

    Attributes:
        num_envs: B.
        observation_space: of one environment.
        num_actions: actions are 0 to num_actions - 1.
        frames_per_step: emulator frames in one step.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self._threads: list[_GroupThread] = []
        envs = groups[0].envs
        self.num_envs = sum(group.envs.num_envs for group in groups)
        self.observation_space = envs.observation_space
        self.num_actions = envs.num_actions
        self.frames_per_step = envs.frames_per_step

    def reset(self) -> np.ndarray:
        """Start episode 0 of every environment; returns observations [B, *obs]."""
        return np.concatenate(self.each(lambda g: self.groups[g].envs.reset()))

    def state(self) -> dict[str, np.ndarray]:
        """See `VecEnv.state`."""
        states = [group.envs.state() for group in self.groups]
        return {name: np.concatenate([state[name] for state in states]) for name in states[0]}

    def restore(self, state: Mapping[str, Any]) -> tuple[np.ndarray, int]:
        """See `VecEnv.restore`.

        Raises:
            UserError: if the state does not belong to these environments.
        """
        arrays = read_state(state, self.num_envs, self.num_actions, self.groups[0].envs.name)
        cuts = np.linspace(0, self.num_envs, len(self.groups) + 1, dtype=int)[1:-1]
        action_cuts = np.append(0, np.cumsum(arrays["series_lengths"]))[cuts]
        shares = {name: np.split(x, action_cuts if name == "series_actions" else cuts) for name, x in arrays.items()}
        restored = self.each(lambda g: self.groups[g].envs.restore({name: share[g] for name, share in shares.items()}))
        return np.concatenate([observations for observations, _ in restored]), sum(lost for _, lost in restored)

    def close(self) -> None:
        """Free the environments."""
        self._end_threads()
        for group in self.groups:
            group.envs.close()

    def each(self, do: Callable[[int], Any], *, interrupt: Callable[[], None] = lambda: None) -> list[Any]:
        """The results of a function for all groups, in parallel, each on its core. Call it from one thread at a time.

        Args:
            do: gets the number of a group.
            interrupt: called if a signal's exception ends the waiting: `do` must return soon, since the environments
                will be closed.
        """
        if len(self.groups) == 1:
            return [do(0)]
        try:
            for g, group in enumerate(self.groups):
                if g == len(self._threads):
                    self._threads.append(_GroupThread(g, group.core))
                self._threads[g].begin(do)
            outcomes = [thread.outcome() for thread in self._threads]
        except BaseException:
            interrupt()
            for thread in self._end_threads():
                thread.join(PATIENCE)
            raise
        for _, error in outcomes:
            if error is not None:
                raise error
        return [result for result, _ in outcomes]

    def _end_threads(self) -> list[_GroupThread]:
        """Tell the threads to end after their current task; the next `each` makes new ones."""
        ending, self._threads = self._threads, []
        for thread in ending:
            thread.begin(None)
        return ending

    def __enter__(self) -> VecEnvGroups:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _GroupThread(threading.Thread):
    """Runs the tasks of one group, on its core. A daemon, so that the program can end even if an environment hangs.

    It is kept between tasks, since TensorFlow needs 0.3 ms to prepare a new thread.
    """

    def __init__(self, index: int, core: int | None) -> None:
        super().__init__(daemon=True, name=f"a2c-group-{index}")
        self._index, self._core = index, core
        self._tasks: SimpleQueue[Callable[[int], Any] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.start()

    def run(self) -> None:
        outcome: tuple[Any, BaseException | None]
        stay_on(self._core)
        while (do := self._tasks.get()) is not None:
            try:
                outcome = do(self._index), None
            except BaseException as error:
                outcome = None, error
            del do  # frees what it holds: a trajectory
            self._outcomes.put(outcome)
            del outcome

    def begin(self, do: Callable[[int], Any] | None) -> None:
        """Queue a task; None ends the thread."""
        self._tasks.put(do)

    def outcome(self) -> tuple[Any, BaseException | None]:
        """Wait for the result of the task, or the error it raised."""
        while True:
            with suppress(Empty):
                return self._outcomes.get(timeout=LOOK_SECONDS)
