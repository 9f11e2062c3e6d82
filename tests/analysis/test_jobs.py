"""Processes that are run some at a time, stopped in good order, and not run again."""

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import heed_sigint, wait_for

from a2c.analysis.jobs import Job, Machine, Process, last_words, run_jobs
from a2c.config import UserError
from a2c.execution.signals import PASSED_ON
from a2c.run.lock import is_locked

RECORDER = """
import os, pathlib, sys, time
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / f"running-{name}").touch()
with (folder / "most").open("a") as file:
    file.write(f"{len(list(folder.glob('running-*')))}\\n")
time.sleep(0.3)
(folder / f"running-{name}").unlink()
(folder / f"done-{name}").write_text(os.environ.get("GREETING", ""))
"""
SLOW = "import time; time.sleep(100)"


def job(folder, name, program=RECORDER, **more) -> Job:
    return Job(
        name=name,
        command=(sys.executable, "-c", program, str(folder), name),
        log=folder / "logs" / f"{name}.log",
        is_done=(folder / f"done-{name}").exists,
        **more,
    )


class Remembering(Machine):
    """This machine, which keeps what it starts."""

    def __init__(self) -> None:
        self.started = []

    def start(self, job: Job) -> Process:
        self.started.append(super().start(job))
        return self.started[-1]


def test_all_jobs_are_run_no_more_than_two_at_a_time_and_their_number_is_told(tmp_path):
    ticks = []
    run_jobs(
        [job(tmp_path, str(i), environment={"GREETING": "hi"}) for i in range(5)],
        workers=2,
        folder=tmp_path,
        on_tick=ticks.append,
    )
    assert [(tmp_path / f"done-{i}").read_text() for i in range(5)] == ["hi"] * 5
    assert max(int(line) for line in (tmp_path / "most").read_text().split()) == 2
    assert (ticks[0], ticks[-1]) == (0, 5)
    assert ticks == sorted(ticks)


def test_what_is_done_is_not_run_again(tmp_path):
    (tmp_path / "done-0").write_text("before")
    ticks = []
    run_jobs([job(tmp_path, "0"), job(tmp_path, "1")], workers=2, folder=tmp_path, on_tick=ticks.append)
    assert (tmp_path / "done-0").read_text() == "before"
    assert (tmp_path / "done-1").exists()
    assert ticks[0] == 1


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            "import sys; print('a2c: There is no such game.', file=sys.stderr); sys.exit(2)",
            "broken failed with exit code 2: There is no such game.",
        ),
        ("pass", "broken ended without its result; delete what it left"),  # ended, but left nothing behind
    ],
)
def test_a_job_that_fails_is_told_with_its_last_words_and_the_others_are_stopped(tmp_path, program, said):
    jobs = [job(tmp_path, "slow", SLOW), job(tmp_path, "broken", program)]
    place, start = Remembering(), time.monotonic()
    with pytest.raises(UserError, match=said):
        run_jobs(jobs, workers=2, folder=tmp_path, place=place)
    assert time.monotonic() - start < 50
    assert place.started[0].poll() == -PASSED_ON


PARENT = """
import sys, pathlib
from a2c.analysis.jobs import Job, run_jobs
folder = pathlib.Path(sys.argv[1])
begins = '''
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / "beginning").write_text(str(os.getpid()))
(folder / "beginning").rename(folder / "begun")
time.sleep(100)
'''
child = '''
import os, pathlib, sys, time
from a2c.execution.signals import StopSignal
folder = pathlib.Path(sys.argv[1])
with StopSignal() as stop:
    (folder / "starting").write_text(str(os.getpid()))
    (folder / "starting").rename(folder / "started")
    while stop.signal is None:
        time.sleep(0.02)
    time.sleep(0.5)  # to save takes longer than its parent needs to ask for it
    (folder / "saved").touch()
'''
jobs = [
    Job("job", (sys.executable, "-c", program, str(folder)), folder / "log", (folder / "done").exists)
    for program in (begins, child)
]
run_jobs(jobs[-int(sys.argv[2]) :], workers=2, folder=folder)
"""


@pytest.mark.parametrize(
    ("number", "code", "to_all"),
    [
        (signal.SIGTERM, 143, False),
        (signal.SIGTERM, 143, True),
        (signal.SIGHUP, 129, False),
        (signal.SIGUSR1, 138, False),
        (signal.SIGINT, -signal.SIGINT, False),
    ],
)
def test_a_stopped_comparison_lets_its_runs_save(tmp_path, number, code, to_all):
    command = [sys.executable, "-c", PARENT, str(tmp_path), "2"]
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL, preexec_fn=heed_sigint)
    children = [tmp_path / name for name in ("begun", "started")]
    wait_for(lambda: all(child.exists() for child in children), parent)
    os.kill(parent.pid, signal.SIGSTOP)  # so that it hears of its own signal last
    for child in children if to_all else ():  # processes of a job; the first has nothing to save, and ends at once
        os.kill(int(child.read_text()), number)
    os.kill(parent.pid, number)
    os.kill(parent.pid, signal.SIGCONT)
    assert parent.wait(30) == code
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGUSR1, SystemExit), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_while_a_job_starts_stops_that_job_too(tmp_path, number, ends):
    class Interrupted(Remembering):
        def start(self, job: Job) -> Process:
            process = super().start(job)
            os.kill(os.getpid(), number)
            return process

    slow, place = job(tmp_path, "slow", SLOW), Interrupted()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(ends) as ended:
            run_jobs([slow], workers=1, folder=tmp_path, place=place)
    finally:
        signal.signal(signal.SIGINT, before)
    assert place.started[0].poll() is not None
    assert ended.value.args in ((), (128 + number,))


def test_a_job_whose_log_is_not_there_says_so(tmp_path):
    assert last_words(job(tmp_path, "0")) == "its log cannot be read"


def test_jobs_whose_parent_was_killed_still_hold_the_lock(tmp_path):
    command = [sys.executable, "-c", PARENT, str(tmp_path), "1"]
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL, preexec_fn=heed_sigint)
    wait_for((tmp_path / "started").exists, parent)
    with pytest.raises(UserError, match=r"Another process .*works in"):
        run_jobs([job(tmp_path, "0")], workers=1, folder=tmp_path)
    parent.kill()
    parent.wait()
    with pytest.raises(
        UserError, match=r"Another process .* has ended, and what it started still works in .* for that"
    ):
        run_jobs([job(tmp_path, "0")], workers=1, folder=tmp_path)
    orphan = int((tmp_path / "started").read_text())
    os.kill(orphan, signal.SIGTERM)
    wait_for((tmp_path / "saved").exists)
    wait_for(lambda: not is_locked(tmp_path))
    run_jobs([job(tmp_path, "0")], workers=1, folder=tmp_path)
    assert (tmp_path / "done-0").exists()


def test_sigterm_does_not_cut_the_display_short(tmp_path):
    """An exception in the middle of it would leave the lock of a live view taken, for which its thread would wait."""
    shown = []

    def show(done: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        shown.append(done)

    with pytest.raises(SystemExit, match="143"):
        run_jobs([job(tmp_path, "0")], workers=1, folder=tmp_path, on_tick=show)
    assert shown == [0]
