"""Checks that a configuration fits the machine's memory, before any of it is allocated."""

from __future__ import annotations

import math
import os
from typing import Any

from a2c.config import Config, UserError
from a2c.execution.machine import memory_limit

COPIES = 4  # of every weight: itself, its gradient, and the optimizer's averages (two for Adam)
FACT_BYTES = 28  # bytes of a transition besides its screen: action, reward, three ends, age, priority and its sums


def physical_memory() -> int:
    """Bytes of memory of this machine, or of its container if that may use less."""
    return int(min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), memory_limit()))


def check_rollout_memory(config: Config, observation_space: Any) -> None:
    """Check that the observations of a rollout fit in memory.

    Args:
        config: of the run.
        observation_space: Gymnasium Box of one observation.

    Raises:
        UserError: if not; it names the keys and sizes.
    """
    memory = physical_memory()
    steps = config.algorithm.rollout_length * config.env.num_envs  # of this process
    size = steps * math.prod(observation_space.shape) * observation_space.dtype.itemsize
    if size > memory:
        shape = " x ".join(str(n) for n in observation_space.shape)
        raise UserError(
            f"algorithm.rollout_length={config.algorithm.rollout_length} x env.num_envs={config.env.num_envs} "
            f"observations of {shape} {observation_space.dtype} take {_size(size)}, and this machine has "
            f"{_size(memory)}; lower one of the two."
        )


def check_replay_memory(capacity: int, stored: int, observation_space: Any, stack: int) -> None:
    """Check that a replay fits in memory.

    Args:
        capacity: transitions asked for.
        stored: transitions that are stored for it.
        observation_space: Gymnasium Box of one observation.
        stack: screens of an observation, of which one is stored for each transition.

    Raises:
        UserError: if not; it names the key and sizes.
    """
    memory = physical_memory()
    each = math.prod(observation_space.shape) // stack * observation_space.dtype.itemsize + FACT_BYTES
    size = stored * each
    if size > memory:
        raise UserError(
            f"algorithm.replay_capacity={capacity} transitions of {each:,} bytes take {_size(size)}, and this machine "
            f"has {_size(memory)}; lower it."
        )


def check_network_memory(shapes: list[tuple[int, ...]]) -> None:
    """Check that a network can be trained in memory.

    Args:
        shapes: of its weights, float32.

    Raises:
        UserError: if not; it names the keys and sizes.
    """
    memory = physical_memory()
    weights = sum(math.prod(shape) for shape in shapes)
    size = weights * COPIES * 4
    if size > memory:
        largest = " x ".join(str(n) for n in max(shapes, key=math.prod))
        raise UserError(
            f"The network has {weights:,} weights, {largest} in its largest layer, which take {_size(size)} with "
            f"gradients and optimizer, and this machine has {_size(memory)}; lower model.hidden_sizes or "
            "model.conv_layers, or choose another model.name."
        )


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
