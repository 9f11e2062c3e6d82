"""The named tuples that modules exchange, with their shapes.

T = rollout_length, B = num_envs, A = num_actions. Everything is time-major: [T, B, ...].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = Any  # numpy.ndarray outside the compiled step, tf.Tensor inside it; this module does not import TensorFlow


class Rollout(NamedTuple):
    """T steps of B environments, as they happened; each algorithm derives its batches from them.

    Row t holds obs_t -> action_t -> reward_t. If an episode ended in row t, row t+1 has the first observation of the
    next episode (same-step autoreset).
    """

    observations: np.ndarray  # [T + 1, B, *obs], dtype of the environment (uint8 for pixels); the last is after row T-1
    actions: np.ndarray  # [T, B] int32
    rewards: np.ndarray  # [T, B] float32, not clipped
    terminated: np.ndarray  # [T, B] bool: game over only
    truncated: np.ndarray  # [T, B] bool: stopped by a time limit
    life_lost: np.ndarray  # [T, B] bool: fewer lives than before, and the game continues
    last_observations: np.ndarray  # [K, *obs]: the true last one of each of the K truncated rows, in order of (t, b)
    said: dict[str, np.ndarray]  # [T, B, ...]: outputs of the policy besides its actions, see `Policy.says`

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name, for a file."""
        fields = self._asdict()
        said = fields.pop("said")
        return {**fields, **{f"said/{name}": array for name, array in said.items()}}

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> Rollout:
        """The inverse of `arrays`."""
        said = {name.removeprefix("said/"): array for name, array in arrays.items() if name.startswith("said/")}
        return cls(**{name: arrays[name] for name in cls._fields if name != "said"}, said=said)


class Episode(NamedTuple):
    """One whole game, from reset to game over or the time limit, across lost lives."""

    env_index: int
    number: int  # counts the episodes of this environment from 0
    seed: int  # of its series: the episode is a function of this seed and of all actions since the series began
    episode_return: float  # undiscounted sum of raw rewards: the game's score
    length: int  # agent steps
    frames: int  # emulator frames


class VecStep(NamedTuple):
    """The result of one step of a vector environment (same-step autoreset)."""

    observations: np.ndarray  # [B, *obs]: to act on next; if an episode ended, the first one of the next episode
    rewards: np.ndarray  # [B] float32, not clipped
    terminated: np.ndarray  # [B] bool: game over only
    truncated: np.ndarray  # [B] bool: stopped by a time limit
    life_lost: np.ndarray  # [B] bool: fewer lives than before, and the game continues
    final_observations: np.ndarray  # [B, *obs]: the true last observation if an episode ended, else as `observations`
    episodes: tuple[Episode, ...]  # those that ended in this step
