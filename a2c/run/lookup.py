"""Find the checkpoint or the runs that a user's path means, and the command to type for a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from a2c.config import Config, UserError, typed
from a2c.execution.cluster import LAUNCHED
from a2c.extensions import check_trusted, is_extension, naming, wrapper_names
from a2c.games import canonical_id
from a2c.messages import typed_command
from a2c.reading import is_regular
from a2c.run.bundle import read_bundle
from a2c.run.checkpoint import DamagedCheckpointError, Saved, read_checkpoint
from a2c.run.files import BUNDLE, check_exists
from a2c.run.step_files import BEST, step_file, step_files, step_names


def find_checkpoint(path: Path, warn: Callable[[str], None] = lambda text: None) -> Saved:
    """The checkpoint at `path`: the file itself, a bundle, or the latest undamaged one of a run folder.

    Args:
        path: a checkpoint, a bundle or a run folder.
        warn: called with a sentence for each damaged file that is skipped, and if only the best is left.

    Raises:
        UserError: if there is none.
    """
    check_exists(path)
    if path.is_file():
        return read_bundle(path) if path.suffix == BUNDLE else read_checkpoint(path)
    folder = path / "checkpoints"
    latest_first = step_names(folder)[::-1]
    damages: list[str] = []
    best = [folder / BEST] if os.path.lexists(folder / BEST) else []
    for file in latest_first + best:
        try:
            saved = read_checkpoint(file)
            if file.name not in (BEST, step_file(folder, saved.env_steps).name):
                raise DamagedCheckpointError(
                    f"{file} holds {saved.env_steps:,} steps, which is not what its name says."
                )
        except DamagedCheckpointError as error:
            damages.append(str(error))
            continue
        for text in damages:
            warn(f"{text.rstrip('.')}: the one before is used, {file.name}.")
        if file.name == BEST and not damages:
            warn(f"{path} holds no checkpoint but {BEST}, which is used.")
        return saved
    if damages:
        raise UserError(f"No checkpoint of {path} can be read; the latest: {damages[0]}")
    raise UserError(f"{path} holds no checkpoint (checkpoints/step-*.npz); name a run folder or a checkpoint file.")


def run_folder(checkpoint: Path) -> Path:
    """The run folder of a checkpoint file; the file's own folder if that is not `checkpoints`."""
    folder = checkpoint.parent if checkpoint.parent.name else checkpoint.absolute().parent
    return folder.parent if folder.name == "checkpoints" else folder


def _holds_checkpoints(folder: Path) -> bool:
    try:
        return bool(step_files(folder / "checkpoints")) or is_regular(folder / "checkpoints" / BEST)
    except PermissionError:
        return False


def find_runs(path: Path) -> list[Path]:
    """The runs at `path`: a checkpoint or a run folder itself, else every run folder below it, sorted.

    Raises:
        UserError: if there is none.
    """
    if not path.is_dir() or (path / "checkpoints").is_dir():
        return [path]
    below = (Path(at, name) for at, names, _ in os.walk(path) for name in names)  # a run may be a link
    runs = sorted(run for run in below if run.parent.name != "incidents" and _holds_checkpoints(run))
    if not runs:
        raise UserError(f"{path} holds no run (a folder with checkpoints/step-*.npz); name a run or a checkpoint.")
    return runs


def trusted_checkpoint(path: Path, env_id: str | None, warn: Callable[[str], None] = lambda text: None) -> Saved:
    """The checkpoint at `path`, if the user has named all of its code; see `find_checkpoint` and `_check_trust`."""
    saved = find_checkpoint(path, warn)
    _check_trust(saved, env_id)
    return saved


def _check_trust(saved: Saved, env_id: str | None) -> None:
    """Check that a checkpoint is of the named environment, and that the user named all of it that is code.

    Args:
        saved: a checkpoint, perhaps a stranger's.
        env_id: the environment that the user named, if any.

    Raises:
        UserError: if `env_id` is not that of the checkpoint; or the checkpoint's is `module:Id` and was not named, or
            its network or a wrapper is `module:Name` and was not.
    """
    stored = saved.config.env.id
    if env_id is None and ":" in stored:
        raise UserError(
            f"{saved.path} is of the environment {stored!r}, so that code of that module would be run; if you trust "
            f"it, say so with --env {stored}."
        )
    named = stored if env_id is None else canonical_id(env_id)
    if named != stored:
        raise UserError(f"{saved.path} was trained on {stored}, not on {env_id}; leave --env out, or name that.")
    if is_extension(model := saved.config.model.name):
        check_trusted(model, "model")
    for name in wrapper_names(saved.config.env.wrappers):
        check_trusted(name, "wrapper")


def resume_command(run_dir: Path, config: Config) -> str:
    """The command that resumes a run; if its workers were started one by one, the command to type on each of them."""
    if config.runtime.workers == 1:
        return command_for("resume", run_dir, config)
    if LAUNCHED not in os.environ:
        return f"a2c train ... --run-dir {typed(run_dir)} --auto-resume"
    return command_for(f"launch --workers {config.runtime.workers} -- resume", run_dir, config)


def command_for(command: str, run_dir: Path, config: Config) -> str:
    """A command on a run as it is typed, naming the user's own code if the run has any."""
    own = naming(config.env.id, config.algorithm.name, config.model.name, config.env.wrappers)
    return typed_command(command, run_dir, own)
