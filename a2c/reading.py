"""All files of runs are read here: only regular files, without blocking, up to a given size.

A run may come from a stranger: any of its files may be a pipe, a device, or endless.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

LARGEST_TEXT = 64 * 2**20  # bytes of a JSON file that is read whole
LARGEST_OWN = 2**32  # bytes of a file that earlier sessions of the same run wrote
LONGEST_LINE = 2**20  # bytes; an evaluation of 10,000 games takes a third of it


class OddFileError(OSError):
    """The path is not a regular file, or it is too large; `strerror` tells which."""


def open_regular(path: Path, limit: int, *, links: bool = True) -> BufferedReader:
    """Open a regular file to read it.

    Args:
        path: of the file.
        limit: its largest allowed size in bytes.
        links: whether the last part of the path may be a link.

    Raises:
        OddFileError: if it is not a regular file, or larger.
        OSError: if it does not exist or cannot be read.
    """
    _check_regular(path, _state(path, links=links))  # also before opening, which may have effects on a device
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
    try:
        state = os.fstat(descriptor)
        _check_regular(path, state)
        if state.st_size > limit:
            raise OddFileError(errno.EFBIG, f"it is larger than {limit:,} bytes", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path, limit: int, *, links: bool = True) -> bytes:
    """All of a file; arguments and errors as for `open_regular`."""
    with open_regular(path, limit, links=links) as file:
        data = file.read(limit + 1)  # the size may be wrong: system files report 0 bytes
    if len(data) > limit:
        raise OddFileError(errno.EFBIG, f"it is larger than {limit:,} bytes", str(path))
    return data


def read_text(path: Path, limit: int = LARGEST_TEXT) -> str:
    """All of a UTF-8 text file; arguments and errors as for `open_regular`, and UnicodeDecodeError."""
    return read_bytes(path, limit).decode("utf-8")


def read_end(path: Path, length: int) -> str:
    """The last `length` bytes of a file of any size, as text; invalid UTF-8 is replaced."""
    with open_regular(path, 2**63) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - length))
        return file.read(length).decode(errors="replace")


def read_lines(path: Path, limit: int, *, links: bool = True) -> Iterator[bytes]:
    """The lines of a file with their line ends; a line longer than LONGEST_LINE becomes a line of one NUL.

    Arguments and errors as for `open_regular`.
    """
    with open_regular(path, limit, links=links) as file:
        within = False  # inside a line that is too long
        while part := file.readline(LONGEST_LINE):
            limit -= len(part)
            if limit < 0:  # the size may be wrong: system files report 0 bytes
                raise OddFileError(errno.EFBIG, "it is larger than a file of this kind may be", str(path))
            cut = len(part) == LONGEST_LINE and not part.endswith(b"\n")
            if not cut:
                yield b"\0\n" if within else part
            within = cut
        if within:
            yield b"\0\n"


def is_regular(path: Path, *, links: bool = True) -> bool:
    """Whether the path is a regular file; `links` as for `open_regular`."""
    try:
        return stat.S_ISREG((path.stat() if links else path.lstat()).st_mode)
    except OSError:
        return False


def _state(path: Path, *, links: bool) -> os.stat_result:
    try:
        return path.stat() if links else path.lstat()
    except OSError as error:
        if path.is_symlink():
            raise OddFileError(error.errno, "it is a link that leads nowhere", str(path)) from None
        raise


def _check_regular(path: Path, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise OddFileError(errno.EINVAL, "it is no regular file", str(path))
