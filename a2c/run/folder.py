"""The folder of a run: beginning or resuming in it, its config.yaml, and the error if a file cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import yaml

from a2c.config import (
    SCHEMA,
    Config,
    UserError,
    all_keys,
    changed,
    cut,
    dotted,
    dump_config,
    lookup,
    read_config_file,
    shown,
)
from a2c.execution.machine import versions
from a2c.execution.replicas import Replicas, from_text, to_text
from a2c.run.checkpoint import Saved
from a2c.run.files import check_folder, check_new, make_folder, write_atomically
from a2c.run.follower import check_installed
from a2c.run.lock import FolderLock
from a2c.run.lookup import find_checkpoint, resume_command
from a2c.run.metrics import check_metrics
from a2c.run.step_files import step_files

# settings that may change on resume
FREE_KEYS = ("total_env_steps", "optimizer.on_nan", "runtime.cluster_wait_minutes", "logging.trackers")


def begin(
    config: Config, run_dir: Path, replicas: Replicas, lock: FolderLock, *, resume: bool, warn: Callable[[str], None]
) -> tuple[Config, Saved | None]:
    """Find what to resume from: the chief looks into the folder and tells the other workers.

    Returns:
        The configuration, for a resumed run with the chief's values of FREE_KEYS; and the checkpoint, None for a new
        run.
    """

    def look() -> dict[str, np.ndarray]:
        check_folder(run_dir, resume=resume)
        check_installed(config)
        check_metrics(config.algorithm)
        if not resume:
            return {}
        if (run_dir / "checkpoints").is_dir():  # else there is nothing to lock
            lock.take()
        saved = _latest(run_dir, config, warn)  # under the lock: no other process resumes from it, or writes later ones
        free = {key: lookup(config, key) for key in FREE_KEYS}
        return {**saved.packed(), "free": from_text(json.dumps(free))}

    found = replicas.from_chief(look)
    if not found:
        return config, None
    return changed(config, json.loads(to_text(found.pop("free")))), Saved.unpacked(found)


def starting_point(path: Path, replicas: Replicas, warn: Callable[[str], None]) -> Saved:
    """The checkpoint whose weights a new run starts with: the chief reads it, and tells the other workers."""
    return Saved.unpacked(replicas.from_chief(lambda: find_checkpoint(path, warn).packed()))


def open_folder(run_dir: Path, replicas: Replicas, lock: FolderLock) -> None:
    """The chief makes and locks the folder of a new run; if that fails, all workers raise the error."""

    def make() -> dict[str, np.ndarray]:
        make_folder(run_dir, "run folder")
        lock.take()
        check_new(run_dir)  # again: another process may have begun there meanwhile
        return {}

    replicas.from_chief(make)


def _latest(run_dir: Path, config: Config, warn: Callable[[str], None]) -> Saved:
    """The checkpoint to resume from; raises UserError if `config` differs from the run's in more than FREE_KEYS."""
    saved = find_checkpoint(run_dir, warn)
    same = config.algorithm.name == saved.config.algorithm.name  # else their keys differ
    for key in all_keys(type(config.algorithm)) if same else ("algorithm.name",):
        given, stored = lookup(config, key), lookup(saved.config, key)
        if given != stored and key not in FREE_KEYS:
            raise UserError(
                f"{run_dir} was started with {key}={stored}, not {given}; leave that out, or start a new run."
            )
    if config.total_env_steps < saved.env_steps and config.total_env_steps != saved.config.total_env_steps:
        raise UserError(
            f"{run_dir} has done {saved.env_steps:,} steps already; --steps is the total, give at least that."
        )
    _tell_of_edits(run_dir, saved.config, warn)
    if saved.meta.get("versions") != versions():
        warn(f"{run_dir} was made with other versions than those here: it continues, but not to the same bits.")
    return saved


def _tell_of_edits(run_dir: Path, config: Config, warn: Callable[[str], None]) -> None:
    """Warn if config.yaml was edited, since a run keeps the settings of its checkpoints and writes the file again."""
    if not os.path.lexists(run_dir / "config.yaml"):  # of an incident, or of a start that was killed
        return
    try:
        found = read_config_file(run_dir / "config.yaml")
    except UserError as error:
        warn(f"{error} The run keeps its settings, and writes the file again.")
        return
    sections = dump_config(config)
    settings = sections | dotted(sections)
    edited = [key for key, value in dotted(found).items() if key not in FREE_KEYS and settings.get(key, value) != value]
    if edited:
        keys = cut(", ".join(map(str, edited)))
        warn(
            f"{run_dir / 'config.yaml'} was edited ({keys}), which changes nothing: a run keeps its settings. "
            "For others, start a new run with --config."
        )


def tell_of_another_machine(saved: Saved, here: str, warn: Callable[[str], None]) -> None:
    """Warn if a checkpoint was written on a machine whose last bits may differ."""
    there = saved.meta.get("machine", here)
    if there != here:
        warn(
            f"{saved.path.name} was written on {shown(there, 140)}, and this is {here!r}: the run continues, "
            "but its bits may be others."
        )


def tell_of_other_inputs(saved: Saved, config: Config, warn: Callable[[str], None]) -> None:
    """Warn if the weights that a run starts with were learned in another game, from other pixels, for another head."""
    sees_images = any(array.ndim == 4 for array in saved.group("model").values())  # a convolution
    keys = ("env.id", "env.screen_size", "model.pixels") if sees_images else ("env.id",)
    others = [key for key in keys if lookup(saved.config, key) != lookup(config, key)]
    if others:
        there, here = (", ".join(f"{key}={lookup(each, key)}" for key in others) for each in (saved.config, config))
        actions = ", and its actions may mean something else" if "env.id" in others else ""
        warn(
            f"The network of {saved.path} was trained with {there}, and this run has {here}: it knows other inputs"
            f"{actions}."
        )
    before, now = saved.config.algorithm, config.algorithm
    if before.HEAD != now.HEAD:
        warn(
            f"The network of {saved.path} was trained by {before.name} and gives {before.HEAD}; {now.name} takes them "
            f"for {now.HEAD}, so little of what it has learned is of use."
        )


def tell_of_fresh_networks(saved: Saved, config: Config, fresh: Sequence[str], warn: Callable[[str], None]) -> None:
    """Warn if a run starts with the policy of another checkpoint, and with fresh weights of other networks."""
    if fresh:
        warn(
            f"{saved.path}, of {saved.config.algorithm.name}, has no {' and no '.join(fresh)} for "
            f"{config.algorithm.name}: only the network of the policy is taken, and the others start fresh."
        )


@contextmanager
def saving(run_dir: Path, config: Config) -> Iterator[None]:
    """Turn an OSError, such as that of a full disk, into a UserError that says how to go on."""
    try:
        yield
    except OSError as error:
        if not run_dir.is_dir():
            raise UserError(f"{run_dir} was deleted or moved during the run, which is stopped.") from None
        name = error.filename or f"A file of {run_dir}"
        file = run_dir / name if Path(name).name == name else name  # calls by descriptor report only the name
        state, how = "not begun", "run the same command again"
        if step_files(run_dir / "checkpoints"):
            state = "stopped, and whole up to its last checkpoint"
            how = f"resume with `{resume_command(run_dir, config)}`"
        raise UserError(
            f"{file} cannot be written ({error.strerror}): the run is {state}. Mend that, then {how}."
        ) from None


def write_config(run_dir: Path, config: Config, init_from: str | None) -> None:
    """Write config.yaml, with the versions that made the run, and whose weights it started with, if not its own."""
    provenance = {**versions(), "git": _git_state(), **({"init_from": init_from} if init_from else {})}
    values = {"schema": SCHEMA, **dump_config(config), "provenance": provenance}
    write_atomically(run_dir / "config.yaml", yaml.safe_dump(values, sort_keys=False), below=run_dir)


@cache
def _git_state() -> str | None:
    """The commit this code was checked out at, with `+changes` if it was edited; None outside a checkout."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None  # installed: a repository further up is not ours
    git = ["git", "-C", str(checkout), "describe", "--always", "--dirty=+changes", "--abbrev=40"]
    try:
        answer = subprocess.run(git, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
