"""Checkpoints: all that a run needs to resume exactly, in one sealed file of plain arrays, written atomically.

A file holds `meta` (JSON: format, versions, machine, config, counters), `model/*`, `optimizer/*` (every variable, the
iteration counter included) and `collector/*` (the action stream's counter, and for each environment the numbers
of its running episode and series, and the actions since its seed, which are replayed to restore it). The collectors of
further workers are `collector-1/*` and so on. An algorithm that remembers earlier rollouts has `memory/*` too, and
the files of `a2c.run.segments`, which `segments/*` names. Reading a file never runs code, and takes little more memory
than the size of the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from a2c.algorithms.algorithm import Algorithm, build_policy
from a2c.algorithms.policy import Policy
from a2c.config import Config, CrashError, UserError, bring_up_to_date, build_config, cut, dump_config, shown
from a2c.data.collector import RolloutCollector
from a2c.execution.machine import versions
from a2c.execution.replicas import ALONE, Replicas, from_text, to_text
from a2c.execution.runtime import machine, parts_of
from a2c.extensions import is_extension
from a2c.networks.model import weight_shapes
from a2c.reading import OddFileError
from a2c.run.archive import DamagedError, read_archive, write_archive
from a2c.run.counters import WINDOW, Counters
from a2c.run.files import make_folders, remove, rename
from a2c.run.segments import Segments
from a2c.run.step_files import BEST, step_file, step_files

FORMAT = 2
LARGEST_META = 2**20  # bytes; a few thousand are usual
_LONGEST = 1e12  # seconds
_MOST = 2**62  # of a counter: more is added to it, and it is an int64


class DamagedCheckpointError(UserError):
    """A file that is not as it was written; the one before it should be used."""


class Saved(NamedTuple):
    """The content of a checkpoint file."""

    path: Path
    config: Config
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def env_steps(self) -> int:
        """Agent steps done when it was written."""
        return int(self.meta["counters"]["env_steps"])

    def group(self, prefix: str) -> dict[str, np.ndarray]:
        """The arrays below `prefix/`, in their order, with the prefix removed."""
        return {key.removeprefix(prefix + "/"): a for key, a in self.arrays.items() if key.startswith(prefix + "/")}

    @property
    def bits(self) -> dict[str, tuple[str, bytes]]:
        """The type and bytes of each array, which are the same however often the run was stopped and resumed.

        Those of `segments/` are left out: which rows of a replay are in which file depends on when it was saved.
        """
        return {key: (str(a.dtype), a.tobytes()) for key, a in self.arrays.items() if not key.startswith("segments/")}

    def packed(self) -> dict[str, np.ndarray]:
        """All of it as arrays, for workers that cannot read the file."""
        header = {"path": str(self.path), "config": dump_config(self.config), "meta": self.meta}
        return {**self.arrays, "saved": from_text(json.dumps(header))}

    @classmethod
    def unpacked(cls, arrays: dict[str, np.ndarray]) -> Saved:
        """The reverse of `packed`."""
        header = json.loads(to_text(arrays.pop("saved")))
        return cls(Path(header["path"]), build_config(header["config"], where=header["path"]), header["meta"], arrays)


class Checkpoints:
    """Saves and restores one run: its algorithm, counters, and the collectors of all its workers.

    Only the chief uses the folder; the other workers call `save` and `restore` at the same time.
    """

    def __init__(
        self,
        run_dir: Path,
        config: Config,
        *,
        algorithm: Algorithm,
        collector: RolloutCollector,
        counters: Counters,
        replicas: Replicas = ALONE,
    ) -> None:
        self.run_dir = run_dir
        self.folder = run_dir / "checkpoints"
        self.config = config
        self.algorithm = algorithm
        self.collector = collector
        self.counters = counters
        self.replicas = replicas
        self.init_from: str | None = None  # whose weights the run started with, if not its own
        own = config.algorithm.name if is_extension(config.algorithm.name) else None
        self.segments = None if algorithm.memory is None else Segments(run_dir, algorithm.memory, own)
        self._saved_at = time.monotonic()  # not affected by changes of the system clock

    def due_by_time(self) -> bool:
        """Whether a checkpoint is due by the chief's clock; true once each time."""
        now, seconds = time.monotonic(), 60 * self.config.checkpoint.every_minutes
        due = self.replicas.is_chief and 0 < seconds <= now - self._saved_at
        if due:
            self._saved_at = now  # the other workers hear of it one update later
        return due

    def due_by_updates(self) -> bool:
        """Whether a checkpoint is due by the number of updates."""
        return self.counters.updates % self.config.checkpoint.every_updates == 0

    def save(self) -> None:
        """Write `checkpoints/step-<env_steps>.npz`, update `best.npz` if it is the best, and remove old ones.

        Raises:
            OSError: if it cannot be written; earlier checkpoints are unchanged.
            CrashError: if the workers do not all have the same network and optimizer.
        """
        learned = learned_arrays(self.algorithm)
        collectors = self._gathered(learned)
        if not self.replicas.is_chief:
            return
        make_folders(self.folder, below=self.run_dir)
        # not if a signal or the clock asked for it: the best would depend on when they did
        scheduled = self.counters.finished(self.config) or self.due_by_updates()
        is_best = scheduled and not self.counters.evaluation_due(self.config) and self._note_best()
        meta = {
            "format": FORMAT,
            "versions": versions(),
            "machine": machine(parts_of(self.config)),
            "config": dump_config(self.config),
            "counters": self.counters.state(),
            **({"init_from": self.init_from} if self.init_from else {}),
        }
        path = self._path()
        if self.segments is not None:
            learned |= {f"segments/{key}": array for key, array in self.segments.save(path.name).items()}
            learned |= {f"memory/{key}": array for key, array in self.segments.state().items()}
        arrays = {
            "meta": from_text(json.dumps(meta)),
            **learned,
            **{f"{_group(w)}/{key}": array for w, state in enumerate(collectors) for key, array in state.items()},
        }
        write_archive(path, arrays, also=[BEST] if is_best else [], below=self.run_dir)
        older = [file for file in step_files(self.folder) if file.name < path.name]
        for file in older[: max(0, len(older) + 1 - self.config.checkpoint.keep)]:
            remove(file, below=self.run_dir)
        if self.segments is not None:
            self.segments.clean(file.name for file in step_files(self.folder))
        self._saved_at = time.monotonic()

    def _gathered(self, learned: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """The states of the collectors of all workers; raises CrashError if they have not learned the same."""
        if self.replicas.workers == 1:
            return [self.collector.state()]
        digest = np.frombuffer(_digest(learned), np.uint8)
        each = self.replicas.gather({**self.collector.state(), "learned": digest})
        for worker, state in enumerate(each):
            if state.pop("learned").tobytes() != digest.tobytes():
                raise CrashError(
                    f"Workers {self.replicas.index} and {worker} have not learned the same by update "
                    f"{self.counters.updates:,}, so that nothing is saved; start all again from the last checkpoint, "
                    "and look whether all machines are of one kind."
                )
        return each

    def start_from(self, saved: Saved) -> list[str]:
        """Give a new run the weights of another run's network; optimizer, counters and all else stay fresh.

        The further `networks` of an algorithm are taken from a run of the same algorithm that holds them, which a
        bundle does not.

        Returns:
            Those that are not taken.

        Raises:
            UserError: if they do not fit this run's network, or are not finite.
        """
        network, arrays = self.algorithm.variables["model"], saved.group("model")
        here, there = ([tuple(each.shape) for each in group] for group in (network, arrays.values()))
        if differing := _first_other(here, there):
            first, own, other = differing
            raise UserError(
                f"The network of {saved.path} ({saved.config.algorithm.name}, {saved.config.env.id}) is another than "
                f"this run's: its array {first} is {other or 'absent'}, not {own or 'absent'}; give the same --env, "
                "--algorithm, model.* and env.* settings, as with --config and its config.yaml, or leave "
                "--init-from out."
            )
        same = saved.config.algorithm.name == self.config.algorithm.name
        taken = [group for group in self.algorithm.networks if same and saved.group(group)]
        for group in ("model", *taken):
            _assign(self.algorithm.variables[group], saved, group)
        _check_finite(saved, "model", *taken)
        self.init_from = f"{cut(str(saved.path))}, {saved.env_steps:,} steps, weights {_digest(arrays).hex()[:16]}"
        return [group for group in self.algorithm.networks if group not in taken]

    def restore(self, saved: Saved) -> int:
        """Resume exactly from `saved`; later checkpoints, which must be damaged, are renamed.

        Returns:
            How many environments could not be replayed to their state, and start new games instead.

        Raises:
            UserError: if the file does not fit this model, optimizer or environment.
        """
        self._check_groups(saved)
        for name, variables in self.algorithm.variables.items():
            _assign(variables, saved, name)
        # a variable of a user's algorithm may be infinite on purpose
        own = is_extension(self.config.algorithm.name)
        groups = (name for name in self.algorithm.variables if not own or name == "model" or name.endswith("optimizer"))
        _check_finite(saved, *groups)
        self.counters.restore(saved.meta["counters"])
        self.init_from = cut(saved.meta["init_from"]) if "init_from" in saved.meta else None
        try:
            lost = self.collector.restore(saved.group(_group(self.replicas.index)))
            if self.segments is not None and not lost:  # else its last row would run on into another game
                self.segments.restore_state(saved.group("memory"))
                self.segments.restore(saved.group("segments"))
        except (KeyError, ValueError, TypeError, OverflowError, IndexError) as error:
            raise UserError(f"{saved.path} is not a whole checkpoint: {error!r}.") from None
        if self.replicas.is_chief:
            self._clean(keep_memory=lost > 0)  # until the next checkpoint, the one that was read still needs it
        return lost

    def _check_groups(self, saved: Saved) -> None:
        """Raise UserError if a checkpoint holds what the algorithm no longer has: a resumed run would lose it."""
        of_the_run = re.compile(r"collector(-\d+)?" if self.segments is None else r"collector(-\d+)?|memory|segments")
        for group in dict.fromkeys(key.partition("/")[0] for key in saved.arrays):
            if group not in self.algorithm.variables and not of_the_run.fullmatch(group):
                raise UserError(
                    f"{saved.path} does not fit: it has {shown(group)}, which {self.config.algorithm.name} here does "
                    "not save, so that the run would lose it; put it back, or start a new run."
                )

    def keep_settings(self, saved: Saved) -> None:
        """Write the checkpoint that was restored again, with this session's settings; `best.npz` keeps the old ones.

        Raises:
            OSError: if it cannot be written; it is unchanged then.
        """
        meta = {**saved.meta, "config": dump_config(self.config)}
        write_archive(self._path(), {"meta": from_text(json.dumps(meta)), **saved.arrays}, below=self.run_dir)

    def _clean(self, *, keep_memory: bool) -> None:
        for file in step_files(self.folder):
            if file.name > self._path().name:
                rename(file, file.with_suffix(".damaged").name, below=self.run_dir)
        for file in self.folder.glob(".*.npz.tmp"):  # of killed sessions
            remove(file, below=self.run_dir)
        if self.segments is not None and not keep_memory:
            self.segments.clean(file.name for file in step_files(self.folder))

    def _path(self) -> Path:
        return step_file(self.folder, self.counters.env_steps)

    def _note_best(self) -> bool:
        mean, best = self.counters.return_mean, self.counters.best_return
        if mean is None or not math.isfinite(mean) or len(self.counters.returns) < WINDOW:
            return False
        is_best = best is None or not math.isfinite(best) or mean > best
        if is_best:
            self.counters.best_return = mean
        return is_best


def check_network(saved: Saved, observation_space: Any, num_actions: int) -> None:
    """Check that a checkpoint's network fits its configuration, before memory is allocated for it.

    The network of a user's own algorithm, which only its `build_policy` knows, is checked once it is built.

    Raises:
        UserError: if it does not fit.
    """
    if is_extension(saved.config.algorithm.name):
        return
    wanted = weight_shapes(saved.config.model, observation_space, saved.config.algorithm.outputs(num_actions))
    _check_fit(saved, "model", list(map(str, wanted)), [str(array.shape) for array in saved.group("model").values()])


def restored_policy(saved: Saved, config: Config, observation_space: Any, num_actions: int) -> Policy:
    """The checkpoint's agent, for playing and not for training.

    Args:
        saved: the checkpoint.
        config: its configuration, perhaps with other environments or another mode.
        observation_space: Gymnasium Box of one observation.
        num_actions: A.

    Raises:
        UserError: if the network does not fit, or holds numbers that are not finite.
    """
    check_network(saved, observation_space, num_actions)
    policy = build_policy(config, observation_space, num_actions)
    _assign(policy.model.variables, saved, "model")
    _check_finite(saved, "model")
    return policy


def _check_finite(saved: Saved, *groups: str) -> None:
    """Check the numbers of these groups, which no update makes NaN or infinite."""
    for group in groups:
        if not all(np.isfinite(array).all() for array in saved.group(group).values()):
            raise UserError(f"The {group} of {saved.path} has numbers that are not finite, so it is of no use.")


def read_checkpoint(path: Path) -> Saved:
    """Read a checkpoint file.

    Raises:
        UserError: if it is missing, cut short, damaged, of another format, or no checkpoint at all.
    """
    try:
        arrays = read_archive(path)
        meta = _parse(arrays.pop("meta"))
        form = meta["format"]
    except FileNotFoundError:
        raise UserError(f"There is no checkpoint {path}.") from None
    except OddFileError as error:
        raise DamagedCheckpointError(f"{path} is no checkpoint of a2c: {error.strerror}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except MemoryError:
        raise UserError(f"{path} is too large for the memory of this machine.") from None
    except DamagedError as error:
        raise DamagedCheckpointError(f"{path} is damaged or not a checkpoint of a2c: {error}.") from None
    except Exception as error:  # json may raise anything on hostile bytes
        reason = f"{type(error).__name__} in its content"
        raise DamagedCheckpointError(f"{path} is damaged or not a checkpoint of a2c: {reason}.") from None
    if type(form) is not int or form != FORMAT:
        raise UserError(
            f"{path} is of format {str(form)[:20]!r}, and this a2c reads {FORMAT}; use the version that wrote it."
        )
    _bring_up_to_date(meta)
    config = build_config(meta.get("config"), where=str(path))
    if not _are_counters(meta.get("counters")):
        raise DamagedCheckpointError(f"{path} is damaged: its counters are not those of a run.")
    return Saved(path, config, meta, arrays)


def _parse(array: np.ndarray) -> dict[str, Any]:
    if array.nbytes > LARGEST_META:
        raise DamagedError("its header is too long")
    meta = json.loads(array.tobytes())
    if not isinstance(meta, dict):
        raise DamagedError("its header is none")
    return meta


def _bring_up_to_date(meta: dict[str, Any]) -> None:
    """Bring the header of an older version to the current names."""
    match meta:
        case {"counters": dict() as counters, "config": dict() as config}:
            meta["counters"] = {"skipped_updates": 0, "skipped_in_a_row": 0, "evaluated": 0, **counters}
            counters = meta["counters"]
            counters.setdefault("gradient_steps", counters.get("updates"))
            bring_up_to_date(config)


def _are_counters(counters: Any) -> bool:
    """Whether a checkpoint's counters have the names and types of `Counters`, and count from 0."""
    fresh = Counters().state()
    if not isinstance(counters, dict) or counters.keys() != fresh.keys():
        return False
    values = dict(counters)
    returns, lengths = values.pop("returns"), values.pop("lengths")
    if not isinstance(returns, list) or not isinstance(lengths, list):
        return False
    best, seconds = values.pop("best_return"), values.pop("seconds")
    numbers = [*returns, *lengths, seconds, *([] if best is None else [best])]
    return (
        all(type(n) is float or (type(n) is int and abs(n) < _MOST) for n in numbers)  # a return may be infinite
        and 0 <= seconds < _LONGEST
        and all(type(n) is int and 0 <= n < _MOST for n in values.values())
    )


def _digest(arrays: dict[str, np.ndarray]) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for array in arrays.values():
        state.update(array.tobytes())
    return state.digest()


def _group(worker: int) -> str:
    """The prefix of a worker's collector in a file."""
    return f"collector-{worker}" if worker else "collector"


def learned_arrays(algorithm: Algorithm) -> dict[str, np.ndarray]:
    """Every variable that an algorithm has learned, under the names they have in a file."""
    return {
        f"{group}/{i:03d}-{v.path.rsplit('/', 1)[-1]}": np.asarray(v)
        for group, variables in algorithm.variables.items()
        for i, v in enumerate(variables)
    }


def _assign(variables: Sequence[Any], saved: Saved, prefix: str) -> None:
    arrays = list(saved.group(prefix).values())
    _check_fit(saved, prefix, [_kind(v) for v in variables], [_kind(a) for a in arrays])
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def _kind(array: Any) -> str:
    """The dtype and shape of an array or a variable."""
    return f"{np.dtype(array.dtype).name} {tuple(array.shape)}"


def _check_fit(saved: Saved, prefix: str, wanted: Sequence[str], found: Sequence[str]) -> None:
    """Check that a group has arrays of the kinds that are wanted; raises UserError, which names the first other one."""
    if not found and wanted:
        raise UserError(f"{saved.path} does not fit: it has no {prefix!r}, and its configuration here has.")
    if other := _first_other(found, wanted):
        place, there, here = other
        raise UserError(
            f"{saved.path} does not fit: its {prefix} has {there or 'nothing'} as array {place}, and its configuration "
            f"here has {here or 'nothing'} there."
        )


def _first_other(first: Sequence[Any], second: Sequence[Any]) -> tuple[int, Any, Any] | None:
    """Where two lists first differ, and what they have there; None stands for nothing beyond the end of the shorter."""
    pairs = enumerate(zip_longest(first, second))
    return next(((place, one, other) for place, (one, other) in pairs if one != other), None)
