"""Runs commands in processes of their own, some at a time; what is there already is not run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from a2c.config import UserError
from a2c.lock import FolderLock

POLL_SECONDS = 0.2
GRACE_SECONDS = 60.0  # for a training run to finish its update and save


@dataclass(frozen=True)
class Job:
    """One command."""

    name: str
    command: tuple[str, ...]
    log: Path  # of both output streams
    is_done: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)


def run_jobs(
    jobs: Sequence[Job], *, workers: int, folder: Path, on_tick: Callable[[int], None] = lambda done: None
) -> None:
    """Run the jobs that are not done yet, `workers` at a time, in the given order.

    When this is interrupted (Ctrl-C, SIGTERM), the running ones are asked to stop and waited for.

    Args:
        jobs: what to run.
        workers: processes at a time.
        folder: where all of them work; locked while one runs, also by jobs whose parent was killed.
        on_tick: called several times a second with the number of jobs that are done.

    Raises:
        UserError: where a job fails, with the last line it wrote; where another process works there.
    """
    with FolderLock(folder, inherited=True) as lock:
        lock.take()
        _run(jobs, workers, on_tick)


def _run(jobs: Sequence[Job], workers: int, on_tick: Callable[[int], None]) -> None:
    waiting = [job for job in jobs if not job.is_done()]
    done = len(jobs) - len(waiting)
    running: list[tuple[Job, subprocess.Popen[bytes]]] = []
    before = signal.signal(signal.SIGTERM, _leave)  # by default it would leave the running jobs behind
    try:
        on_tick(done)
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                running.append((job, _start(job)))
            time.sleep(POLL_SECONDS)
            for job, process in [entry for entry in running if entry[1].poll() is not None]:
                running.remove((job, process))
                _check(job, process)
                done += 1
            on_tick(done)
    finally:
        for _, process in running:
            process.terminate()
        for _, process in running:
            _wait(process)
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _start(job: Job) -> subprocess.Popen[bytes]:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("wb") as log:
        # in a session of its own: Ctrl-C reaches this process alone, which then stops its jobs in good order
        return subprocess.Popen(
            job.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **job.environment},
            start_new_session=True,
            close_fds=False,  # the lock is the only one that is handed down
        )


def _check(job: Job, process: subprocess.Popen[bytes]) -> None:
    if process.returncode == 0:
        if job.is_done():
            return
        raise UserError(f"{job.name} ended without its result; delete what it left and run again (see {job.log}).")
    lines = [line for line in job.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    said = lines[-1].removeprefix("a2c: ") if lines else "it said nothing"
    raise UserError(f"{job.name} failed with exit code {process.returncode}: {said} (all of it in {job.log})")


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
