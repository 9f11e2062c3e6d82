"""Odd things in the places of a run's files, and what a command that met them may have done."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 30  # that a command may take to refuse a run, on a busy machine
ROOM = 1_000_000  # KiB that it may take besides

# what may lie in place of a file or folder; each takes the place and the decoy
LINKS: dict[str, Callable[[Path, Path], Any]] = {
    "link to a file": lambda place, decoy: place.symlink_to(decoy / "file"),
    "link to a folder": lambda place, decoy: place.symlink_to(decoy / "folder"),
    "link to nothing": lambda place, decoy: place.symlink_to(decoy / "new"),
    "relative link": lambda place, decoy: place.symlink_to(os.path.relpath(decoy / "file", place.parent)),
    "hard link": lambda place, decoy: place.hardlink_to(decoy / "file"),
}
ODD: dict[str, Callable[[Path, Path], Any]] = {
    "pipe": lambda place, decoy: os.mkfifo(place),
    "link to a pipe": lambda place, decoy: place.symlink_to(decoy / "pipe"),
    "socket": lambda place, decoy: bind(place),
    "link to a device": lambda place, decoy: place.symlink_to("/dev/zero"),
    "link to a terminal": lambda place, decoy: place.symlink_to("/dev/tty"),
    "link to itself": lambda place, decoy: place.symlink_to(place.name),
    "link to the system's memory": lambda place, decoy: place.symlink_to("/proc/self/mem"),
    "folder": lambda place, decoy: place.mkdir(),
    "sparse file": lambda place, decoy: sparse(place, 2**40),
    "large file of zeros": lambda place, decoy: sparse(place, 2**28),
    "empty file": lambda place, decoy: place.touch(),
    "link to the system's pages": lambda place, decoy: place.symlink_to("/proc/self/pagemap"),
    "link to a name too long": lambda place, decoy: place.symlink_to("x" * 300),
}


def make_decoy(folder: Path) -> Path:
    """A tree that no command may change."""
    (folder / "folder").mkdir(parents=True)
    (folder / "file").write_text("precious")
    (folder / "folder" / "inner").write_text("precious too")
    os.mkfifo(folder / "pipe")
    return folder


def snapshot(folder: Path) -> dict[str, Any]:
    """Names, kinds, times and contents of all that is in a folder; links are not followed."""
    return {str(path.relative_to(folder)): (state_of(path), content_of(path)) for path in sorted(folder.rglob("*"))}


def state_of(path: Path) -> tuple[int, ...]:
    state = path.lstat()
    return state.st_mode, state.st_mtime_ns, state.st_size


def content_of(path: Path) -> Any:
    if path.is_symlink():
        return path.readlink()
    return path.read_bytes() if path.is_file() and path.stat().st_size < 2**24 else None


def clear(place: Path) -> None:
    """Take away what lies there, be it a folder."""
    if not place.is_symlink() and place.is_dir():
        for inner in place.iterdir():
            clear(inner)
        place.rmdir()
    else:
        place.unlink(missing_ok=True)


def bind(place: Path) -> None:
    before = Path.cwd()
    os.chdir(place.parent)  # a socket's name is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(place.name)
    finally:
        os.chdir(before)


def sparse(place: Path, size: int) -> None:
    with place.open("wb") as file:
        file.truncate(size)


def assert_well_ended(ended: Any) -> None:
    """It worked, or was refused in one sentence; nothing in what it said steers a terminal."""
    assert ended.returncode in (0, 2), ended
    said = ended.stdout + ended.stderr
    assert "Traceback" not in said
    assert all(line.isprintable() for line in said.split("\n")), said
    if ended.returncode == 2:
        assert ended.stderr.startswith("a2c: ")
        assert len(ended.stderr) < 2_000
    lines = ended.stderr.splitlines()
    assert all(line.startswith("a2c: ") for line in lines), lines


class TooLongError(BaseException):
    """No error that the code under test would answer."""


@contextmanager
def within_bounds(seconds: float = SECONDS) -> Iterator[None]:
    """Fails where it takes longer, or more memory than ROOM."""

    def lose(*_: object) -> None:
        raise TooLongError(f"it takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, lose)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on
    held = memory("VmRSS")
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert memory("VmHWM") - held < ROOM


def memory(name: str) -> int:
    """Of this process, in KiB: VmRSS is held now, VmHWM was held at the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
