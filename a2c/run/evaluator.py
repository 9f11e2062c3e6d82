"""The evaluations beside a run: the chief plays whole games while the other workers wait."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from a2c.algorithms.algorithm import Algorithm
from a2c.config import Config
from a2c.data.rollout import Episode
from a2c.evaluation.evaluate import EvalResult, PlayedGame, evaluate_policy
from a2c.execution.replicas import Replicas
from a2c.execution.signals import StoppedError, StopSignal
from a2c.run.counters import Counters
from a2c.run.folder import saving
from a2c.run.metrics import Writers
from a2c.run.progress import Progress
from a2c.show.game import choose
from a2c.show.thumbnail import Gif, thumbnail

MEET_SECONDS = 5.0  # between two meetings of the workers while the chief plays an evaluation


@dataclass
class Evaluator:
    """Runs the evaluations of a run: the chief plays whole games and reports them; the other workers wait for it.

    A signal stops an evaluation early: then it counts as not done, and a resumed run starts it again.
    """

    algorithm: Algorithm
    config: Config
    run_dir: Path
    counters: Counters
    writers: Writers | None
    stop: StopSignal
    view: Progress
    replicas: Replicas

    def __call__(self) -> tuple[EvalResult | None, bool]:
        """Evaluate the current network; returns the chief's result, and whether any worker got a signal."""
        result = None if self.writers is None else self._evaluate(self.writers)
        playing = True
        while playing:
            playing, signalled = self._meet(playing=False)
        return result, signalled

    def _meet(self, *, playing: bool) -> tuple[bool, bool]:
        """Synchronise all workers; returns whether the chief is still playing, and whether any worker got a signal."""
        self._met = time.monotonic()
        mine = {"playing": playing, "evaluated": self.counters.evaluated, "signalled": self.stop.signal is not None}
        each = self.replicas.gather({name: np.array(value) for name, value in mine.items()})
        self.counters.evaluated = int(each[0]["evaluated"])
        return bool(each[0]["playing"]), any(bool(worker["signalled"]) for worker in each)

    def _check(self) -> None:
        """Called before each step, so that signals and the end of a worker are noticed during the games."""
        self.stop.check()
        self.stop.watch(self.view.tick)
        if self.replicas.workers > 1 and time.monotonic() > self._met + MEET_SECONDS and self._meet(playing=True)[1]:
            raise StoppedError

    def _evaluate(self, writers: Writers) -> EvalResult | None:
        scores: list[float] = []
        self._met = time.monotonic()

        def on_episode(episode: Episode) -> None:
            scores.append(episode.episode_return)
            self.stop.watch(self.view.evaluating, scores, self.config.evaluation.episodes)

        try:
            result, played = evaluate_policy(
                self.algorithm.policy,
                self.config,
                str(self.run_dir),
                self.counters.env_steps,
                on_episode=on_episode,
                on_step=self._check,
            )
            video = self._video(played, writers)
        except StoppedError:
            return None
        self.counters.evaluated = self.counters.env_steps
        with saving(self.run_dir, self.config):
            writers.write_evaluation(asdict(result), video)
        return result

    def _video(self, played: list[PlayedGame], writers: Writers) -> Gif | None:
        """The start of the median game; None if no tracker shows it, `evaluation.video` is false, or none is drawn."""
        if not writers.show_games or not self.config.evaluation.video:
            return None
        return thumbnail(self.config.env, choose(played, "median"), on_frame=self._check)
