"""The style of plots: colours that the colour-blind can distinguish, lines that differ in grey too, and bands."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from a2c.config import printable

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito 2008
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 2)), "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
THIN: dict[str, Any] = {"lw": 0.5, "alpha": 0.3}  # of single runs and raw values, behind their summary
GRID_POINTS = 200
MOST_POINTS = 4_000  # of a drawn line: more than a picture has columns

FloatArray = npt.NDArray[np.float64]


def colour(index: int) -> str:
    """The colour of the line with this number."""
    return COLOURS[index % len(COLOURS)]


def line(index: int) -> dict[str, Any]:
    """How the line with this number is drawn; the first are wide, so that equal curves stay visible below others."""
    return {"color": colour(index), "ls": DASHES[index % len(DASHES)], "lw": 2.4 - 0.6 * min(index, 2)}


def markers(index: int) -> dict[str, Any]:
    """The markers on the line with this number, for readers who see no colours."""
    return {"marker": MARKERS[index % len(MARKERS)], "ms": 5}


def on_common_range(xs: Sequence[Any], ys: Sequence[Any]) -> tuple[FloatArray, FloatArray]:
    """Several curves on one grid over the range that all of them cover, so that their number never changes.

    Args:
        xs: rising values of each curve.
        ys: its values there.

    Returns:
        The grid [points] and the curves [curves, points]; no points if the curves have no range in common.
    """
    start, end = max(x[0] for x in xs), min(x[-1] for x in xs)
    grid = np.linspace(start, end, GRID_POINTS) if start <= end else np.array([])
    return grid, np.array([np.interp(grid, x, y) for x, y in zip(xs, ys, strict=True)])


def kept(values: FloatArray) -> npt.NDArray[np.int64]:
    """The points of a line to draw: all of a short one, else its ends and the extremes of each part of it.

    Args:
        values: [points], finite.

    Returns:
        Their indices, rising; at most MOST_POINTS and the ends.
    """
    at = np.arange(len(values))
    if len(at) <= MOST_POINTS:
        return at
    parts = np.array_split(at, MOST_POINTS // 2)
    extremes = [part[find(values[part])] for part in parts for find in (np.argmin, np.argmax)]  # so that spikes stay
    return np.unique([at[0], *extremes, at[-1]])


def draw_band(axes: Axes, x: Any, low: Any, middle: Any, high: Any, index: int, **more: Any) -> None:
    """Draw the line with this number and the band around it."""
    axes.fill_between(x, low, high, color=colour(index), alpha=0.15, lw=0)
    axes.plot(x, middle, **line(index), **more)


def plain(text: str) -> str:
    """A text for matplotlib: not read as a formula, without control characters, and never left out of a legend."""
    shown = printable(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def render(figure: Figure, form: str, *, fitted: bool = False) -> bytes:
    """A figure as PNG or SVG, the same bytes for the same figure.

    Args:
        figure: what is drawn.
        form: png or svg.
        fitted: the picture is as large as what is drawn, which may lie outside of the figure.
    """
    file = BytesIO()
    metadata = {"Date": None} if form == "svg" else None
    with warnings.catch_warnings(), mpl.rc_context({"svg.hashsalt": "a2c"}):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # of a folder's name: a box is drawn instead
        figure.savefig(file, format=form, dpi=130, metadata=metadata, bbox_inches="tight" if fitted else None)
    return file.getvalue()
