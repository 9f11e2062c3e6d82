"""Signals: a run ends after the update under way, and saves."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any


class StoppedError(Exception):
    """A signal asks for an end."""


class StopSignal:
    """While entered, SIGINT, SIGTERM and SIGHUP ask the loop to stop after the update under way.

    A second one is handled as ever, for a loop that hangs. A SIGHUP that is ignored stays so, as `nohup` wants it.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.signal: int | None = None
        self.unshown: OSError | None = None  # why nothing more can be shown, if no signal tells it

    def __enter__(self) -> StopSignal:
        self.before: dict[signal.Signals, Any] = {}
        with suppress(ValueError):  # not in the main thread, where Python handles signals
            for number in self.SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self.before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def check(self) -> None:
        """Raise StoppedError where a signal has come."""
        if self.signal is not None:
            raise StoppedError

    def watch(self, show: Callable[..., None], *what: Any) -> None:
        """Show something; a terminal or pipe that is gone counts as its signal, and a full disk asks for an end too."""
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

    def _restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
