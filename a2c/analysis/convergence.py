"""Ways of training compared by how they learn: paired seeds, each run in a process of its own.

A run that never reaches the threshold is censored (`math.inf`), never dropped.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from a2c.analysis.jobs import Job, Place, run_jobs
from a2c.analysis.statistics import (
    PairedComparison,
    interquartile_mean,
    paired_difference,
    paired_ratio,
    probability_of_improvement,
    stratified_interval,
)
from a2c.analysis.view import Part
from a2c.config import Config, UserError, build_config, dotted, dump_config, env_slug, read_config_file
from a2c.envs import atari_game, human_normalized
from a2c.run.checkpoint import read_checkpoint, step_file, step_files
from a2c.run.files import write_atomically
from a2c.run.metrics import WINDOW

NEEDED = {"env_steps", "updates", "episodes", "episode_return_mean", "seconds"}  # of a line of metrics
WALL_CLOCK = ("seconds", "steps_per_second")  # what two equal runs may differ in


@dataclass(frozen=True)
class Arm:
    """One way of training."""

    label: str
    config: Config

    @property
    def slug(self) -> str:
        """For file names."""
        return re.sub(r"[^A-Za-z0-9_.]+", "-", self.label).strip("-") or "arm"


@dataclass(frozen=True)
class Run:
    """One training run of one arm."""

    arm: str
    env: str
    seed: int
    folder: Path
    exact: bool = True  # whether its algorithm promises the same bits for the same seed


@dataclass(frozen=True)
class Planned:
    """A run that is to be trained."""

    run: Run
    config: Config  # the seed apart
    file: Path  # that the configuration is written to


@dataclass(frozen=True)
class RunResult:
    """How a run went, over the budget that all compared runs have."""

    arm: str
    env: str
    seed: int
    env_steps_to_threshold: float  # agent steps; inf if it never got there
    gradient_steps_to_threshold: float
    seconds_to_threshold: float
    steps_per_second: float  # agent steps over seconds of training
    final_return: float  # mean of the last 100 training games
    env_steps: tuple[int, ...]  # the learning curve
    seconds: tuple[float, ...]
    returns: tuple[float, ...]


@dataclass(frozen=True)
class ArmSummary:
    """Medians over the seeds of one arm in one environment."""

    arm: str
    env: str
    runs: int
    reached: int  # runs that got to the threshold
    env_steps_to_threshold: float
    gradient_steps_to_threshold: float
    seconds_to_threshold: float
    steps_per_second: float
    final_return: float


@dataclass(frozen=True)
class Contrast:
    """One arm against the first one, seed by seed, in one environment."""

    arm: str
    baseline: str
    env: str
    seeds: tuple[int, ...]
    identical: int  # seeds whose two runs are equal bit for bit: weights, optimizer, every line of metrics
    env_steps_to_threshold: PairedComparison | None  # ratios; None without a threshold
    gradient_steps_to_threshold: PairedComparison | None  # None as well if a run got there without a gradient step
    seconds_to_threshold: PairedComparison | None
    steps_per_second: PairedComparison
    final_return: PairedComparison  # differences


@dataclass(frozen=True)
class Aggregate:
    """One arm over several games, by human-normalised final return (Agarwal et al. 2021, arXiv 2108.13264)."""

    arm: str
    seeds: int  # the fewest of any game and either arm
    interquartile_mean: float
    interval: tuple[float, float] | None  # None for one seed
    improvement: float | None  # P(a run of this arm beats one of the first arm), averaged over games
    improvement_interval: tuple[float, float] | None


@dataclass(frozen=True)
class Convergence:
    """All that part four found."""

    thresholds: dict[str, float | None]  # by environment
    budget: int  # agent steps that were compared
    runs: tuple[RunResult, ...]
    summaries: tuple[ArmSummary, ...]
    contrasts: tuple[Contrast, ...]
    aggregates: tuple[Aggregate, ...]
    inexact: tuple[str, ...] = ()  # arms whose algorithm does not promise the same bits for the same seed


def short_key(key: str) -> str:
    """What a key is called in the label of an arm: its last word, or what it names."""
    section, _, name = key.rpartition(".")
    return section if name == "name" else name


def plan_runs(arms: Sequence[Arm], seeds: Sequence[int], folder: Path) -> list[Planned]:
    """The runs of all arms, seed by seed, so that an interrupted comparison has whole pairs.

    Each seed begins with another arm: who runs beside whom must not depend on the arm, or speeds would.
    """
    named = list(zip(arms, _names(arms), strict=True))
    planned = []
    for seed in seeds:
        first = seed % len(named)
        for arm, name in named[first:] + named[:first]:
            exact = arm.config.algorithm.PROMISES.exact
            run = Run(arm.label, arm.config.env.id, seed, folder / "runs" / f"{name}-s{seed}", exact)
            planned.append(Planned(run, arm.config, folder / "arms" / f"{name}.yaml"))
    return planned


def training_jobs(planned: Sequence[Planned], logs: Path) -> list[Job]:
    """The commands that train; a run that was stopped goes on from its checkpoint."""
    for file, config in {plan.file: plan.config for plan in planned}.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, yaml.safe_dump(dump_config(config), sort_keys=False))
    return [_training_job(plan, logs) for plan in planned]


def train_planned(planned: Sequence[Planned], folder: Path, *, jobs: int, place: Place, part: Part) -> None:
    """Train what is not trained yet, `jobs` runs at a time; `part` is told the steps of all of them."""

    def tick(done: int) -> None:
        steps = sum(min(steps_done(plan.run.folder), plan.config.total_env_steps) for plan in planned)
        part.at(steps, f"{done} of {len(planned)} runs")

    run_jobs(training_jobs(planned, folder / "logs"), workers=jobs, folder=folder, place=place, on_tick=tick)


def _training_job(plan: Planned, logs: Path) -> Job:
    run, total = plan.run, plan.config.total_env_steps
    how = ("--config", str(plan.file), "--seed", str(run.seed), "--steps", str(total))
    where = ("--run-dir", str(run.folder), "--resume", "--quiet")
    return Job(
        name=f"{run.arm}, {run.env}, seed {run.seed}",
        command=(sys.executable, "-m", "a2c", "train", *how, *where),
        log=logs / f"{run.folder.name}.log",
        is_done=lambda: is_finished(run.folder, total),
    )


def _names(arms: Sequence[Arm]) -> list[str]:
    """A file name for each arm, with a digest where two would share one."""
    several = len({arm.config.env.id for arm in arms}) > 1
    names = [f"{env_slug(arm.config.env.id)}-{arm.slug}" if several else arm.slug for arm in arms]
    return [
        name if names.count(name) == 1 else f"{name}-{hashlib.sha256(repr(arm.config).encode()).hexdigest()[:6]}"
        for arm, name in zip(arms, names, strict=True)
    ]


def is_finished(folder: Path, total_env_steps: int) -> bool:
    """Whether a run has its last line of metrics and the checkpoint that belongs to it."""
    steps = steps_done(folder)
    return steps >= total_env_steps and step_file(folder / "checkpoints", steps).exists()


def steps_done(folder: Path) -> int:
    """The agent steps of a run's last line of metrics, 0 before the first."""
    try:
        return int(last_record(folder)["env_steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def last_record(folder: Path) -> Any:
    """A run's last line of metrics; raises OSError or ValueError where there is none, or half of one."""
    with (folder / "metrics.jsonl").open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 2_000))
        last = file.read().decode(errors="replace").rstrip().rpartition("\n")[2]
    return json.loads(last)


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """Sort the runs of some folders into arms: those whose configurations differ in more than seed, game and length.

    An arm is named after its algorithm if they differ, and after the keys that differ between runs of one algorithm.

    Raises:
        UserError: if a folder is no run, or all runs were trained the same way.
    """
    configs = [_run_config(folder) for folder in folders]
    ways = [_without(dump_config(config), "seed", "total_env_steps", "env.id") for config in configs]
    keys = _distinguishing(ways)
    if not keys:
        raise UserError("All these runs were trained in the same way: there is nothing to compare.")
    labels = [", ".join(f"{short_key(key)}={way[key]}" for key in keys if key in way) for way in ways]
    runs = [
        Run(label, config.env.id, config.seed, folder, config.algorithm.PROMISES.exact)
        for label, config, folder in zip(labels, configs, folders, strict=True)
    ]
    if len({(run.arm, run.env, run.seed) for run in runs}) < len(runs):
        raise UserError("Two of these runs have the same configuration and seed; give each once.")
    return runs


def _distinguishing(ways: Sequence[dict[str, Any]]) -> list[str]:
    """The keys that tell ways of training apart; of two algorithms the names are enough, whatever else differs."""
    name = "algorithm.name"
    firsts = {way[name]: way for way in reversed(ways)}
    found = {key for way in ways for key in way if way[key] != firsts[way[name]].get(key)}
    found |= {name} if len(firsts) > 1 else set()
    return [key for key in dict.fromkeys(key for way in ways for key in way) if key in found]


def converge(runs: Sequence[Run], thresholds: dict[str, float | None], *, cut: bool = False) -> Convergence:
    """Read runs and compare each arm with the first.

    Args:
        runs: arms are taken in the order in which they appear first.
        thresholds: the return to reach in each environment.
        cut: compare the steps that all runs have, where they are not of one length.

    Raises:
        UserError: where a run has no curve, or two arms no game or no seed in common.
    """
    lines = {run: _lines(run.folder) for run in runs}
    budget = min(entries[-1]["env_steps"] for entries in lines.values())
    if cut:
        lines = {run: [line for line in entries if line["env_steps"] <= budget] for run, entries in lines.items()}
    results = {run: _result(run, lines[run], thresholds[run.env]) for run in runs}
    arms, envs = list(dict.fromkeys(run.arm for run in runs)), list(dict.fromkeys(run.env for run in runs))
    of = {(arm, env): [r for r in runs if (r.arm, r.env) == (arm, env)] for arm in arms for env in envs}
    for (arm, env), found in of.items():
        if not found:
            raise UserError(f"{arm!r} has no run of {env}; ways of training are compared in the same games.")
    contrasts = [
        _contrast(of[arms[0], env], of[arm, env], results, thresholds[env] is not None)
        for env in envs
        for arm in arms[1:]
    ]
    return Convergence(
        thresholds=thresholds,
        budget=budget,
        runs=tuple(results.values()),
        summaries=tuple(_summary([results[run] for run in of[arm, env]]) for env in envs for arm in arms),
        contrasts=tuple(contrasts),
        aggregates=_aggregate(arms, envs, of, results) if len(envs) > 1 and all(map(is_scored, envs)) else (),
        inexact=tuple(dict.fromkeys(run.arm for run in runs if not run.exact)),
    )


def is_scored(env_id: str) -> bool:
    """Whether a random and a human score are published, so that returns can be brought to one scale."""
    game = atari_game(env_id)
    return game is not None and game.random is not None and game.human is not None


def default_threshold(env_id: str) -> float | None:
    """A return worth reaching: half way from random to human on Atari, what the environment names elsewhere."""
    game = atari_game(env_id)
    if game is not None:
        if game.random is None or game.human is None:
            return None
        return (game.random + game.human) / 2
    if env_id == "Catch":
        return 0.0  # more catches than misses
    from gymnasium.envs.registration import registry

    spec = registry.get(env_id)
    return None if spec is None else spec.reward_threshold


def _run_config(folder: Path) -> Config:
    file = folder / "config.yaml"
    if not file.is_file():
        raise UserError(f"{folder} is not the folder of a run: it holds no config.yaml.")
    return build_config(read_config_file(file), where=str(file))


def _without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in dotted(values).items() if key not in keys}


def _lines(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run; a half line, as a killed run leaves it, is left out.

    Older runs did not count gradient steps: each of their updates made one.
    """
    file = folder / "metrics.jsonl"
    texts = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    lines = [{"gradient_steps": line["updates"], **line} for line in map(_parsed, texts) if line.keys() >= NEEDED]
    if not lines or lines[-1]["episode_return_mean"] is None:
        raise UserError(f"No game has ended in {folder}: there is no return to compare; train it longer.")
    return lines


def _parsed(text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}


def _result(run: Run, lines: list[dict[str, Any]], threshold: float | None) -> RunResult:
    curve = [line for line in lines if line["episode_return_mean"] is not None]
    if not curve:
        raise UserError(f"No game has ended in {run.folder} in the steps that all runs have; train all of them longer.")
    reached = next((line for line in curve if _reaches(line, threshold)), None)
    return RunResult(
        arm=run.arm,
        env=run.env,
        seed=run.seed,
        env_steps_to_threshold=reached["env_steps"] if reached else math.inf,
        gradient_steps_to_threshold=reached["gradient_steps"] if reached else math.inf,
        seconds_to_threshold=reached["seconds"] if reached else math.inf,
        steps_per_second=lines[-1]["env_steps"] / lines[-1]["seconds"],
        final_return=curve[-1]["episode_return_mean"],
        env_steps=tuple(line["env_steps"] for line in curve),
        seconds=tuple(line["seconds"] for line in curve),
        returns=tuple(line["episode_return_mean"] for line in curve),
    )


def _reaches(line: dict[str, Any], threshold: float | None) -> bool:
    """Over a full window of games: the mean of the first few is luck."""
    return threshold is not None and line["episodes"] >= WINDOW and line["episode_return_mean"] >= threshold


def _summary(results: list[RunResult]) -> ArmSummary:
    def median(name: str) -> float:
        return _median([getattr(result, name) for result in results])

    return ArmSummary(
        arm=results[0].arm,
        env=results[0].env,
        runs=len(results),
        reached=sum(math.isfinite(result.seconds_to_threshold) for result in results),
        env_steps_to_threshold=median("env_steps_to_threshold"),
        gradient_steps_to_threshold=median("gradient_steps_to_threshold"),
        seconds_to_threshold=median("seconds_to_threshold"),
        steps_per_second=median("steps_per_second"),
        final_return=median("final_return"),
    )


def _median(values: list[float]) -> float:
    """Half a time that never came is no time: infinite where the higher of the two middle values is."""
    return float(np.mean(sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]))


def _contrast(baseline: list[Run], runs: list[Run], results: dict[Run, RunResult], with_threshold: bool) -> Contrast:
    pairs = [(a, b) for a in baseline for b in runs if a.seed == b.seed]
    if not pairs:
        raise UserError(
            f"{baseline[0].arm!r} and {runs[0].arm!r} have no seed in common; runs are compared seed by seed."
        )

    def both(name: str) -> tuple[list[float], list[float]]:
        return [getattr(results[a], name) for a, _ in pairs], [getattr(results[b], name) for _, b in pairs]

    gradient_steps = both("gradient_steps_to_threshold")
    all_learned = min(map(min, gradient_steps)) > 0
    return Contrast(
        arm=runs[0].arm,
        baseline=baseline[0].arm,
        env=runs[0].env,
        seeds=tuple(a.seed for a, _ in pairs),
        identical=sum(are_identical(a.folder, b.folder) for a, b in pairs),
        env_steps_to_threshold=paired_ratio(*both("env_steps_to_threshold")) if with_threshold else None,
        gradient_steps_to_threshold=paired_ratio(*gradient_steps) if with_threshold and all_learned else None,
        seconds_to_threshold=paired_ratio(*both("seconds_to_threshold")) if with_threshold else None,
        steps_per_second=paired_ratio(*both("steps_per_second")),
        final_return=paired_difference(*both("final_return")),
    )


def are_identical(first: Path, second: Path) -> bool:
    """Whether two runs ended with the same weights and optimizer, and wrote the same metrics, wall clock apart."""
    ours, theirs = ([_timeless(line) for line in _lines(folder)] for folder in (first, second))
    return ours == theirs and _last_arrays(first) == _last_arrays(second)


def _timeless(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in WALL_CLOCK}


def _last_arrays(folder: Path) -> dict[str, tuple[str, bytes]]:
    files = step_files(folder / "checkpoints")
    if not files:
        raise UserError(f"{folder} holds no checkpoint (checkpoints/step-*.npz), so its bits cannot be compared.")
    return {key: (str(array.dtype), array.tobytes()) for key, array in read_checkpoint(files[-1]).arrays.items()}


def _aggregate(
    arms: list[str], envs: list[str], of: dict[tuple[str, str], list[Run]], results: dict[Run, RunResult]
) -> tuple[Aggregate, ...]:
    scores = {arm: {env: _normalized(env, [results[run] for run in of[arm, env]]) for env in envs} for arm in arms}
    aggregates = []
    for arm in arms:
        seeds = min(len(runs) for way in (scores[arms[0]], scores[arm]) for runs in way.values())
        mean, interval = interquartile_mean(scores[arm]), _interval(interquartile_mean, scores[arm])
        if arm == arms[0]:
            aggregates.append(Aggregate(arm, seeds, mean, interval, None, None))
            continue
        both = scores[arms[0]], scores[arm]
        better, around = probability_of_improvement(*both), _interval(probability_of_improvement, *both)
        aggregates.append(Aggregate(arm, seeds, mean, interval, better, around))
    return tuple(aggregates)


def _interval(statistic: Callable[..., float], *scores: dict[str, np.ndarray]) -> tuple[float, float] | None:
    """Nothing is known of the spread of one seed."""
    if min(len(runs) for way in scores for runs in way.values()) < 2:
        return None
    return stratified_interval(statistic, *scores)


def _normalized(env: str, results: list[RunResult]) -> np.ndarray:
    game = atari_game(env)
    assert game is not None
    return np.array([human_normalized(game, result.final_return) for result in results], float)
