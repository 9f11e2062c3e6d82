"""Search for better settings: each trial is an ordinary `a2c train` process in a run folder of its own.

Everything is in one folder: `tuning.json` (what is searched), `study.db` (Optuna's study), `settings/`, `trials/` (run
folders), `logs/`, `locks/` (who works on what).
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from a2c.analysis.arms import Arm, ArmRun, Planned, is_finished, steps_done, training_job, write_configurations
from a2c.analysis.compare import check_arms
from a2c.analysis.jobs import MACHINE, POLL_SECONDS, Job, Place, Process, end, last_words
from a2c.analysis.results import open_folder
from a2c.analysis.space import Space, read_space
from a2c.analysis.trials import GRID, Claim, Trials, import_optuna, open_storage, with_lines_on_grid
from a2c.config import Config, UserError, changed, dump_config, env_slug
from a2c.execution.signals import PASSED_ON, StoppedError, StopSignal
from a2c.run.files import make_folders
from a2c.run.lock import holder, is_locked
from a2c.run.logs import as_float, logged
from a2c.run.view import Part, View

LOOK_SECONDS = 0.5  # between two looks at the metrics and the study
STOPPED = {code for each in StopSignal.SIGNALS for code in (128 + each, -each)}  # exit codes of a run that was stopped
MOST_FAILURES = 5  # in a row


@dataclass(frozen=True)
class Search:
    """The options of a search."""

    config: Config  # the default settings
    space_file: Path | None = None
    trials: int = 20  # in all, of all processes
    pruner: str = "median"
    minutes: float | None = None  # after which no new trial is started
    jobs: int = 1  # processes at a time
    place: Place = MACHINE  # where they run
    storage: str | None = None
    folder: Path | None = None
    view: View = field(default_factory=View)
    tell: Callable[[str], None] = print  # called with a line for each trial that has ended


@dataclass(frozen=True)
class Found:
    """The state of a search when this process has no more to do."""

    folder: Path
    config: Config  # the default settings, as trained
    trials: Trials
    signal: int | None  # that stopped it early


def search(options: Search) -> Found:
    """Run trials until the study has as many as asked for; run again to continue.

    Raises:
        UserError: if Optuna is missing, a key or a value is not allowed, the folder holds another search, the default
            settings fail, or MOST_FAILURES trials in a row do.
    """
    config = trained(options.config)
    space = read_space(options.space_file, config)
    import_optuna()
    storage = None if options.storage is None else open_storage(options.storage)
    check_arms([Arm("the default", config)])
    what = {"config": dump_config(config), "space": _dump(space), "pruner": options.pruner}
    folder = open_folder(options.folder, "tuning", f"tune-{env_slug(config.env.id)}", what)
    study = Trials(folder, config, space, number=options.trials, storage=storage, pruner=options.pruner)
    session = _Session(options, folder, study)
    with suppress(StoppedError), StopSignal() as stop, options.view.part("tuning", options.trials) as part:
        session.work(stop, part)
        stop.check()
    return Found(folder, config, study, stop.signal)


def trained(config: Config) -> Config:
    """The settings as trials are trained: without what only costs time, and with enough lines of metrics to judge.

    Evaluations are kept if they are scheduled: their mean is then the score.
    """
    changes = {
        "logging.histograms": False,
        "logging.trackers": [],
        "evaluation.episodes": None if is_evaluated(config) else 0,
        "evaluation.video": False,
    }
    return with_lines_on_grid(changed(config, changes))


def is_evaluated(config: Config) -> bool:
    """Whether whole games are played at regular steps."""
    return config.evaluation.every_env_steps > 0 and config.evaluation.episodes > 0


def scores(run: Path, config: Config) -> Iterator[tuple[int, float]]:
    """Agent steps and scores of a run so far: the mean of its evaluations, else of its last 100 training games."""
    file, name = ("evaluations.jsonl", "mean") if is_evaluated(config) else ("metrics.jsonl", "episode_return_mean")
    for line in logged(run / file):
        value = as_float(line.get(name))
        if not math.isnan(value):  # a game has ended
            yield int(line["env_steps"]), value


def on_grid(curve: Iterator[tuple[int, float]], total: int) -> dict[int, float]:
    """The first score at or after each of GRID points of a run, by the point's agent steps."""
    found: dict[int, float] = {}
    for env_steps, score in curve:
        if at := min(GRID, env_steps * GRID // total):
            found.setdefault(at * total // GRID, score)
    return found


class _Survivor:
    """A run whose parent was killed: a process that another one started."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def poll(self) -> int | None:
        return None if is_locked(self.run) else 0

    def wait(self, timeout: float | None = None) -> None:
        deadline = time.monotonic() + (timeout or 0)
        while holder(self.run) is not None:  # one on another machine cannot be stopped, so it is not waited for
            if timeout is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.run), timeout)
            time.sleep(POLL_SECONDS)

    def terminate(self) -> None:
        self._send(PASSED_ON)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if (pid := holder(self.run)) is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


@dataclass
class _Running:
    claim: Claim
    run: Path
    job: Job
    process: Process
    pruned: bool = False  # it was asked to stop


class _Session:
    """This process's share of a search."""

    def __init__(self, options: Search, folder: Path, study: Trials) -> None:
        self.options, self.folder, self.study = options, folder, study
        self.running: list[_Running] = []
        self.failures = 0  # in a row
        self.examined = False
        self.deadline = math.inf if options.minutes is None else time.monotonic() + 60 * options.minutes

    def work(self, stop: StopSignal, part: Part) -> None:
        """Run trials until none is left, or a signal comes; wait for those of other processes."""
        try:
            while stop.signal is None and (self._start() or self.study.some_are_running()):
                stop.watch(self._show, part)
                time.sleep(LOOK_SECONDS)
                for each in list(self.running):
                    self._look(each)
        finally:
            for each in self.running:
                each.process.terminate()
            for each in self.running:
                end(each.process)
                each.claim.lock.release()
            self.study.leave()
        stop.watch(self._show, part)

    def _start(self) -> bool:
        """Start trials up to the number of jobs; returns whether any is running here."""
        while len(self.running) < self.options.jobs:
            claim = self.study.claim(new=time.monotonic() < self.deadline)
            if claim is None:
                break
            run = self.folder / "trials" / claim.name
            job = self._job(claim, run)
            self.running.append(_Running(claim, run, job, _Survivor(run) if is_locked(run) else self._begin(job)))
        return bool(self.running)

    def _job(self, claim: Claim, run: Path) -> Job:
        config, file = claim.config, self.folder / "settings" / f"{claim.name}.yaml"
        what = ArmRun(f"trial {claim.number}", config.env.id, config.seed, run)
        plan = Planned(what, config, file)
        write_configurations([plan])
        return training_job(plan, self.folder / "logs")

    def _begin(self, job: Job) -> Process:
        if not self.examined:
            self.options.place.examine(self.folder)
            self.examined = True
        make_folders(job.log.parent)
        return self.options.place.start(job)

    def _look(self, each: _Running) -> None:
        """Report what a trial has reached, stop it if it is hopeless, and tell its end."""
        code = each.process.poll()
        config, total = each.claim.config, each.claim.config.total_env_steps
        curve = on_grid(scores(each.run, config), total)
        is_new = each.claim.report(curve)
        if code is not None:
            self.running.remove(each)
            self._ended(each, code, curve.get(total))
        elif is_new and total not in curve and not each.pruned and self.study.should_prune(each.claim):
            each.pruned = True
            each.process.terminate()

    def _ended(self, each: _Running, code: int, score: float | None) -> None:
        claim, survived = each.claim, isinstance(each.process, _Survivor)
        if code == 0 and not survived and is_finished(each.run, claim.config):
            if score is None:
                self._fail(claim, "no game has ended in its steps; give more --steps")
            else:
                self.failures = 0
                self.study.complete(claim, score)
                self._tell(claim, f"{score:.2f}")
        elif each.pruned:
            self.failures = 0
            self.study.prune(claim)
            self._tell(claim, f"pruned after {steps_done(each.run):,} steps")
        elif survived:
            self.running.append(replace(each, process=self._begin(each.job)))  # which finds its end, or resumes it
        elif is_locked(each.run):
            self.running.append(replace(each, process=_Survivor(each.run)))
        elif code in STOPPED:
            claim.lock.release()  # it is resumed
        else:
            self._fail(claim, last_words(each.job).rstrip("."))

    def _fail(self, claim: Claim, reason: str) -> None:
        self.study.fail(claim, reason)
        self._tell(claim, f"failed: {reason}")
        self.failures += 1
        log = self.folder / "logs" / f"{claim.name}.log"
        if self.study.is_default(claim):
            raise UserError(f"The default settings failed, with which all others are compared: {reason} (see {log}).")
        if self.failures >= MOST_FAILURES:
            raise UserError(
                f"{self.failures} trials in a row failed; the last: {reason} (see {log}). The same command continues."
            )

    def _tell(self, claim: Claim, how: str) -> None:
        self.options.tell(f"trial {claim.number}: {how}; {self.study.described(claim)}")

    def _show(self, part: Part) -> None:
        done, best = self.study.counts(), self.study.best()
        under_way = sum(min(steps_done(each.run) / each.claim.config.total_env_steps, 1) for each in self.running)
        ended = sum(number for name, number in done.items() if name != "running")
        words = ", ".join(f"{number} {name}" for name, number in done.items() if number)
        found = "" if best is None else f"; best {best.value:.2f} (trial {best.number})"
        part.at(min(ended + under_way, self.options.trials), f"{words}{found}")


def _dump(space: Space) -> dict[str, Any]:
    return {key: asdict(dimension) for key, dimension in space.items()}
