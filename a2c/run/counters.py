"""The counters of a run, with their units, and the means over its last games."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from a2c.config import Config

WINDOW = 100  # training episodes in the running means, as the A2C literature reports them


@dataclass
class Counters:
    """The progress of a run, and its last episodes. Saved with every checkpoint."""

    updates: int = 0  # rounds of collecting and learning
    gradient_steps: int = 0  # of the optimizer, one or more per update
    env_steps: int = 0  # agent steps over all environments
    frames: int = 0  # emulator frames: env_steps times the frame skip
    episodes: int = 0  # whole games
    seconds: float = 0.0  # spent training, over all sessions of the run
    skipped_updates: int = 0  # not applied, as their loss or gradients were not finite
    skipped_in_a_row: int = 0  # the latest, without a break
    evaluated: int = 0  # env_steps at the last evaluation
    best_return: float | None = None  # the mean return, over a full window, of the best checkpoint
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    lengths: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def advance(self, env_steps: int, frames_per_step: int, gradient_steps: int) -> None:
        """Count one update."""
        self.updates += 1
        self.gradient_steps += gradient_steps
        self.env_steps += env_steps
        self.frames += env_steps * frames_per_step

    def count(self, episode_return: float, length: int) -> None:
        """Count one whole game; called in the order in which they ended."""
        self.episodes += 1
        self.returns.append(episode_return)
        self.lengths.append(length)

    def finished(self, config: Config) -> bool:
        """Whether all the steps of a run are done."""
        return self.env_steps >= config.total_env_steps

    def evaluation_due(self, config: Config) -> bool:
        """Whether an evaluation is due, by steps or at the end of the run."""
        every, done, now = config.evaluation.every_env_steps, self.evaluated, self.env_steps
        passed = every > 0 and done // every < now // every
        return config.evaluation.episodes > 0 and done < now and (passed or self.finished(config))

    @property
    def return_mean(self) -> float | None:
        """Mean raw score of the last 100 training episodes, None before the first."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    @property
    def length_mean(self) -> float | None:
        """Mean length, in agent steps, of the last 100 training episodes."""
        return sum(self.lengths) / len(self.lengths) if self.lengths else None

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {**vars(self), "returns": list(self.returns), "lengths": list(self.lengths)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        for name, value in state.items():
            setattr(self, name, deque(value, WINDOW) if name in ("returns", "lengths") else value)
