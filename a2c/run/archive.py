"""Named arrays in one sealed file: an .npz that ends with the SHA-256 of all bytes before it.

NumPy reads it like any other .npz. Reading runs no code (no pickles), detects any changed bit, and takes no more memory
than the size of the file.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import zipfile
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from a2c.reading import open_regular
from a2c.run.files import replacing

_MARK = b"a2c-sha256:"
_SEAL = len(_MARK) + 64  # bytes; the seal is the comment at the end of the zip file
_CARD = "card.md"
LARGEST = 4 * 2**30  # bytes of a file
LARGEST_WITH_HOLES = 2**28  # of a sparse file, which takes almost no disk but its full size in memory
LARGEST_LIST = 2**22  # bytes of a file's list of members, of which zipfile takes nine times as much memory
_KINDS = "biuf"  # kinds of dtype: plain numbers
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class DamagedError(Exception):
    """A file is not as `write_archive` wrote it; the text says why in a few words."""


def write_archive(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    also: Sequence[str] = (),
    *,
    card: str | None = None,
    below: Path | None = None,
) -> None:
    """Write arrays of numbers to `path`, atomically; `also` and `below` are those of `replacing`.

    Args:
        path: of the file.
        arrays: by name.
        card: a text for people who unzip the file; it is not read back.

    Raises:
        OSError: if it cannot be written.
    """
    with replacing(path, also, below=below) as file:
        # not np.savez(**arrays), for which a name such as `file` would be an argument
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            if card is not None:
                archive.writestr(zipfile.ZipInfo(_CARD), card)
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    npy.write_array(member, np.asarray(array), allow_pickle=False)
            archive.comment = _MARK + bytes(64)
        end = file.seek(-64, os.SEEK_END)
        if end + 64 > LARGEST:
            raise OSError(errno.EFBIG, f"it would have more than {LARGEST:,} bytes, the most that are read", str(path))
        digest = _digest(file, end)
        file.write(digest)


def read_archive(path: Path) -> dict[str, np.ndarray]:
    """Read what `write_archive` wrote; the arrays are read-only.

    Raises:
        DamagedError: if the file is anything else.
        OSError: if it cannot be read.
        MemoryError: if it is too large for this machine.
    """
    with open_regular(path, LARGEST) as file:
        state = os.fstat(file.fileno())
        size = state.st_size
        if not size:  # as files of the system, such as those in /proc, are
            raise DamagedError("it is empty")
        if size > LARGEST_WITH_HOLES and state.st_blocks * 512 < size // 2:
            raise DamagedError("it is a sparse file")
        _check_seal(file, size)
        try:
            _check_list(file, size - _SEAL)
            with zipfile.ZipFile(file) as archive:
                return _read_members(archive, size)
        except (DamagedError, OSError, MemoryError):
            raise
        except zipfile.BadZipFile:
            raise DamagedError("it is no whole zip archive") from None
        except Exception as error:  # zipfile and numpy may raise anything on hostile bytes
            raise DamagedError(f"{type(error).__name__} in its content") from None


def seal_of(path: Path) -> str:
    """The SHA-256 that is written at the end of a file; whether it is right is not checked.

    Raises:
        DamagedError: if there is none.
        OSError: if it cannot be read.
    """
    with open_regular(path, LARGEST) as file:
        return _stored_digest(file, file.seek(0, os.SEEK_END)).decode("ascii", "replace")


def _check_seal(file: BinaryIO, size: int) -> None:
    stored = _stored_digest(file, size)
    if _digest(file, size - 64) != stored:
        raise DamagedError("its checksum is wrong")


def _stored_digest(file: BinaryIO, size: int) -> bytes:
    file.seek(max(0, size - _SEAL))
    if file.read(len(_MARK)) != _MARK:
        raise DamagedError("it has no checksum at its end")
    return file.read()


def _check_list(file: BinaryIO, size: int) -> None:
    """Check how long the list of members is, before zipfile reads it, in a zip file of this size without its comment.

    The records at its end say so: one of 22 bytes, and if it is large two more before, of 56 and 20 bytes.
    """
    start = max(0, size - 98)
    file.seek(start)
    records = file.read(size - start)
    large, locator, end = records[:-42], records[-42:-22], records[-22:]
    if records.rfind(b"PK\x05\x06") != len(records) - len(end):  # zipfile takes the last
        raise zipfile.BadZipFile
    lengths = [end[12:16]]
    if locator.startswith(b"PK\x06\x07"):
        lengths.append(large[40:48])
        if int.from_bytes(locator[8:16], "little") != start:  # some versions of Python look there
            raise zipfile.BadZipFile
    if any(int.from_bytes(length, "little") > LARGEST_LIST for length in lengths):
        raise DamagedError("it lists too many arrays")


def _digest(file: BinaryIO, length: int) -> bytes:
    """The hexadecimal SHA-256 of the first `length` bytes; the file's position is behind them afterwards."""
    sha = hashlib.sha256()
    file.seek(0)
    while length > 0:
        chunk = file.read(min(length, 2**20))
        if not chunk:
            raise DamagedError("it is cut short")
        sha.update(chunk)
        length -= len(chunk)
    return sha.hexdigest().encode()


def _read_members(archive: zipfile.ZipFile, size: int) -> dict[str, np.ndarray]:
    members = archive.infolist()
    # before anything is read: no compressed members, and no members that share bytes
    if any(m.compress_type != zipfile.ZIP_STORED or m.file_size != m.compress_size for m in members):
        raise DamagedError("it is compressed")
    if sum(m.file_size for m in members) > size or len({m.filename for m in members}) < len(members):
        raise DamagedError("its contents are larger than the file")
    arrays = (m for m in members if m.filename != _CARD)
    return {m.filename.removesuffix(".npy"): _read_array(archive.read(m)) for m in arrays}


def _read_array(raw: bytes) -> np.ndarray:
    stream = io.BytesIO(raw)
    version = npy.read_magic(stream)
    if version not in _HEADERS:
        raise DamagedError(f"it holds an array of format {version}")
    shape, fortran_order, dtype = _HEADERS[version](stream)
    if dtype.kind not in _KINDS:
        raise DamagedError(f"it holds an array of {dtype}")
    start = stream.tell()
    if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != len(raw) - start:
        raise DamagedError("it holds an array of another size than it says")
    flat: np.ndarray[Any, Any] = np.frombuffer(raw, dtype, offset=start, count=prod(shape))
    return flat.reshape(shape, order="F" if fortran_order else "C")
