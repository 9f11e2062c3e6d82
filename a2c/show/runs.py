"""Run folders as they are looked at: their configuration, and the numbers of their logs as arrays.

A run may be under way, of an older version, or a stranger's: what cannot be read is left out, and told.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from a2c.config import Config, UserError, dotted, dump_config, read_config_file, read_provenance
from a2c.run.metrics import RUN_COLUMNS

FloatArray = npt.NDArray[np.float64]
LARGEST_CONFIG = 20_000  # keys, values and letters
MOST_COLUMNS = 100  # of metrics


@dataclass(frozen=True)
class Evaluation:
    """One line of evaluations.jsonl. NaN and None where it does not say."""

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
class Run:
    """One run folder."""

    path: Path  # as the user wrote it
    label: str  # the folder's name, or its path where another run's has the same name
    values: dict[str, Any]  # of config.yaml, nested, as they are written there
    settings: dict[str, Any]  # all of them, by dotted keys; today's default where the file does not say
    provenance: dict[str, str]  # versions and commit
    metrics: dict[str, FloatArray]  # [lines] each; NaN where there was nothing to average yet
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
    def recipe(self) -> str:
        """What is the same in runs that differ in the seed alone."""
        others = {str(key): value for key, value in self.settings.items() if key != "seed"}
        return json.dumps(others, sort_keys=True, default=str)


def read_runs(paths: Sequence[Path], warn: Callable[[str], None] = lambda text: None) -> list[Run]:
    """Read run folders, each once, in their order.

    Args:
        paths: run folders.
        warn: called with a sentence where damaged lines were left out; the half last line of a run under way is
            left out without.

    Raises:
        UserError: for what is no run folder, or one without a line of metrics.
    """
    unique: dict[Path, Path] = {}
    for path in paths:
        unique.setdefault(path.resolve(), path)
    runs = [_read_run(path, warn) for path in unique.values()]
    names = Counter(run.label for run in runs)
    return [replace(run, label=str(run.path)) if names[run.label] > 1 else run for run in runs]


def group(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs by recipe: those of a group differ in the seed alone."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.recipe, []).append(run)
    return list(groups.values())


def _read_run(path: Path, warn: Callable[[str], None]) -> Run:
    if not path.is_dir():
        what = "is a file; name the run's folder" if path.is_file() else "does not exist; name a run's folder"
        raise UserError(f"{path} {what}.")
    if not (path / "config.yaml").is_file():
        raise UserError(f"{path} is no run's folder: it holds no config.yaml; name one that `a2c train` has made.")
    values = read_config_file(path / "config.yaml")
    if _size(values) > LARGEST_CONFIG:
        raise UserError(f"{path / 'config.yaml'} is not one that `a2c train` has made: it holds too much.")
    given = dotted(values)
    if not isinstance(given.get("env.id"), str):
        raise UserError(f"{path / 'config.yaml'} names no environment (env.id); name a folder that `a2c train` made.")
    records = _rising(_objects(path / "metrics.jsonl", warn))
    if not records:
        raise UserError(f"{path} has no line of metrics yet; the first comes after logging.every_updates updates.")
    evaluations = _rising(_objects(path / "evaluations.jsonl", warn))
    return Run(
        path=path,
        label=path.resolve().name,
        values=values,
        settings={**dotted(dump_config(Config())), **given},
        provenance=read_provenance(path / "config.yaml"),
        metrics={name: np.array([_number(record.get(name)) for record in records]) for name in _columns(records)},
        evaluations=tuple(_evaluation(values) for values in evaluations if math.isfinite(_number(values.get("mean")))),
    )


def _columns(records: Sequence[dict[str, Any]]) -> list[str]:
    """The names of all numbers, in their order; a stranger's file may name any number of things."""
    columns = dict.fromkeys(RUN_COLUMNS) | dict.fromkeys(name for record in records for name in record)
    return [name for name in columns if name.isidentifier()][:MOST_COLUMNS]


def _objects(path: Path, warn: Callable[[str], None]) -> list[dict[str, Any]]:
    """The JSON objects of a file's lines, without those that are damaged; none where there is no file."""
    if not path.is_file():
        return []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    found = [_object(line) for line in lines]
    damaged = [number for number, line in enumerate(lines[:-1], 1) if found[number - 1] is None and line.strip()]
    if damaged:
        warn(f"{path}: damaged lines are left out, {len(damaged)} in all, the first is line {damaged[0]}.")
    return [values for values in found if values is not None]


def _object(line: str) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) and math.isfinite(_number(values.get("env_steps"))) else None


def _size(value: Any) -> int:
    """How much a value of YAML holds, up to a little more than is allowed: an alias may stand for itself."""
    left, size = [value], 0
    while left and size <= LARGEST_CONFIG:
        one = left.pop()
        if isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            left += one
        size += max(1, one.bit_length() // 4 if isinstance(one, int) else len(one) if isinstance(one, str) else 1)
    return size


def _rising(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records whose env_steps lie above those of all before."""
    kept: list[dict[str, Any]] = []
    for record in records:
        if not kept or record["env_steps"] > kept[-1]["env_steps"]:
            kept.append(record)
    return kept


def _evaluation(values: dict[str, Any]) -> Evaluation:
    protocol, interval = values.get("protocol"), values.get("interval")
    ends = [_number(end) for end in interval] if isinstance(interval, list) else []
    episodes, seed = values.get("episodes"), values.get("seed")
    names = ("env_steps", "mean", "median", "minimum", "maximum", "human_normalized")
    return Evaluation(
        **{name: _number(values.get(name)) for name in names},
        interval=(ends[0], ends[1]) if len(ends) == 2 and np.isfinite(ends).all() else None,
        episodes=episodes if type(episodes) is int else None,
        seed=seed if type(seed) is int else None,
        policy=str(values.get("policy", "")),
        protocol={str(k): str(v) for k, v in protocol.items()} if isinstance(protocol, dict) else {},
    )


def _number(value: Any) -> float:
    """A finite number as a float, everything else as NaN."""
    if type(value) not in (int, float):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return number if abs(number) < 1e300 else math.nan  # nor is there a picture of larger ones
