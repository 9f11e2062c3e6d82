"""Incidents: what is saved of an update that went wrong, enough to repeat it.

Each is a folder `incidents/step-<env_steps>` of the run. It is a run folder itself, with the run's latest checkpoint
and its memory if it has one, so that `a2c resume` on it reaches the same point with the same bits. Beside them:
`report.json`, and `update.npz` with all that was learned (`model/*`, `optimizer/*`), and the batch of the gradient step
(`batch/*`) or, if something else went wrong, the latest rollout (`rollout/*`).
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from a2c.algorithms.algorithm import Algorithm, Update
from a2c.algorithms.gradient_step import Batch, Step
from a2c.config import Config, CrashError, UserError, dump_config
from a2c.data.collector import RolloutCollector
from a2c.envs.vector import EnvCrashError
from a2c.execution.machine import versions
from a2c.execution.replicas import ALONE, Replicas, from_text, to_text
from a2c.extensions import described
from a2c.run.archive import write_archive
from a2c.run.checkpoint import learned_arrays
from a2c.run.counters import Counters
from a2c.run.files import link, make_folders, write_atomically
from a2c.run.logs import finite
from a2c.run.lookup import resume_command
from a2c.run.segments import segment_files
from a2c.run.step_files import step_files

KEPT = 10  # incidents of one run; the first ones say most
NOWHERE = "a place that is finite when it is done again op by op"
SKIPPED_IN_A_ROW = 100  # updates: then nothing is being learned any more


@dataclass
class Incidents:
    """Saves the failed updates of one run; as a context manager, also any exception raised in it."""

    run_dir: Path
    config: Config
    algorithm: Algorithm
    collector: RolloutCollector
    counters: Counters
    replicas: Replicas = ALONE

    def __post_init__(self) -> None:
        self._resume = resume_command(self.run_dir, self.config)

    def check(self, update: Update) -> None:
        """Handle an update with a gradient step that was not applied, as `optimizer.on_nan` says.

        Raises:
            UserError: if the run must stop.
        """
        if update.failed is None:
            self.counters.skipped_in_a_row = 0
            return
        self.counters.skipped_in_a_row += 1
        self.counters.skipped_updates += 1
        batch, stage = self._joint(*update.failed)
        saved = self._save({f"batch/{name}": np.asarray(field) for name, field in batch._asdict().items()}, stage=stage)
        what = f"Update {self.counters.updates:,} is not finite, first in {stage}, and was not applied"
        if update.gradient_steps:
            what += f" beyond its gradient step {update.gradient_steps:,}"
        if self.config.optimizer.on_nan == "stop":
            raise UserError(
                f"{what}; its batch {_place(saved)}, and the last checkpoint is as it was. {self._cure(stage)}, or "
                f"leave such updates out with `{self._resume} --on-nan skip`."
            )
        if self.counters.skipped_in_a_row == SKIPPED_IN_A_ROW:
            raise UserError(
                f"{what}, nor were the {SKIPPED_IN_A_ROW - 1} before it, so that nothing is being learned; their first "
                f"batches are in {self.run_dir / 'incidents'}. {self._cure(stage)}, and start again."
            )

    def _cure(self, stage: str) -> str:
        """What to do: it depends on whether the batch or the latest rollout of any worker had odd numbers of a game."""
        rollout = self.collector.latest
        facts = () if rollout is None else (rollout.rewards, rollout.observations, rollout.last_observations)
        odd = not all(np.isfinite(fact).all() for fact in facts)
        odd_in_any = any(worker["odd"] for worker in self.replicas.gather({"odd": np.asarray(odd)}))
        if odd_in_any or stage.endswith(("observations", "rewards")):
            return "Mend the environment, which gave NaN or infinity"
        return "Try a smaller optimizer.learning_rate"

    def _joint(self, step: str, batch: Batch) -> tuple[Batch, str]:
        """The joint batch of all workers, and the first stage that is not finite in any of them."""
        mine = {**batch._asdict(), "stage": from_text(nonfinite_stage(self.algorithm.steps[step], batch))}
        each = self.replicas.gather({name: np.asarray(field) for name, field in mine.items()})
        stages = [to_text(worker.pop("stage")) for worker in each]
        fields = {name: np.concatenate([worker[name] for worker in each], axis=1) for name in batch._fields}
        return type(batch)(**fields), next((stage for stage in stages if stage != NOWHERE), NOWHERE)

    def __enter__(self) -> Incidents:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        told = isinstance(error, UserError) and not isinstance(error, EnvCrashError)
        if isinstance(error, Exception | SystemExit) and not told:
            self._crash(error)  # an algorithm of the user's may call sys.exit

    def _crash(self, error: Exception | SystemExit) -> NoReturn:
        first_line = described(error.cause if isinstance(error, EnvCrashError) else error)
        if not self.replicas.is_chief:
            raise CrashError(f"Worker {self.replicas.index} stopped with {first_line}.") from error
        try:
            rollout = self.collector.latest
            learned_from = {} if rollout is None else {f"rollout/{name}": x for name, x in rollout.arrays().items()}
            where = _place(self._save(learned_from, error=error))
        except OSError as unwritable:
            where = f"could not be written ({unwritable.strerror})"
        raise CrashError(
            f"The run stopped after update {self.counters.updates:,} with {first_line}; "
            f"what is needed to repeat it {where}. "
            f"Once its cause is mended, resume from the last checkpoint with `{self._resume}`."
        ) from error

    def _save(
        self, learned_from: dict[str, np.ndarray], *, stage: str | None = None, error: BaseException | None = None
    ) -> Path | None:
        """Make the folder of this incident and return it; None if there are KEPT already.

        Workers other than the chief return the folder of all.
        """
        folder = self.run_dir / "incidents" / f"step-{self.counters.env_steps:012d}"
        if not self.replicas.is_chief:
            return folder.parent
        if len(list(folder.parent.glob("step-*"))) >= KEPT:
            return None
        make_folders(folder, below=self.run_dir)
        report: dict[str, Any] = {
            "nonfinite_stage": stage,
            "exception": None if error is None else "".join(traceback.format_exception(error)),
            "counters": self.counters.state(),
            "versions": versions(),
            "config": dump_config(self.config),
        }
        write_atomically(folder / "report.json", json.dumps(finite(report), indent=2) + "\n", below=self.run_dir)
        for needed in (*step_files(self.run_dir / "checkpoints")[-1:], *segment_files(self.run_dir)):
            same = folder / needed.relative_to(self.run_dir)
            make_folders(same.parent, below=self.run_dir)
            link(needed, same, below=self.run_dir)
        if learned_from:
            write_archive(folder / "update.npz", {**learned_from, **learned_arrays(self.algorithm)}, below=self.run_dir)
        return folder


def _place(saved: Path | None) -> str:
    return f"is in {saved}" if saved else f"is not kept, since {KEPT} incidents are"


def nonfinite_stage(step: Step, batch: Batch) -> str:
    """The first stage of a gradient step in which a number is NaN or infinite; its gradients are computed again."""
    for name, field in batch._asdict().items():
        if not np.isfinite(field).all():
            return f"batch.{name}"

    def tap(stage: str, tensor: tf.Tensor) -> tf.Tensor:
        if tensor.dtype.is_floating and not bool(tf.reduce_all(tf.math.is_finite(tensor))):
            raise _FoundError(f"stage {stage!r}")
        return tensor

    try:
        gradients, _ = step.gradients(type(batch)(*map(tf.convert_to_tensor, batch)), tap)
        tap("grad_norm", tf.linalg.global_norm(gradients))
    except _FoundError as found:
        return str(found)
    return NOWHERE


class _FoundError(Exception):
    """Ends an update early."""
