"""The rollout collector: steps the environments and stores trajectories, never activations."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from a2c.config import AlgorithmConfig, Config
from a2c.envs import Group, VecEnv, VecEnvGroups
from a2c.memory import refuse_huge_rollout
from a2c.runtime import stream_seed
from a2c.trajectory import Episode, Trajectory

ALIGNMENT = 64  # bytes

Act = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
Value = Callable[[np.ndarray], np.ndarray]


class RolloutCollector:
    """Collects rollouts of `rollout_length` steps from every environment.

    T = rollout_length, B = num_envs, A = num_actions, b = environments of one group. Each group of environments acts in
    a thread of its own, from the first step of a rollout to the last, so that nobody waits for anybody within it. What
    is collected does not depend on which of them is faster.

    Args:
        envs: the environments; a fresh start of all of them is made here.
        act: (observations [b, *obs], seed [2] int64) -> (actions [b] int32, logits [b, A] float32).
        value: observations [b, *obs] -> V [b] float32; asked only where an episode was truncated.
        algorithm: rollout length and discount.
        cut_on_life_loss: whether a lost life ends the return (never the game).
        action_seed: the stream of action draws; draw k of group g uses (action_seed xor g, k).
    """

    def __init__(
        self,
        envs: VecEnv | VecEnvGroups,
        act: Act,
        value: Value,
        algorithm: AlgorithmConfig,
        *,
        cut_on_life_loss: bool,
        action_seed: int,
    ) -> None:
        self.envs = envs
        self.act = act
        self.value = value
        self.algorithm = algorithm
        self.cut_on_life_loss = cut_on_life_loss
        self.action_seed = action_seed
        self.draws = 0
        self._all = envs if isinstance(envs, VecEnvGroups) else VecEnvGroups([Group(envs)])
        self.groups = self._all.groups
        self.observations = envs.reset()
        self._interrupted = threading.Event()

    def collect(self) -> tuple[Trajectory, list[tuple[int, Episode]]]:
        """Act for T steps in all B environments.

        Returns:
            The trajectory, and the whole games that ended meanwhile, each with its row of the trajectory.
        """
        shape = (self.algorithm.rollout_length, self.envs.num_envs)
        rollout = Trajectory(
            observations=_aligned((*shape, *self.observations.shape[1:]), self.observations.dtype),
            actions=np.empty(shape, np.int32),
            rewards=np.empty(shape, np.float32),
            discounts=np.empty(shape, np.float32),
            ends=np.empty(shape, np.bool_),
            final_values=np.zeros(shape, np.float32),
            behaviour_logits=np.empty((*shape, self.envs.num_actions), np.float32),
            bootstrap_observation=_aligned(self.observations.shape, self.observations.dtype),
        )
        episodes = self.play_groups(rollout)
        self.draws += shape[0]
        self.observations = rollout.bootstrap_observation
        return rollout, episodes

    def play_groups(self, rollout: Trajectory) -> list[tuple[int, Episode]]:
        """`play_group` for all groups at a time."""
        played = self._all.each(lambda g: self.play_group(g, rollout), interrupt=self._interrupted.set)
        return sorted((ended for group in played for ended in group), key=lambda ended: ended[0])

    def play_group(self, index: int, rollout: Trajectory) -> list[tuple[int, Episode]]:
        """Act for T steps in one group of environments, and write them to its columns of a rollout.

        Returns:
            The whole games that ended, each with its row.
        """
        envs = self.groups[index].envs
        columns = slice(index * envs.num_envs, (index + 1) * envs.num_envs)
        observations = self.observations[columns]
        episodes: list[tuple[int, Episode]] = []
        for t in range(self.algorithm.rollout_length):
            if self._interrupted.is_set():
                break
            rollout.observations[t, columns] = observations
            seed = np.array([self.action_seed ^ index, self.draws + t], np.int64)
            actions, logits = self.act(rollout.observations[t, columns], seed)
            rollout.actions[t, columns], rollout.behaviour_logits[t, columns] = actions, logits
            step = envs.step(actions)
            cut = step.terminated | step.life_lost if self.cut_on_life_loss else step.terminated
            rollout.rewards[t, columns] = np.sign(step.rewards) if envs.clips_rewards else step.rewards
            rollout.discounts[t, columns] = np.where(cut, 0.0, self.algorithm.gamma)
            rollout.ends[t, columns] = cut | step.truncated
            bootstrapped = step.truncated & ~cut
            if bootstrapped.any():
                values = self.value(step.final_observations)
                rollout.final_values[t, columns] = np.where(bootstrapped, values, 0)
            observations = step.observations
            episodes.extend((t, e._replace(env_index=columns.start + e.env_index)) for e in step.episodes)
        rollout.bootstrap_observation[columns] = observations
        return episodes

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


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An empty array that TensorFlow reads where it is; from any other address it makes a copy."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def build_collector(config: Config, envs: VecEnv | VecEnvGroups, act: Act, value: Value) -> RolloutCollector:
    """The collector of a configuration.

    Raises:
        UserError: where a rollout does not fit the machine's memory.
    """
    refuse_huge_rollout(config, envs.observation_space)
    return RolloutCollector(
        envs,
        act,
        value,
        config.algorithm,
        cut_on_life_loss=config.env.cut_on_life_loss,
        action_seed=stream_seed(config.seed, "actions"),
    )
