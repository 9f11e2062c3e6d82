"""A lock on a folder: one process at a time works in it.

The system releases it when its holder ends in any way: a lock is never stale, though its file stays.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from a2c.config import UserError
from a2c.reading import open_regular, read_text
from a2c.run.files import reopen

LARGEST = 1_000  # bytes of a lock's file
TRIES, TRY_SECONDS = 10, 0.02


class LockedError(UserError):
    """Another process works in the folder."""


def is_locked(folder: Path) -> bool:
    """Whether a process works in a folder."""
    try:
        with open_regular(folder / ".lock", LARGEST) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is none, or a stranger's
        return False
    return False


def holder(folder: Path) -> int | None:
    """The process of this machine that works in a folder; None if there is none, or it is unknown."""
    if not is_locked(folder):
        return None
    try:
        found = re.fullmatch(r"number (\d+) on (.*)\n", read_text(folder / ".lock", LARGEST))
    except (OSError, UnicodeDecodeError):
        return None
    return int(found[1]) if found and found[2] == socket.gethostname() else None


class FolderLock:
    """A context manager that may take the lock of a folder, and releases it at its end.

    Args:
        folder: must exist when the lock is taken.
        inherited: processes started meanwhile hold it too, so that it outlives a killed parent.
    """

    def __init__(self, folder: Path, *, inherited: bool = False) -> None:
        self.folder = folder
        self.inherited = inherited
        self.file: TextIOWrapper | None = None

    def take(self) -> None:
        """Take the lock.

        Raises:
            LockedError: if another process has it.
            UserError: if its file cannot be written.
        """
        path = self.folder / ".lock"
        try:
            self.file = TextIOWrapper(reopen(path), encoding="utf-8", errors="replace")
            _lock(self.file)
            self.file.truncate()
            os.write(self.file.fileno(), f"number {os.getpid()} on {socket.gethostname()}\n".encode())
        except BlockingIOError:
            sentence = self._who_has_it()
            self.release()
            raise LockedError(sentence) from None
        except OSError as error:
            raise UserError(f"{path}, the lock of the folder, cannot be written: {error.strerror}.") from None
        os.set_inheritable(self.file.fileno(), self.inherited)

    def _who_has_it(self) -> str:
        """A sentence on the process that holds the lock, or on those that inherited it."""
        named = self.file.read(80).strip() if self.file else ""
        process = f"Another process{f' ({named})' if named else ''}"
        number = holder(self.folder)
        if number is not None and _has_ended(number):
            return f"{process} has ended, and what it started still works in {self.folder}; wait for that."
        return f"{process} works in {self.folder}; wait for it, or stop it."

    def wait(self) -> None:
        """Take the lock as soon as no other process has it."""
        while True:
            with suppress(LockedError):
                self.take()
                return

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock, if it was taken."""
        if self.file is not None:
            self.file.close()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder in this block, as soon as no other process has it."""
    with FolderLock(folder) as lock:
        lock.wait()
        yield


def _has_ended(number: int) -> bool:
    try:
        with suppress(PermissionError, OverflowError):  # another user's, or a number of no process
            os.kill(number, 0)
    except ProcessLookupError:
        return True
    return False


def _lock(file: TextIOWrapper) -> None:
    """Lock a file; try for a moment, because `is_locked` has the lock for one."""
    for left in reversed(range(TRIES)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not left:
                raise
            time.sleep(TRY_SECONDS)
