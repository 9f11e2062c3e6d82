"""A lock on a folder: one process at a time works in it. The system drops it when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from a2c.config import UserError


class FolderLock:
    """A context that may take the lock of a folder, and gives it back at its end.

    Args:
        folder: is to exist when the lock is taken.
        inherited: processes started meanwhile hold it too, so that it outlives a parent that is killed.
    """

    def __init__(self, folder: Path, *, inherited: bool = False) -> None:
        self.folder = folder
        self.inherited = inherited
        self.file: IO[str] | None = None

    def take(self) -> None:
        """Take it.

        Raises:
            UserError: where another process has it.
        """
        self.file = (self.folder / ".lock").open("w")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"Another process works in {self.folder}; wait for it, or stop it.") from None
        os.set_inheritable(self.file.fileno(), self.inherited)

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()
