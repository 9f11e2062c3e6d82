"""Experiment trackers: a process of its own reads what a run writes, and sends it.

`a2c.run.follower` starts `python -m a2c.run.trackers` with a `Task` on its standard input, and writes `end` there when
the session ends. If the session is killed, this process ends at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from a2c.config import dotted
from a2c.execution.signals import PASSED_ON
from a2c.reading import is_regular, open_regular
from a2c.run.files import make_folders, remove_folder, reopen
from a2c.run.follower import Task, game_file
from a2c.run.logs import parsed
from a2c.run.step_files import step_names, steps_of

POLL_SECONDS = 1.0
LARGEST = 2**32  # bytes of a file of lines
PROJECT = "a2c"  # unless the environment names another
MOST_METRICS, MOST_PARAMETERS = 1_000, 100  # of one request to MLflow
IN_ALL_LINES = {False: "optimizer/updates", True: "evaluation/mean"}  # tags that every line has, by `of_evaluation`


class Point(NamedTuple):
    """The numbers of a line."""

    env_steps: int
    of_evaluation: bool
    scalars: dict[str, float]  # by tag
    game: Path | None  # a GIF of one of the evaluation's games


class Tracker(Protocol):
    """A run at a tracker, begun or resumed when this is made. Everything may raise anything, or hang."""

    held: dict[bool, int]  # env_steps of the last point that it had at the start, by `of_evaluation`; -1: none

    def log(self, points: Sequence[Point]) -> None:
        """Send points, of which there is at least one."""

    def close(self, checkpoint: Path | None) -> None:
        """End the session, with the final checkpoint if the run is finished."""


class WeightsAndBiases:
    """A run at W&B: online with a login or as WANDB_MODE says, else in the run's folder, for `wandb sync`.

    W&B resumes runs online only. Offline, every session writes the run from its first line, and removes what earlier
    ones wrote: so `wandb sync` finds each point once.
    """

    def __init__(self, task: Task) -> None:
        folder = Path(task.run_dir, "wandb")
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # nothing is sent but the run
        import wandb

        offline = "WANDB_MODE" not in os.environ and not wandb.login(prompt=False, verify=False)
        self.wandb = wandb
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=task.run_id,
            name=Path(task.run_dir).name,
            dir=task.run_dir,
            config=task.config,
            allow_val_change=True,
            resume="allow",
            mode="offline" if offline else None,
            settings=wandb.Settings(console="off", disable_code=True, disable_git=True, x_disable_stats=True),
        )
        self.run.define_metric("*", step_metric="env_steps")
        self.held = {key: self.run.summary.get(_last(key), -1) for key in IN_ALL_LINES}
        if self.run.offline:
            for earlier in folder.glob(f"offline-run-*-{task.run_id}"):
                if earlier.name != Path(self.run.sync_dir).name:
                    remove_folder(earlier)

    def log(self, points: Sequence[Point]) -> None:
        """Hand points to W&B's own process, a row each."""
        for point in points:
            row: dict[str, Any] = {"env_steps": point.env_steps, **point.scalars}
            if point.game is not None:
                row["evaluation/game"] = self.wandb.Video(str(point.game), format="gif")
            self.run.log(row)
            self.run.summary[_last(point.of_evaluation)] = point.env_steps

    def close(self, checkpoint: Path | None) -> None:
        """Wait until all is sent, or written."""
        if checkpoint is not None:
            artifact = self.wandb.Artifact(f"checkpoint-{self.run.id}", type="model")
            artifact.add_file(str(checkpoint), policy="immutable", skip_cache=True)
            self.run.log_artifact(artifact)
        self.run.finish()


class Mlflow:
    """A run at the server that MLFLOW_TRACKING_URI names, else in the folder `.mlflow` beside the run's.

    It is found again by its tag `a2c.run`.
    """

    def __init__(self, task: Task) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        run_dir = Path(task.run_dir)
        server, local = os.environ.get("MLFLOW_TRACKING_URI"), run_dir.parent / ".mlflow"
        make_folders(local)
        self.metric = Metric
        with reopen(local / "lock") as lock:  # two runs that make a database at the same time damage it
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.client = MlflowClient(server or f"sqlite:///{local / 'mlflow.db'}")
            experiment = self._experiment(None if server else (local / "artifacts").as_uri())
        found = self.client.search_runs([experiment], f"tags.`a2c.run` = '{task.run_id}'", max_results=1)
        if found:
            self.id = found[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
        else:
            tags = {"a2c.run": task.run_id}
            self.id = self.client.create_run(experiment, run_name=run_dir.name, tags=tags).info.run_id
        there = self.client.get_run(self.id).data.params  # they cannot be changed
        parameters = [Param(key, _text(value)) for key, value in dotted(task.config).items() if key not in there]
        for start in range(0, len(parameters), MOST_PARAMETERS):
            self.client.log_batch(self.id, params=parameters[start : start + MOST_PARAMETERS])
        self.held = {
            key: max((metric.step for metric in self.client.get_metric_history(self.id, tag)), default=-1)
            for key, tag in IN_ALL_LINES.items()
        }

    def log(self, points: Sequence[Point]) -> None:
        """Send points in requests that hold whole ones, as many as are allowed."""
        for point in points:  # first: a point that is held is whole
            if point.game is not None:
                self.client.log_artifact(self.id, str(point.game), "videos")
        size = max(1, MOST_METRICS // max(1, *(len(point.scalars) for point in points)))
        for start in range(0, len(points), size):
            now = round(time.time() * 1000)  # of the sending, in milliseconds
            batch = [
                self.metric(tag, value, now, point.env_steps)
                for point in points[start : start + size]
                for tag, value in point.scalars.items()
            ]
            self.client.log_batch(self.id, batch)

    def close(self, checkpoint: Path | None) -> None:
        """Say how the run ended."""
        if checkpoint is not None:
            self.client.log_artifact(self.id, str(checkpoint), "checkpoint")
        self.client.set_terminated(self.id, "KILLED" if checkpoint is None else "FINISHED")

    def _experiment(self, artifacts: str | None) -> str:
        """The id of the experiment, which is made if there is none."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self.client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self.client.create_experiment(name, artifacts))


TRACKERS: dict[str, type[WeightsAndBiases] | type[Mlflow]] = {"wandb": WeightsAndBiases, "mlflow": Mlflow}


def follow(task: Task, ended: threading.Event) -> None:
    """Send what the run writes until it has ended, and what a tracker lacks of earlier sessions."""
    run_dir = Path(task.run_dir)
    tracker: Tracker = TRACKERS[task.tracker](task)
    # evaluations are read first: then all lines of metrics before them are there
    files = [Lines(run_dir, task.evaluations, of_evaluation=True), Lines(run_dir, task.metrics, of_evaluation=False)]
    is_last = False
    while not is_last:
        is_last = ended.wait(POLL_SECONDS)
        points = sorted((point for file in files for point in file.new()), key=lambda point: point[:2])
        if missing := [point for point in points if point.env_steps > tracker.held[point.of_evaluation]]:
            tracker.log(missing)
    tracker.close(final_checkpoint(run_dir, task.config["total_env_steps"]))


class Lines:
    """A file of lines that grows."""

    def __init__(self, run_dir: Path, tags: dict[str, str], *, of_evaluation: bool) -> None:
        self.run_dir = run_dir
        self.tags = tags
        self.of_evaluation = of_evaluation
        self.path = run_dir / ("evaluations.jsonl" if of_evaluation else "metrics.jsonl")
        self.length = 0  # bytes that were read

    def new(self) -> list[Point]:
        """The whole lines since the last call, without damaged ones."""
        with open_regular(self.path, LARGEST, links=False) as file:
            file.seek(self.length)
            whole = file.read()
        whole = whole[: whole.rfind(b"\n") + 1]
        self.length += len(whole)
        return [self._point(values) for line in whole.splitlines() if (values := parsed(line))]

    def _point(self, values: dict[str, Any]) -> Point:
        env_steps = int(values["env_steps"])
        scalars = {tag: values[name] for name, tag in self.tags.items() if values.get(name) is not None}
        game = game_file(self.run_dir, env_steps)
        has_game = self.of_evaluation and is_regular(game, links=False)
        return Point(env_steps, self.of_evaluation, scalars, game if has_game else None)


def final_checkpoint(run_dir: Path, total_env_steps: int) -> Path | None:
    """The last checkpoint of a run, if it is finished."""
    named = (file for file in step_names(run_dir / "checkpoints") if steps_of(file) >= total_env_steps)
    return max((file for file in named if is_regular(file, links=False)), default=None)


def _last(of_evaluation: bool) -> str:
    """The key in W&B's summary for the last point of a kind."""
    return "last_evaluation" if of_evaluation else "last_line"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _listen(ended: threading.Event) -> None:
    """Wait for the word that the session has ended; if none comes, it was killed."""
    if _said() == b"end\n":
        ended.set()
        _said()
    os._exit(1)  # what is missing is sent by the session that resumes the run


def _said() -> bytes:
    """The next line of standard input; not through its buffer, whose lock Python needs to exit."""
    return sys.stdin.buffer.raw.readline()  # type: ignore[union-attr, no-any-return]


def main() -> None:
    """Follow one run; the last line of output says what went wrong, if anything did."""
    for number in (signal.SIGTERM, PASSED_ON):
        signal.signal(number, signal.SIG_IGN)  # sent to all processes of a job: the session says when to end
    task = Task(**json.loads(_said()))
    ended = threading.Event()
    threading.Thread(target=_listen, args=(ended,), daemon=True).start()
    try:
        # of the file of output, which W&B's process has too: until the tracker of a killed session has ended
        fcntl.flock(sys.stdout, fcntl.LOCK_EX)
        follow(task, ended)
    except Exception as error:  # a tracker may raise anything
        traceback.print_exc()
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", file=sys.stderr, flush=True)
        os._exit(1)  # without what packages do at exit, which may hang


if __name__ == "__main__":
    main()
