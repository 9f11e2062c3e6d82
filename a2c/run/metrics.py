"""What a run reports: the record of one logging line, and its writers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from a2c.algorithms.section import AlgorithmSection, Metric
from a2c.config import Config, UserError
from a2c.reading import LARGEST_OWN, is_regular, read_lines
from a2c.run.counters import Counters
from a2c.run.files import make_folders, reopen, replacing, write_atomically
from a2c.run.follower import Follower, followed, game_file
from a2c.run.logs import finite, parsed
from a2c.run.tensorboard import EVALUATION, TensorBoardWriter


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
EVALUATED = ("mean", "median", "standard_error", "human_normalized")  # the scalars of an evaluation


def tensorboard_tags(algorithm: AlgorithmSection) -> dict[str, str]:
    """The tag of each scalar of a record, by its name."""
    tags = {name: f"{group}/{name}" for group, names in GROUPS.items() for name in names}
    return tags | {metric.name: f"{metric.group}/{metric.name}" for metric in algorithm.METRICS}


def check_metrics(algorithm: AlgorithmSection) -> None:
    """Check that no metric of an algorithm has the name of a column that every run has.

    Raises:
        UserError: if one has.
    """
    if taken := [metric.name for metric in algorithm.METRICS if metric.name in RUN_COLUMNS]:
        raise UserError(
            f"{algorithm.name}: {taken[0]} of its METRICS is a column that every run has; name the metric otherwise."
        )


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
    """Writes one JSON object per line. Damaged lines and those beyond `env_steps` are dropped when a run resumes."""

    def __init__(self, path: Path, *, env_steps: int) -> None:
        # a pipe or a link in its place is not read
        before = read_lines(path, LARGEST_OWN, links=False) if is_regular(path, links=False) else ()
        with replacing(path) as file:
            for line in before:
                if line.endswith(b"\n") and (values := parsed(line)) and values["env_steps"] <= env_steps:
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
        for follower in self.followers:
            if kind is None or issubclass(kind, Exception):
                follower.finish()
            else:
                follower.stop()  # a second signal does not wait
