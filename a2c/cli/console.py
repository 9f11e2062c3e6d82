"""The output of commands: two consoles, and one sentence for a mistake."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from a2c.config import printable, printable_lines

if TYPE_CHECKING:
    from a2c.analysis.report import Table as TextTable
    from a2c.run.view import View


class Terminal(Console):
    """A console that escapes control characters, and lets us handle a closed pipe.

    rich's own prints an ESC in a file's name, and exits at once if the pipe is closed.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Escape what is not printable, except the ends of lines; all output passes through here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))

    def on_broken_pipe(self) -> None:
        """Raise the error again; rich calls this while handling it."""
        raise BrokenPipeError


out = Terminal(highlight=False, emoji=False)
err = Terminal(stderr=True, highlight=False, emoji=False)


def fail(sentence: str, code: int = 2) -> None:
    """Print one sentence on stderr and exit."""
    with suppress(OSError):  # stderr may be closed or full: the code tells it then
        warn(re.sub(r"\s*\n\s*", " ", sentence.strip()))  # the spaces in a path stay
    sys.exit(code)


def drop_output() -> None:
    """Discard all further output, so that neither we nor Python at exit fail on a closed terminal or pipe."""
    with Path(os.devnull).open("wb") as nothing:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nothing.fileno(), stream.fileno())


def warn(sentence: str) -> None:
    """Print a sentence on stderr."""
    err.print(f"a2c: {printable(sentence)}", markup=False, soft_wrap=True)


def say(*lines: str) -> None:
    """Print lines on stdout; what is not printable, such as the end of a line in a name, is escaped."""
    for line in lines:
        out.print(printable(line), markup=False, soft_wrap=True)


class TerminatedError(BaseException):
    """SIGTERM has come. It is no Exception, as KeyboardInterrupt is none: nothing but `main` may stop it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


@contextmanager
def continuing(command: str = "The same command") -> Iterator[None]:
    """If the block is stopped, say which command continues it."""
    try:
        yield
    except (KeyboardInterrupt, TerminatedError, SystemExit, typer.Exit):
        say(f"Stopped. {command} continues with what is missing.")
        raise


def cell(text: str) -> str:
    """A text for a cell of a table: on one line, and not read as markup."""
    return escape(printable(text))


def progress_view(*, transient: bool = False) -> View:
    """The progress of work in parts, on stderr if it is a terminal; transient bars disappear at their end."""
    from a2c.run.view import ConsoleView, View

    return ConsoleView(err, transient=transient) if err.is_terminal else View()


def print_table(table: TextTable) -> None:
    """Print a table of a report."""
    shown = Table(title=cell(table.title), title_justify="left", box=None, header_style="bold")
    for heading in table.headings:
        shown.add_column(cell(heading), overflow="fold")
    for row in table.rows:
        shown.add_row(*map(cell, row))
    wide().print(shown)


def wide() -> Console:
    """The console for tables: 200 columns wide if the output is not a terminal."""
    return out if out.is_terminal else Terminal(highlight=False, emoji=False, width=200)
