"""The progress of work in parts, such as a comparison: a bar for each part in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

LINE_SECONDS = 15.0  # between two plain lines
DRAW_SECONDS = 0.1  # between two drawings of a bar


def duration(seconds: float) -> str:
    """Seconds as H:MM:SS."""
    return f"{int(seconds // 3600)}:{int(seconds % 3600 // 60):02d}:{int(seconds % 60):02d}"


class Part:
    """One running part; shows nothing. A context manager, and the base of `_Bar` and `_Lines`."""

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to restore."""

    def at(self, done: float, detail: str = "") -> None:
        """Called with the progress of the part."""

    def advance(self) -> None:
        """Called when one more piece is done."""

    def tick(self) -> None:
        """Called while one piece takes long, so that the clock moves."""


class View:
    """Makes parts that show nothing."""

    def part(self, name: str, total: float) -> Part:
        """A part that is complete at `total`."""
        return Part()


class ConsoleView(View):
    """Bars in a terminal, lines elsewhere.

    Args:
        console: to print on.
        transient: whether bars disappear at their end.
    """

    def __init__(self, console: Console, *, transient: bool = False) -> None:
        self.console = console
        self.transient = transient

    def part(self, name: str, total: float) -> Part:
        """A part that is complete at `total`."""
        if not self.console.is_terminal:
            return _Lines(self.console, name, total)
        return _Bar(self.console, name, total, transient=self.transient)


class _Counted(Part):
    def __init__(self, console: Console, name: str, total: float) -> None:
        self.console, self.name, self.total = console, name, total
        self.done = 0.0
        self.first: float | None = None  # done by an earlier session
        self.start = time.monotonic()

    def at(self, done: float, detail: str = "") -> None:
        self.first = done if self.first is None else self.first
        self.done = done
        self.show(detail)

    def advance(self) -> None:
        self.first = self.first or 0.0
        self.at(self.done + 1)

    def show(self, detail: str) -> None:
        """Draw the progress."""

    def eta(self) -> str:
        gained = self.done - (self.first or 0.0)
        if not gained:
            return "..."
        return duration((time.monotonic() - self.start) * (self.total - self.done) / gained)


class _Bar(_Counted):
    def __init__(self, console: Console, name: str, total: float, *, transient: bool) -> None:
        super().__init__(console, name, total)
        self.transient = transient
        self.drawn = -DRAW_SECONDS

    def __enter__(self) -> _Bar:
        columns = (
            TextColumn("{task.description:<12}"),
            BarColumn(None),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("eta {task.fields[eta]}  {task.fields[detail]}"),
        )
        self.bar = Progress(*columns, console=self.console, expand=True, auto_refresh=False, transient=self.transient)
        self.task: TaskID = self.bar.add_task(self.name, total=self.total, eta="...", detail="")
        self.bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.__exit__(None, None, None)

    def show(self, detail: str) -> None:
        self.bar.update(self.task, completed=self.done, eta=self.eta(), detail=detail)
        self.tick()

    def tick(self) -> None:
        if time.monotonic() - self.drawn >= DRAW_SECONDS:
            self.drawn = time.monotonic()
            self.bar.refresh()


class _Lines(_Counted):
    def __enter__(self) -> _Lines:
        self.last = -LINE_SECONDS
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._print("done")

    def show(self, detail: str) -> None:
        if time.monotonic() - self.last >= LINE_SECONDS and self.done < self.total:
            self.last = time.monotonic()
            self._print(f"{self.done / self.total:4.0%}  eta {self.eta()}  {detail}".rstrip())

    def _print(self, text: str) -> None:
        self.console.print(f"{self.name:<12} {text}", highlight=False, soft_wrap=True)
