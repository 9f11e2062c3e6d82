"""The rollout collector: steps the environments and stores what happened, never activations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from a2c.config import Config
from a2c.envs import Group, VecEnv, VecEnvGroups
from a2c.memory import refuse_huge_rollout
from a2c.runtime import stream_seed
from a2c.trajectory import Episode, Rollout

ALIGNMENT = 64  # bytes

Explore = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, Mapping[str, np.ndarray]]]


class RolloutCollector:
    """Collects rollouts of `rollout_length` steps from every environment.

    T = rollout_length, B = num_envs, b = environments of one group. Each group of environments acts in a thread of its
    own, from the first step of a rollout to the last, so that nobody waits for anybody within it. What is collected
    does not depend on which of them is faster.

    Args:
        envs: the environments; a fresh start of all of them is made here.
        explore: (observations [b, *obs], seed [2] int64) -> (actions [b] int32, what else to store [b, ...] float32).
        says: the shape [...] of each array that `explore` returns beside the actions, by name.
        rollout_length: T.
        action_seed: the stream of action draws; draw k of group g uses (action_seed xor g, k).

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
    ) -> None:
        self.envs = envs
        self.explore = explore
        self.says = says
        self.rollout_length = rollout_length
        self.action_seed = action_seed
        self.draws = 0
        self.latest: Rollout | None = None
        self._all = envs if isinstance(envs, VecEnvGroups) else VecEnvGroups([Group(envs)])
        self.groups = self._all.groups
        self.observations = envs.reset()
        self._interrupted = threading.Event()

    def collect(self) -> tuple[Rollout, list[tuple[int, Episode]]]:
        """Act for T steps in all B environments.

        Returns:
            The rollout, and the whole games that ended meanwhile, each with its row of the rollout.
        """
        self.latest = None  # frees its memory
        shape = (self.rollout_length, self.envs.num_envs)
        rollout = Rollout(
            observations=aligned((shape[0] + 1, *self.observations.shape), self.observations.dtype),
            actions=np.empty(shape, np.int32),
            rewards=np.empty(shape, np.float32),
            terminated=np.empty(shape, np.bool_),
            truncated=np.empty(shape, np.bool_),
            life_lost=np.empty(shape, np.bool_),
            last_observations=np.empty((0, *self.observations.shape[1:]), self.observations.dtype),
            said={name: np.empty((*shape, *inner), np.float32) for name, inner in self.says.items()},
        )
        played = self.play_groups(rollout)
        self.draws += shape[0]
        self.observations = rollout.observations[-1]
        if cut := sorted((last for group in played for last in group.cut), key=lambda last: last[:2]):
            rollout = rollout._replace(last_observations=np.stack([observation for *_, observation in cut]))
        self.latest = rollout
        return rollout, sorted((ended for group in played for ended in group.episodes), key=lambda ended: ended[0])

    def play_groups(self, rollout: Rollout) -> list[Played]:
        """`play_group` for all groups at a time."""
        return self._all.each(lambda g: self.play_group(g, rollout), interrupt=self._interrupted.set)

    def play_group(self, index: int, rollout: Rollout) -> Played:
        """Act for T steps in one group of environments, and write them to its columns of a rollout."""
        envs = self.groups[index].envs
        columns = slice(index * envs.num_envs, (index + 1) * envs.num_envs)
        observations = self.observations[columns]
        played = Played([], [])
        for t in range(self.rollout_length):
            if self._interrupted.is_set():
                break
            rollout.observations[t, columns] = observations
            seed = np.array([self.action_seed ^ index, self.draws + t], np.int64)
            actions, said = self.explore(rollout.observations[t, columns], seed)
            rollout.actions[t, columns] = actions
            for name, array in said.items():
                rollout.said[name][t, columns] = array
            step = envs.step(actions)
            rollout.rewards[t, columns] = step.rewards
            rollout.terminated[t, columns] = step.terminated
            rollout.truncated[t, columns] = step.truncated
            rollout.life_lost[t, columns] = step.life_lost
            for b in np.flatnonzero(step.truncated):
                played.cut.append((t, columns.start + int(b), step.final_observations[b].copy()))
            observations = step.observations
            played.episodes.extend((t, e._replace(env_index=columns.start + e.env_index)) for e in step.episodes)
        rollout.observations[-1, columns] = observations
        return played

    def state(self) -> dict[str, np.ndarray]:
        """All that decides what is collected next, the weights apart: see `restore`."""
        return {"draws": np.array(self.draws), **self.envs.state()}

    def restore(self, state: dict[str, Any]) -> int:
        """Go on exactly where `state` was taken: the running series of episodes are played again up to there.

        Returns:
            How many environments could not be brought there, and start new episodes (see `VecEnv.restore`).
        """
        draws = int(state["draws"])
        if not 0 <= draws < 2**63:
            raise ValueError(f"draws={draws}")
        self.draws = draws
        self.observations, lost = self.envs.restore({key: value for key, value in state.items() if key != "draws"})
        return lost


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An empty array that TensorFlow reads where it is; from any other address it makes a copy."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


class Played(NamedTuple):
    """What a group of environments played, beside what it wrote to the rollout."""

    episodes: list[tuple[int, Episode]]  # whole games that ended, each with its row
    cut: list[tuple[int, int, np.ndarray]]  # row, column and true last observation of each truncated row


def build_collector(config: Config, envs: VecEnv | VecEnvGroups, policy: Any) -> RolloutCollector:
    """The collector of a configuration, for a `Policy`.

    Raises:
        UserError: if a rollout does not fit the machine's memory.
    """
    refuse_huge_rollout(config, envs.observation_space)
    return RolloutCollector(
        envs,
        policy.explore,
        policy.says,
        rollout_length=config.algorithm.rollout_length,
        action_seed=stream_seed(config.seed, "actions"),
    )
