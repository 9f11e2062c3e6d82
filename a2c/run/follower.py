"""The process beside a run that sends what the run writes to an experiment tracker (`a2c.run.trackers`).

It is a process of its own, so that nothing in it can stop, slow or change the run: packages that take seconds to
import, a server that does not answer. It reads the run's files, so that what a killed session has written and not
sent is sent by the next one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from a2c.config import Config, UserError, cut, dump_config
from a2c.execution.processes import own_command
from a2c.messages import last_line
from a2c.reading import read_bytes, read_end
from a2c.run.files import reopen, write_atomically

END_SECONDS = 60.0  # for a tracker to send the rest when the session ends


class Task(NamedTuple):
    """What to send."""

    tracker: str
    run_dir: str  # absolute
    run_id: str  # by which a tracker knows the run in all its sessions
    config: dict[str, Any]  # nested
    metrics: dict[str, str]  # of metrics.jsonl: the tags of what is sent, by their names in a line
    evaluations: dict[str, str]  # of evaluations.jsonl


def game_file(run_dir: Path, env_steps: int) -> Path:
    """Where a run that is tracked keeps one of an evaluation's games."""
    return run_dir / "videos" / f"evaluation-{env_steps:012d}.gif"


def followed(config: Config) -> list[str]:
    """The trackers of a run that have a process of their own."""
    return [name for name in config.logging.trackers if name != "tensorboard"]


def check_installed(config: Config) -> None:
    """Check that the packages of a run's trackers are there, without importing them.

    Raises:
        UserError: if one is missing.
    """
    for name in followed(config):
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # a mere folder of that name, such as W&B makes
            raise UserError(f"logging.trackers has {name}, which is not installed: pip install 'a2c[{name}]'.")


def tracked_id(run_dir: Path) -> str:
    """The name by which trackers know a run in all its sessions; made if there is none.

    Raises:
        OSError: if it cannot be written.
    """
    file = run_dir / "tracker-id"
    with suppress(OSError):
        found = read_bytes(file, 100, links=False).decode(errors="replace").strip()
        if re.fullmatch("[0-9a-f]{16}", found):
            return found
    made = os.urandom(8).hex()
    write_atomically(file, f"{made}\n")
    return made


class Follower:
    """Sends a run to one tracker, from its first line, until `finish`. If it fails, it says so once.

    Args:
        name: of the tracker.
        run_dir: the run's folder; `<name>.log` there gets all that the tracker prints.
        config: of the run.
        metrics, evaluations: as in `Task`.
        warn: called with one sentence if the tracker fails.
    """

    def __init__(
        self,
        name: str,
        run_dir: Path,
        config: Config,
        metrics: dict[str, str],
        evaluations: dict[str, str],
        warn: Callable[[str], None],
    ) -> None:
        self.name = name
        self.log = run_dir / f"{name}.log"
        self.warn = warn
        self.process: subprocess.Popen[bytes] | None = None
        try:
            task = Task(name, str(run_dir.absolute()), tracked_id(run_dir), dump_config(config), metrics, evaluations)
            with reopen(self.log, append=True) as log:
                self.process = subprocess.Popen(
                    own_command("a2c.run.trackers"),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    bufsize=0,
                    start_new_session=True,  # Ctrl-C reaches only the run
                )
            self._tell(json.dumps(task._asdict()))
        except OSError as error:
            self._give_up(error.strerror or str(error))

    def check(self) -> None:
        """Say so if the process has ended."""
        if self.process is not None and self.process.poll() is not None:
            self._give_up(self._last_words())

    def finish(self) -> None:
        """Wait until all is sent, for END_SECONDS at most."""
        self.check()
        if self.process is None:
            return
        self._tell("end")
        try:
            why = self._last_words() if self.process.wait(END_SECONDS) else None
        except subprocess.TimeoutExpired:
            why = f"it is not ready after {END_SECONDS:g} seconds"
        if why is None:
            self.stop()
        else:
            self._give_up(why)

    def stop(self) -> None:
        """End the process at once; what is missing is sent when the run is resumed."""
        if self.process is not None:
            with self.process:  # closes the pipe, and waits
                self.process.kill()
        self.process = None

    def _tell(self, line: str) -> None:
        """Write a line to the process; if it has ended, `check` or `finish` notices."""
        assert self.process is not None
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n".encode())

    def _give_up(self, why: str) -> None:
        self.stop()
        self.warn(
            f"logging.trackers: {self.name} gets no more of this session ({why}). The run is not affected, and when it "
            f"is resumed, {self.name} gets what is missing; see {self.log}."
        )

    def _last_words(self) -> str:
        """What the process wrote last, or the signal that ended it."""
        if self.process is not None and self.process.returncode < 0:
            return signal.Signals(-self.process.returncode).name
        written = ""
        with suppress(OSError):
            written = read_end(self.log, 2_000)
        return cut(last_line(written))
