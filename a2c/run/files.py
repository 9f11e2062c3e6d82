"""Files and folders: those we write are whole or not there; those a user names are to be there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from a2c.config import UserError


def demand_there(path: Path) -> None:
    """Refuse the path of a run or checkpoint where nothing is.

    Raises:
        UserError: if so.
    """
    if not path.exists():
        raise UserError(f"There is no run folder or checkpoint {path}.")


@contextmanager
def replacing(path: Path, also: Sequence[Path] = ()) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path`, and of the names `also`, when the block ends well.

    A kill leaves at most a temporary file behind, which the next call removes; an error leaves nothing.

    Raises:
        OSError: where it cannot be written.
    """
    temporary = _new_name(path)
    try:
        with temporary.open("x+b") as file:  # x: a link that someone laid there is never written through
            yield file
            file.flush()
            os.fsync(file.fileno())
        for name in also:
            # before the rename: a kill between the two leaves names that whoever starts again makes again
            _link(temporary, name)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())


def write_result(path: Path, content: str | bytes) -> None:
    """Write a file where the user said so, whole or not at all.

    Raises:
        UserError: where the file cannot be written.
    """
    try:
        data = content.encode() if isinstance(content, str) else content
        if path.exists() and path.samefile("/dev/stdout"):
            sys.stdout.buffer.write(data)  # behind what is printed already, be it into a file
            sys.stdout.flush()
            return
        if path.exists() and (path.is_symlink() or not path.is_file()):
            path.write_bytes(data)  # such as a pipe, whose place must not be taken
            return
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that becomes `path` when the block ends well; as with `replacing`, an error leaves nothing.

    Raises:
        OSError: where it cannot be written, or `path` is there and not an empty folder.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # a killed process's
    temporary.mkdir()
    try:
        yield temporary
        for entry in [*temporary.rglob("*"), temporary]:
            _sync(entry)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync(path.parent)


def make_folder(path: Path, name: str = "folder") -> None:
    """Make a folder, and those above it, where they are not there yet.

    Args:
        path: of the folder.
        name: what it is called where it cannot be made.

    Raises:
        UserError: where it cannot.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The {name} {path} cannot be made: {error.strerror}.") from None


def _new_name(path: Path) -> Path:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # a killed process's: it may be another file's too, so never write into it
    return temporary


def _link(source: Path, target: Path) -> None:
    temporary = _new_name(target)
    try:
        temporary.hardlink_to(source)
    except OSError:  # a file system without links
        with replacing(target) as copy, source.open("rb") as file:
            shutil.copyfileobj(file, copy)
        return
    temporary.replace(target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
