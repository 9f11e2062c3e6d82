"""The numbers of plots: panels of smoothed curves, with their median and range over the seeds of a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from a2c.algorithms.section import Metric
from a2c.algorithms.sections import SECTIONS
from a2c.config import UserError
from a2c.messages import counted
from a2c.run.counters import WINDOW
from a2c.run.metrics import RUN_COLUMNS
from a2c.show.runs import METRICS, RETURN, FloatArray, RunRecord, by_game, by_recipe
from a2c.show.style import on_common_range

# the column of metrics, its name, and its divisor
AXES = {
    "steps": ("env_steps", "agent steps", 1),
    "frames": ("frames", "emulator frames", 1),
    "minutes": ("seconds", "minutes of training", 60),
}
SPEED = "steps_per_second"
LABELS = {RETURN: f"mean return of the last {WINDOW} games", SPEED: "agent steps a second"}
SMOOTHED_PARTS = 100  # the default reach to both sides is the longest run's lines over this


@dataclass(frozen=True)
class Line:
    """One run in a panel."""

    run: str
    seed: Any
    x: FloatArray  # [lines], without those that are not finite
    raw: FloatArray  # [lines], as logged
    smoothed: FloatArray  # [lines]


@dataclass(frozen=True)
class Mark:
    """One evaluation in a panel."""

    x: float
    mean: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Curve:
    """The runs of one recipe in a panel."""

    label: str
    missing: tuple[str, ...]  # runs that logged nothing of it; the median is that of the others
    lines: tuple[Line, ...]
    x: FloatArray  # [points], in the range in which all its runs have values
    low: FloatArray  # [points], the lowest of the runs; as `middle` if there is one run
    middle: FloatArray  # [points], their median
    high: FloatArray  # [points], the highest
    marks: tuple[Mark, ...]
    episodes: frozenset[int | None]  # numbers of games of these evaluations


@dataclass(frozen=True)
class Panel:
    """One quantity in one game."""

    env_id: str
    quantity: str
    label: str  # of the quantity
    curves: tuple[Curve, ...]


def default_smoothing(runs: Sequence[RunRecord]) -> int:
    """The default number of lines of metrics, before and after each line, that are averaged with it."""
    return max(len(run.metrics["env_steps"]) for run in runs) // SMOOTHED_PARTS


def make_panels(runs: Sequence[RunRecord], what: str, axis: str, smoothing: int) -> list[Panel]:
    """The panels of `what` (return, losses, speed or all) over `AXES[axis]`, game by game.

    Raises:
        UserError: if no run has anything to show in any of them.
    """
    panels = [
        Panel(
            env_id,
            quantity,
            _quantity_label(played, quantity),
            tuple(_curve(members, quantity, axis, smoothing) for members in by_recipe(played)),
        )
        for env_id, played in by_game(runs).items()
        for quantity in _quantities(played, what)
    ]
    panels = [panel for panel in panels if any(curve.lines or curve.marks for curve in panel.curves)]
    if not panels:
        name = {"return": LABELS[RETURN], "all": "numbers"}.get(what, what)
        raise UserError(f"There is nothing to plot yet: {runs[0].path} has logged no {name}.")
    return panels


def _quantities(runs: Sequence[RunRecord], what: str) -> list[str]:
    """The columns to draw; losses are all metrics that are plotted, those of unknown algorithms included."""
    others = dict.fromkeys(name for run in runs for name in run.metrics if name not in RUN_COLUMNS)
    known = {name: _metrics(runs, name) for name in others}
    losses = [name for name in others if not known[name] or any(metric.plotted for metric in known[name])]
    return {"return": [RETURN], "losses": losses, "speed": [SPEED], "all": [RETURN, *losses, SPEED]}[what]


def _metrics(runs: Sequence[RunRecord], quantity: str) -> list[Metric]:
    """What a quantity is in the algorithms of the runs, or else in another."""
    sections = [SECTIONS.get(str(run.settings.get("algorithm.name"))) for run in runs]
    own = [metric for section in sections if section for metric in section.METRICS if metric.name == quantity]
    return own or [METRICS[quantity]] if quantity in METRICS else []


def _quantity_label(runs: Sequence[RunRecord], quantity: str) -> str:
    labels = dict.fromkeys(metric.label for metric in _metrics(runs, quantity))
    return LABELS.get(quantity, " / ".join(labels) or quantity.replace("_", " "))


def smooth(values: FloatArray, reach: int) -> FloatArray:
    """The mean of each value with the `reach` before and after it, or as many as there are."""
    if not reach:
        return values
    at, reach = np.arange(len(values)), min(reach, len(values))
    first, last = np.maximum(at - reach, 0), np.minimum(at + reach, len(values) - 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    means: FloatArray = (sums[last + 1] - sums[first]) / (last + 1 - first)
    return means


def _curve(members: Sequence[RunRecord], quantity: str, axis: str, smoothing: int) -> Curve:
    found = [_line(run, quantity, axis, smoothing) for run in members]
    lines = [line for line in found if len(line.x)]
    if not lines:
        x, values = np.array([]), np.empty((1, 0))
    elif len(lines) == 1:
        x, values = lines[0].x, lines[0].smoothed[np.newaxis]
    else:
        x, values = on_common_range([line.x for line in lines], [line.smoothed for line in lines])
    evaluated = members if quantity == RETURN else ()
    return Curve(
        label=_label(members),
        missing=tuple(line.run for line in found if not len(line.x)),
        lines=tuple(lines),
        x=x,
        low=values.min(axis=0),
        middle=np.median(values, axis=0),
        high=values.max(axis=0),
        marks=tuple(mark for run in evaluated for mark in _marks(run, axis)),
        episodes=frozenset(one.episodes for run in evaluated for one in run.evaluations),
    )


def _line(run: RunRecord, quantity: str, axis: str, smoothing: int) -> Line:
    x = _positions(run, axis)
    y = run.metrics.get(quantity, np.full(len(x), np.nan))
    known = np.isfinite(x) & np.isfinite(y)
    values = y[known]
    return Line(run.label, run.seed, x[known], values, smooth(values, smoothing))


def _positions(run: RunRecord, axis: str) -> FloatArray:
    column, _, divisor = AXES[axis]
    return run.metrics[column] / divisor


def _marks(run: RunRecord, axis: str) -> Iterator[Mark]:
    x = _positions(run, axis)
    known = np.isfinite(x)
    for evaluation in run.evaluations if known.any() else ():
        at = np.interp(evaluation.env_steps, run.metrics["env_steps"][known], x[known])
        yield Mark(float(at), evaluation.mean, evaluation.interval)


def _label(members: Sequence[RunRecord]) -> str:
    names = [run.label for run in members]
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names) if len(names) <= 4 else f"{names[0]}, ..., {names[-1]}"
    seeds = len({str(run.seed) for run in members})
    count = f"{seeds} seeds" if seeds == len(names) else f"{len(names)} runs of {counted(seeds, 'seed')}"
    return f"{shown}: median of {count} where all have data, band from lowest to highest"
