"""What the user sees of a run: a live view in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, zip_longest

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from a2c.algorithms.sections import Metric
from a2c.config import Config
from a2c.run.metrics import Counters, Record


class Progress:
    """Shows nothing; the base of the two views below, and a context like them."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put back."""

    def start(self, config: Config, counters: Counters) -> None:
        """Told once, before the first update of this session."""

    def show(self, record: Record, counters: Counters) -> None:
        """Told each line of metrics."""

    def evaluating(self, scores: Sequence[float], episodes: int) -> None:
        """Told the scores so far after each of the games of an evaluation."""


class PlainProgress(Progress):
    """One line of text for each record, below a headline that is printed when the run really starts."""

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
            f"{record.env_steps:>11,} steps {record.env_steps / self.total:5.0%}  "
            f"return {_number(record.episode_return_mean, '8.2f')}  "
            f"{record.steps_per_second:7,.0f} steps/s  eta {_eta(record, self.total)}  "
            + "  ".join(f"{metric.label} {record.metrics[metric.name]:{metric.form}}" for metric in self.metrics[:3]),
            highlight=False,
            soft_wrap=True,
        )

    def evaluating(self, scores: Sequence[float], episodes: int) -> None:
        """Print a line when all are played."""
        if len(scores) == episodes:
            self.console.print(f"evaluation: mean {_mean(scores)} over {episodes} whole games", soft_wrap=True)


class LiveProgress(Progress):
    """A bar, the numbers of the last record, and the last episodes, below the same headline."""

    def __init__(self, console: Console, headline: str) -> None:
        self.headline = headline
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("eta {task.fields[eta]}"),
        )
        self.bar = Bar(*columns, console=console, expand=True)
        # drawn when there is news, not by a thread that takes time from the two cores
        self.live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> LiveProgress:
        self.live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):  # the terminal may be gone
            self.live.__exit__(None, None, None)

    def start(self, config: Config, counters: Counters) -> None:
        """Print the headline and draw the empty bar."""
        self.total = config.total_env_steps
        self.metrics = config.algorithm.METRICS
        self.live.console.print(self.headline, markup=False, soft_wrap=True)
        self.task = self.bar.add_task(config.env.id, total=self.total, completed=counters.env_steps, eta="...")
        self.numbers: list[RenderableType] = []
        self._draw("")

    def show(self, record: Record, counters: Counters) -> None:
        """Draw everything anew."""
        self.bar.update(self.task, completed=min(record.env_steps, self.total), eta=_eta(record, self.total))
        self.numbers = [_numbers(record, self.metrics), _last_episodes(counters)]
        self._draw(self._evaluation)

    def evaluating(self, scores: Sequence[float], episodes: int) -> None:
        """Draw a line of it below everything else."""
        self._draw(f"[dim]evaluation[/]  {len(scores)} of {episodes} whole games  mean {_mean(scores)}")

    def _draw(self, evaluation: str) -> None:
        self._evaluation = evaluation
        self.live.update(Group(self.bar, *self.numbers, *([evaluation] if evaluation else [])), refresh=True)


class Stages:
    """What is shown of something that is done in stages of seconds to minutes: nothing here. A context."""

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put back."""

    def at(self, stage: str, done: int, total: int) -> None:
        """Told how far a stage is."""


class StageBars(Stages):
    """A bar with an ETA for each stage; they go when all is done."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Bar(*columns, console=console, transient=True)
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> StageBars:
        self.bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.__exit__(None, None, None)

    def at(self, stage: str, done: int, total: int) -> None:
        """Move its bar."""
        if stage not in self.tasks:
            self.tasks[stage] = self.bar.add_task(stage, total=total)
        self.bar.update(self.tasks[stage], completed=done)


def _numbers(record: Record, metrics: Sequence[Metric]) -> Table:
    """Three columns: the games, the metrics of the algorithm that are plotted, and the run."""
    games = [
        ("return (last 100 games)", _number(record.episode_return_mean, ".2f")),
        ("length", _number(record.episode_length_mean, ",.0f")),
        ("games", f"{record.episodes:,}"),
    ]
    own = [(metric.label, f"{record.metrics[metric.name]:{metric.form}}") for metric in metrics if metric.plotted]
    run = [("steps/s", f"{record.steps_per_second:,.0f}"), ("updates", f"{record.updates:,}")]
    table = Table.grid(padding=(0, 3))
    for _ in range(3):
        table.add_column(style="dim")
        table.add_column(justify="right", min_width=10)
    for cells in zip_longest(games, own[:3], [*run, *own[3:4]], fillvalue=("", "")):
        table.add_row(*chain(*cells))
    return table


def _last_episodes(counters: Counters) -> str:
    return "[dim]last games[/]  " + "  ".join(f"{score:g}" for score in list(counters.returns)[-10:])


def _mean(scores: Sequence[float]) -> str:
    return f"{sum(scores) / len(scores):.2f}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _eta(record: Record, total: int) -> str:
    seconds = max(0, total - record.env_steps) / record.steps_per_second
    hours, minutes = int(seconds // 3600), int(seconds % 3600 // 60)
    return f"{hours}:{minutes:02d}:{int(seconds % 60):02d}"
