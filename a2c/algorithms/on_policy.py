"""What on-policy algorithms derive from a rollout: rewards as the loss sees them, discounts, ends. NumPy, pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from a2c.data.rollout import Array, Rollout


class Outcomes(NamedTuple):
    """What a return is made of, each [T, B]."""

    rewards: Array  # float32, as the loss sees them (clipped if configured)
    discounts: Array  # float32: gamma, 0 where the episode terminated or a lost life cuts it
    ends: Array  # bool: the recursion stops here (terminated, truncated, a life lost that cuts)
    final_values: Array  # float32: V(last observation) where truncated, else 0


def outcomes(
    rollout: Rollout,
    value: Callable[[np.ndarray], np.ndarray],
    *,
    gamma: float,
    cut_on_life_loss: bool,
    clip_rewards: bool,
) -> Outcomes:
    """Derive them from the facts.

    Args:
        rollout: of T steps in B environments.
        value: observations [K, *obs] -> V [K] float32; asked only if an episode was truncated.
        gamma: the discount of one step.
        cut_on_life_loss: whether a lost life ends the return (never the game).
        clip_rewards: whether the loss sees the sign of rewards only.
    """
    cut = rollout.terminated | rollout.life_lost if cut_on_life_loss else rollout.terminated
    final_values = np.zeros(cut.shape, np.float32)
    if rollout.truncated.any():
        final_values[rollout.truncated] = value(rollout.last_observations)
        final_values[cut] = 0
    return Outcomes(
        rewards=np.sign(rollout.rewards) if clip_rewards else rollout.rewards,
        discounts=np.where(cut, 0.0, gamma).astype(np.float32),
        ends=cut | rollout.truncated,
        final_values=final_values,
    )
