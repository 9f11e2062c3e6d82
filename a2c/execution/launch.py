"""Starts the workers of a cluster on this machine, each on its share of the cores, and ends them together."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import IO

from a2c.execution.cluster import LAUNCHED, listen
from a2c.execution.machine import core_numbers
from a2c.execution.processes import own_command
from a2c.execution.signals import PASSED_ON, noted

POLL_SECONDS = 0.1
GRACE_SECONDS = 60.0  # for the others to learn from TensorFlow that a worker has failed
OURSELVES = own_command("a2c")


class Worker:
    """One process of the cluster.

    Args:
        index: its number; 0 is the chief, which inherits our output streams.
        command: the command that it runs.
        tf_config: its TF_CONFIG.
        cores: the cores it may run on.
    """

    def __init__(self, index: int, command: Sequence[str], tf_config: str, cores: Sequence[int]) -> None:
        self.index = index
        with _pinned(cores):
            # in a new session: Ctrl-C reaches only this process, which passes it on
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if index else None,
                stderr=subprocess.STDOUT if index else None,
                env={**os.environ, "TF_CONFIG": tf_config, LAUNCHED: "1"},
                start_new_session=True,
            )
        self.forwarder = Thread(target=_forward, args=(self.process.stdout, f"worker {index}: "), daemon=True)
        self.forwarder.start()

    @property
    def code(self) -> int | None:
        """Its exit code as in a shell; None while it runs."""
        code = self.process.poll()
        return 128 - code if code is not None and code < 0 else code

    def kill(self) -> None:
        """Kill it at once, with its process group."""
        if self.code is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it and clean up."""
        self.kill()
        self.process.wait()
        self.forwarder.join(timeout=1)  # it would take longer only if a surviving process holds the output pipe


@dataclass
class Crew:
    """All running workers of a cluster."""

    workers: Sequence[Worker]  # the caller fills this list
    signals: Sequence[int]  # received so far; grows
    grace: float  # seconds for the others to end after one has failed
    warn: Callable[[str], None]  # called with a sentence for each event that no worker reports itself
    failed: Worker | None = None  # the first one
    deadline: float = math.inf
    passed_on: int = 0

    def wait(self) -> int:
        """Wait until all have ended; returns the common exit code, see `launch`."""
        while running := [worker for worker in self.workers if worker.code is None]:
            self._pass_on(running)
            self._note_failure()
            if time.monotonic() > self.deadline:
                self._give_up(running)
            time.sleep(POLL_SECONDS)
        self._note_failure()
        if self.failed is None:
            return 0
        return 128 + self.signals[0] if self.signals else self.failed.code or 0

    def _pass_on(self, running: Sequence[Worker]) -> None:
        for _ in self.signals[self.passed_on :]:
            for worker in running:
                if self.passed_on:
                    worker.kill()
                else:
                    worker.process.send_signal(PASSED_ON)
            self.passed_on += 1

    def _note_failure(self) -> None:
        if self.failed is not None:
            return
        self.failed = next((worker for worker in self.workers if worker.code), None)
        if self.failed is None:
            return
        self.deadline = time.monotonic() + self.grace
        number = -self.failed.process.returncode
        if number > 0 and not self.signals:  # a killed worker could not report it
            self.warn(f"worker {self.failed.index} was ended by signal {number} ({signal.strsignal(number)}).")

    def _give_up(self, running: Sequence[Worker]) -> None:
        for worker in running:
            self.warn(f"worker {worker.index} went on for {self.grace:g} seconds after another had failed: killed.")
            worker.kill()
        self.deadline = math.inf


def launch(
    arguments: Sequence[str],
    workers: int,
    *,
    command: Sequence[str] = OURSELVES,
    grace: float = GRACE_SECONDS,
    warn: Callable[[str], None] = lambda sentence: None,
) -> int:
    """Run one command in every worker of a new cluster on this machine, and wait for all of them.

    A signal to end is passed on to all, as SIGUSR1; a second one kills them. If one fails, the others are killed unless
    they end by themselves within `grace` seconds.

    Args:
        arguments: of the command; `train` gets --strategy multiworker if they name no strategy.
        workers: how many.
        command: the command that gets the arguments.
        grace: seconds for the others to end after one has failed.
        warn: called with a sentence for each worker that a signal ended, or that was killed after `grace`.

    Returns:
        The exit code: 0 if all workers returned 0; else 128 + the signal that was passed on, if any; else the code of
        the worker that failed first.
    """
    crew: list[Worker] = []
    with noted(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        try:
            for index, (tf_config, cores) in enumerate(zip(_tf_configs(workers), _shares(workers), strict=True)):
                crew.append(Worker(index, [*command, *_with_strategy(arguments)], tf_config, cores))
            return Crew(crew, signals, grace, warn).wait()
        finally:
            for worker in crew:
                worker.end()


def _with_strategy(arguments: Sequence[str]) -> list[str]:
    if "train" not in arguments[:1] or any(argument.split("=")[0] == "--strategy" for argument in arguments):
        return list(arguments)
    return [*arguments, "--strategy", "multiworker"]


def _tf_configs(workers: int) -> list[str]:
    with ExitStack() as doors:  # all open at the same time, so that the ports differ
        ports = [doors.enter_context(listen(0)).getsockname()[1] for _ in range(workers)]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    return [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}) for i in range(workers)]


def _shares(workers: int) -> list[list[int]]:
    """Neighbouring cores for each worker, since they share caches; if there are too few, workers share cores."""
    cores = core_numbers()
    if workers > len(cores):
        return [cores[i % len(cores) :][:1] if cores else [] for i in range(workers)]
    return [cores[len(cores) * i // workers : len(cores) * (i + 1) // workers] for i in range(workers)]


@contextmanager
def _pinned(cores: Sequence[int]) -> Iterator[None]:
    """Pin processes started in this block to these cores: TensorFlow and a2c count them for one thread per core."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _forward(pipe: IO[bytes] | None, prefix: str) -> None:
    for line in pipe or ():
        with suppress(OSError):  # our reader is gone: empty the pipe anyway, otherwise its writer would block
            os.write(2, prefix.encode() + line.rstrip(b"\n") + b"\n")
