"""The named tuples that cross module borders, with their shapes.

T = rollout_length, B = num_envs, A = num_actions. Everything is time-major: [T, B, ...].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

Array = Any  # numpy.ndarray outside the compiled step, tf.Tensor inside it; this module imports neither


class Trajectory(NamedTuple):
    """What one update learns from: stored inputs and outcomes, never activations.

    Row t holds what was seen, then done, then received: obs_t -> action_t -> reward_t. The observation
    after row T-1 is `bootstrap_observation`; where an episode ended inside the rollout, row t+1 already
    shows the next episode's first observation (same-step autoreset).
    """

    observations: Array  # [T, B, *obs], dtype of the environment (uint8 for pixels)
    actions: Array  # [T, B] int32
    rewards: Array  # [T, B] float32, as the loss sees them (clipped where configured)
    discounts: Array  # [T, B] float32: gamma, 0 where the episode terminated or a lost life cuts it
    ends: Array  # [T, B] bool: the recursion stops here (terminated, truncated, life lost where it cuts)
    final_values: Array  # [T, B] float32: V(last observation) where truncated, else 0
    behaviour_logits: Array  # [T, B, A] float32: of the policy that drew the actions
    bootstrap_observation: Array  # [B, *obs]: the observation after row T-1


def env_axis(field: str) -> int:
    """Along which axis a field of a `Trajectory` has its B environments."""
    return 0 if field == "bootstrap_observation" else 1


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


class Losses(NamedTuple):
    """Scalars of one update, float32. Losses are means over [T, B]; see losses.py for signs and halves."""

    total_loss: Array
    policy_loss: Array
    value_loss: Array
    entropy: Array
    explained_variance: Array
    grad_norm: Array  # global norm before clipping
    learning_rate: Array

    def are_finite(self, is_finite: Callable[[Array], Any] = lambda scalar: math.isfinite(float(scalar))) -> Any:
        """Whether loss and gradients are finite, so that the update can be applied."""
        return is_finite(self.total_loss) & is_finite(self.grad_norm)
