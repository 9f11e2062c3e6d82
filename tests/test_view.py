"""The progress of work in parts: bars in a terminal, lines elsewhere."""

import io
import re

import pytest
from rich.console import Console

from a2c.run.view import ConsoleView, View


@pytest.fixture
def clock(monkeypatch):
    """The time that all see, as a list of one."""
    now = [100.0]
    monkeypatch.setattr("a2c.run.view.time.monotonic", lambda: now[0])
    return now


def drawn(text: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.getvalue())


def test_a_bar_shows_share_clock_and_time_left_and_its_clock_moves_within_a_piece(clock):
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80, get_time=lambda: clock[0])
    with ConsoleView(console).part("playing", 4) as part:
        clock[0] += 8
        part.advance()
        assert "25% 0:00:08 eta 0:00:24" in drawn(text)
        clock[0] += 5
        part.tick()
        assert "25% 0:00:13" in drawn(text)
        length = len(text.getvalue())
        part.tick()
        assert len(text.getvalue()) == length  # not at every step


def test_plain_lines_come_at_intervals_and_at_the_end(clock):
    text = io.StringIO()
    with ConsoleView(Console(file=text, width=80)).part("training", 10) as part:
        for done in range(1, 11):
            clock[0] += 5
            part.at(done, "a detail")
            part.tick()
    lines = text.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["10%", "40%", "70%", "done"]
    assert lines[1].split()[-2:] == ["a", "detail"]


def test_a_transient_bar_is_gone_at_its_end_and_a_plain_view_shows_nothing(clock):
    text = io.StringIO()
    with ConsoleView(Console(file=text, force_terminal=True, width=80), transient=True).part("playing", 1) as part:
        part.advance()
    assert text.getvalue().endswith("\x1b[1A\x1b[2K")
    with View().part("playing", 1) as part:
        part.advance()
        part.tick()
