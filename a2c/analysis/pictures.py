"""The pictures of a comparison: growth, learning curves, the bandit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from a2c.analysis.compare import Comparison
from a2c.analysis.convergence import Convergence, RunResult
from a2c.analysis.numerics import Distance
from a2c.analysis.studies.bandit import BanditResult
from a2c.run.files import write_atomically
from a2c.show.style import COLOURS, DASHES, THIN, colour, draw_band, kept, line, on_common_range, plain, render


def draw(comparison: Comparison) -> list[Path]:
    """Draw the parts of a comparison that have pictures; returns the files."""
    pictures: dict[str, Figure] = {}
    if comparison.growth is not None:
        pictures["growth.png"] = _draw_growth(comparison.growth)
    if comparison.convergence is not None:
        pictures["curves.png"] = _draw_curves(comparison.convergence)
    if comparison.bandit is not None:
        pictures["bandit.png"] = _draw_bandit(comparison.bandit)
    for name, figure in pictures.items():
        write_atomically(comparison.folder / name, render(figure, "png"))
    return [comparison.folder / name for name in pictures]


def _draw_growth(growth: dict[str, list[dict[str, Distance]]]) -> Figure:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for numerics, distances in growth.items():
        updates = np.arange(1, len(distances) + 1)
        for shade, name in zip(COLOURS, distances[0], strict=False):
            values = np.array([update[name].relative for update in distances])
            if values.any():
                style = DASHES[0] if numerics == "fast" else DASHES[1]
                axes.plot(
                    updates,
                    np.where(values > 0, values, np.nan),
                    color=shade,
                    ls=style,
                    label=f"{name}, graph {numerics}",
                )
            else:
                axes.plot([], [], color=shade, ls=":", label=f"{name}, graph {numerics}: 0 throughout")
    axes.set_yscale("log")
    axes.set_xlabel("update on the same trajectories")
    axes.set_ylabel("distance from eager, relative")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, handlelength=4)
    return figure


def _draw_curves(found: Convergence) -> Figure:
    envs = list(found.thresholds)
    figure = Figure(figsize=(10, 3.8 * len(envs)), layout="constrained")
    rows = figure.subplots(len(envs), 2, squeeze=False, sharey="row")
    for env, (by_steps, by_time) in zip(envs, rows, strict=True):
        arms = list(dict.fromkeys(run.arm for run in found.runs))
        for index, arm in enumerate(arms):
            runs = [run for run in found.runs if (run.arm, run.env) == (arm, env)]
            _draw_band(by_steps, [run.env_steps for run in runs], runs, arm, index)
            _draw_band(by_time, [np.array(run.seconds) / 60 for run in runs], runs, arm, index)
        for axes in (by_steps, by_time):
            axes.grid(alpha=0.3)
            if found.thresholds[env] is not None:
                axes.axhline(found.thresholds[env], color="grey", lw=0.8, ls="--")
        by_steps.set_ylabel(f"{plain(env)}: mean return of the last 100 games")
        by_steps.set_xlabel("agent steps")
        by_steps.xaxis.set_major_formatter(EngFormatter(sep=" "))
        by_time.set_xlabel("minutes")
        by_steps.legend(fontsize=8, title="median, and the middle half of the seeds", title_fontsize=8)
    return figure


def _draw_band(axes: Axes, xs: Sequence[Any], runs: Sequence[RunResult], arm: str, index: int) -> None:
    """Draw the median and quartiles over seeds, in the range that all runs cover, with thin single runs behind."""
    if not runs:
        return
    for x, run in zip(xs, runs, strict=True):
        returns = np.array(run.returns)
        shown = kept(returns)
        axes.plot(np.array(x)[shown], returns[shown], color=colour(index), **THIN)
    grid, curves = on_common_range(xs, [run.returns for run in runs])
    low, middle, high = np.quantile(curves, [0.25, 0.5, 0.75], axis=0)
    draw_band(axes, grid, low, middle, high, index, label=plain(arm))


def _draw_bandit(result: BanditResult) -> Figure:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    losses = list(dict.fromkeys(curve.loss for curve in result.curves))
    for index, loss in enumerate(losses):
        curves = np.array([curve.probabilities for curve in result.curves if curve.loss == loss])
        updates = np.arange(1, curves.shape[1] + 1)
        axes.plot(updates, curves.T, color=colour(index), **THIN)
        axes.plot(updates, np.median(curves, axis=0), label=loss, **line(index))
    axes.set_xlabel("update")
    axes.set_ylabel("probability of the better arm")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, title="median over seeds; each seed thin", title_fontsize=8)
    return figure
