"""The runs of a folder, a line each: how far each is, and how well it plays."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from a2c.config import UserError, cut
from a2c.run.lock import is_locked
from a2c.run.step_files import step_files, steps_of
from a2c.show.runs import count, read_run

COLUMNS = {
    "steps": "env_steps",
    "return": "episode_return_mean",
    "best": "best_return_mean",
    "eval": "evaluation_mean",
    "speed": "steps_per_second",
}
TEXTS = ("run", "game", "algorithm", "state")


@dataclass(frozen=True)
class Listed:
    """A run in short. None where there is no number yet."""

    run: str  # path
    game: str
    algorithm: str
    seed: int | None
    env_steps: int
    total_env_steps: int | None
    episode_return_mean: float | None  # of the last 100 training games
    best_return_mean: float | None
    evaluation_mean: float | None  # of whole games, the last time
    steps_per_second: float | None  # median
    state: Literal["running", "finished", "stopped"]
    changed: str  # local time, ISO 8601


def list_runs(folder: Path, order: str, warn: Callable[[str], None]) -> tuple[list[Listed], list[str]]:
    """The runs in a folder or below it; numbers sorted from the highest, texts from A, times from the latest.

    Args:
        folder: of runs, or of one.
        order: "changed", or one of COLUMNS or TEXTS.
        warn: called with a sentence if lines of a run are left out.

    Returns:
        The runs, and a sentence for each that cannot be read.

    Raises:
        UserError: if there is no run, or `folder` is one that cannot be read.
    """
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; name one that holds runs, or make a run with `a2c train`.")
    unreadable: list[str] = []
    paths = _run_folders(folder, unreadable)
    if not paths:
        raise UserError(f"{folder} holds no run; name a folder of runs, or make one with `a2c train`.")
    found: list[Listed] = []
    for path in paths:
        try:
            found.append(listed(path, warn))
        except UserError as error:
            if path == folder:
                raise
            unreadable.append(str(error))
    return _sorted(found, order), unreadable


def _run_folders(folder: Path, unreadable: list[str]) -> list[Path]:
    """The folder itself, or all runs below it, sorted; links are followed to runs, not to folders of runs."""
    if _is_run(folder):
        return [folder]
    found: list[Path] = []

    def note(error: OSError) -> None:
        unreadable.append(f"{error.filename} cannot be read: {error.strerror}.")

    for path, folders, _ in os.walk(folder, onerror=note):
        runs = [name for name in folders if _is_run(Path(path, name))]
        found += [Path(path, name) for name in runs]
        folders[:] = [name for name in folders if name not in runs]  # a run's incidents are none of its own
    return sorted(found)


def _is_run(folder: Path) -> bool:
    try:
        return (folder / "config.yaml").exists() and (folder / "checkpoints").is_dir()
    except PermissionError:
        return False


def listed(path: Path, warn: Callable[[str], None]) -> Listed:
    """A run as a row of the table; arguments and errors as for `read_run`."""
    run = read_run(path, warn)
    evaluated = [each.env_steps for each in run.evaluations]  # an agent that was kept from a run has nothing else
    # a run may be stopped before its first line of metrics
    saved = [steps_of(file) for file in step_files(run.path / "checkpoints")]
    steps = int(max((*run.metrics["env_steps"], *evaluated, *saved), default=0))
    total = count(run.settings["total_env_steps"])
    return Listed(
        run=str(run.path),
        game=cut(run.env_id),
        algorithm=cut(run.settings["algorithm.name"]),
        seed=count(run.seed),
        env_steps=steps,
        total_env_steps=total,
        episode_return_mean=run.last_return,
        best_return_mean=run.best_return,
        evaluation_mean=run.evaluations[-1].mean if run.evaluations else None,
        steps_per_second=run.speed,
        state=_state(run.path, done=total is not None and steps >= total),
        changed=_changed(run.path),
    )


def _changed(path: Path) -> str:
    try:
        files = [path / name for name in ("metrics.jsonl", "config.yaml")]
        latest = max(file.stat().st_mtime for file in files if file.exists())
        return datetime.fromtimestamp(latest).isoformat(" ", "seconds")
    except (OSError, ValueError, OverflowError):  # a stranger's file system may say any time
        return ""


def _state(path: Path, *, done: bool) -> Literal["running", "finished", "stopped"]:
    if is_locked(path):
        return "running"
    return "finished" if done else "stopped"


def _sorted(found: list[Listed], order: str) -> list[Listed]:
    if order in TEXTS:
        return sorted(found, key=lambda one: str(getattr(one, order)))
    if order == "changed":
        return sorted(found, key=lambda one: one.changed, reverse=True)

    def size(one: Listed) -> float:
        value: float | None = getattr(one, COLUMNS[order])
        return -math.inf if value is None else value

    return sorted(found, key=size, reverse=True)
