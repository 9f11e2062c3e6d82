"""The arms (ways of training) of a comparison, and their runs: trained in separate processes, or found in folders."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from a2c.analysis.jobs import Job, Place, run_jobs
from a2c.config import (
    Config,
    UserError,
    build_config,
    dotted,
    dump_config,
    env_slug,
    read_run_config,
    recipe,
    short_keys,
)
from a2c.execution.processes import own_command
from a2c.reading import LONGEST_LINE, read_end
from a2c.run.files import make_folders, write_atomically
from a2c.run.logs import parsed
from a2c.run.step_files import step_file
from a2c.run.view import Part


@dataclass(frozen=True)
class Arm:
    """One way of training."""

    label: str
    config: Config

    @property
    def slug(self) -> str:
        """The label for file names, of at most 80 letters."""
        return re.sub(r"[^A-Za-z0-9_.]+", "-", self.label)[:80].strip("-") or "arm"


@dataclass(frozen=True)
class ArmRun:
    """One training run of one arm."""

    arm: str
    env: str
    seed: int
    folder: Path
    exact: bool = True  # whether its algorithm promises the same bits for the same seed


@dataclass(frozen=True)
class Planned:
    """A run to train."""

    run: ArmRun
    config: Config  # except the seed
    file: Path  # where the configuration is written


def plan_runs(arms: Sequence[Arm], seeds: Sequence[int], folder: Path) -> list[Planned]:
    """The runs of all arms, seed by seed, so that an interrupted comparison has whole pairs.

    Each seed begins with another arm, so that no arm always runs beside the same others: that would bias the speeds.
    The first seed begins with the first arm, with which the others are compared.
    """
    named = list(zip(arms, _names(arms), strict=True))
    planned = []
    for at, seed in enumerate(seeds):
        first = at % len(named)
        for arm, name in named[first:] + named[:first]:
            exact = arm.config.algorithm.PROMISES.exact
            run = ArmRun(arm.label, arm.config.env.id, seed, folder / "runs" / f"{name}-s{seed}", exact)
            planned.append(Planned(run, arm.config, folder / "arms" / f"{name}.yaml"))
    return planned


def write_configurations(planned: Sequence[Planned]) -> None:
    """Write the files that the training commands read."""
    for file, config in {plan.file: plan.config for plan in planned}.items():
        make_folders(file.parent)
        write_atomically(file, yaml.safe_dump(dump_config(config), sort_keys=False))


def train_planned(planned: Sequence[Planned], folder: Path, *, jobs: int, place: Place, part: Part) -> None:
    """Train the runs that are not finished, `jobs` at a time; `part` shows the steps of all of them."""

    def tick(done: int) -> None:
        steps = sum(min(steps_done(plan.run.folder), plan.config.total_env_steps) for plan in planned)
        part.at(steps, f"{done} of {len(planned)} runs")

    commands = [training_job(plan, folder / "logs") for plan in planned]
    run_jobs(
        commands,
        workers=jobs,
        folder=folder,
        place=place,
        prepare=lambda: write_configurations(planned),
        on_tick=tick,
    )


def training_job(plan: Planned, logs: Path) -> Job:
    """The training command, which resumes its run if there is a checkpoint."""
    run = plan.run
    how = ("--config", str(plan.file), "--seed", str(run.seed), "--steps", str(plan.config.total_env_steps))
    where = ("--run-dir", str(run.folder), "--resume", "--quiet")
    return Job(
        name=f"{run.arm}, {run.env}, seed {run.seed}",
        command=(*own_command("a2c"), "train", *how, *where),
        log=logs / f"{run.folder.name}.log",
        is_done=lambda: is_finished(run.folder, plan.config),
    )


def _names(arms: Sequence[Arm]) -> list[str]:
    """A file name for each arm, with a digest if two would share one."""
    several = len({arm.config.env.id for arm in arms}) > 1
    names = [f"{env_slug(arm.config.env.id)}-{arm.slug}" if several else arm.slug for arm in arms]
    return [
        name if names.count(name) == 1 else f"{name}-{hashlib.sha256(repr(arm.config).encode()).hexdigest()[:6]}"
        for arm, name in zip(arms, names, strict=True)
    ]


def is_finished(folder: Path, config: Config) -> bool:
    """Whether a run has its last line of metrics, and the checkpoint and the evaluation that belong to it."""
    steps = steps_done(folder)
    judged = (
        not config.evaluation.episodes
        or last_record(folder, "evaluations.jsonl", LONGEST_LINE).get("env_steps") == steps
    )
    return judged and steps >= config.total_env_steps and step_file(folder / "checkpoints", steps).exists()


def steps_done(folder: Path) -> int:
    """The agent steps of a run's last line of metrics, 0 if there is none."""
    return int(last_record(folder).get("env_steps", 0))


def last_record(folder: Path, log: str = "metrics.jsonl", longest: int = 2**16) -> dict[str, Any]:
    """The last line of a run's log, of at most `longest` bytes; empty if there is none, or it is incomplete."""
    try:
        return parsed(read_end(folder / log, longest).rstrip().rpartition("\n")[2]) or {}
    except OSError:
        return {}


def arms_of(folders: Sequence[Path]) -> list[ArmRun]:
    """Sort the runs of some folders into arms: those of one arm learn alike, whatever their seed, game and length.

    An arm's label names its algorithm if the algorithms differ, and the keys that differ between runs of one algorithm.

    Raises:
        UserError: if a folder is not a run, all were trained in the same way, or two with the same seed.
    """
    configs, ways = zip(*map(_read_way, folders), strict=True)
    keys = _distinguishing(ways)
    if not keys:
        raise UserError("All these runs were trained in the same way: there is nothing to compare.")
    names = short_keys(keys)
    labels = [", ".join(f"{names[key]}={way[key]}" for key in keys if key in way) for way in ways]
    runs = [
        ArmRun(label, config.env.id, config.seed, folder, config.algorithm.PROMISES.exact)
        for label, config, folder in zip(labels, configs, folders, strict=True)
    ]
    if len({(run.arm, run.env, run.seed) for run in runs}) < len(runs):
        raise UserError("Two of these runs learn alike and have the same seed; give one of them.")
    return runs


def _distinguishing(ways: Sequence[dict[str, Any]]) -> list[str]:
    """The keys in which ways of training differ; for two algorithms the name is enough, whatever else differs."""
    name = "algorithm.name"
    firsts = {way[name]: way for way in reversed(ways)}
    found = {key for way in ways for key in way if way[key] != firsts[way[name]].get(key)}
    found |= {name} if len(firsts) > 1 else set()
    return [key for key in dict.fromkeys(key for way in ways for key in way) if key in found]


def _read_way(folder: Path) -> tuple[Config, dict[str, Any]]:
    """The configuration of a run, and its way of training: the recipe without the length and the game."""
    file = folder / "config.yaml"
    if not file.is_file():
        raise UserError(
            f"{folder} is not the folder of a run: it holds no config.yaml; name only runs, or only configurations."
        )
    values, provenance = read_run_config(file)
    config = build_config(values, where=str(file))
    way = recipe(dotted(dump_config(config)), provenance)
    return config, {key: value for key, value in way.items() if key not in ("total_env_steps", "env.id")}
