"""The log of an algorithm's memory: files of rows that never change, beside the checkpoints that need them.

A checkpoint of a replay of 1 M transitions would take gigabytes, three times over. So each checkpoint first writes the
rows since the one before it to new files, then itself, with the rows, names and seals of all files that it needs
(docs/reliability.md). A kill in between leaves files that no checkpoint names, which the resumed run removes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from a2c.algorithms.algorithm import Memory
from a2c.config import UserError
from a2c.execution.replicas import from_text, to_text
from a2c.extensions import as_user_error
from a2c.reading import is_regular
from a2c.run.archive import DamagedError, read_archive, seal_of, write_archive
from a2c.run.files import make_folders, remove

FOLDER = "memory"
LARGEST_SEGMENT = 2**27  # bytes, far from LARGEST_WITH_HOLES: on a compressing disk a file looks sparse
_SEGMENT = re.compile(r"rows-(\d{12,18})-(\d{12,18})\.npz")


class Segment(NamedTuple):
    """A file of rows."""

    first: int
    end: int  # the row after its last
    seal: str  # the file's

    @property
    def name(self) -> str:
        """Of the file."""
        return f"rows-{self.first:012d}-{self.end:012d}.npz"


def segment_files(run_dir: Path) -> list[Path]:
    """The whole files of a run's memory."""
    named = sorted((run_dir / FOLDER).glob("rows-*.npz"))
    return [file for file in named if _SEGMENT.fullmatch(file.name) and is_regular(file, links=False)]


class Segments:
    """Saves and restores one memory: its rows in the folder `memory` of a run, its state in the checkpoints.

    Args:
        run_dir: of the run.
        memory: of its algorithm.
        own: the name of the algorithm if it is a user's own: then what the memory raises is a UserError.
    """

    def __init__(self, run_dir: Path, memory: Memory, own: str | None = None) -> None:
        self.run_dir = run_dir
        self.folder = run_dir / FOLDER
        self.memory = memory
        self.saved: list[Segment] = []
        self._own = own
        self._needed: dict[str, int] = {}  # the first row that a checkpoint needs, by its file's name

    def save(self, checkpoint: str) -> dict[str, np.ndarray]:
        """Write the rows that are in no file yet; returns what `checkpoint`, the next to be written, must hold.

        That is the first row, the end and the seal of each file, `rows` [n, 2] int64 and `seals` [n, 32] uint8, and
        `needed`, JSON.

        Raises:
            OSError: if they cannot be written.
        """
        with self._users_code("saved"):
            needed, total, row_bytes = self.memory.first, self.memory.total, self.memory.row_bytes
        done = self.saved[-1].end if self.saved else 0
        make_folders(self.folder, below=self.run_dir)
        length = max(1, LARGEST_SEGMENT // max(1, row_bytes))
        for first in range(max(done, needed), total, length):
            end = min(first + length, total)
            path = self.folder / Segment(first, end, "").name
            with self._users_code("saved"):
                rows = _numbers("read", self.memory.read(first, end))
                if all(array.shape[:1] != (end - first,) for array in rows.values()):
                    raise ValueError(f"no array that `read` returned has {end - first} rows, from {first} to {end}")
            write_archive(path, rows, below=self.run_dir)
            self.saved.append(Segment(first, end, seal_of(path)))
        self._needed[checkpoint] = needed
        listed = [segment for segment in self.saved if segment.end > needed]
        ends = np.array([(each.first, each.end) for each in listed], np.int64).reshape(-1, 2)
        seals = np.frombuffer(bytes.fromhex("".join(each.seal for each in listed)), np.uint8).reshape(-1, 32)
        return {"rows": ends, "seals": seals, "needed": from_text(json.dumps(self._needed))}

    def state(self) -> dict[str, np.ndarray]:
        """The memory's state, which a checkpoint holds."""
        with self._users_code("saved"):
            return _numbers("state", self.memory.state())

    def restore_state(self, saved: Mapping[str, np.ndarray]) -> None:
        """Take back what `state` returned; raises whatever the memory raises, a user's own UserError."""
        with self._users_code("restored"):
            self.memory.restore(saved)

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Read the rows of a checkpoint into the memory, whose state is restored already; remove what it does not need.

        Args:
            saved: what `save` returned.

        Raises:
            UserError: if a file is missing or damaged, or does not fit, also not into memory.
        """
        try:
            pairs = zip(saved["rows"].tolist(), saved["seals"], strict=True)
            self.saved = [Segment(first, end, seal.tobytes().hex()) for (first, end), seal in pairs]
            at = self.saved[0].first if self.saved else self.memory.total
            if at > self.memory.first:
                raise DamagedError("rows are missing")
            for segment in self.saved:
                self._read(segment, at)
                at = segment.end
            if at != self.memory.total:
                raise DamagedError("rows are missing")
            needed = json.loads(to_text(saved["needed"]))
            if not isinstance(needed, dict):
                raise DamagedError("the checkpoint does not say which rows are needed")
            self._needed = {name: min(int(row), self.memory.first) for name, row in needed.items()}
        except (DamagedError, OSError, KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UserError(
                f"The run cannot be resumed, since what it remembers, in {self.folder}, is not whole: {reason}."
            ) from None
        except MemoryError:
            raise UserError(
                f"What the run remembers, in {self.folder}, is too large for the memory of this machine."
            ) from None
        # only older checkpoints need these, and name their seals
        older = [Segment(int(m[1]), int(m[2]), "") for m in map(_SEGMENT.fullmatch, self._names()) if m]
        self.saved = [*(segment for segment in older if segment.end <= self.memory.first), *self.saved]

    def _read(self, segment: Segment, at: int) -> None:
        path = self.folder / segment.name
        arrays = read_archive(path)
        if segment.first != at or not segment.end > at or seal_of(path) != segment.seal:
            raise DamagedError(f"{path.name} is not the file that the checkpoint names")
        with self._users_code("restored"):
            self.memory.write(segment.first, segment.end, arrays)

    def clean(self, checkpoints: Iterable[str]) -> None:
        """Remove the files that none of the kept checkpoints needs, and those that killed sessions left."""
        self._needed = {name: self._needed.get(name, 0) for name in checkpoints}  # 0: its list was not restored
        needed = min(self._needed.values(), default=0)
        self.saved = [segment for segment in self.saved if segment.end > needed]
        kept = {segment.name for segment in self.saved}
        for name in self._names():
            if name not in kept:
                remove(self.folder / name, below=self.run_dir)

    def _users_code(self, done: str) -> AbstractContextManager[None]:
        return as_user_error(f"{self._own}: its memory cannot be {done}") if self._own else nullcontext()

    def _names(self) -> list[str]:
        """The files of the folder that are named like segments, or like what a kill leaves of one."""
        named = sorted(self.folder.glob("*rows-*.npz*"))
        return [
            file.name
            for file in named
            if _SEGMENT.fullmatch(file.name.removeprefix(".").removesuffix(".tmp")) and is_regular(file, links=False)
        ]


def _numbers(method: str, found: Any) -> dict[str, np.ndarray]:
    """What a memory returned, as arrays; raises TypeError if it is no mapping of arrays of numbers."""
    if not isinstance(found, Mapping):
        raise TypeError(f"`{method}` returned a {type(found).__name__}; return a dict of arrays")
    arrays = {name: np.asarray(array) for name, array in found.items()}
    if odd := [name for name, array in arrays.items() if array.dtype.kind not in "biuf"]:
        raise TypeError(f"`{method}` returned {odd[0]!r} as {arrays[odd[0]].dtype}; return arrays of numbers")
    return arrays
