"""The named tuples that cross module borders, with their shapes.

T = rollout_length, B = num_envs, A = num_actions. Everything is time-major: [T, B, ...].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = Any  # numpy.ndarray outside the compiled step, tf.Tensor inside it; this module does not import TensorFlow


class Rollout(NamedTuple):
    """What happened in T steps of B environments: facts, from which each algorithm derives what it learns from.

    Row t holds what was seen, then done, then received: obs_t -> action_t -> reward_t. Where an episode ended inside
    the rollout, row t+1 already shows the next episode's first observation (same-step autoreset).
    """

    observations: np.ndarray  # [T + 1, B, *obs], dtype of the environment (uint8 for pixels); the last is after row T-1
    actions: np.ndarray  # [T, B] int32
    rewards: np.ndarray  # [T, B] float32, raw
    terminated: np.ndarray  # [T, B] bool: game over, and nothing else
    truncated: np.ndarray  # [T, B] bool: stopped by a time limit
    life_lost: np.ndarray  # [T, B] bool: fewer lives than before, and the game goes on
    last_observations: np.ndarray  # [K, *obs]: the true last one of each of the K truncated rows, in order of (t, b)
    said: dict[str, np.ndarray]  # [T, B, ...]: what the behaviour policy said beside its actions, see `Policy.says`

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array by a name, for a file."""
        fields = self._asdict()
        said = fields.pop("said")
        return {**fields, **{f"said/{name}": array for name, array in said.items()}}

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> Rollout:
        """What `arrays` took apart."""
        said = {name.removeprefix("said/"): array for name, array in arrays.items() if name.startswith("said/")}
        return cls(**{name: arrays[name] for name in cls._fields if name != "said"}, said=said)


class Episode(NamedTuple):
    """One whole game, from reset to game over (or to the time limit), lives notwithstanding."""

    env_index: int
    number: int  # counts the episodes of this sub-environment from 0
    seed: int  # of its series: the episode is a function of this seed and of all actions since it was taken
    episode_return: float  # undiscounted sum of raw rewards: the game's score
    length: int  # agent steps
    frames: int  # emulator frames


class VecStep(NamedTuple):
    """What a vector environment answers to one batch of actions (same-step autoreset)."""

    observations: Array  # [B, *obs]: what to act on next; a new episode's first where one ended
    rewards: Array  # [B] float32, raw
    terminated: Array  # [B] bool: game over, and nothing else
    truncated: Array  # [B] bool: stopped by a time limit
    life_lost: Array  # [B] bool: fewer lives than before, and the game goes on
    final_observations: Array  # [B, *obs]: the true last observation where an episode ended, else as above
    episodes: tuple[Episode, ...]  # those that ended in this step
