"""The display of a run: a live view in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from a2c.algorithms.section import Metric
from a2c.config import Config
from a2c.messages import counted, number
from a2c.run.counters import Counters
from a2c.run.metrics import Record
from a2c.run.view import duration

TICK_SECONDS = 0.5
SPEED_SECONDS = 30.0  # of training


class Progress:
    """Shows nothing; the base of the two views below, and a context manager like them."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to restore."""

    def announce(self) -> None:
        """Called first, before TensorFlow is imported."""

    def start(self, config: Config, counters: Counters) -> None:
        """Called once, before the first update of this session."""

    def tick(self) -> None:
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
            f"return {number(record.episode_return_mean, '.2f'):>7}  "
            f"{record.steps_per_second:5,.0f} steps/s  eta {_eta(record, self.total)}  "
            + "  ".join(f"{metric.name} {_value(record, metric)}" for metric in self.metrics[:3]),
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    def evaluating(self, scores: Sequence[float], episodes: int) -> None:
        """Print a line when all games are played."""
        if len(scores) == episodes:
            self.console.print(
                f"evaluation: mean {_mean(scores)} over {counted(episodes, 'whole game')}", soft_wrap=True
            )


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

    def announce(self) -> None:
        """Print the headline, so that something is on the screen at once."""
        self.console.print(self.headline, markup=False, soft_wrap=True)

    def start(self, config: Config, counters: Counters) -> None:
        """Draw the empty bar."""
        self.metrics = config.algorithm.METRICS
        self.counters = counters
        self.total = config.total_env_steps
        self.marks: deque[tuple[float, int]] = deque()  # seconds of training and steps, of the last SPEED_SECONDS
        self.task = self.bar.add_task(config.env.id, total=self.total)
        self.numbers: list[RenderableType] = []
        self.evaluation: list[RenderableType] = []
        self.width = self.console.width
        self._draw()

    def tick(self) -> None:
        """Move the bar, the clock and the speed."""
        if time.monotonic() - self.drawn >= TICK_SECONDS:
            self._draw()

    def show(self, record: Record, counters: Counters) -> None:
        """Draw everything anew."""
        self.numbers = [_numbers(record, self.metrics), _last_games(counters)]
        self._draw()

    def evaluating(self, scores: Sequence[float], episodes: int) -> None:
        """Draw a line of it."""
        self.evaluation = [f"[dim]evaluation[/]  {len(scores)} of {episodes} games  mean {_mean(scores)}"]
        self._draw()

    def _draw(self) -> None:
        if self.console.width != self.width:  # the terminal has wrapped the old lines anew: their number is unknown
            self.width = self.console.width
            self.live.stop()
            self.console.clear()
            self.announce()
            self.live = self._new_live()
            self.live.start()
        steps = min(self.counters.env_steps, self.total)  # the last update may do more
        self.bar.update(self.task, completed=steps)
        self.live.update(Group(self.bar, self._clock(steps), *self.evaluation, *self.numbers), refresh=True)
        self.drawn = time.monotonic()

    def _clock(self, steps: int) -> Columns:
        speed = self._speed()
        left = "..." if speed is None else duration((self.total - steps) / speed)
        elapsed = duration(self.bar.tasks[self.task].elapsed or 0)
        done = f"{steps:,} of {self.total:,} steps"
        return Columns([done, f"{number(speed, ',.0f')} steps/s", elapsed, f"eta {left}"], padding=(0, 3))

    def _speed(self) -> float | None:
        """Steps a second, without the seconds of evaluations."""
        if not self.marks or self.marks[-1][1] != self.counters.env_steps:
            self.marks.append((self.counters.seconds, self.counters.env_steps))
        while len(self.marks) > 2 and self.marks[-1][0] - self.marks[0][0] > SPEED_SECONDS:
            self.marks.popleft()
        (start, first), (end, last) = self.marks[0], self.marks[-1]
        return (last - first) / (end - start) if last > first and end > start else None

    def _new_live(self) -> Live:
        # drawn by `tick`, not by a thread that takes time from the cores
        return Live(console=self.console, auto_refresh=False)


def _numbers(record: Record, metrics: Sequence[Metric]) -> Columns:
    """The games, the metrics of the algorithm that are plotted, and the updates, in as many columns as fit."""
    values = [
        (number(record.episode_return_mean, ".2f"), "return (last 100 games)"),
        (number(record.episode_length_mean, ",.0f"), "length"),
        (f"{record.episodes:,}", "games"),
        *((_value(record, metric), metric.label) for metric in metrics if metric.plotted),
        (f"{record.updates:,}", "updates"),
    ]
    cells = [Text.assemble(f"{value:>9} ", (label, "dim")) for value, label in values]
    return Columns(cells, padding=(0, 2))


def _last_games(counters: Counters) -> str:
    return "[dim]last games[/]  " + "  ".join(f"{score:g}" for score in list(counters.returns)[-10:])


def _mean(scores: Sequence[float]) -> str:
    return f"{sum(scores) / len(scores):.2f}"


def _value(record: Record, metric: Metric) -> str:
    return number(record.metrics[metric.name], metric.form)


def _eta(record: Record, total: int) -> str:
    return duration(max(0, total - record.env_steps) / record.steps_per_second)
