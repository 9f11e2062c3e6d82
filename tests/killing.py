"""A run that is killed with SIGKILL at random moments and started again with the same command, as a cluster does it."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from conftest import TIMES, read_lines, timeless
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event

from a2c.run.checkpoint import read_checkpoint
from a2c.run.progress import Progress
from a2c.run.step_files import step_files

START_UP, TRAINING, SAVING = "start-up", "training", "saving"
PATIENCE = 300  # seconds in which a session must come to the moment it is to be killed at


@dataclass(frozen=True)
class Kill:
    """One kill, as it is found afterwards."""

    env_steps: int  # of the last line of metrics
    phase: str  # what was under way
    checkpoint: int | None  # env_steps of the one to resume from; None: killed before the first was whole


class StopInEvaluation(Progress):
    """A view that asks the run to stop, as Ctrl-C does, after the first game of the evaluation at some step."""

    def __init__(self, env_steps: int) -> None:
        self.env_steps = env_steps

    def start(self, config, counters):
        self.counters = counters

    def evaluating(self, scores, episodes):
        if self.counters.env_steps == self.env_steps and len(scores) == 1:
            os.kill(os.getpid(), signal.SIGINT)


class Session:
    """One process that trains, from its start to its kill or its end."""

    def __init__(self, run_dir: Path, arguments: list[str]) -> None:
        self.run_dir = run_dir
        self.checkpoints = run_dir / "checkpoints"
        self.start = latest_checkpoint(run_dir) or 0
        self.time = time.time()
        command = [sys.executable, "-m", "a2c", "train", *arguments, "--run-dir", str(run_dir), "--resume", "--quiet"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_for(self, come: Callable[[], bool], *, pause: float) -> None:
        """Wait until `come()`; the process is to live until then."""
        deadline = time.monotonic() + PATIENCE
        while not come():
            assert self.process.poll() is None, self._its_end()
            assert time.monotonic() < deadline, "never got there"
            time.sleep(pause)

    def has_lock(self) -> bool:
        """Whether it has started to work in the folder: imports and networks are behind it."""
        return self._is_new(self.run_dir / ".lock")

    def being_saved(self) -> int | None:
        """Bytes of a checkpoint that this session, not an earlier one, has left half written or not yet renamed."""
        with suppress(FileNotFoundError):
            for file in self.checkpoints.glob(".step-*"):
                if self._is_new(file):
                    return file.stat().st_size
        return None

    def env_steps(self) -> int:
        """Of the last line of metrics that this session wrote, else of the checkpoint it started from."""
        metrics = self.run_dir / "metrics.jsonl"
        if not self._is_new(metrics):
            return self.start  # lines of earlier sessions may reach further
        return max(self.start, last_env_steps(metrics))

    def kill(self) -> Kill:
        """SIGKILL, and a look at what is left."""
        os.kill(self.process.pid, signal.SIGKILL)
        _, errors = self.process.communicate()
        assert self.process.returncode == -signal.SIGKILL, self._its_end(errors)
        assert errors == ""
        env_steps = self.env_steps()
        phase = TRAINING if env_steps > self.start else START_UP
        if self.being_saved() is not None:
            phase = SAVING
        return Kill(env_steps, phase, latest_checkpoint(self.run_dir))

    def finish(self) -> None:
        """Wait for its good end."""
        answer = self.process.communicate(timeout=PATIENCE)
        assert (self.process.returncode, *answer) == (0, "", "")

    def _its_end(self, errors: str | None = None) -> str:
        """For an assertion: how it ended where it should not have."""
        errors = self.process.communicate()[1] if errors is None else errors
        return f"ended by itself with code {self.process.returncode}: {errors}"

    def _is_new(self, path: Path) -> bool:
        with suppress(FileNotFoundError):
            return path.stat().st_mtime > self.time
        return False


def assert_killed_is_as_undisturbed(
    folder: Path, title: str, arguments: list[str], *, env_steps: int, kills: int, seed: int
) -> None:
    """Train once undisturbed and once with kills, and compare all that is left."""
    print(f"\n{title}: {env_steps:,} steps, {kills} kills, seed {seed}")
    started = time.perf_counter()
    arguments = [*arguments, "--steps", str(env_steps), "--set", "runtime.threads=1", "--set", "env.threads=1"]
    whole, killed = folder / "whole", folder / "killed"
    with Session(whole, arguments) as undisturbed:
        done = train_killed(killed, arguments, env_steps=env_steps, kills=kills, seed=seed)
        undisturbed.finish()
    assert_same_run(whole, killed)
    count = Counter(kill.phase for kill in done)
    shares = ", ".join(f"{count[phase]} in {phase}" for phase in (START_UP, TRAINING, SAVING))
    last = read_lines(killed / "metrics.jsonl")[-1]
    took = time.perf_counter() - started
    print(f"{kills} kills ({shares}), {last['episodes']} games, {took:.0f} s: the same bits as never stopped")
    assert count[START_UP] < kills or kills == 1  # one meant for training may come while a checkpoint is written


def train_killed(run_dir: Path, arguments: list[str], *, env_steps: int, kills: int, seed: int) -> list[Kill]:
    """Train with kills spread over the whole run, one random moment in each of as many parts of it."""
    rng = random.Random(seed)
    phases = [(SAVING, TRAINING, START_UP, SAVING, TRAINING)[i % 5] for i in range(kills)]
    rng.shuffle(phases)
    done = []
    for number, phase in enumerate(phases):
        target = int((number + rng.random()) / kills * 0.9 * env_steps)  # the last tenth: else it might be at its end
        with Session(run_dir, arguments) as session:
            wait_for_moment(session, phase, target, rng)
            kill = session.kill()
        assert_whole_checkpoints(run_dir)
        goes_on = "anew" if kill.checkpoint is None else f"from {kill.checkpoint:>6,}"
        print(f"kill {number + 1:>2} in {kill.phase:<8} after {kill.env_steps:>6,} steps, goes on {goes_on}")
        done.append(kill)
    with Session(run_dir, arguments) as session:
        session.finish()
    return done


def wait_for_moment(session: Session, phase: str, target: int, rng: random.Random) -> None:
    """Wait for a random moment of start-up, or of training or saving once `target` steps are done."""
    if phase == START_UP:
        session.wait_for(session.has_lock, pause=0.001)
        time.sleep(rng.uniform(0, 0.5))  # replay, config.yaml, the cut of what lies beyond, the first updates
        return
    session.wait_for(lambda: session.env_steps() > max(target, session.start), pause=0.005)
    if phase == TRAINING:
        time.sleep(rng.uniform(0, 0.1))
        return
    size = step_files(session.checkpoints)[-1].stat().st_size
    part = min(rng.uniform(0, 1.5), 0.9)  # 0.9: all but written; then it is synced, linked, renamed
    session.wait_for(lambda: (session.being_saved() or -1) >= part * size, pause=0)


def assert_whole_checkpoints(run_dir: Path) -> None:
    """What bears the name of a checkpoint is whole, at any moment; raises UserError elsewhere."""
    for file in (run_dir / "checkpoints").glob("*.npz"):
        if not file.name.startswith("."):
            read_checkpoint(file)


def assert_same_run(whole: Path, killed: Path) -> None:
    """Whether two run folders hold the same bits, times apart."""
    assert_same_checkpoints(whole / "checkpoints", killed / "checkpoints")
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        first, second = read_lines(whole / name), read_lines(killed / name)
        assert len(first) == len(second)
        for a, b in zip(first, second, strict=True):
            assert timeless(a) == timeless(b)
    assert not list(killed.rglob(".*tmp*"))
    assert scalars(killed) == scalars(whole)


def assert_same_checkpoints(whole: Path, killed: Path) -> None:
    """Whether two folders hold the same checkpoints, the best one too: weights, optimizer, random streams, counters."""
    names = sorted(file.name for file in whole.iterdir())
    assert sorted(file.name for file in killed.iterdir()) == names
    for name in names:
        a, b = read_checkpoint(whole / name), read_checkpoint(killed / name)
        assert a.arrays.keys() == b.arrays.keys()
        for key, array in a.arrays.items():
            if key.startswith("segments/"):
                continue  # which rows are in which file depends on when checkpoints were written
            assert array.dtype == b.arrays[key].dtype
            assert array.shape == b.arrays[key].shape
            assert array.tobytes() == b.arrays[key].tobytes(), f"{key} of {name}"
        assert timeless(a.meta["counters"]) == timeless(b.meta["counters"])


def scalars(run_dir: Path) -> list[tuple[int, str, str, bytes]]:
    """Every scalar, histogram and text of all event files, oldest first, as TensorBoard reads them, times apart."""
    return [
        (event.step, value.tag, value.simple_value.hex(), value.tensor.SerializeToString())
        for file in sorted(run_dir.glob("events.out.tfevents.*"))
        for event in map(Event.FromString, RawEventFileLoader(str(file)).Load())
        for value in event.summary.value
        if value.tag.split("/")[-1] not in TIMES
    ]


def last_env_steps(metrics: Path) -> int:
    """Of the last whole line; 0 where there is none."""
    with metrics.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        lines = file.read().splitlines(keepends=True)
    whole = [line for line in lines[-2:] if line.endswith(b"\n") and line.startswith(b"{")]
    return json.loads(whole[-1])["env_steps"] if whole else 0


def latest_checkpoint(run_dir: Path) -> int | None:
    """The agent steps of the last checkpoint of a folder, None where there is none."""
    files = step_files(run_dir / "checkpoints")
    return int(files[-1].stem.removeprefix("step-")) if files else None
