"""Signals: a run stops after the current update, and saves; what runs several processes notes them, and stops those."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

PASSED_ON = signal.SIGUSR1  # by a parent: another signal may have come to its children too, as to all of a job


class StoppedError(Exception):
    """A signal asks the run to stop."""


class StopSignal:
    """While entered, SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask the loop to stop after the current update.

    After one of the first three, SIGTERM ends the process at once, in case the loop hangs, and SIGINT and SIGHUP have
    their usual effect. SIGUSR1 only ever asks: it neither counts as a first signal nor does anything as a second.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, PASSED_ON)

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
        self._restore(self.before)

    def check(self) -> None:
        """Raise StoppedError if a signal has come."""
        if self.signal is not None:
            raise StoppedError

    def watch(self, show: Callable[..., None], *what: Any) -> None:
        """Show something; a closed terminal or pipe counts as its signal, and a full disk stops the run too.

        What a reader is too slow for is lost.
        """
        try:
            show(*what)
        except BrokenPipeError:
            self.signal = signal.SIGPIPE
        except BlockingIOError:
            pass  # of a pipe that does not wait, and is full for a moment
        except OSError as error:
            self.signal = signal.SIGHUP
            self.unshown = error if error.errno != errno.EIO else None

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == PASSED_ON:
            self.signal = self.signal or number
            return
        self.signal = number
        self._restore(self.before.keys() - {PASSED_ON})
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # no handler of Python runs while a call of C hangs

    def _restore(self, numbers: Iterable[signal.Signals]) -> None:
        for number in numbers:
            signal.signal(number, self.before[number])


@contextmanager
def noted(*numbers: signal.Signals) -> Iterator[list[int]]:
    """A list that collects which of these signals and SIGUSR1 come in this block; they do nothing else.

    SIGUSR1 is collected only as the first, and the next takes its place: it may be the same request.
    """
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if came == [PASSED_ON]:
            came[0] = number
        elif number != PASSED_ON or not came:
            came.append(number)

    before = {number: signal.signal(number, note) for number in (*_heeded(numbers), PASSED_ON)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _heeded(numbers: Sequence[signal.Signals]) -> list[signal.Signals]:
    """All but a SIGHUP that is ignored, which stays so, for `nohup`."""
    return [number for number in numbers if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
