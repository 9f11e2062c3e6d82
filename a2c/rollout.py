"""The rollout collector: steps the vector environment and stores trajectories, never activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from a2c.config import AlgorithmConfig, Config
from a2c.envs import VecEnv
from a2c.memory import refuse_huge_rollout
from a2c.runtime import stream_seed
from a2c.trajectory import Episode, Trajectory

Act = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
Value = Callable[[np.ndarray], np.ndarray]


class RolloutCollector:
    """Collects rollouts of `rollout_length` steps from every environment.

    T = rollout_length, B = num_envs, A = num_actions.

    Args:
        envs: the environments; a fresh start of all of them is made here.
        act: (observations [B, *obs], seed [2] int64) -> (actions [B] int32, logits [B, A] float32).
        value: observations [B, *obs] -> V [B] float32; asked only where an episode was truncated.
        algorithm: rollout length and discount.
        cut_on_life_loss: whether a lost life ends the return (never the game).
        action_seed: the stream of action draws; draw k uses (action_seed, k).
    """

    def __init__(
        self,
        envs: VecEnv,
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
        self.observations = envs.reset()

    def collect(self) -> tuple[Trajectory, list[tuple[int, Episode]]]:
        """Act for T steps in all B environments.

        Returns:
            The trajectory, and the whole games that ended meanwhile, each with its row of the trajectory.
        """
        shape = (self.algorithm.rollout_length, self.envs.num_envs)
        rollout = Trajectory(
            observations=np.empty((*shape, *self.observations.shape[1:]), self.observations.dtype),
            actions=np.empty(shape, np.int32),
            rewards=np.empty(shape, np.float32),
            discounts=np.empty(shape, np.float32),
            ends=np.empty(shape, np.bool_),
            final_values=np.zeros(shape, np.float32),
            behaviour_logits=np.empty((*shape, self.envs.num_actions), np.float32),
            bootstrap_observation=self.observations,
        )
        episodes: list[tuple[int, Episode]] = []
        for t in range(shape[0]):
            rollout.observations[t] = self.observations
            seed = np.array([self.action_seed, self.draws], np.int64)
            rollout.actions[t], rollout.behaviour_logits[t] = self.act(self.observations, seed)
            self.draws += 1
            step = self.envs.step(rollout.actions[t])
            cut = step.terminated | step.life_lost if self.cut_on_life_loss else step.terminated
            rollout.rewards[t] = np.sign(step.rewards) if self.envs.clips_rewards else step.rewards
            rollout.discounts[t] = np.where(cut, 0.0, self.algorithm.gamma)
            rollout.ends[t] = cut | step.truncated
            bootstrapped = step.truncated & ~cut
            if bootstrapped.any():
                rollout.final_values[t, bootstrapped] = self.value(step.final_observations)[bootstrapped]
            self.observations = step.observations
            episodes.extend((t, episode) for episode in step.episodes)
        return rollout._replace(bootstrap_observation=self.observations), episodes

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


def build_collector(config: Config, envs: VecEnv, act: Act, value: Value) -> RolloutCollector:
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
