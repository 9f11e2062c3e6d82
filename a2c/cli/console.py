"""What commands print on: the two consoles, and one sentence for a mistake."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console


class Terminal(Console):
    """A console that leaves to us what to do where its reader is gone; rich's own would exit at once."""

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
    err.print(f"a2c: {sentence}", markup=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a text on stdout, as it is."""
    out.print(text, markup=False, soft_wrap=True)


def wide() -> Console:
    """For tables: a file has no margin."""
    return out if out.is_terminal else Terminal(highlight=False, emoji=False, width=200)
