"""Comparisons: eager against graph in four parts, ways of training over paired seeds, and the two questions.

Everything is written to one folder: `comparison.json` (what is compared), `parts/` (the result of each process),
`runs/` (training runs), `logs/`. Results that exist are not computed again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from a2c.algorithms.algorithm import build_algorithm
from a2c.analysis.arms import Arm, arms_of, plan_runs, train_planned
from a2c.analysis.convergence import Convergence, converge, default_threshold
from a2c.analysis.lock_step import LockStep, Why, explain, run_tasks
from a2c.analysis.numerics import Distance, Where
from a2c.analysis.request import FORCED, Request
from a2c.analysis.results import open_folder
from a2c.analysis.studies.bandit import LOSSES, BanditResult, compare_losses
from a2c.analysis.targets import RUNS, is_algorithm, kind_of
from a2c.config import Config, UserError, changed, dump_config, env_slug, short_key, shown
from a2c.config.yaml_loader import load_yaml
from a2c.envs import make_vec_env
from a2c.run.files import make_folder

DEFAULT = "catch-rmsprop"  # the preset of compare_modes
PARTS = ("where", "why", "growth", "convergence")
QUESTION_UPDATES = 5


@dataclass(frozen=True)
class Comparison:
    """All results; None for a part that was not asked for. The keys of `where` and `growth` are numerics."""

    title: str
    folder: Path
    where: dict[str, Where] | None = None
    why: Why | None = None
    growth: dict[str, list[dict[str, Distance]]] | None = None
    convergence: Convergence | None = None
    bandit: BanditResult | None = None


def compare_modes(request: Request, parts: Sequence[str] = PARTS) -> Comparison:
    """Eager against graph, fast and exact: where they differ, why, how the difference grows, and whether it matters."""
    if len(request.envs) > 1:
        raise UserError("--eager compares in one game; give --env once.")
    for key in ("runtime.mode", "runtime.numerics"):
        if any(text.partition("=")[0].strip() == key for text in request.assignments):
            raise UserError(f"--eager compares values of {key} itself; leave --set {key} out, or use --vary.")
    config = _of_modes(request)
    if not config.algorithm.PROMISES.modes:
        raise UserError(
            f"--eager compares bits, and algorithm.name={config.algorithm.name} does not promise the same bits in "
            "eager and graph execution; leave --eager out, or choose another algorithm."
        )
    # not `auto`: each arm must state its numerics
    arms = [
        Arm(label, changed(config, {"runtime.mode": mode, "runtime.numerics": numerics}))
        for label, mode, numerics in (
            ("eager", "eager", "exact"),
            ("graph fast", "graph", "fast"),
            ("graph exact", "graph", "exact"),
        )
    ]
    learning = arms[2].config.algorithm.warmed_up()  # else the updates of a replay would have no gradient steps
    in_lock_step = arms[2].config.model_copy(update={"algorithm": learning})
    if "convergence" in parts:
        check_arms(arms[:1], request.seeds)
    else:
        check_arms([Arm("graph exact", in_lock_step)])
    what = [[arm.label, dump_config(arm.config)] for arm in arms]
    folder = _open_folder(request, "eager", config.env.id, {"arms": what, "updates": request.updates})
    lock_step = LockStep(request, folder, in_lock_step)
    return Comparison(
        title=f"eager and graph execution on {config.env.id}",
        folder=folder,
        where=lock_step.where() if "where" in parts else None,
        why=lock_step.why() if "why" in parts else None,
        growth=lock_step.growth() if "growth" in parts else None,
        convergence=_train_and_converge(arms, request, folder) if "convergence" in parts else None,
    )


def _of_modes(request: Request) -> Config:
    """The configuration of `compare_modes`: what was asked for, else Catch."""
    if request.envs or request.config:
        return request.load(env=next(iter(request.envs), None))
    if request.overrides.get("algorithm.name"):
        return request.load(env="Catch")
    return request.load(config=DEFAULT)


def compare_values(request: Request, text: str) -> Comparison:
    """Compare one arm for each value of a key, from `key=a,b`."""
    key, values = _parse_values(text)
    envs = request.envs or ((None,) if request.config else ("Catch",))
    arms = [
        Arm(f"{short_key(key)}={value}", request.load(env=env, also={key: value})) for env in envs for value in values
    ]
    return compare_arms(arms, request, "vary")


def compare_targets(request: Request, targets: Sequence[str]) -> Comparison:
    """Compare two or more algorithms, presets or configuration files, or two or more run folders."""
    if len(targets) < 2:
        raise UserError(f"{targets[0]} alone cannot be compared; name two or more configurations or runs.")
    folders = [Path(target) for target in targets]
    if kind_of(targets) == RUNS:
        return _compare_runs(folders, request)
    if len(set(targets)) < len(targets):
        raise UserError("A configuration was named twice; it would be compared with itself.")
    envs = request.envs or (None,)
    stems = [target if is_algorithm(target) else Path(target).stem for target in targets]
    labels = stems if len(set(stems)) == len(stems) else targets
    named = list(zip(labels, targets, strict=True))
    arms = [Arm(label, _target(request, target, env)) for env in envs for label, target in named]
    if len({arm.config.env.id for arm in arms}) > len(envs):
        raise UserError("These configurations are for different games; say with --env which one to compare them in.")
    return compare_arms(arms, request, "configs")


def _target(request: Request, target: str, env: str | None) -> Config:
    """The configuration of a target: an algorithm's own recipe for a game, a preset, or a file."""
    if is_algorithm(target):
        return request.load(env=env or "Catch", also={"algorithm.name": target})
    return request.load(config=target, env=env)


def compare_question(request: Request) -> Comparison:
    """Run the first question's experiment: its table of switches."""
    folder = _open_folder(request, "question", "", {})
    run = partial(run_tasks, request, folder, "why", "question", QUESTION_UPDATES)
    return Comparison("the question's own experiment", folder, why=explain(run))


def compare_loop(request: Request) -> Comparison:
    """Run the second question's experiment: the same loss as a loop, with arrays, and with mismatched shapes."""
    folder = _open_folder(request, "loop", "", {"seeds": request.seeds})
    with request.view.part("loop", len(LOSSES) * request.seeds) as part:
        result = compare_losses(seeds=range(request.seeds), on_progress=part.advance)
    return Comparison("the bandit's loss as a loop and with arrays", folder, bandit=result)


def compare_arms(arms: Sequence[Arm], request: Request, kind: str) -> Comparison:
    """Compare arms; `kind` goes into the name of the folder, if the request does not name it."""
    for one, other in itertools.combinations(arms, 2):
        if one.config == other.config.model_copy(update={"seed": one.config.seed}):
            raise UserError(
                f"{shown(one.label)} and {shown(other.label)} are the same; --set or --algorithm may have made them so."
            )
    envs = list(dict.fromkeys(arm.config.env.id for arm in arms))
    _thresholds(envs, request.threshold)  # raises before anything is trained
    check_arms(arms, request.seeds)
    what = [[arm.label, dump_config(arm.config)] for arm in arms]
    folder = _open_folder(request, kind, "-".join(envs), {"arms": what})
    names = " and ".join(dict.fromkeys(arm.label for arm in arms))
    return Comparison(f"{names} on {', '.join(envs)}", folder, convergence=_train_and_converge(arms, request, folder))


def _compare_runs(folders: Sequence[Path], request: Request) -> Comparison:
    runs = arms_of(folders)
    envs = list(dict.fromkeys(run.env for run in runs))
    found = converge(runs, _thresholds(envs, request.threshold), cut=True, warn=request.warn)
    what = sorted(str(folder.resolve()) for folder in folders)
    names = " and ".join(dict.fromkeys(run.arm for run in runs))
    return Comparison(names, _open_folder(request, "runs", "-".join(envs), {"runs": what}), convergence=found)


def _parse_values(text: str) -> tuple[str, list[Any]]:
    key, separator, raw = text.partition("=")
    key = key.strip()
    try:
        values = load_yaml(f"[{raw}]")
    except Exception:  # PyYAML may raise anything on hostile text
        values = []
    if not separator or len(values) < 2:
        raise UserError(f"--vary {text!r} is not of the form key=a,b, for example optimizer.learning_rate=7e-4,1e-3.")
    if None in values:
        raise UserError(f"--vary {key}: null cannot be varied; name values, or compare two configuration files.")
    if key in ("seed", "env.id", "total_env_steps", *FORCED):
        raise UserError(f"--vary {key} compares nothing; see --seeds, --steps, and --env (once for each game).")
    return key, values


def _thresholds(envs: Sequence[str], threshold: float | None) -> dict[str, float | None]:
    """The return to reach in each environment: the given one, else each environment's default."""
    if threshold is not None and len(envs) > 1:
        raise UserError("--threshold is a return of one game; several games have their own: leave it out.")
    return {env: default_threshold(env) if threshold is None else threshold for env in envs}


def _train_and_converge(arms: Sequence[Arm], request: Request, folder: Path) -> Convergence:
    thresholds = _thresholds(list(dict.fromkeys(arm.config.env.id for arm in arms)), request.threshold)
    first = arms[0].config.seed
    planned = plan_runs(arms, range(first, first + request.seeds), folder)
    with request.view.part("convergence", sum(plan.config.total_env_steps for plan in planned)) as part:
        train_planned(planned, folder, jobs=request.jobs, place=request.place, part=part)
    lengths = {plan.config.total_env_steps for plan in planned}
    return converge([plan.run for plan in planned], thresholds, cut=len(lengths) > 1, warn=request.warn)


def check_arms(arms: Sequence[Arm], seeds: int = 1) -> None:
    """Check here, not in the fifth process, that each game exists, the network fits it, and no arm is multiworker.

    Raises:
        UserError: if not, or if the last of so many seeds is too large.
    """
    changed(arms[0].config, {"seed": arms[0].config.seed + seeds - 1})
    for arm in arms:
        if arm.config.runtime.strategy == "multiworker":
            raise UserError(
                f"{shown(arm.label)} is of several workers, and single processes are started here; leave it out."
            )
        env = arm.config.env.model_copy(update={"num_envs": 1})
        with make_vec_env(env, seed=0) as envs:
            build_algorithm(arm.config, envs.observation_space, envs.num_actions)


def _open_folder(request: Request, kind: str, game: str, what: dict[str, Any]) -> Path:
    """The folder of this comparison. Default: runs/compare-<kind>-<game>-<hash>."""
    name = "-".join(part for part in (kind, env_slug(game) if game else "") if part)
    folder = open_folder(request.folder, "comparison", f"compare-{name}", {"kind": kind, **what})
    make_folder(folder / "parts", below=folder)
    return folder
