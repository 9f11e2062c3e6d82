"""Read run folders: their configuration, and the numbers of their logs as arrays.

A run may be in progress, of an older version, or a stranger's: what cannot be read is left out, with a warning.
"""

from __future__ import annotations

import math
import os
from array import array
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from a2c.algorithms.sections import DEFAULT, SECTIONS
from a2c.config import Config, UserError, cut, dotted, dump_config, read_run_config, recipe
from a2c.reading import is_regular
from a2c.run.counters import WINDOW
from a2c.run.logs import as_float, logged
from a2c.run.metrics import RUN_COLUMNS

FloatArray = npt.NDArray[np.float64]
RETURN = "episode_return_mean"
MOST_EVALUATIONS = 2_000
MOST_COLUMNS = len(RUN_COLUMNS) + 20  # of metrics, each of which is a panel; beyond it only those in METRICS are added
LONGEST_NAME = 80  # of a column
MOST_COUNTED = 1_000  # quantities that are left out
MOST_SETTINGS = 20  # of a protocol; ours has at most 16
# A2C's labels, the most general, win: those of an algorithm outside of this repository are not known here.
METRICS = {metric.name: metric for section in reversed(SECTIONS.values()) for metric in section.METRICS}


@dataclass(frozen=True)
class Evaluation:
    """One line of evaluations.jsonl. Missing values are NaN or None."""

    env_steps: float
    mean: float
    interval: tuple[float, float] | None  # of the mean, 95 %
    median: float
    minimum: float
    maximum: float
    human_normalized: float
    episodes: int | None
    seed: int | None
    policy: str
    protocol: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord:
    """One run folder."""

    path: Path  # as the user wrote it
    label: str  # the folder's name, or its path if another run's has the same name
    values: dict[str, Any]  # of config.yaml, nested, as written there
    settings: dict[str, Any]  # all of them, by dotted keys; today's default if the file lacks one
    provenance: dict[str, str]  # versions, commit, and whose weights it started with
    metrics: dict[str, FloatArray]  # [lines] each; NaN if there was nothing to average yet
    evaluations: tuple[Evaluation, ...]

    @property
    def env_id(self) -> str:
        """The environment, as the configuration names it."""
        return str(self.settings["env.id"])

    @property
    def seed(self) -> Any:
        """The run's seed."""
        return self.settings["seed"]

    @property
    def last_return(self) -> float | None:
        """The mean return of the last 100 training games, in the last line that has one."""
        known = self.metrics[RETURN][np.isfinite(self.metrics[RETURN])]
        return float(known[-1]) if len(known) else None

    @property
    def best_return(self) -> float | None:
        """The best mean return of 100 training games."""
        whole = self.metrics[RETURN][self.metrics["episodes"] >= WINDOW]
        known = whole[np.isfinite(whole)]
        return float(known.max()) if len(known) else None

    @property
    def speed(self) -> float | None:
        """Agent steps a second: the median of all lines."""
        known = self.metrics["steps_per_second"][np.isfinite(self.metrics["steps_per_second"])]
        return float(np.median(known)) if len(known) else None

    @property
    def recipe(self) -> str:
        """A text that is equal in runs that learn alike, whatever their seed."""
        return repr(sorted((str(key), str(value)) for key, value in recipe(self.settings, self.provenance).items()))


def read_runs(paths: Sequence[Path], warn: Callable[[str], None] = lambda text: None) -> list[RunRecord]:
    """Read run folders, each once, in their order.

    Args:
        paths: run folders.
        warn: called with a sentence if lines were left out, except the incomplete last line of a run in progress.

    Raises:
        UserError: if a path is not a run folder, or has no line of metrics.
    """
    unique: dict[str, Path] = {}
    for path in paths:
        unique.setdefault(os.path.realpath(path), path)  # unlike resolve(), no error for links in a circle
    runs = [read_run(path, warn) for path in unique.values()]
    for run in runs:
        if not len(run.metrics["env_steps"]):
            raise UserError(
                f"{run.path} has no line of metrics: an agent that was kept without its log has none, and a new run's "
                "first comes after logging.every_updates updates."
            )
    names = Counter(run.label for run in runs)
    return [replace(run, label=str(run.path)) if names[run.label] > 1 else run for run in runs]


def by_game(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """The runs of each environment, in their order."""
    return _grouped(runs, lambda run: run.env_id)


def by_recipe(runs: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """The runs of each recipe, which learn alike but for the seed."""
    return list(_grouped(runs, lambda run: run.recipe).values())


def _grouped(runs: Sequence[RunRecord], key: Callable[[RunRecord], str]) -> dict[str, list[RunRecord]]:
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def read_run(path: Path, warn: Callable[[str], None]) -> RunRecord:
    """Read a run folder, which may have no line of metrics; arguments and errors as of `read_runs`."""
    if not path.is_dir():
        what = "is a file; name the run's folder" if path.is_file() else "does not exist; name a run's folder"
        raise UserError(f"{path} {what}.")
    file = path / "config.yaml"
    if not is_regular(file):
        what = "its config.yaml is no regular file" if file.is_symlink() or file.exists() else "it holds no config.yaml"
        raise UserError(f"{path} is no run's folder: {what}; name one that `a2c train` has made.")
    values, provenance = read_run_config(file)
    given = dotted(values)
    if not isinstance(given.get("env.id"), str):
        raise UserError(f"{file} names no environment (env.id); name a folder that `a2c train` made.")
    return RunRecord(
        path=path,
        label=path.resolve().name,
        values=values,
        settings={**default_settings(given), **given},
        provenance=provenance,
        metrics=_metrics(path / "metrics.jsonl", warn),
        evaluations=_evaluations(path / "evaluations.jsonl", warn),
    )


def default_settings(given: Mapping[Any, Any]) -> dict[str, Any]:
    """The defaults of all settings that a run has, under dotted keys; of a user's own algorithm, its name only."""
    name = str(given.get("algorithm.name", DEFAULT))
    own = SECTIONS[name].model_validate({"name": name}).model_dump(mode="json") if name in SECTIONS else {}
    return dotted({**dump_config(Config()), "algorithm": {**own, "name": DEFAULT}})


def _metrics(path: Path, warn: Callable[[str], None]) -> dict[str, FloatArray]:
    """The columns of metrics.jsonl by name, in their order; limited, since a stranger's file may have any number.

    Lines whose env_steps do not exceed those of all lines before are left out.
    """
    columns = {name: array("d") for name in RUN_COLUMNS}
    left_out: set[int] = set()  # hashes: names can be long
    lines, steps = 0, -math.inf
    for record in logged(path, warn):
        if record["env_steps"] <= steps:
            continue
        steps = record["env_steps"]
        for name in record:
            if name in columns or not name.isidentifier():
                continue
            if name in METRICS or (len(columns) < MOST_COLUMNS and len(name) <= LONGEST_NAME):
                columns[name] = array("d", [math.nan]) * lines
            elif len(left_out) < MOST_COUNTED:
                left_out.add(hash(name))
        for name, column in columns.items():
            column.append(as_float(record.get(name)))
        lines += 1
    if left_out:
        least = "at least " if len(left_out) == MOST_COUNTED else ""
        warn(f"{path}: it names more quantities than are drawn; left out: {least}{len(left_out):,}.")
    return {name: np.array(column) for name, column in columns.items()}


def _evaluations(path: Path, warn: Callable[[str], None]) -> tuple[Evaluation, ...]:
    found: deque[Evaluation] = deque(maxlen=MOST_EVALUATIONS)
    left_out, steps = 0, -math.inf
    for values in logged(path, warn):
        if values["env_steps"] <= steps:
            continue
        steps = values["env_steps"]
        if not math.isfinite(as_float(values.get("mean"))):
            continue
        left_out += len(found) == MOST_EVALUATIONS
        found.append(_evaluation(values))
    if left_out:
        warn(f"{path}: only the last {MOST_EVALUATIONS:,} evaluations are shown; {left_out:,} are left out.")
    return tuple(found)


def _evaluation(values: dict[str, Any]) -> Evaluation:
    interval = values.get("interval")
    ends = [as_float(end) for end in interval] if isinstance(interval, list) else []
    episodes, seed = values.get("episodes"), values.get("seed")
    names = ("env_steps", "mean", "median", "minimum", "maximum", "human_normalized")
    return Evaluation(
        **{name: as_float(values.get(name)) for name in names},
        interval=(ends[0], ends[1]) if len(ends) == 2 and np.isfinite(ends).all() else None,
        episodes=count(episodes),
        seed=count(seed),
        policy=cut(values.get("policy", "")),
        protocol=_protocol(values.get("protocol")),
    )


def _protocol(values: Any) -> dict[str, str]:
    """The first settings of a protocol, and how many more there are; a stranger's may have any number of any length."""
    if not isinstance(values, dict):
        return {}
    more = {"and more": f"{len(values) - MOST_SETTINGS:,} are left out"} if len(values) > MOST_SETTINGS else {}
    return {cut(name): cut(value) for name, value in islice(values.items(), MOST_SETTINGS)} | more


def count(value: Any) -> int | None:
    """A whole number from 0 to 2^63 - 1; None for everything else that a file may hold."""
    return value if type(value) is int and 0 <= value < 2**63 else None
