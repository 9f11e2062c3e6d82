"""a2c eval, compare, bench."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.table import Table

from a2c.analysis.ray_jobs import place_of
from a2c.analysis.targets import ALGORITHMS, CONFIGURATIONS, RUNS, is_algorithm, kind_of, named_in
from a2c.cli.console import cell, continuing, out, print_table, progress_view, say, warn, wide
from a2c.cli.options import (
    AlgorithmOption,
    Assignments,
    ConfigOption,
    Eager,
    EagerAgainstGraph,
    EnvOption,
    Envs,
    Episodes,
    EvaluationSeed,
    Greedy,
    Jobs,
    JsonFile,
    ModelOption,
    ModeOption,
    OutDir,
    Protocol,
    Question,
    RayCluster,
    Steps,
    Targets,
    Threshold,
    TimedSteps,
    TrustedAlgorithm,
    TrustedEnv,
    TrustedModel,
    TrustedWrappers,
    Vary,
    WrapperOption,
    check_env,
    check_target,
    mode_of,
    trust_named,
)
from a2c.config import UserError, load_config
from a2c.extensions import is_extension
from a2c.messages import counted, interval, number
from a2c.quiet import fast
from a2c.run.files import check_exists

if TYPE_CHECKING:
    from a2c.evaluation.evaluate import EvalResult


Result = TypeVar("Result")


class ComparisonPart(StrEnum):  # typer does not support lists of Literal
    """A part of `compare --eager`."""

    where = "where"
    why = "why"
    growth = "growth"
    convergence = "convergence"


def eval_(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Runs, checkpoints, bundles, or folders of runs.")
    ],
    env: TrustedEnv = None,
    algorithm: TrustedAlgorithm = None,
    model: TrustedModel = None,
    wrapper: TrustedWrappers = None,
    episodes: Episodes = None,
    protocol: Annotated[
        Protocol | None,
        typer.Option(help="deepmind: 0 to 29 no-ops; machado: sticky actions 0.25. Default: as it was trained."),
    ] = None,
    greedy: Greedy = None,
    seed: EvaluationSeed = None,
    json_file: JsonFile = None,
) -> None:
    """Play whole games with raw scores: one agent in full, several as a table.

    A run of a folder that cannot be played is skipped, and the exit code is 1.
    """
    trust_named(algorithm, model, *(wrapper or ()))
    check_target(json_file)
    for path in paths:
        check_exists(path)
    evaluation, lookup = fast("a2c.evaluation.evaluate"), fast("a2c.run.lookup")
    runs = list(dict.fromkeys(run for path in paths for run in lookup.find_runs(path)))
    environment = {"env_id": env, "protocol": protocol}
    # mistakes are found before the first game
    defaults = _each(runs, paths, lambda run: evaluation.games_to_play(run, **environment))

    def play(run: Path) -> EvalResult:
        return _evaluate(evaluation, run, episodes or defaults[run], greedy=greedy, seed=seed, **environment)

    results = [*_each([*defaults], paths, play).values()]
    alone = runs == paths and len(runs) == 1
    if alone:
        print_evaluation(results[0])
    else:
        _print_evaluations(results)
    if json_file is not None:
        evaluation.write_results(results[0] if alone else results, json_file)
    if len(results) < len(runs):
        raise typer.Exit(1)


_TRAINING = {"env", "config", "algorithm", "model", "wrapper", "steps", "seeds", "threshold", "set_"}
_TRAINING |= {"jobs", "cluster", "out_dir"}
_USED = {  # the options of `compare`, by what is compared
    "--eager": {*_TRAINING, "only", "updates"},
    "--vary": _TRAINING,
    "--loop": {"seeds", "out_dir"},
    "--question": {"jobs", "cluster", "out_dir"},
    CONFIGURATIONS: _TRAINING - {"config"},
    ALGORITHMS: _TRAINING - {"config", "algorithm"},
    RUNS: {"threshold", "out_dir"},
}
_ALL = set().union(*_USED.values())


def compare(
    context: typer.Context,
    targets: Targets = None,
    eager: EagerAgainstGraph = False,
    vary: Vary = None,
    loop: Annotated[bool, typer.Option("--loop", help="A bandit's loss as a loop and with arrays.")] = False,
    question: Question = False,
    only: Annotated[list[ComparisonPart] | None, typer.Option(help="Of --eager; may be repeated.")] = None,
    env: Envs = None,
    config: ConfigOption = None,
    algorithm: AlgorithmOption = None,
    model: ModelOption = None,
    wrapper: WrapperOption = None,
    steps: Steps = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Paired seeds, from that of the configuration on.")] = 8,
    threshold: Threshold = None,
    updates: Annotated[
        int, typer.Option(min=1, max=10_000, help="Updates that the parts where and growth of --eager compare.")
    ] = 50,
    jobs: Jobs = None,
    cluster: RayCluster = None,
    set_: Assignments = None,
    out_dir: OutDir = None,
) -> None:
    """Compare ways of training over paired seeds; run it again to continue where it was stopped."""
    kind = _one_kind(eager, vary, loop, question, targets)
    parts = [part.value for part in only or ComparisonPart]
    used = _USED[kind] - (_unused_by(parts) if kind == "--eager" else set())
    given = {"algorithm": [algorithm] if algorithm else [], "model": [model] if model else [], "wrapper": wrapper or []}
    used |= _trust_what_is_named(given, kind, targets or ())
    _check_options(context, " --only ".join([kind, *(only or [])] if kind == "--eager" else [kind]), used)
    for env_id in env or ():
        check_env(env_id)
    comparing, report = fast("a2c.analysis.compare"), fast("a2c.analysis.report")
    with continuing(), place_of(cluster) as place:
        request = fast("a2c.analysis.request").Request(
            envs=tuple(dict.fromkeys(env or ())),
            config=config,
            overrides={
                **{f"{section}.name": name for section in ("algorithm", "model") for name in given[section]},
                "total_env_steps": steps,
            },
            assignments=tuple(set_ or ()),
            wrappers=tuple(given["wrapper"]),
            seeds=seeds,
            threshold=threshold,
            updates=updates,
            jobs=jobs or place.cpus,
            place=place,
            folder=out_dir,
            view=fast("a2c.run.view").ConsoleView(out),
            tell=cache(say),  # so that each sentence is printed once
            warn=warn,
        )
        match kind:
            case "--eager":
                result = comparing.compare_modes(request, parts)
            case "--vary":
                result = comparing.compare_values(request, vary)
            case "--loop":
                result = comparing.compare_loop(request)
            case "--question":
                result = comparing.compare_question(request)
            case _:
                result = comparing.compare_targets(request, targets)
    _print_comparison(report, result)


def _unused_by(parts: Sequence[str]) -> set[str]:
    """The options that change nothing in these parts of --eager."""
    if "convergence" not in parts:
        return {"seeds", "threshold"}
    return {"updates"} if set(parts) == {"convergence"} else set()


def _trust_what_is_named(given: dict[str, list[str]], kind: str, targets: Sequence[str]) -> set[str]:
    """Take the code that only is allowed out of the given options, and allow it; returns the options that had some."""
    had = set()
    for option, names in given.items():
        if trusted := [name for name in names if is_extension(name) and only_trusts(name, kind, targets)]:
            trust_named(*trusted)
            given[option] = [name for name in names if name not in trusted]
            had.add(option)
    return had


def only_trusts(code: str, kind: str, targets: Sequence[str]) -> bool:
    """Whether an option only allows the code that a file or a run names; what names another keeps it."""
    return kind == RUNS or any(code in ([each] if is_algorithm(each) else named_in(each)) for each in targets)


def bench(
    config: ConfigOption = None,
    env: EnvOption = None,
    algorithm: AlgorithmOption = None,
    model: ModelOption = None,
    wrapper: WrapperOption = None,
    steps: TimedSteps = None,
    eager: Eager = False,
    mode: ModeOption = None,
    set_: Assignments = None,
    json_file: JsonFile = None,
    compare_to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What --json wrote earlier: show it beside, and the ratios.")
    ] = None,
) -> None:
    """Time the training loop: how fast, where the time goes, how near to the floor of this machine."""
    check_target(json_file)
    overrides = {"algorithm.name": algorithm, "model.name": model, "runtime.mode": mode_of(eager, mode)}
    settings, source = load_config(
        config=config, env_id=env, overrides=overrides, assignments=set_ or [], wrappers=wrapper or [], tell=say
    )
    check_env(settings.env.id)
    benching = fast("a2c.analysis.bench")
    then = None if compare_to is None else benching.read_bench(compare_to)
    with progress_view().part("timing", benching.ROUNDS) as part:
        now = benching.run_bench(settings, steps=steps, on_round=part.advance)
    say(f"{settings.env.id} with the recipe {source!r}, {settings.runtime.mode}, {settings.runtime.precision}")
    out.print(benching.table(now, then))
    say(benching.games_ended(now))
    if then is not None and (differing := benching.differences(now, then)):
        warn(f"the ratios are not of the code alone, since {compare_to} is of another {', '.join(differing)}.")
    if json_file is not None:
        now.write(json_file)


def _one_kind(eager: bool, vary: str | None, loop: bool, question: bool, targets: list[str] | None) -> str:
    """What is compared; raises UserError if that is nothing, or several things."""
    kinds = {
        "--eager": eager,
        "--vary": vary,
        "--loop": loop,
        "--question": question,
        "configurations or runs": targets,
    }
    wanted = [name for name, given in kinds.items() if given]
    if len(wanted) != 1:
        raise UserError(
            "Say what to compare, one of --eager, --vary KEY=A,B, --loop, --question, two or more configurations or "
            f"runs; not {' and '.join(wanted) or 'nothing'}."
        )
    return kind_of(targets) if targets else wanted[0]


def _check_options(context: typer.Context, kind: str, used: set[str]) -> None:
    """Raise UserError if an option was given that this kind of comparison does not use."""
    unused = _ALL - used
    options = [option for option in context.command.params if option.name in unused]
    sources = {option.opts[0]: context.get_parameter_source(str(option.name)) for option in options}
    if given := [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]:
        raise UserError(f"{' and '.join(given)} would change nothing in {kind}; leave that out.")


def _each(runs: list[Path], named: list[Path], do: Callable[[Path], Result]) -> dict[Path, Result]:
    """What a function returns for each run; one that fails is skipped, unless it was named itself or none is left."""
    done: dict[Path, Result] = {}
    for run in runs:
        try:
            done[run] = do(run)
        except UserError as error:
            if run in named or (run == runs[-1] and not done):
                raise
            warn(f"{str(error).rstrip('.')}: {run} is skipped.")
    return done


def _evaluate(evaluation: Any, run: Path, total: int, **options: Any) -> EvalResult:
    scores: list[float] = []
    with progress_view().part("playing", total) as part:

        def on_episode(episode: Any) -> None:
            scores.append(episode.episode_return)
            part.at(len(scores), f"{len(scores)} games, mean {sum(scores) / len(scores):.2f}")

        result: EvalResult = evaluation.evaluate(
            run, episodes=total, on_episode=on_episode, on_step=part.tick, warn=warn, **options
        )
    return result


def _print_evaluations(results: list[EvalResult]) -> None:
    table = Table(box=None, header_style="bold")
    for heading in ("agent", "game", "protocol"):
        table.add_column(heading, overflow="fold")
    for heading in ("steps", "games", "mean", "95 % interval", "median", "human-normalised", "published"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            cell(result.checkpoint),
            cell(result.env),
            cell(f"{result.protocol.get('name', 'its own')}, {result.policy}"),
            f"{result.env_steps:,}",
            str(result.episodes),
            number(result.mean),
            interval(result.interval),
            f"{result.median:g}",
            number(result.human_normalized, ".3f"),
            ", ".join(f"{reference['score']:g}" for reference in result.published) or "-",
        )
    wide().print(table)
    for citation in dict.fromkeys(_cited(reference) for result in results for reference in result.published):
        say(f"Published: {citation}.")


def _cited(reference: dict[str, Any]) -> str:
    millions = reference["env_steps"] / 1e6
    how = f"{reference['protocol']}, {millions:g} M steps, mean of {reference['games']}"
    return f"{reference['algorithm']}, {reference['citation']}, {how}"


def print_evaluation(result: EvalResult) -> None:
    """Print the full result of one agent."""
    within = "" if result.interval is None else f" (95 % interval {interval(result.interval)})"
    say(f"{result.env}: mean {number(result.mean)}{within} over {counted(result.episodes, 'whole game')}")
    table = Table.grid(padding=(0, 2))
    table.add_row("median", f"{result.median:g}, from {result.minimum:g} to {result.maximum:g}")
    if result.human_normalized is not None:
        table.add_row("human-normalised", f"{result.human_normalized:.3f} (0 = random play, 1 = human)")
    for reference in result.published:
        table.add_row("published", f"{reference['score']:g} ({_cited(reference)})")
    table.add_row("policy", cell(f"{result.policy}, seed {result.seed}, after {result.env_steps:,} training steps"))
    for name, value in result.protocol.items():
        table.add_row("protocol" if name == "name" else cell(name.replace("_", " ")), cell(str(value)))
    out.print(table)


def _print_comparison(report: Any, result: Any) -> None:
    files = report.write_report(result, shlex.join(["a2c", *sys.argv[1:]]))
    for table in report.tables(result):
        print_table(table)
        out.print()
    for sentence in report.verdict(result):
        out.print(f"- {sentence}", markup=False, soft_wrap=not out.is_terminal)  # lines are not wrapped in a file
    say(f"Saved in {result.folder}: {', '.join(file.name for file in files)}.")
