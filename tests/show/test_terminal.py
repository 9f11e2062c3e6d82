"""The view in a terminal: what is drawn, read back as a terminal does, and a real pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import heed_sigint

from a2c.cli import main
from a2c.show.terminal import changes, half_blocks

ENTER, LEAVE = b"\x1b[?1049h\x1b[?25l", b"\x1b[0m\x1b[?25h\x1b[?1049l"


def write(screen: np.ndarray, text: str) -> np.ndarray:
    """What a terminal that shows `screen` [rows, columns, 6] shows after `text`."""
    screen = screen.copy()
    row = column = 0
    colours = None
    for numbers, what, block in re.findall(r"\x1b\[([0-9;]*)([Hm])|(▀)", text):
        values = [int(number) for number in numbers.split(";")] if numbers else []
        if what == "H":
            row, column = values[0] - 1, values[1] - 1
        elif what == "m" and values != [0]:
            assert (values[:2], values[5:7]) == ([38, 2], [48, 2])
            colours = values[2:5] + values[7:10]
        elif block:
            screen[row, column] = colours
            column += 1
    return screen


def test_a_picture_is_two_pixels_a_character_as_large_as_fits():
    picture = np.random.default_rng(0).integers(256, size=(20, 30, 3), dtype=np.uint8)
    cells = half_blocks(picture, 30, 40)
    assert cells.shape == (10, 30, 6)
    np.testing.assert_array_equal(cells[:, :, :3], picture[0::2])
    np.testing.assert_array_equal(cells[:, :, 3:], picture[1::2])
    assert half_blocks(picture, 200, 20).shape == (20, 60, 6)
    assert half_blocks(picture, 80, 20, pixel_aspect=2.0).shape == (13, 80, 6)


def test_only_what_differs_is_written_and_then_all_is_right():
    rng = np.random.default_rng(1)
    before = rng.integers(256, size=(8, 12, 6)).astype(np.int16)
    after = before.copy()
    after[2, 3:7], after[7, 11] = 200, 9
    text = changes(before, after)
    assert text.count("▀") == 5
    assert text.count("H") == 2  # the cursor is moved once for a run of characters
    np.testing.assert_array_equal(write(before, text), after)
    np.testing.assert_array_equal(write(np.zeros_like(after), changes(np.full_like(after, -1), after)), after)
    assert changes(after, after) == ""


def watch_here(monkeypatch: pytest.MonkeyPatch, run: Path, *arguments: str, rows: int = 24) -> tuple[int, str, float]:
    """`a2c watch --terminal` in this process, on a pseudo-terminal of 80 columns: its code, text and seconds."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
    shown, times = bytearray(), {}

    def read() -> None:
        with contextlib.suppress(OSError):  # when the other end is closed
            while got := os.read(master, 65536):
                shown.extend(got)
                for mark in (ENTER, LEAVE):
                    if mark in shown:
                        times.setdefault(mark, time.monotonic())

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(slave, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(sys, "stderr", terminal)
        patch.setattr(sys, "argv", ["a2c", "watch", str(run), "--terminal", *arguments])
        patch.setenv("TERM", "xterm-256color")
        with pytest.raises(SystemExit) as ended:
            main()
    reader.join(60)
    os.close(master)
    return ended.value.code or 0, shown.decode(), times.get(LEAVE, 0) - times.get(ENTER, 0)


def test_a_game_is_played_in_its_time_and_the_terminal_is_as_before(catch_run, tmp_path, monkeypatch):
    code, shown, seconds = watch_here(monkeypatch, catch_run, "--json", str(tmp_path / "w.json"))
    assert code == 0
    assert seconds > 1.2  # eleven steps at eight a second, the first at once
    _, _, rest = shown.partition(ENTER.decode())
    text, _, after = rest.partition(LEAVE.decode())
    assert "\x1b[?1049h" not in rest
    assert after.startswith("Catch: the median of 5 games")
    assert text.count("▀") > 24 * 24
    assert "▸" in text
    assert re.search(r"Catch  score -?[01]  0:01\.4  value [+-]\d\.\d\d", text)
    screen = write(np.zeros((22, 44, 6), int), text)
    lit = (screen.max(axis=2) > 100).any(axis=1)
    assert lit[-1], "the paddle, and the ball that has come down"
    assert not lit[:-2].any()
    assert (screen[:, :, 2] < 100).any(), "the background"
    assert json.loads((tmp_path / "w.json").read_text())["files"] == []


def test_a_terminal_that_is_too_small_is_refused(catch_run, monkeypatch):
    code, shown, _ = watch_here(monkeypatch, catch_run, rows=10)
    assert code == 2
    assert "needs at least 40 columns and 15 rows, and this terminal has 80 and 10; make it larger." in shown
    assert "\x1b[?1049h" not in shown


class Terminal:
    """`a2c watch --terminal` in a pseudo-terminal of its own."""

    def __init__(self, run: Path, *arguments: str, rows: int = 24, columns: int = 80, term: str = "xterm-256color"):
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

        def own_it() -> None:
            heed_sigint()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "a2c", "watch", str(run), "--terminal", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=own_it,
            env={**os.environ, "TERM": term},
        )
        os.close(slave)
        self.shown = b""

    def read(self, until: bytes | None = None) -> bytes:
        """All that is shown up to some bytes, or to the end."""
        while until is None or until not in self.shown:
            try:
                got = os.read(self.master, 65536)
            except OSError:  # the other end is closed
                break
            if not got:
                break
            self.shown += got
        return self.shown


@pytest.mark.integration
@pytest.mark.parametrize(("how", "code"), [(b"\x03", 130), (signal.SIGTERM, 143)])
def test_stopped_on_the_way_it_leaves_the_terminal_clean(pong_run, how, code):
    terminal = Terminal(pong_run, "--episodes", "1")
    terminal.read(until=b"value")
    if isinstance(how, bytes):
        os.write(terminal.master, how)  # Ctrl-C, as a keyboard sends it
    else:
        terminal.process.send_signal(how)
    shown = terminal.read()
    assert terminal.process.wait(timeout=300) == code
    assert shown.endswith(LEAVE)
    assert b"Traceback" not in shown
