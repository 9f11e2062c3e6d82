"""Signals: a run stops after the current update, and saves; what runs several processes notes them, and stops those."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


class StoppedError(Exception):
    """A signal asks the run to stop."""


class StopSignal:
    """While entered, SIGINT, SIGTERM and SIGHUP ask the loop to stop after the current update.

    After it, SIGTERM ends the process at once, in case the loop hangs, and the others have their usual effect.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.signal: int | None = None
        self.unshown: OSError | None = None  # why nothing more can be shown, if no signal says it

    def __enter__(self) -> StopSignal:
        self.before: dict[signal.Signals, Any] = {}
        with suppress(ValueError):  # not in the main thread, the only one in which Python handles signals
            for number in _heeded(self.SIGNALS):
                self.before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def check(self) -> None:
        """Raise StoppedError if a signal has come."""
        if self.signal is not None:
            raise StoppedError

    def watch(self, show: Callable[..., None], *what: Any) -> None:
        """Show something; a closed terminal or pipe counts as its signal, and a full disk stops the run too."""
        try:
            show(*what)
        except BrokenPipeError:
            self.signal = signal.SIGPIPE
        except OSError as error:
            self.signal = signal.SIGHUP
            self.unshown = error if error.errno != errno.EIO else None

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self._restore()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # no handler of Python runs while a call of C hangs

    def _restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


@contextmanager
def noted(*numbers: signal.Signals) -> Iterator[list[int]]:
    """A list that collects which of these signals come in this block; they do nothing else."""
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in _heeded(numbers)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _heeded(numbers: Sequence[signal.Signals]) -> list[signal.Signals]:
    """All but a SIGHUP that is ignored, which stays so, for `nohup`."""
    return [number for number in numbers if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
