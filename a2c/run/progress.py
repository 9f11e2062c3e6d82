"""The display of a run: a live view in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

from a2c.algorithms.sections import Metric
from a2c.config import Config
from a2c.run.metrics import Counters, Record
from a2c.run.view import duration

TICK_SECONDS = 0.5


class Progress:
    """Shows nothing; the base of the two views below, and a context manager like them."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to restore."""

    def start(self, config: Config, counters: Counters) -> None:
        """Called once, before the first update of this session."""

    def tick(self, counters: Counters) -> None:
        """Called after each update, and while games are played between updates."""

    def show(self, record: Record, counters: Counters) -> None:
        """Called with each line of metrics."""

    def evaluating(self, scores: Sequence[float], episodes: int) -> None:
        """Called after each game of an evaluation, with the scores so far."""


class PlainProgress(Progress):
    """One line of text for each record, below a headline that is printed when the run starts."""

    def __init__(self, console: Console, headline: str) -> None:
        self.console = console
        self.headline = headline

    def start(self, config: Config, counters: Counters) -> None:
        """Print the headline."""
        self.total = config.total_env_steps
        self.metrics = config.algorithm.METRICS
        self.console.print(self.headline, markup=False, soft_wrap=True)

    def show(self, record: Record, counters: Counters) -> None:
        """Print the line."""
        self.console.print(
            f"{record.env_steps:>10,} steps {min(1, record.env_steps / self.total):4.0%}  "
            f"return {_number(record.episode_return_mean, '.2f'):>7}  "
            f"{record.steps_per_second:5,.0f} steps/s  eta {_eta(record, self.total)}  "
            + "  ".join(f"{metric.name} {record.metrics[metric.name]:{metric.form}}" for metric in self.metrics[:3]),
            highlight=False,
            soft_wrap=True,
        )

    def evaluating(self, scores: Sequence[float], episodes: int) -> None:
        """Print a line when all games are played."""
        if len(scores) == episodes:
            self.console.print(f"evaluation: mean {_mean(scores)} over {episodes} whole games", soft_wrap=True)


class LiveProgress(Progress):
    """A bar, the clock and the speed, the numbers of the last record and the last games, below the same headline."""

    def __init__(self, console: Console, headline: str) -> None:
        self.console = console
        self.headline = headline
        columns = (TextColumn("[bold]{task.description}"), BarColumn(None), TaskProgressColumn())
        self.bar = Bar(*columns, console=console, expand=True)
        self.live = self._new_live()

    def __enter__(self) -> LiveProgress:
        self.live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):  # the terminal may be gone
            self.live.__exit__(None, None, None)

    def start(self, config: Config, counters: Counters) -> None:
        """Print the headline and draw the empty bar."""
        self.metrics = config.algorithm.METRICS
        self.task = self.bar.add_task(config.env.id, total=config.total_env_steps, completed=counters.env_steps)
        self.numbers: list[RenderableType] = []
        self.evaluation = ""
        self.width = self.console.width
        self._print_headline()
        self._draw()

    def tick(self, counters: Counters) -> None:
        """Move the bar, the clock and the speed."""
        if time.monotonic() - self.drawn >= TICK_SECONDS:
            self._move(counters.env_steps)
            self._draw()

    def show(self, record: Record, counters: Counters) -> None:
        """Redraw everything."""
        self.numbers = [_numbers(record, self.metrics), _last_games(counters)]
        self._move(record.env_steps)
        self._draw()

    def evaluating(self, scores: Sequence[float], episodes: int) -> None:
        """Draw the evaluation's line below everything else."""
        self.evaluation = f"[dim]evaluation[/]  {len(scores)} of {episodes} games  mean {_mean(scores)}"
        self._draw()

    def _move(self, env_steps: int) -> None:
        task = self.bar.tasks[self.task]
        self.bar.update(self.task, completed=min(env_steps, task.total or env_steps))  # the last may exceed the total

    def _draw(self) -> None:
        if self.console.width != self.width:  # the terminal rewraps the old lines: their number is unknown
            self.width = self.console.width
            self.live.stop()
            self.console.clear()
            self._print_headline()
            self.live = self._new_live()
            self.live.start()
        lines = [self.bar, _clock(self.bar.tasks[self.task]), *self.numbers]
        self.live.update(Group(*lines, *([self.evaluation] if self.evaluation else [])), refresh=True)
        self.drawn = time.monotonic()

    def _new_live(self) -> Live:
        # drawn by `tick`, not by a thread that takes time from the cores
        return Live(console=self.console, auto_refresh=False)

    def _print_headline(self) -> None:
        self.console.print(self.headline, markup=False, soft_wrap=True)


def _clock(task: Task) -> Columns:
    speed = "-" if task.speed is None else f"{task.speed:,.0f}"
    left = "..." if task.time_remaining is None else duration(task.time_remaining)
    done, elapsed = f"{task.completed:,.0f} of {task.total:,.0f} steps", duration(task.elapsed or 0)
    return Columns([done, f"{speed} steps/s", elapsed, f"eta {left}"], padding=(0, 3))


def _numbers(record: Record, metrics: Sequence[Metric]) -> Columns:
    """The games, the metrics of the algorithm that are plotted, and the updates, in as many columns as fit."""
    values = [
        (_number(record.episode_return_mean, ".2f"), "return (last 100 games)"),
        (_number(record.episode_length_mean, ",.0f"), "length"),
        (f"{record.episodes:,}", "games"),
        *((f"{record.metrics[metric.name]:{metric.form}}", metric.label) for metric in metrics if metric.plotted),
        (f"{record.updates:,}", "updates"),
    ]
    cells = [Text.assemble(f"{value:>9} ", (label, "dim")) for value, label in values]
    return Columns(cells, padding=(0, 2))


def _last_games(counters: Counters) -> str:
    return "[dim]last games[/]  " + "  ".join(f"{score:g}" for score in list(counters.returns)[-10:])


def _mean(scores: Sequence[float]) -> str:
    return f"{sum(scores) / len(scores):.2f}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _eta(record: Record, total: int) -> str:
    return duration(max(0, total - record.env_steps) / record.steps_per_second)
