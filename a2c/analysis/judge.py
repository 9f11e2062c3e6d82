"""Whether the best settings of a search are better than the default: both are trained again, with new seeds.

The score with which a trial won is too high: it is the highest of many, of one seed. So a search alone shows nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a2c.analysis.arms import Arm
from a2c.analysis.compare import Comparison, compare_arms
from a2c.analysis.convergence import NoReturnError
from a2c.analysis.jobs import POLL_SECONDS
from a2c.analysis.report import write_report
from a2c.analysis.request import FORCED, Request
from a2c.analysis.space import with_settings
from a2c.analysis.statistics import MIN_SEEDS, PairedComparison
from a2c.analysis.tune import Found, Search
from a2c.config import Config, changed, printable_lines
from a2c.config.explain import explained
from a2c.messages import counted
from a2c.run.files import write_atomically
from a2c.run.lock import LockedError, alone_in, is_locked


@dataclass(frozen=True)
class Judgement:
    """What the new seeds say of the best trial."""

    trial: Any  # of Optuna; None if none is complete
    sentence: str


def judge(found: Found, options: Search, *, seeds: int, command: str) -> Judgement:
    """Train the best settings and the default with new seeds, and compare them.

    Args:
        found: the search.
        options: of the search; the jobs and the place are used again.
        seeds: how many, from the one after that of the search; 0 = nothing is trained.
        command: for the report.

    Raises:
        UserError: if a run fails.
    """
    best, study = found.trials.best(), found.trials
    if best is None:
        return Judgement(None, "No trial was trained to its end, so nothing was found.")
    config = with_settings(found.config, study.settings_of(best))
    if config == found.config:
        return Judgement(best, "No trial scored higher than the default settings: keep them.")
    name = f"trial {best.number}"
    if not seeds:
        return Judgement(best, _unjudged(name, len(study.all())))
    request = Request(
        seeds=seeds,
        jobs=options.jobs,
        place=options.place,
        folder=found.folder / "judge" / f"{best.number:04d}",
        view=options.view,
    )
    try:
        new = {**FORCED, "seed": found.config.seed + 1}
        arms = [Arm(label, changed(each, new)) for label, each in (("default", found.config), (name, config))]
        comparison = _compare(arms, request, options.tell)
    except NoReturnError:
        ended = f"no training game of a judging run ended in {found.config.total_env_steps:,} steps"
        return Judgement(best, f"{_unshown(name)}: {ended}; give --steps more.")
    with alone_in(found.folder):  # all processes of a search judge it together, and write the same files
        write_report(comparison, command)
    assert comparison.convergence is not None
    (contrast,) = comparison.convergence.contrasts
    assert (contrast.baseline, contrast.arm) == ("default", name)
    return Judgement(best, say(name, contrast.final_return, found.config.total_env_steps))


def _compare(arms: list[Arm], request: Request, tell: Callable[[str], None]) -> Comparison:
    """The comparison; if another process, or what a killed one left, is at work on it, wait for that."""
    folder = request.folder
    assert folder is not None
    while True:
        if is_locked(folder):
            tell(f"Another process works in {folder}; waiting for it.")
        while is_locked(folder):
            time.sleep(POLL_SECONDS)
        with suppress(LockedError):
            return compare_arms(arms, request, "tuned")


def _unjudged(name: str, trials: int) -> str:
    return (
        f"Not judged: the score of {name} is the highest of {trials} trials with one seed, so it is too high, and does "
        f"not show that the settings are better than the default; --judge-seeds {MIN_SEEDS} would tell."
    )


def say(name: str, ended: PairedComparison, env_steps: int) -> str:
    """What the final returns of the new seeds show, claiming no more.

    Args:
        name: of the trial.
        ended: its final returns, compared with those of the default.
        env_steps: of each run.
    """
    assert ended.estimate is not None  # every difference has one
    name = name.capitalize()
    new, unshown = f"{counted(ended.pairs, 'new seed')}, {env_steps:,} steps", _unshown(name)
    side = "below" if ended.estimate < 0 else "above"
    start = f"its return ended {abs(ended.estimate):.2f} {side} that of the default ({new}"
    if ended.low is None or ended.high is None:
        return f"{unshown}: {start}; a 95 % interval needs {MIN_SEEDS} seeds)."
    found = f"{start}; 95 % {ended.low:+.2f} to {ended.high:+.2f}, p {ended.p_value:.2g})"
    if not ended.shown:
        needed = "p of at most 0.05" if ended.low > 0 or ended.high < 0 else "an interval without 0"
        return f"{unshown}: {found}. It needs {needed}; more --judge-seeds may tell."
    if ended.low > 0:
        return f"{name} is better than the default: {found}."
    return f"{name} is worse than the default, though its score was the highest: {found}; keep the default."


def _unshown(name: str) -> str:
    return f"{name.capitalize()} is not shown to be better than the default"


def write_best(config: Config, found: Found, judgement: Judgement, command: str) -> Path | None:
    """Write the best settings as a file for --config, with only what differs.

    Returns the file, or None if no trial is complete, or another process has found a better one meanwhile.

    Args:
        config: the default settings, as they were given.
        found: the search.
        judgement: of its best trial.
        command: that made it.
    """
    judged, study, file = judgement.trial, found.trials, found.folder / "best.yaml"
    with alone_in(found.folder):
        if judged is None or judged.number != study.best().number:
            return None
        settings = with_settings(config, {**study.settings_of(judged), "seed": Config().seed})
        lines = explained(settings, only_changed=True).splitlines(keepends=True)
        head = f"# Trial {judged.number}, the best of {len(study.all())} of `{command}`.\n# {judgement.sentence}\n"
        text = printable_lines(head) + "".join(each for each in lines if not each.lstrip().startswith("#"))
        write_atomically(file, text)
    return file
