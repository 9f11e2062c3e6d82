"""Learning curves as pictures: one panel for each game and quantity, readable in grey and without red and green."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from a2c.config import UserError
from a2c.run.files import make_folders, write_result
from a2c.show.curves import AXES, Curve, Mark, Panel
from a2c.show.runs import RunRecord
from a2c.show.style import THIN, colour, draw_band, kept, line, markers, plain, render

FORMS = ("png", "svg")
FADED = {**THIN, "lw": 0.8}
STAR: dict[str, Any] = {"marker": "*", "ms": 11, "mfc": "white"}  # an evaluation
PANEL = (4.6, 2.9)  # inches
SIGNS = 10  # on each curve
ALONE = (8.0, 4.0)  # inches, if there is only one


def draw(panels: Sequence[Panel], axis: str, smoothing: int) -> Figure:
    """Draw panels over `AXES[axis]`, with one legend below all of them."""
    places = _places(panels)
    rows, columns = np.max(places, axis=0) + 1
    legend = [Line2D([], [], label=plain(label), **style) for label, style in legend_entries(panels, smoothing)]
    wide, high = ALONE if len(panels) == 1 else (PANEL[0] * columns, PANEL[1] * rows)
    figure = Figure(figsize=(wide, high + 0.18 * (len(legend) + 2)), layout="constrained")
    games = {panel.env_id for panel in panels}
    if len(games) == 1:
        figure.suptitle(plain(*games), fontsize=11)
    grid = figure.subplots(rows, columns, squeeze=False)
    for place, panel in zip(places, panels, strict=True):
        _draw_panel(grid[place], panel, axis, smoothing)
        if len(games) > 1:
            grid[place].set_title(plain(panel.env_id), fontsize=10)
    for place in {*np.ndindex(grid.shape)} - {*places}:
        grid[place].set_axis_off()
    figure.legend(handles=legend, loc="outside lower center", fontsize=8, handlelength=4, frameon=False)
    return figure


def draw_sign(style: Mapping[str, Any]) -> Figure:
    """Draw a line in one style, for a legend outside of a figure."""
    figure = Figure(figsize=(0.55, 0.16))
    figure.add_artist(Line2D([0.1, 0.5, 0.9], [0.5, 0.5, 0.5], markevery=[1], **style))
    return figure


def draw_alone(panel: Panel, axis: str, smoothing: int) -> Figure:
    """Draw one panel without a legend, so small that a phone's screen is wide enough."""
    figure = Figure(figsize=PANEL, layout="constrained")
    _draw_panel(figure.subplots(), panel, axis, smoothing)
    return figure


def default_targets(runs: Sequence[RunRecord], what: str, axis: str) -> list[Path]:
    """The default files, in both forms: in the folder of a single run (`home`), else in the current folder."""
    stem = home(runs) / "plots" / f"{what}-{axis}" if len(runs) == 1 else home(runs) / f"plot-{what}-{axis}"
    return [stem.with_name(f"{stem.name}.{form}") for form in FORMS]


def home(runs: Sequence[RunRecord]) -> Path:
    """The folder of pictures and pages for which the user named no place."""
    return runs[0].path if len(runs) == 1 else Path()


def check_target(path: Path) -> Path:
    """Check a file that the user named, and return it.

    Raises:
        UserError: if it does not end in .png or .svg.
    """
    if path.suffix.lower().removeprefix(".") not in FORMS:
        raise UserError(f"--out {path} must end in .png or .svg.")
    return path


def save(figure: Figure, targets: Sequence[Path], *, below: Path | None = None) -> None:
    """Write a figure, in the form that each name ends with; a missing folder is made.

    Args:
        figure: to draw.
        targets: files.
        below: the folder below which no link is followed; None if the user named the file.

    Raises:
        UserError: if a file cannot be written; if a folder lies in the place of one, none is.
    """
    if folder := next(filter(os.path.isdir, targets), None):
        raise UserError(f"{folder} is a folder, and a picture goes there; name another place with --out.")
    pictures = {path: render(figure, path.suffix.lower().removeprefix(".")) for path in targets}
    for path, picture in pictures.items():
        try:
            if below is None:
                path.parent.mkdir(exist_ok=True)  # one folder: more are a typing error
            else:
                make_folders(path.parent, below=below)
        except OSError as error:
            raise UserError(f"{path.parent} cannot be made: {error.strerror}; name another place with --out.") from None
        write_result(path, picture, below=below)


def save_numbers(panels: Sequence[Panel], axis: str, smoothing: int, target: Path) -> None:
    """Write all that is drawn as JSON.

    Raises:
        UserError: if the file cannot be written.
    """
    values = {"x": AXES[axis][1], "smoothing": smoothing, "panels": [asdict(panel) for panel in panels]}
    write_result(target, json.dumps(values, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else sorted(value, key=str)


def _places(panels: Sequence[Panel]) -> list[tuple[int, int]]:
    """The row and column of each panel. Of several games and quantities, each game is a row, each quantity a column."""
    games, quantities = ([*dict.fromkeys(getattr(panel, name) for panel in panels)] for name in ("env_id", "quantity"))
    if len(games) > 1 and len(quantities) > 1:
        return [(games.index(panel.env_id), quantities.index(panel.quantity)) for panel in panels]
    columns = min(len(panels), 2 if len(panels) <= 8 else 4)
    return [divmod(number, columns) for number in range(len(panels))]


def _draw_panel(axes: Axes, panel: Panel, axis: str, smoothing: int) -> None:
    for index, curve in enumerate(panel.curves):
        _draw_curve(axes, curve, index, smoothing)
    axes.set_xlabel(AXES[axis][1], fontsize=9)
    axes.set_ylabel(panel.label, fontsize=9)
    axes.tick_params(labelsize=8)
    if axis != "minutes":
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.grid(alpha=0.3)


def _draw_curve(axes: Axes, curve: Curve, index: int, smoothing: int) -> None:
    if smoothing or len(curve.lines) > 1:
        for run in curve.lines:
            shown = kept(run.raw)
            axes.plot(run.x[shown], run.raw[shown], color=colour(index), **FADED)
    at = kept(curve.middle)  # drops points only of a single run, whose band is the line
    x, low, middle, high = (values[at] for values in (curve.x, curve.low, curve.middle, curve.high))
    draw_band(axes, x, low, middle, high, index, **markers(index), markevery=_every(len(at), index))
    if curve.marks:
        _draw_marks(axes, curve.marks, index)


def _draw_marks(axes: Axes, marks: Sequence[Mark], index: int) -> None:
    """Draw all marks at once: one by one, thousands take ten times as long as the rest of the picture."""
    x, means = np.array([(mark.x, mark.mean) for mark in marks]).T
    low, high = np.array([mark.interval or (np.nan, np.nan) for mark in marks]).T
    reach = np.maximum(0.0, [means - low, high - means])
    axes.errorbar(x, means, reach, color=colour(index), capsize=3, lw=1, zorder=4, ls="", **STAR)


def _every(points: int, index: int) -> tuple[int, int]:
    """The first point with a marker, which differs between curves, and the number of points between markers."""
    step = max(1, points // SIGNS)
    return index * step // 4 % step, step


def legend_entries(panels: Sequence[Panel], smoothing: int) -> list[tuple[str, dict[str, Any]]]:
    """A text and a style for each curve of a game, then for the thin lines and the stars."""
    games = list({panel.env_id: panel for panel in panels}.values())
    entries: list[tuple[str, dict[str, Any]]] = [
        (curve.label if len(games) == 1 else f"{panel.env_id}, {curve.label}", {**line(index), **markers(index)})
        for panel in games
        for index, curve in enumerate(panel.curves)
    ]
    curves = [curve for panel in panels for curve in panel.curves]
    entries += [
        (f"{panel.label}: {', '.join(curve.missing[:4])} logged nothing of it", {"color": "grey", "ls": ""})
        for panel in panels
        for curve in panel.curves
        if curve.missing
    ]
    if smoothing:
        smoothed = f"thin: as logged; thick: each line of metrics averaged with the {smoothing} before and after it"
        entries.append((smoothed, {"color": "grey", **FADED}))
    elif any(len(curve.lines) > 1 for curve in curves):
        entries.append(("thin: each run, as logged", {"color": "grey", **FADED}))
    if any(curve.marks for curve in curves):
        entries.append((_evaluations(curves), {"color": "grey", "ls": "", **STAR}))
    return entries


def _evaluations(curves: Sequence[Curve]) -> str:
    episodes = set().union(*(curve.episodes for curve in curves))
    count = f"{episodes.pop()} " if len(episodes) == 1 and None not in episodes else ""
    interval = any(mark.interval for curve in curves for mark in curve.marks)  # there is none of a few games
    return f"evaluation: mean of {count}whole games{', with its 95 % interval' if interval else ''}"
