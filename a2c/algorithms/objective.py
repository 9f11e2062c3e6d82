"""The return that a policy maximises, and its terms but for the values, for rollouts and replays alike. In NumPy."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from a2c.config import Config
from a2c.data.rollout import Array
from a2c.envs import clips_rewards


class Objective(NamedTuple):
    """The return that a policy maximises."""

    gamma: float  # the discount of one step
    cut_on_life_loss: bool  # whether a lost life ends the return (never the game)
    clip_rewards: bool  # whether the loss sees only the sign of rewards

    @classmethod
    def of(cls, config: Config) -> Self:
        """The objective of a run."""
        return cls(config.algorithm.gamma, config.env.cut_on_life_loss, clips_rewards(config.env))


class Terms(NamedTuple):
    """The terms of a return that hold no value, each [T, B]."""

    rewards: Array  # float32, as the loss sees them (clipped if configured)
    discounts: Array  # float32: 0 if the episode terminated or a lost life cuts the return, else gamma
    ends: Array  # bool: the recursion stops here (terminated, truncated, or cut by a lost life)


def terms(
    rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, life_lost: np.ndarray, objective: Objective
) -> Terms:
    """What a return is made of, but for the values; all [T, B], as in a `Rollout`."""
    gamma, cut_on_life_loss, clip_rewards = objective
    cut = terminated | life_lost if cut_on_life_loss else terminated
    return Terms(
        rewards=np.sign(rewards) if clip_rewards else rewards,
        discounts=np.where(cut, 0.0, gamma).astype(np.float32),
        ends=cut | truncated,
    )
