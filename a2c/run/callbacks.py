"""A user's own code in the loop of `train`: it is told plain values, and may ask the run to stop or to save."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from a2c.config import Config, UserError, shown
from a2c.extensions import described
from a2c.run.counters import WINDOW, Counters

Answer = Literal["save", "stop"] | bool | None  # None or True: continue; False or "stop": save and stop; "save": save


@dataclass(frozen=True)
class Moment:
    """Where a run is."""

    env_steps: int  # agent steps over all environments
    total_env_steps: int  # that the run will have at its end
    frames: int
    updates: int
    gradient_steps: int
    episodes: int  # whole games
    seconds: float  # spent training, over all sessions of the run
    return_mean: float | None  # raw scores of the last 100 training games, None before the first
    length_mean: float | None  # agent steps of the same
    games_in_mean: int  # at most 100
    metrics: Mapping[str, float]  # of the last update; empty before the first of this session


class Callback:
    """Base of callbacks: each method is called in the loop, in the chief's process, and does nothing by default.

    What a method answers: None or True, continue; False or "stop", save and stop; "save", save now. What it raises ends
    the run, which is saved first. None of it changes the run's bits, only when it ends and which checkpoints it writes.
    """

    def on_update(self, moment: Moment) -> Answer:
        """After each update."""

    def on_episode(self, moment: Moment, episode_return: float, length: int) -> Answer:
        """After each training game: its raw score and its agent steps; with several workers, when a line is written."""

    def on_evaluation(self, moment: Moment, mean: float, scores: Sequence[float]) -> Answer:
        """After an evaluation: the mean raw score of its whole games, and each of them."""

    def on_checkpoint(self, moment: Moment, path: Path) -> Answer:
        """After a checkpoint was written, except that of a new run's start."""

    def on_end(self, moment: Moment) -> None:
        """When this session ends, at the end of the run or earlier; not after an error."""

    def __str__(self) -> str:
        """What the run calls it."""
        return type(self).__name__


class StopAt(Callback):
    """Stops the run when the mean return of the last 100 training games reaches a score."""

    def __init__(self, score: float) -> None:
        self.score = score

    def on_update(self, moment: Moment) -> Answer:
        """Stop once `is_reached`."""
        return not self.is_reached(moment.return_mean, moment.games_in_mean)

    def is_reached(self, return_mean: float | None, games: int) -> bool:
        """Whether the mean of 100 games reaches the score; that of fewer may be luck."""
        return games == WINDOW and return_mean is not None and return_mean >= self.score

    def __str__(self) -> str:
        return f"--stop-at {self.score:g}"


class _Read(Mapping[str, float]):
    """Scalar tensors as numbers, each read back when a callback asks for it."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> float:
        return float(self._tensors[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


class Callbacks:
    """All callbacks of a run, and what they have asked for.

    Attributes:
        stopped_by: the callback that asked the run to stop, or raised.
        error: what to raise once the run is saved, if one raised.

    Raises:
        UserError: if one is no callback.
    """

    def __init__(self, callbacks: Sequence[Callback], config: Config, counters: Counters) -> None:
        if not isinstance(callbacks, (list, tuple)):
            raise UserError(
                f"callbacks={shown(callbacks)} is not allowed: it should be a list of a2c.Callback objects."
            )
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise UserError(f"{shown(callback)} is no callback: each should be an object of a2c.Callback.")
            _check_methods(callback)
        self.stopped_by: str | None = None
        self.error: UserError | None = None
        self._callbacks = callbacks
        self._config = config
        self._counters = counters
        self._metrics: Mapping[str, float] = {}
        self._save = False

    def learned(self, metrics: Mapping[str, Any]) -> None:
        """Tell of an update, and of the scalar tensors that it reports."""
        if self._callbacks:
            self._metrics = _Read(metrics)
            self.tell("on_update")

    def tell(self, event: str, *values: Any) -> None:
        """Call a method of every callback; after an error none is called any more."""
        moment = self._moment() if self._callbacks else None
        for callback in self._callbacks:
            if self.error is not None:
                return
            try:
                self._heed(callback, getattr(callback, event)(moment, *values), event)
            except (Exception, SystemExit) as error:  # the user's code may raise anything, or call sys.exit
                self.stopped_by, self.error = str(callback), _mistake(callback, event, error)

    def save_wished(self) -> bool:
        """Whether a checkpoint was asked for; true once each time."""
        wished, self._save = self._save, False
        return wished

    def _heed(self, callback: Callback, answer: Any, event: str) -> None:
        if answer == "save":
            self._save = True
        elif answer == "stop" or (isinstance(answer, (bool, np.bool_)) and not answer):
            self.stopped_by = self.stopped_by or str(callback)
        elif answer is not None and not isinstance(answer, (bool, np.bool_)):
            raise UserError(f"{event} answered {shown(answer)}; None, True, False, 'stop' and 'save' are allowed")

    def _moment(self) -> Moment:
        counters = self._counters
        return Moment(
            env_steps=counters.env_steps,
            total_env_steps=self._config.total_env_steps,
            frames=counters.frames,
            updates=counters.updates,
            gradient_steps=counters.gradient_steps,
            episodes=counters.episodes,
            seconds=counters.seconds,
            return_mean=counters.return_mean,
            length_mean=counters.length_mean,
            games_in_mean=len(counters.returns),
            metrics=self._metrics,
        )


def _check_methods(callback: Callback) -> None:
    """Check that no method is named like those that are called but never is, as `on_step` of other libraries."""
    for name in dir(callback):
        if name.lstrip("_").startswith("on_") and not hasattr(Callback, name):
            known = ", ".join(each for each in vars(Callback) if each.startswith("on_"))
            raise UserError(f"The callback {callback} has {name}, which nothing calls; allowed are {known}.")


def _mistake(callback: Callback, event: str, error: Exception | SystemExit) -> UserError:
    """The sentence about what a callback raised, without how to resume."""
    said = str(error).rstrip(".") if isinstance(error, UserError) else f"{event} raised {described(error)}"
    mistake = UserError(f"The callback {callback}: {said}")
    mistake.__cause__ = error
    return mistake
