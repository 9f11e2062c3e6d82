"""Data that algorithms derive from a rollout, in NumPy: the terms of its return, and minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from a2c.algorithms.objective import Objective, terms
from a2c.data.rollout import Array, Rollout
from a2c.execution.replicas import ALONE, Replicas
from a2c.execution.runtime import generator


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
