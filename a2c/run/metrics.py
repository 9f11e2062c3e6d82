"""What a run reports: counters with their units, the record of one logging line, and its writers."""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.message import DecodeError

from a2c.algorithms.section import AlgorithmSection, Metric
from a2c.config import Config, dotted, dump_config
from a2c.reading import is_regular, open_regular, read_lines
from a2c.run.files import create, make_folders, remove, reopen, replacing, write_atomically
from a2c.run.follower import Follower, followed, game_file
from a2c.run.logs import parsed

_EVENTS = "events.out.tfevents"
LARGEST = 2**32  # bytes of a file of earlier sessions
LARGEST_EVENT = 2**26  # bytes
WINDOW = 100  # training episodes in the running means, as the A2C literature reports them


@dataclass
class Counters:
    """The progress of a run, and its last episodes. Saved with every checkpoint."""

    updates: int = 0  # rounds of collecting and learning
    gradient_steps: int = 0  # of the optimizer, one or more per update
    env_steps: int = 0  # agent steps over all environments
    frames: int = 0  # emulator frames: env_steps times the frame skip
    episodes: int = 0  # whole games
    seconds: float = 0.0  # spent training, over all sessions of the run
    skipped_updates: int = 0  # not applied, as their loss or gradients were not finite
    evaluated: int = 0  # env_steps at the last evaluation
    skipped_in_a_row: int = 0  # consecutive ones, up to now
    best_return: float | None = None  # the mean return, over a full window, of the best checkpoint
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    lengths: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def advance(self, env_steps: int, frames_per_step: int, gradient_steps: int) -> None:
        """Count one update."""
        self.updates += 1
        self.gradient_steps += gradient_steps
        self.env_steps += env_steps
        self.frames += env_steps * frames_per_step

    def count(self, episode_return: float, length: int) -> None:
        """Count one whole game; called in the order in which they ended."""
        self.episodes += 1
        self.returns.append(episode_return)
        self.lengths.append(length)

    def finished(self, config: Config) -> bool:
        """Whether all the steps of a run are done."""
        return self.env_steps >= config.total_env_steps

    def evaluation_due(self, config: Config) -> bool:
        """Whether an evaluation is due, by steps or at the end of the run."""
        every, done, now = config.evaluation.every_env_steps, self.evaluated, self.env_steps
        passed = every > 0 and done // every < now // every
        return config.evaluation.episodes > 0 and done < now and (passed or self.finished(config))

    @property
    def return_mean(self) -> float | None:
        """Mean raw score of the last 100 training episodes, None before the first."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    @property
    def length_mean(self) -> float | None:
        """Mean length, in agent steps, of the last 100 training episodes."""
        return sum(self.lengths) / len(self.lengths) if self.lengths else None

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {**vars(self), "returns": list(self.returns), "lengths": list(self.lengths)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        for name, value in state.items():
            setattr(self, name, deque(value, WINDOW) if name in ("returns", "lengths") else value)


@dataclass(frozen=True)
class Record:
    """One line of metrics.jsonl. None if there is nothing to average yet."""

    env_steps: int
    frames: int
    updates: int
    gradient_steps: int
    episodes: int
    episode_return_mean: float | None  # raw scores of the last 100 training episodes
    episode_length_mean: float | None  # agent steps
    steps_per_second: float  # agent steps since the last record
    metrics: dict[str, float]  # of the last update: `AlgorithmSection.METRICS`; NaN if it only collected
    skipped_updates: int  # so far
    seconds: float

    def values(self) -> dict[str, Any]:
        """All of it as one flat mapping."""
        values: dict[str, Any] = {}
        for name, value in vars(self).items():
            values |= value if name == "metrics" else {name: value}
        return values


RUN_COLUMNS = tuple(column.name for column in fields(Record) if column.name != "metrics")  # of every algorithm

# TensorBoard's groups, in addition to those of an algorithm's own metrics
GROUPS = {
    "rollout": ("episode_return_mean", "episode_length_mean", "episodes"),
    "optimizer": ("updates", "gradient_steps", "skipped_updates"),
    "time": ("steps_per_second", "seconds", "frames"),
}
EVALUATION = "evaluation"  # the group of whole games played beside training
EVALUATED = ("mean", "median", "standard_error", "human_normalized")  # the scalars of an evaluation
# the columns beside the configuration in TensorBoard's table of runs
SCORES = ("rollout/episode_return_mean", f"{EVALUATION}/mean")


def tensorboard_tags(algorithm: AlgorithmSection) -> dict[str, str]:
    """The tag of each scalar of a record, by its name."""
    tags = {name: f"{group}/{name}" for group, names in GROUPS.items() for name in names}
    return tags | {metric.name: f"{metric.group}/{metric.name}" for metric in algorithm.METRICS}


def make_record(counters: Counters, metrics: Mapping[str, Any], wanted: Sequence[Metric], speed: float) -> Record:
    """Read the tensors of one update back.

    Args:
        counters: of the run.
        metrics: of the update, by name.
        wanted: which of them, in their order.
        speed: agent steps per second since the last record.
    """
    return Record(
        env_steps=counters.env_steps,
        frames=counters.frames,
        updates=counters.updates,
        gradient_steps=counters.gradient_steps,
        episodes=counters.episodes,
        episode_return_mean=counters.return_mean,
        episode_length_mean=counters.length_mean,
        steps_per_second=speed,
        metrics={metric.name: float(metrics.get(metric.name, math.nan)) for metric in wanted},
        skipped_updates=counters.skipped_updates,
        seconds=counters.seconds,
    )


class JsonlWriter:
    """Writes one JSON object per line. Lines beyond `env_steps` are dropped when a run resumes."""

    def __init__(self, path: Path, *, env_steps: int) -> None:
        with replacing(path) as file:
            for line in _lines(path):
                if _env_steps(line) <= env_steps:
                    file.write(line)
        self.file = reopen(path, append=True)

    def write(self, values: Mapping[str, Any]) -> None:
        """Append one line and flush it."""
        self.file.write(json.dumps(finite(dict(values))).encode() + b"\n")
        self.file.flush()

    def sync(self) -> None:
        """Flush to the disk, so that even a power failure loses nothing."""
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # a line that could not be written was reported then
            self.file.close()


class TensorBoardWriter:
    """Writes the configuration, then scalars and histograms over env_steps, for TensorBoard; one file per session.

    Events beyond `env_steps` and evaluations beyond `evaluated` are dropped from the files of earlier sessions. The
    configuration is that of the first session.
    """

    def __init__(self, folder: Path, config: Config, *, env_steps: int, evaluated: int) -> None:
        # here, not at the top: it takes half a second and only training needs it
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        from a2c.run import summaries

        self.event_pb2, self.summary_pb2, self.summaries = event_pb2, summary_pb2, summaries
        before = sorted(file for file in folder.glob(f"{_EVENTS}.*") if is_regular(file, links=False))
        for file in before:
            _cut_events(file, env_steps, evaluated, event_pb2.Event)
        # written at once, unlike TensorBoard's own writer, whose thread would lose its queue in a kill
        self.file = create(_next_event_file(folder, before))
        self.writer = RecordWriter(self.file)
        self._add(0, file_version="brain.Event:2")
        if not any(file.exists() for file in before):  # earlier files begin with it, and TensorBoard uses the first
            self._add(0, summary=summaries.config_summary(dotted(dump_config(config)), SCORES))
        # makes a running TensorBoard hide what it has read beyond the checkpoint this session starts from
        self._add(env_steps + 1, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))

    def write(self, env_steps: int, scalars: Mapping[str, float | None]) -> None:
        """Add one event with all scalars, by their tags; those that are None are left out."""
        summary = self.summary_pb2.Summary()
        for tag, value in scalars.items():
            if value is not None:
                summary.value.add(tag=tag, simple_value=value)
        self._add(env_steps, summary=summary)

    def write_histograms(self, env_steps: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Add one event with a histogram of each array, by their tags."""
        self._add(env_steps, summary=self.summaries.histogram_summary(arrays))

    def write_image(self, env_steps: int, tag: str, encoded: bytes, width: int, height: int) -> None:
        """Add an encoded image; TensorBoard plays an animated GIF."""
        image = self.summary_pb2.Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=encoded)
        summary = self.summary_pb2.Summary()
        summary.value.add(tag=tag, image=image)
        self._add(env_steps, summary=summary)

    def sync(self) -> None:
        """Flush to the disk."""
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the event file."""
        with suppress(OSError):
            self.file.close()

    def _add(self, step: int, **what: Any) -> None:
        event = self.event_pb2.Event(wall_time=time.time(), step=step, **what)
        self.writer.write(event.SerializeToString())
        self.file.flush()


class Writers:
    """The files that a run reports to, and a context manager that closes them.

    Args:
        run_dir: holds `metrics.jsonl`, `evaluations.jsonl` and TensorBoard's event files.
        config: of the run; its section `logging` says what is written.
        counters: those the run resumes from, or fresh ones; what was written beyond them is dropped.
        warn: called with a sentence if an experiment tracker fails.
    """

    def __init__(
        self,
        run_dir: Path,
        config: Config,
        counters: Counters,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.run_dir = run_dir
        self.histograms = config.logging.histograms
        self.tags = tensorboard_tags(config.algorithm)
        self.metrics = JsonlWriter(run_dir / "metrics.jsonl", env_steps=counters.env_steps)
        self.evaluations = JsonlWriter(run_dir / "evaluations.jsonl", env_steps=counters.evaluated)
        self.events = None
        if "tensorboard" in config.logging.trackers:
            self.events = TensorBoardWriter(run_dir, config, env_steps=counters.env_steps, evaluated=counters.evaluated)
        self._files = [file for file in (self.metrics, self.evaluations, self.events) if file is not None]
        evaluated = {name: f"{EVALUATION}/{name}" for name in EVALUATED}
        self.followers = [Follower(name, run_dir, config, self.tags, evaluated, warn) for name in followed(config)]

    @property
    def show_games(self) -> bool:
        """Whether a game of an evaluation is looked at anywhere."""
        return self.events is not None or bool(self.followers)

    def write(self, record: Record, weights: Callable[[], Mapping[str, np.ndarray]] = dict) -> None:
        """Write a line of metrics and, if configured, histograms of the weights; else the weights are not read."""
        values = record.values()
        self.metrics.write(values)
        if self.events:
            self.events.write(record.env_steps, {tag: values[name] for name, tag in self.tags.items()})
        if self.events and self.histograms:
            arrays = {f"weights/{name}": array for name, array in weights().items()}
            self.events.write_histograms(record.env_steps, arrays)
        for follower in self.followers:
            follower.check()

    def write_evaluation(self, result: Mapping[str, Any], game: tuple[bytes, int, int] | None = None) -> None:
        """Write a line of an evaluation; its summary numbers become scalars.

        Args:
            result: the values of an `EvalResult`.
            game: one of its games: an encoded image, its width and its height.
        """
        if game is not None and self.followers:
            file = game_file(self.run_dir, result["env_steps"])
            with suppress(OSError):  # the run does not need it
                make_folders(file.parent, below=self.run_dir)
                write_atomically(file, game[0], below=self.run_dir)
        self.evaluations.write(result)
        if self.events:
            self.events.write(result["env_steps"], {f"{EVALUATION}/{name}": result[name] for name in EVALUATED})
            if game is not None:
                self.events.write_image(result["env_steps"], f"{EVALUATION}/game", *game)

    def sync(self) -> None:
        """Flush all files to the disk."""
        for file in self._files:
            file.sync()

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in self._files:
            file.close()
        if kind is None or issubclass(kind, Exception):  # a second signal does not wait
            for follower in self.followers:
                follower.finish()


def _lines(path: Path) -> Iterator[bytes]:
    """The complete lines of a regular file; a pipe or a link in its place is not read."""
    if is_regular(path, links=False):
        yield from (line for line in read_lines(path, LARGEST, links=False) if line.endswith(b"\n"))


def _env_steps(line: bytes) -> float:
    values = parsed(line)
    return math.inf if values is None else values["env_steps"]  # damaged


def _next_event_file(folder: Path, before: list[Path]) -> Path:
    """TensorBoard's name for the next event file; it sorts after the existing ones even if the clock was set back."""
    times = [int(part) for file in before if (part := file.name.split(".")[3]).isdecimal() and len(part) <= 12]
    moment = max([int(time.time()), *(t + 1 for t in times)])
    return folder / f"{_EVENTS}.{moment:010d}.{socket.gethostname()}.{os.getpid()}"


def _cut_events(file: Path, env_steps: int, evaluated: int, event_class: Any) -> None:
    """Cut an event file after the last event to keep; remove it if there is none."""
    kept = 0
    with open_regular(file, LARGEST, links=False) as stream:
        size, whole = stream.seek(0, os.SEEK_END), stream.seek(0)
        while (record := _read_record(stream, size)) is not None:
            try:
                event = event_class.FromString(record)
            except DecodeError:
                break
            is_evaluation = any(value.tag.startswith(f"{EVALUATION}/") for value in event.summary.value)
            holds = event.HasField("summary")  # else the mark of a session's start
            if holds and event.step > (evaluated if is_evaluation else env_steps):
                break
            kept += holds
            whole = stream.tell()
        if kept and whole < size:
            _keep_beginning(stream, whole, file)
    if not kept:
        remove(file)


def _keep_beginning(stream: BinaryIO, length: int, file: Path) -> None:
    """Replace a file by a new one with its first bytes: the old one may be a hard link."""
    stream.seek(0)
    with replacing(file) as copy:
        while length and (part := stream.read(min(length, 2**20))):
            length -= copy.write(part)


def _read_record(stream: BinaryIO, size: int) -> bytes | None:
    """The next TFRecord: length (8 bytes), its checksum (4), data, checksum (4); None at the end or if incomplete."""
    header = stream.read(12)
    length = struct.unpack("<Q", header[:8])[0] if len(header) == 12 else size
    if not 0 < length <= LARGEST_EVENT or stream.tell() + length + 4 > size:
        return None
    record = stream.read(length)
    stream.seek(4, os.SEEK_CUR)
    return record


def finite(value: Any) -> Any:
    """A value for JSON, which has no NaN and no infinity: they become null, at any depth."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
