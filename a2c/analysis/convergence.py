"""Compare how ways of training learn, over paired seeds.

A run that never reaches the threshold is censored (`math.inf`), never dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from a2c.analysis.arms import ArmRun
from a2c.analysis.statistics import (
    PairedComparison,
    interquartile_mean,
    paired_difference,
    paired_ratio,
    probability_of_improvement,
    stratified_interval,
)
from a2c.config import UserError, shown
from a2c.games import atari_game, human_normalized
from a2c.run.checkpoint import read_checkpoint
from a2c.run.counters import WINDOW
from a2c.run.logs import as_float, logged
from a2c.run.step_files import step_files

NEEDED = {"env_steps", "updates", "episodes", "episode_return_mean", "seconds"}  # in a line of metrics
WALL_CLOCK = ("seconds", "steps_per_second")  # may differ between equal runs


class NoReturnError(UserError):
    """No game has ended in a run that is to be compared."""


@dataclass(frozen=True)
class RunResult:
    """The result of a run, over the budget that all compared runs have."""

    arm: str
    env: str
    seed: int
    env_steps_to_threshold: float  # agent steps; inf if never reached
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
    reached: int  # runs that reached the threshold
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
    gradient_steps_to_threshold: PairedComparison | None  # also None if a run reached it without a gradient step
    seconds_to_threshold: PairedComparison | None
    steps_per_second: PairedComparison
    final_return: PairedComparison  # differences


@dataclass(frozen=True)
class Aggregate:
    """One arm over several games, by human-normalised final return (Agarwal et al. 2021, arXiv 2108.13264)."""

    arm: str
    seeds: int  # the fewest in any game, of this arm and the first
    interquartile_mean: float
    interval: tuple[float, float] | None  # None for one seed
    improvement: float | None  # P(a run of this arm beats one of the first arm), averaged over games
    improvement_interval: tuple[float, float] | None


@dataclass(frozen=True)
class Convergence:
    """How arms learn: all results."""

    thresholds: dict[str, float | None]  # by environment
    budget: int  # agent steps that were compared
    runs: tuple[RunResult, ...]
    summaries: tuple[ArmSummary, ...]
    contrasts: tuple[Contrast, ...]
    aggregates: tuple[Aggregate, ...]
    inexact: tuple[str, ...] = ()  # arms whose algorithm does not promise the same bits for the same seed


def converge(
    runs: Sequence[ArmRun],
    thresholds: dict[str, float | None],
    *,
    cut: bool = False,
    warn: Callable[[str], None] = lambda text: None,
) -> Convergence:
    """Read runs and compare each arm with the first.

    Args:
        runs: the arms keep the order in which they first appear.
        thresholds: the return to reach in each environment.
        cut: compare only the steps that all runs have, if their lengths differ.
        warn: called with a sentence if lines of a run are left out.

    Raises:
        NoReturnError: if no game has ended in a run.
        UserError: if a run has no curve, or two arms have no game or no seed in common.
    """
    lines = {run: _lines(run.folder, warn) for run in runs}
    budget = min(entries[-1]["env_steps"] for entries in lines.values())
    if cut:
        lines = {run: [line for line in entries if line["env_steps"] <= budget] for run, entries in lines.items()}
    spacing = {env: _coarsest([lines[run] for run in runs if run.env == env]) for env in thresholds}
    results = {run: _result(run, lines[run], thresholds[run.env], spacing[run.env]) for run in runs}
    arms, envs = list(dict.fromkeys(run.arm for run in runs)), list(dict.fromkeys(run.env for run in runs))
    of = {(arm, env): [r for r in runs if (r.arm, r.env) == (arm, env)] for arm in arms for env in envs}
    for (arm, env), found in of.items():
        if not found:
            raise UserError(f"{shown(arm)} has no run of {env}; ways of training are compared in the same games.")
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
    """Whether a random and a human score are published, so that returns can be normalised."""
    game = atari_game(env_id)
    return game is not None and game.random is not None and game.human is not None


def default_threshold(env_id: str) -> float | None:
    """A return worth reaching: halfway from random to human on Atari, else the environment's own; None if unknown."""
    game = atari_game(env_id)
    if game is not None:
        if game.random is None or game.human is None:
            return None
        return (game.random + game.human) / 2
    if env_id == "Catch":
        return 0.0  # more catches than misses
    from gymnasium.envs.registration import registry

    spec = registry.get(env_id.rpartition(":")[2])  # registered without its module
    return None if spec is None else spec.reward_threshold


def _lines(folder: Path, warn: Callable[[str], None] = lambda text: None) -> list[dict[str, Any]]:
    """The metrics of a run, without an incomplete line that a killed run may leave.

    Older runs did not log gradient steps: each of their updates took one.
    """
    lines = [
        {"gradient_steps": line["updates"], **_plain(line)}
        for line in logged(folder / "metrics.jsonl", warn)
        if _has_needed(line)
    ]
    if not lines:
        raise UserError(
            f"No game has ended in {folder}, which has no whole line of metrics: its run has just begun, or its log "
            "was not kept."
        )
    if lines[-1]["episode_return_mean"] is None:
        raise NoReturnError(f"No game has ended in {folder}: there is no return to compare; train it longer.")
    return lines


def _plain(line: dict[str, Any]) -> dict[str, Any]:
    """A line without lists and objects: only a stranger's has them, and they may be huge."""
    return {name: value for name, value in line.items() if not isinstance(value, list | dict)}


def _has_needed(line: dict[str, Any]) -> bool:
    """Whether a line has all that is compared, as finite numbers, with at least one step, and seconds above 0.

    Before the first game the return may be null.
    """
    numbers = {name: line.get(name) for name in NEEDED | ({"gradient_steps"} & line.keys())}
    if "episode_return_mean" in line and line["episode_return_mean"] is None:
        numbers["episode_return_mean"] = 0
    counted = as_float(numbers["env_steps"]) >= 1 and as_float(numbers["seconds"]) > 0
    return counted and all(math.isfinite(as_float(value)) for value in numbers.values())


def _coarsest(runs: list[list[dict[str, Any]]]) -> Fraction:
    """The largest mean distance, in agent steps, between the lines of a run."""
    return max([Fraction(1), *(Fraction(lines[-1]["env_steps"]) / len(lines) for lines in runs if lines)])


def _spaced(lines: list[dict[str, Any]], spacing: Fraction) -> Iterator[dict[str, Any]]:
    """The first line at or after each multiple of a distance: else who writes more lines would seem to learn sooner."""
    last = 0
    for line in lines:
        if (now := line["env_steps"] // spacing) > last:
            last = now
            yield line


def _result(run: ArmRun, lines: list[dict[str, Any]], threshold: float | None, spacing: Fraction) -> RunResult:
    curve = [line for line in lines if line["episode_return_mean"] is not None]
    if not curve:
        raise UserError(f"{run.folder} has no return in the steps that all runs have; train the shorter ones longer.")
    reached = next((line for line in _spaced(curve, spacing) if _reaches(line, threshold)), None)
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
    """Whether the mean return over a full window of games reaches the threshold: the mean of the first few is luck."""
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
    """The median; infinite if the higher of the two middle values is."""
    return float(np.mean(sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]))


def _contrast(
    baseline: list[ArmRun], runs: list[ArmRun], results: dict[ArmRun, RunResult], with_threshold: bool
) -> Contrast:
    pairs = [(a, b) for a in baseline for b in runs if a.seed == b.seed]
    if not pairs:
        raise UserError(
            f"{shown(baseline[0].arm)} and {shown(runs[0].arm)} have no seed in common; runs are compared seed by seed."
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
    """Whether two runs ended with the same weights and optimizer, and wrote the same metrics, except the wall clock."""
    ours, theirs = ([_timeless(line) for line in _lines(folder)] for folder in (first, second))
    return ours == theirs and _last_bits(first) == _last_bits(second)


def _timeless(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in WALL_CLOCK}


def _last_bits(folder: Path) -> dict[str, tuple[str, bytes]]:
    files = step_files(folder / "checkpoints")
    if not files:
        raise UserError(f"{folder} holds no checkpoint (checkpoints/step-*.npz), so its bits cannot be compared.")
    return read_checkpoint(files[-1]).bits


def _aggregate(
    arms: list[str], envs: list[str], of: dict[tuple[str, str], list[ArmRun]], results: dict[ArmRun, RunResult]
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
    """The interval of a statistic; None if a game has only one seed, whose spread is unknown."""
    if min(len(runs) for way in scores for runs in way.values()) < 2:
        return None
    return stratified_interval(statistic, *scores)


def _normalized(env: str, results: list[RunResult]) -> np.ndarray:
    game = atari_game(env)
    assert game is not None
    return np.array([human_normalized(game, result.final_return) for result in results], float)
