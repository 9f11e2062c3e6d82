"""Train one configuration with several seeds, each in a separate process; finished runs are not repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from a2c.analysis.arms import Arm, plan_runs, train_planned
from a2c.analysis.jobs import Place
from a2c.analysis.results import difference
from a2c.config import Config, UserError, dotted, dump_config, read_config_file
from a2c.run.files import make_folder
from a2c.run.folder import FREE_KEYS
from a2c.run.view import View


def train_seeds(config: Config, seeds: range, folder: Path, *, jobs: int, place: Place, view: View) -> list[Path]:
    """Train a configuration once with each seed, in `folder/runs`; return the runs. Stopped ones are resumed.

    Args:
        config: of all runs, except the seed.
        seeds: one run for each.
        folder: of the runs, their logs and their configuration.
        jobs: processes at a time.
        place: where they run.
        view: shows the progress.

    Raises:
        UserError: if the folder holds other runs, or one of them fails.
    """
    if config.runtime.strategy == "multiworker":
        raise UserError("--seeds starts processes of its own; leave --strategy multiworker out, or train each seed so.")
    if (folder / "checkpoints").exists():
        raise UserError(f"{folder} is a run itself; with --seeds, --run-dir is a folder for runs: name another.")
    make_folder(folder)
    planned = plan_runs([Arm("seed", config)], seeds, folder)
    if (begun := planned[0].file).exists():
        other = difference(_fixed(read_config_file(begun)), _fixed(dump_config(config)))
        if other:
            raise UserError(f"{folder} holds runs of other settings: {other}; choose another --run-dir.")
    with view.part("training", config.total_env_steps * len(seeds)) as part:
        train_planned(planned, folder, jobs=jobs, place=place, part=part)
    return [plan.run.folder for plan in planned]


def _fixed(values: dict[str, Any]) -> dict[str, Any]:
    """The settings, by dotted keys, that all runs of a folder share however often they are resumed."""
    return {key: value for key, value in dotted(values).items() if key not in (*FREE_KEYS, "seed")}
