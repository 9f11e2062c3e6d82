"""The rollout collector: steps the environments and stores the results, never activations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from a2c.config import Config
from a2c.data.rollout import Episode, Rollout
from a2c.envs import Group, VecEnv, VecEnvGroups
from a2c.execution.memory import check_rollout_memory
from a2c.execution.runtime import stream_seed

ALIGNMENT = 64  # bytes
CELLS = ("observations", "actions", "rewards", "terminated", "truncated", "life_lost")  # fields [T, B, ...]

Explore = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, Mapping[str, np.ndarray]]]


class RolloutCollector:
    """Collects rollouts of `rollout_length` steps from every environment.

    T = rollout_length, B = num_envs, b = environments of one group. Each group runs in its own thread through a whole
    rollout, without waiting for the others. The rollout does not depend on their speeds.

    Args:
        envs: the environments.
        explore: (observations [b, *obs], seed [2] int64) -> (actions [b] int32, other arrays to store [b, ...]
            float32).
        says: the shape [...] of each array that `explore` returns besides the actions, by name.
        rollout_length: T.
        action_seed: the stream of action draws; draw k of group g uses (action_seed xor g, k).
        observations: [B, *obs] of the environments' reset; by default they are reset here.

    Attributes:
        latest: the last rollout; None before the first.
    """

    def __init__(
        self,
        envs: VecEnv | VecEnvGroups,
        explore: Explore,
        says: Mapping[str, tuple[int, ...]],
        *,
        rollout_length: int,
        action_seed: int,
        observations: np.ndarray | None = None,
    ) -> None:
        self.envs = envs
        self.explore = explore
        self.says = says
        self.rollout_length = rollout_length
        self.action_seed = action_seed
        self.latest: Rollout | None = None
        self._all = envs if isinstance(envs, VecEnvGroups) else VecEnvGroups([Group(envs)])
        self.groups = self._all.groups
        self._draws = [0] * len(self.groups)
        self.observations = envs.reset() if observations is None else observations
        self._interrupted = threading.Event()

    def collect(self) -> tuple[Rollout, list[tuple[int, Episode]]]:
        """Act for T steps in all B environments.

        Returns:
            The rollout, and the whole games that ended in it, each with its row.
        """
        self.latest = None  # frees its memory
        rollout = self._empty(self.envs.num_envs)
        played = self.each_group(lambda g: self._play(g, _columns_of(rollout, self._columns(g)), self.explore))
        self.observations = rollout.observations[-1].copy()  # a view would keep the whole rollout in memory
        self.latest, episodes = _whole(rollout, played)
        return self.latest, episodes

    def collect_group(self, index: int, explore: Explore) -> tuple[Rollout, list[tuple[int, Episode]]]:
        """Act for T steps in the b environments of one group, independently of the others; call it in `each_group`.

        Args:
            index: of the group.
            explore: used instead of the collector's own.

        Returns:
            As `collect`, for this group only: [T, b].

        Raises:
            InterruptedError: if a signal ends the program.
        """
        rollout = self._empty(self.groups[index].envs.num_envs)
        played = self._play(index, rollout, explore)
        if self._interrupted.is_set():
            raise InterruptedError("a signal ends the program")
        self.observations[self._columns(index)] = rollout.observations[-1]
        return _whole(rollout, [played])

    def each_group(self, do: Callable[[int], Any]) -> list[Any]:
        """The results of a function of the group number, for all groups in parallel, each in its group's thread."""
        return self._all.each(do, interrupt=self._interrupted.set)

    def _play(self, index: int, share: Rollout, explore: Explore) -> Played:
        """Act for T steps in one group of environments, and write them to its share of a rollout, [T, b]."""
        envs, columns = self.groups[index].envs, self._columns(index)
        observations = self.observations[columns]
        played = Played([], [])
        for t in range(self.rollout_length):
            if self._interrupted.is_set():
                break
            share.observations[t] = observations
            seed = np.array([self.action_seed ^ index, self._draws[index] + t], np.int64)
            actions, said = explore(share.observations[t], seed)
            share.actions[t] = actions
            for name, array in said.items():
                share.said[name][t] = array
            step = envs.step(actions)
            share.rewards[t] = step.rewards
            share.terminated[t] = step.terminated
            share.truncated[t] = step.truncated
            share.life_lost[t] = step.life_lost
            for b in np.flatnonzero(step.truncated):
                played.cut.append((t, columns.start + int(b), step.final_observations[b].copy()))
            observations = step.observations
            played.episodes.extend((t, e._replace(env_index=columns.start + e.env_index)) for e in step.episodes)
        share.observations[-1] = observations
        self._draws[index] += self.rollout_length
        return played

    @property
    def draws(self) -> int:
        """The number of draws of each group: the same for all groups except while they act."""
        return self._draws[0]

    def _columns(self, index: int) -> slice:
        """The columns of one group among all B."""
        b = self.groups[index].envs.num_envs
        return slice(index * b, (index + 1) * b)

    def _empty(self, num_envs: int) -> Rollout:
        """A rollout to write to."""
        shape, (_, *inner), dtype = (self.rollout_length, num_envs), self.observations.shape, self.observations.dtype
        return Rollout(
            observations=aligned((shape[0] + 1, num_envs, *inner), dtype),
            actions=np.empty(shape, np.int32),
            rewards=np.empty(shape, np.float32),
            terminated=np.empty(shape, np.bool_),
            truncated=np.empty(shape, np.bool_),
            life_lost=np.empty(shape, np.bool_),
            last_observations=np.empty((0, *inner), dtype),
            said={name: np.empty((*shape, *each), np.float32) for name, each in self.says.items()},
        )

    def state(self) -> dict[str, np.ndarray]:
        """All that determines the next rollout, except the weights: see `restore`."""
        return {"draws": np.array(self.draws), **self.envs.state()}

    def restore(self, state: dict[str, Any]) -> int:
        """Continue exactly where `state` was taken: the running series of episodes are replayed up to that point.

        Returns:
            How many environments could not be restored and start new episodes (see `VecEnv.restore`).

        Raises:
            KeyError, ValueError: if `state` is not of such a collector.
        """
        draws = int(state["draws"])
        if not 0 <= draws < 2**62:  # int64, and more are added
            raise ValueError(f"draws={draws}")
        self._draws = [draws] * len(self.groups)
        self.observations, lost = self.envs.restore({key: value for key, value in state.items() if key != "draws"})
        return lost


def _whole(rollout: Rollout, played: Sequence[Played]) -> tuple[Rollout, list[tuple[int, Episode]]]:
    """The rollout with the last observations of its truncated rows, and the games that ended in it."""
    if cut := sorted((last for group in played for last in group.cut), key=lambda last: last[:2]):
        rollout = rollout._replace(last_observations=np.stack([observation for *_, observation in cut]))
    return rollout, sorted((ended for group in played for ended in group.episodes), key=lambda ended: ended[0])


def _columns_of(rollout: Rollout, columns: slice) -> Rollout:
    """A view of the columns of some environments; `last_observations` remain those of all."""
    cells = {name: array[:, columns] for name, array in rollout._asdict().items() if name in CELLS}
    return rollout._replace(**cells, said={name: array[:, columns] for name, array in rollout.said.items()})


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An empty array, aligned so that TensorFlow reads it without a copy."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


class Played(NamedTuple):
    """The results of a group of environments, besides those in the rollout."""

    episodes: list[tuple[int, Episode]]  # whole games that ended, each with its row
    cut: list[tuple[int, int, np.ndarray]]  # row, column and true last observation of each truncated row


def build_collector(
    config: Config, envs: VecEnv | VecEnvGroups, policy: Any, observations: np.ndarray | None = None
) -> RolloutCollector:
    """The collector of a configuration, for a `Policy`; see `RolloutCollector`.

    Raises:
        UserError: if a rollout does not fit the machine's memory.
    """
    check_rollout_memory(config, envs.observation_space)
    return RolloutCollector(
        envs,
        policy.explore,
        policy.says,
        rollout_length=config.algorithm.rollout_length,
        action_seed=stream_seed(config.seed, "actions"),
        observations=observations,
    )
