"""Run commands in separate processes, some at a time; commands that are done already are not run again.

They run on this machine or on a cluster (`a2c.analysis.ray_jobs`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from a2c.config import UserError
from a2c.execution.machine import allowed_cores
from a2c.execution.signals import PASSED_ON, noted
from a2c.messages import last_line
from a2c.reading import read_end
from a2c.run.files import create, make_folders
from a2c.run.lock import FolderLock

POLL_SECONDS = 0.2
GRACE_SECONDS = 60.0  # for a training run to finish its update and save


@dataclass(frozen=True)
class Job:
    """One command."""

    name: str
    command: tuple[str, ...]  # its first word is this interpreter
    log: Path  # of both output streams
    is_done: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)

    def whole_environment(self) -> dict[str, str]:
        """The environment of this process, with the job's additions."""
        return {**os.environ, **self.environment}


class Process(Protocol):
    """A running job, with the interface of `subprocess.Popen`."""

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> object:
        """Wait for its end; raises TimeoutExpired if that takes longer."""

    def terminate(self) -> None:
        """Ask it to stop."""

    def kill(self) -> None:
        """Stop it at once."""


class Child(subprocess.Popen[bytes]):
    """A process that this one started."""

    def terminate(self) -> None:
        """Ask it to stop."""
        self.send_signal(PASSED_ON)


class Place:
    """Where jobs run; a context manager."""

    cpus: int

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to restore."""

    def examine(self, folder: Path) -> None:
        """Check that jobs can work in a folder; called before the first of them."""

    def start(self, job: Job) -> Process:
        """Run a job's command in this process's working directory and environment; the log's folder must exist."""
        raise NotImplementedError


class Machine(Place):
    """This machine."""

    cpus = allowed_cores()

    def start(self, job: Job) -> Process:
        """Run a job's command."""
        with create(job.log) as log:
            # a new session: Ctrl-C reaches only this process, which then stops its jobs in order
            return Child(
                job.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=job.whole_environment(),
                start_new_session=True,
                close_fds=False,  # jobs inherit the lock, the only inheritable descriptor
            )


MACHINE = Machine()


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int,
    folder: Path,
    place: Place = MACHINE,
    prepare: Callable[[], None] = lambda: None,
    on_tick: Callable[[int], None] = lambda done: None,
) -> None:
    """Run the jobs that are not done yet, `workers` at a time, in the given order.

    On Ctrl-C, SIGTERM, SIGUSR1 or a hang-up, the running jobs are asked to stop and waited for.

    Args:
        jobs: what to run.
        workers: processes at a time.
        folder: where all of them work; locked meanwhile, also by jobs of this machine if their parent is killed.
        place: where they run.
        prepare: called first, under the lock.
        on_tick: called several times a second with the number of jobs that are done.

    Raises:
        UserError: if a job fails, with the last line it wrote; or if another process works in `folder`.
    """
    with FolderLock(folder, inherited=True) as lock:
        lock.take()
        prepare()
        # the handlers before would leave jobs running, or raise, which could leave a lock of the display taken
        with noted(signal.SIGTERM, signal.SIGHUP) as asked:
            _run(jobs, workers, folder, place, on_tick, asked)
    if asked:
        sys.exit(128 + asked[0])


def _run(
    jobs: Sequence[Job], workers: int, folder: Path, place: Place, on_tick: Callable[[int], None], asked: list[int]
) -> None:
    """Run the jobs until all are done, or a signal is in `asked`."""
    waiting = [job for job in jobs if not job.is_done()]
    done = len(jobs) - len(waiting)
    running: list[tuple[Job, Process]] = []
    try:
        on_tick(done)
        if waiting:
            place.examine(folder)
        while (waiting or running) and not asked:
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                make_folders(job.log.parent)
                with noted(signal.SIGINT) as meanwhile:  # else a job could be started and not be known here
                    running.append((job, place.start(job)))
                for number in meanwhile:
                    signal.raise_signal(number)
            time.sleep(POLL_SECONDS)
            for job, process in list(running):
                # if a signal has come, the job may have ended because of it
                if (code := process.poll()) is not None and not asked:
                    running.remove((job, process))
                    _check(job, code)
                    done += 1
            on_tick(done)
    finally:
        for _, process in running:
            process.terminate()
        for _, process in running:
            end(process)


def end(process: Process) -> None:
    """Wait for a process that was asked to stop; kill it after GRACE_SECONDS."""
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _check(job: Job, code: int) -> None:
    if code == 0:
        if job.is_done():
            return
        raise UserError(f"{job.name} ended without its result; delete what it left and run again (see {job.log}).")
    raise UserError(f"{job.name} failed with exit code {code}: {last_words(job)} (see {job.log})")


def last_words(job: Job) -> str:
    """The last line that a job wrote; over a network its log may come late."""
    try:
        return last_line(read_end(job.log, 10_000)).removeprefix("a2c: ")
    except OSError:
        return "its log cannot be read"
