"""What commands print on: the two consoles, and one sentence for a mistake."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from a2c.config import printable, printable_lines


class Terminal(Console):
    """A console that prints no letter which steers a terminal, and leaves to us what to do where its reader is gone.

    rich's own lets ESC of a file's name pass, and exits at once.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """All that is printed comes through here; escape in it what is not printable, but for the ends of lines."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))

    def on_broken_pipe(self) -> None:
        """Called while the error is handled."""
        raise BrokenPipeError


out = Terminal(highlight=False, emoji=False)
err = Terminal(stderr=True, highlight=False, emoji=False)


def fail(sentence: str, code: int = 2) -> None:
    """Print one sentence on stderr and exit."""
    warn(" ".join(sentence.split()))
    sys.exit(code)


def drop_output() -> None:
    """Write to nowhere, so that neither we nor Python at its end fail on a terminal or pipe that is gone."""
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


def cell(text: str) -> str:
    """A text for a cell of a table, which is no markup and one line whatever it holds."""
    return escape(printable(text))


def wide() -> Console:
    """For tables: a file has no margin."""
    return out if out.is_terminal else Terminal(highlight=False, emoji=False, width=200)
