"""Checkpoints: all that a run needs to go on exactly, in one plain .npz file, written atomically.

A file holds `meta` (JSON: format, versions, config, counters), `model/*`, `optimizer/*` (every variable, the
iteration counter included) and `collector/*` (the action stream's counter, and for each environment the numbers
of its running episode and series, and the actions taken since its seed; they are played again from there). No pickles:
reading a file never runs code.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from a2c.config import Config, UserError, build_config, dump_config
from a2c.learner import Learner
from a2c.metrics import WINDOW, Counters
from a2c.rollout import RolloutCollector

FORMAT = 1
BEST = "best.npz"
STEP_FILE = re.compile(r"step-\d{12,}\.npz")


class Saved(NamedTuple):
    """What a checkpoint file holds."""

    path: Path
    config: Config
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def env_steps(self) -> int:
        """Agent steps done when it was written."""
        return int(self.meta["counters"]["env_steps"])

    def group(self, prefix: str) -> dict[str, np.ndarray]:
        """The arrays below `prefix/`, in their order, without it."""
        return {key.removeprefix(prefix + "/"): a for key, a in self.arrays.items() if key.startswith(prefix + "/")}


class Checkpoints:
    """Saves and restores one run: its learner, collector and counters."""

    def __init__(
        self, run_dir: Path, config: Config, *, learner: Learner, collector: RolloutCollector, counters: Counters
    ) -> None:
        self.folder = run_dir / "checkpoints"
        self.config = config
        self.learner = learner
        self.collector = collector
        self.counters = counters

    def save(self) -> Path:
        """Write `checkpoints/step-<env_steps>.npz`, refresh `best.npz` where it is the best, drop old ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        is_best = self._note_best()
        meta = {
            "format": FORMAT,
            "versions": versions(),
            "config": dump_config(self.config),
            "counters": self.counters.state(),
        }
        arrays = {
            "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8),
            **_variables("model", self.learner.model.variables),
            **_variables("optimizer", self.learner.optimizer.variables),
            **{f"collector/{key}": array for key, array in self.collector.state().items()},
        }
        path = self._path()
        temporary = _write(path, arrays)
        if is_best:
            # linked before the rename: a kill between the two leaves a best that the resumed run makes again
            _link(temporary, self.folder / BEST)
        temporary.replace(path)
        _sync(self.folder)
        older = [file for file in step_files(self.folder) if file.name < path.name]
        for file in older[: len(older) + 1 - self.config.checkpoint.keep]:
            file.unlink()
        return path

    def restore(self, saved: Saved) -> None:
        """Go on exactly where `saved` was written; later checkpoints, damaged as they must be, are dropped.

        Raises:
            UserError: where the file does not fit this model, optimizer or environment.
        """
        restore_weights(self.learner, saved)
        _assign(self.learner.optimizer.variables, saved, "optimizer")
        self.counters.restore(saved.meta["counters"])
        try:
            self.collector.restore(saved.group("collector"))
        except (KeyError, ValueError, TypeError, OverflowError, IndexError) as error:
            raise UserError(f"{saved.path} is not a whole checkpoint: {error!r}; use another one.") from None
        for file in step_files(self.folder):
            if file.name > self._path().name:
                file.unlink()

    def _path(self) -> Path:
        return step_file(self.folder, self.counters.env_steps)

    def _note_best(self) -> bool:
        mean, best = self.counters.return_mean, self.counters.best_return
        is_best = mean is not None and len(self.counters.returns) == WINDOW and (best is None or mean > best)
        if is_best:
            self.counters.best_return = mean
        return is_best


def restore_weights(learner: Learner, saved: Saved) -> None:
    """Load the network alone, as evaluation needs it."""
    _assign(learner.model.variables, saved, "model")


def read_checkpoint(path: Path) -> Saved:
    """Read a checkpoint file.

    Raises:
        UserError: where it is missing, cut short, damaged, of another format, or no checkpoint at all.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            meta = json.loads(file["meta"].tobytes())
            arrays = {key: file[key] for key in file.files if key != "meta"}
            form = meta["format"]
    except FileNotFoundError:
        raise UserError(f"There is no checkpoint {path}.") from None
    except Exception as error:  # whatever zipfile, its decompressors, numpy and json raise on hostile bytes
        reason = error.__class__.__name__
        raise UserError(f"{path} is damaged or not a checkpoint of a2c ({reason}); use another one.") from None
    if form != FORMAT:
        raise UserError(f"{path} has format {form!r}, this version of a2c reads format {FORMAT}; use that version.")
    config = build_config(meta.get("config"), where=str(path))
    if not _are_counters(meta.get("counters")):
        raise UserError(f"{path} is damaged: its counters are not those of a run; use another one.")
    return Saved(path, config, meta, arrays)


def _are_counters(counters: Any) -> bool:
    """Whether a checkpoint's counters have the names and types of `Counters`, and count from 0."""
    fresh = Counters().state()
    if not isinstance(counters, dict) or counters.keys() != fresh.keys():
        return False
    numbers = [*counters["returns"], *counters["lengths"]] if _are_lists(counters) else [None]
    numbers += [counters["seconds"], *([] if counters["best_return"] is None else [counters["best_return"]])]
    counts = [counters[name] for name in ("updates", "env_steps", "frames", "episodes")]
    return all(type(n) in (int, float) for n in numbers) and all(type(n) is int and n >= 0 for n in counts)


def _are_lists(counters: dict[str, Any]) -> bool:
    return isinstance(counters["returns"], list) and isinstance(counters["lengths"], list)


def find_checkpoint(path: Path) -> tuple[Saved, list[str]]:
    """The checkpoint that `path` means: a file itself, a run folder its latest good one.

    Returns:
        The checkpoint, and a sentence for each damaged file that was passed over.

    Raises:
        UserError: where there is none.
    """
    if not path.exists():
        raise UserError(f"There is no run folder or checkpoint {path}.")
    if path.is_file():
        return read_checkpoint(path), []
    folder = path / "checkpoints"
    passed_over: list[str] = []
    for file in reversed(step_files(folder)):
        try:
            return read_checkpoint(file), passed_over
        except UserError as error:
            passed_over.append(str(error))
    if passed_over:
        best = f" Try {folder / BEST}." if (folder / BEST).exists() else ""
        raise UserError(f"No checkpoint of {path} can be read; the latest: {passed_over[0]}{best}")
    raise UserError(f"{path} holds no checkpoint (checkpoints/step-*.npz); name a run folder or a checkpoint file.")


def step_file(folder: Path, env_steps: int) -> Path:
    """The checkpoint of a folder that is written after `env_steps` agent steps."""
    return folder / f"step-{env_steps:012d}.npz"


def step_files(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    return sorted(file for file in folder.glob("step-*.npz") if STEP_FILE.fullmatch(file.name) and file.is_file())


def versions() -> dict[str, str]:
    """The versions of everything that decides the bits of a run."""
    from importlib.metadata import version
    from platform import python_version

    packages = ("a2c", "tensorflow", "keras", "numpy", "gymnasium", "ale-py")
    return {"python": python_version(), **{name: version(name) for name in packages}}


def write_atomically(path: Path, text: str) -> None:
    """Write a text file under a temporary name, then rename it: whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_result(path: Path, text: str) -> None:
    """`write_atomically` where the user said so.

    Raises:
        UserError: where the file cannot be written.
    """
    try:
        write_atomically(path, text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None


def _variables(prefix: str, variables: list[Any]) -> dict[str, np.ndarray]:
    return {f"{prefix}/{i:03d}-{v.path.rsplit('/', 1)[-1]}": np.asarray(v) for i, v in enumerate(variables)}


def _assign(variables: list[Any], saved: Saved, prefix: str) -> None:
    arrays = list(saved.group(prefix).values())
    wanted = [(tuple(v.shape), np.dtype(v.dtype)) for v in variables]
    found = [(a.shape, a.dtype) for a in arrays]
    if wanted != found:
        raise UserError(
            f"{saved.path} does not fit: its {prefix} has {len(found)} arrays of other shapes or types than the "
            f"{len(wanted)} of this configuration."
        )
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def _write(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # a killed session's may be linked to best.npz: never write into it
    with temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _link(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.hardlink_to(source)
    temporary.replace(target)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
