"""All writing of files: atomic, and never through a link below their folder.

The folder itself (`below`) may be a link made by the user; its contents may be a stranger's. So the folders inside are
opened one after the other by descriptor, no link is followed, and a file replaces what was there.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from a2c.config import UserError, typed
from a2c.reading import open_regular

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # O_EXCL follows no link either
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MODE = 0o666  # minus the umask
BUNDLE = ".a2c"  # the ending of the name of an agent in one file


def check_exists(path: Path) -> None:
    """Check that the path of a run or checkpoint exists.

    Raises:
        UserError: if it does not.
    """
    if not path.exists():
        raise UserError(f"There is no run folder or checkpoint {path}.")


def check_folder(run_dir: Path, *, resume: bool) -> None:
    """Check that a run can be started, or resumed, in a folder.

    Raises:
        UserError: if not.
    """
    try:
        _check_links(run_dir)
        if not resume:
            check_new(run_dir)
        check_writable(run_dir)
    except OSError as error:
        raise UserError(f"The run folder {run_dir} cannot be used: {error.strerror}.") from None


def check_writable(folder: Path) -> None:
    """Check that a folder can be made, or written to if it is there.

    Raises:
        UserError: if not.
    """
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not there.is_dir():
        raise UserError(f"The folder {folder} cannot be used: {there} is not a folder.")
    try:
        try_writing(there)
    except OSError as error:
        raise UserError(
            f"The folder {folder} cannot be used: {there} cannot be written to: {error.strerror}."
        ) from None


def try_writing(folder: Path) -> None:
    """Write a temporary file, or raise the system's OSError."""
    tempfile.TemporaryFile(dir=folder).close()


def _check_links(run_dir: Path) -> None:
    """Check that the folders inside a run's folder do not lead out of it; the run's folder itself may be a link."""
    for name in ("checkpoints", "incidents", "memory", "wandb"):
        if (run_dir / name).is_symlink():
            raise UserError(
                f"{run_dir / name} is a link; a run writes into its own folder only, so put a folder there."
            )


def check_new(run_dir: Path) -> None:
    """Check that a folder holds no run; the temporary files of a killed start are ignored.

    Raises:
        UserError: if it holds a run or other files.
    """
    if run_dir.is_file():
        raise UserError(f"{run_dir} is a file; name a folder with --run-dir.")
    if any(file.is_file() and not file.name.startswith(".") for file in run_dir.rglob("*")):
        is_run = (run_dir / "checkpoints").is_dir()
        first = f"resume it with `a2c resume {typed(run_dir)}`, or name" if is_run else "name"
        what = "holds a run already" if is_run else "holds other files"
        raise UserError(f"{run_dir} {what}; {first} another folder with --run-dir.")


@contextmanager
def replacing(path: Path, also: Sequence[str] = (), *, below: Path | None = None) -> Iterator[BinaryIO]:
    """A new file that replaces `path`, and the names `also` beside it, if the block succeeds.

    A kill leaves at most a temporary file behind, which the next call removes; an error leaves nothing.

    Args:
        path: of the file.
        also: other names for the same file.
        below: the folder below which no link is followed. Default: the folder of `path`.

    Raises:
        OSError: if it cannot be written.
    """
    with _folder_of(path, below) as folder:
        temporary = _new_name(path.name, folder)
        try:
            with os.fdopen(os.open(temporary, _NEW, _MODE, dir_fd=folder), "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                for name in also:
                    # before the rename: after a kill between the two, a resumed run writes these names again
                    _link(temporary, folder, file, name, folder)
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            if isinstance(error, OSError) and error.filename is None:  # such as a full disk, reported by a descriptor
                error.filename = str(path)
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)


def write_atomically(path: Path, content: str | bytes, *, below: Path | None = None) -> None:
    """Write a file atomically; arguments and errors as for `replacing`."""
    with replacing(path, below=below) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_result(path: Path, content: str | bytes, *, below: Path | None = None) -> None:
    """Write the result of a command, atomically unless `path` is a link, a pipe or stdout.

    Args:
        path: of the file.
        content: all of it.
        below: the folder below which no link is followed; None if the user named the file, which may then be a link or
            a pipe.

    Raises:
        UserError: if the file cannot be written.
        BrokenPipeError: if it is a pipe whose reader has left.
    """
    try:
        data = content.encode() if isinstance(content, str) else content
        if below is None and path.exists():
            if path.samefile("/dev/stdout"):
                sys.stdout.buffer.write(data)  # after what is printed already, even if stdout is a file
                sys.stdout.flush()
                return
            if path.is_symlink() or not path.is_file():
                path.write_bytes(data)  # such as a pipe, which must not be replaced
                return
        write_atomically(path, data, below=below)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None


def create(path: Path, *, below: Path | None = None) -> BinaryIO:
    """A new file that replaces what was there, to be written in parts; arguments and errors as for `replacing`."""
    with _folder_of(path, below) as folder:
        with suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=folder)
        return os.fdopen(os.open(path.name, _NEW, _MODE, dir_fd=folder), "wb")


def reopen(path: Path, *, append: bool = False, below: Path | None = None) -> BinaryIO:
    """A file to write without truncating it, made if there is none. Arguments as for `replacing`.

    Args:
        path: of the file.
        append: whether everything is written to its end; if not, it can also be read.
        below: as for `replacing`.

    Raises:
        OSError: if it cannot be written, or is a symbolic or hard link, a pipe or a device.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_APPEND if append else 0)
    with _folder_of(path, below) as folder:
        descriptor = os.open(path.name, flags, _MODE, dir_fd=folder)
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "what lies there is no file of its own", str(path))
    return os.fdopen(descriptor, "ab" if append else "r+b")


def link(path: Path, other: Path, *, below: Path) -> None:
    """Give a file another name too, or copy it if there can be no links; arguments and errors as for `replacing`."""
    with (
        open_regular(path, 2**63, links=False) as file,
        _folder_of(path, below) as folder,
        _folder_of(other, below) as other_folder,
    ):
        _link(path.name, folder, file, other.name, other_folder)


def remove(path: Path, *, below: Path | None = None) -> None:
    """Remove a file or a link; arguments and errors as for `replacing`."""
    with _folder_of(path, below) as folder:
        os.unlink(path.name, dir_fd=folder)


def rename(path: Path, name: str, *, below: Path | None = None) -> None:
    """Rename a file within its folder; arguments and errors as for `replacing`."""
    with _folder_of(path, below) as folder:
        os.replace(path.name, name, src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that becomes `path` if the block succeeds; as with `replacing`, an error leaves nothing.

    Raises:
        OSError: if it cannot be written, or `path` exists and is not an empty folder.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    remove_folder(temporary)  # of a killed process; if it is a link, the next line raises
    temporary.mkdir()
    try:
        yield temporary
        for entry in [*temporary.rglob("*"), temporary]:
            _sync(entry)
        temporary.rename(path)
    except BaseException:
        remove_folder(temporary)
        raise
    _sync(path.parent)


def make_folder(path: Path, name: str = "folder", *, below: Path | None = None) -> None:
    """Make a folder, and those above it, if they do not exist yet.

    Args:
        path: of the folder.
        name: what the error calls it.
        below: an existing folder below which no link is followed. Default: links are followed.

    Raises:
        UserError: if it cannot be made.
    """
    try:
        make_folders(path, below=below)
    except OSError as error:
        raise UserError(f"The {name} {path} cannot be made: {error.strerror}; name another place.") from None


def make_folders(path: Path, *, below: Path | None = None) -> None:
    """As `make_folder`, but raises OSError."""
    if below is None:
        path.mkdir(parents=True, exist_ok=True)
        return
    with _folder_of(path / "any", below, make=True):
        pass


@contextmanager
def made_folder(path: Path, *, below: Path | None = None) -> Iterator[None]:
    """As `make_folder`; if the block raises, the folders that were made and are empty are removed again."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    make_folder(path, below=below)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for folder in made:
                folder.rmdir()
        raise


def remove_folder(folder: Path) -> None:
    """Remove a folder and all in it, as far as that is possible; a link in its place stays."""
    with suppress(RecursionError):  # a stranger's may be a thousand folders deep
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _folder_of(path: Path, below: Path | None, *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder of a file."""
    below = path.parent if below is None else below
    inner = path.relative_to(below).parts[:-1]
    if ".." in inner:
        raise OSError(errno.EINVAL, "it names a folder above", str(path))
    descriptor = os.open(below, _FOLDER)
    try:
        for at, part in enumerate(inner):
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            outer, descriptor = descriptor, _inner(part, descriptor, below.joinpath(*inner[: at + 1]))
            os.close(outer)
        yield descriptor
    except OSError as error:
        name = error.filename2 or error.filename  # of a file that cannot be renamed, and of any other
        if name in (path.name, f".{path.name}.tmp"):  # calls by descriptor report only the name
            error.filename = str(path.with_name(name))
        raise
    finally:
        os.close(descriptor)


def _inner(name: str, folder: int, path: Path) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        if path.is_symlink():
            raise OSError(errno.ELOOP, "a link lies there", str(path)) from None
        raise


def _new_name(name: str, folder: int) -> str:
    temporary = f".{name}.tmp"
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)  # of a killed process; it may be a hard link, so never write into it
    return temporary


def _link(source: str, source_folder: int, file: BinaryIO, target: str, folder: int) -> None:
    temporary = _new_name(target, folder)
    try:
        try:
            os.link(source, temporary, src_dir_fd=source_folder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError:  # a file system without links
            with os.fdopen(os.open(temporary, _NEW, _MODE, dir_fd=folder), "wb") as copy:
                file.seek(0)
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(copy.fileno())
        os.replace(temporary, target, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)  # is left after an error, or if both are names of one file


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
