"""Data that algorithms derive from a rollout, in NumPy: rewards for the loss, discounts, ends; and minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import numpy as np

from a2c.config import Config
from a2c.data.rollout import Array, Rollout
from a2c.envs import clips_rewards
from a2c.execution.replicas import ALONE, Replicas
from a2c.execution.runtime import generator


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


class Outcomes(NamedTuple):
    """The terms of a return, each [T, B]: those of `Terms`, and the values of last observations."""

    rewards: Array
    discounts: Array
    ends: Array
    final_values: Array  # float32: V(last observation) if truncated and the discount is not 0, else 0


def outcomes(rollout: Rollout, value: Callable[[np.ndarray], np.ndarray], objective: Objective) -> Outcomes:
    """Derive the terms of the return from a rollout.

    Args:
        rollout: of T steps in B environments.
        value: observations [K, *obs] -> V [K] float32; called only if an episode was truncated.
        objective: of the policy.
    """
    found = terms(rollout.rewards, rollout.terminated, rollout.truncated, rollout.life_lost, objective)
    final_values = np.zeros(found.ends.shape, np.float32)
    if rollout.truncated.any():
        final_values[rollout.truncated] = value(rollout.last_observations)
        final_values[found.discounts == 0] = 0
    return Outcomes(*found, final_values)


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


def minibatches(
    shape: tuple[int, int], number: int, *, epochs: int, seed: int, updates: int, replicas: Replicas = ALONE
) -> Iterator[np.ndarray]:
    """The rows [n, B] of each minibatch of all epochs: a function of the seed and the update only.

    Each environment is shuffled separately. So a minibatch has equally many rows of each, and N workers make the same
    minibatches as one process with all their environments. Of an array [T, B, ...] they are
    `array[rows, np.arange(B)]`.

    Args:
        shape: [T, B] of the rollout.
        number: of minibatches in an epoch.
        epochs: of the update.
        seed: in [0, 2**64).
        updates: number of earlier updates.
        replicas: of the run.
    """
    t, b = shape
    rows = np.tile(np.arange(t)[:, None], b * replicas.workers)
    for epoch in range(epochs):
        joint = generator(seed, updates, epoch).permuted(rows, axis=0)
        yield from np.split(joint[:, replicas.index * b :][:, :b], number)
