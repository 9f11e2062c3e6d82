"""Signals: a run stops after the current update, and saves."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any


class StoppedError(Exception):
    """A signal asks the run to stop."""


class StopSignal:
    """While entered, SIGINT, SIGTERM and SIGHUP ask the loop to stop after the current update.

    After it, SIGTERM ends the process at once, in case the loop hangs, and the others have their usual effect. A SIGHUP
    that is ignored stays ignored, for `nohup`.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.signal: int | None = None
        self.unshown: OSError | None = None  # why nothing more can be shown, if no signal says it

    def __enter__(self) -> StopSignal:
        self.before: dict[signal.Signals, Any] = {}
        with suppress(ValueError):  # not in the main thread, the only one in which Python handles signals
            for number in self.SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
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
