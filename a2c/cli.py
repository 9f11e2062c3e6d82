"""Every command: parse -> Config -> call one function -> print. No TensorFlow at import."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.exceptions import TyperException

from a2c import __version__
from a2c.config import Config, UserError, all_keys, changed, env_slug, load_config, preset_names
from a2c.files import demand_there

if TYPE_CHECKING:
    from a2c.analysis.jobs import Place
    from a2c.evaluation import EvalResult
    from a2c.progress import Progress
    from a2c.show.watch import Watched
    from a2c.training import TrainSummary

app = typer.Typer(
    help="Train, evaluate and compare advantage actor-critic agents on Atari games.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Terminal(Console):
    """A console that leaves to us what to do where its reader is gone; rich's own would exit at once."""

    def on_broken_pipe(self) -> None:
        """Called while the error is handled."""
        raise BrokenPipeError


out = Terminal(highlight=False, emoji=False)
err = Terminal(stderr=True, highlight=False, emoji=False)


class ComparisonPart(StrEnum):
    """A part of `compare --eager`."""

    where = "where"
    why = "why"
    growth = "growth"
    convergence = "convergence"


class OnNanChoice(StrEnum):
    """What to do where an update is not finite."""

    stop = "stop"
    skip = "skip"


class Protocol(StrEnum):
    """Of an evaluation on Atari."""

    deepmind = "deepmind"
    machado = "machado"


class Quantity(StrEnum):
    """What `plot` draws."""

    returns = "return"
    losses = "losses"
    speed = "speed"
    everything = "all"


class Axis(StrEnum):
    """What `plot` draws it over."""

    steps = "steps"
    frames = "frames"
    minutes = "minutes"


class ExportFormat(StrEnum):
    """A kind of file that `export` writes."""

    savedmodel = "savedmodel"
    onnx = "onnx"


class GameChoice(StrEnum):
    """One of some games."""

    best = "best"
    worst = "worst"
    median = "median"


class SaliencyChoice(StrEnum):
    """What a saliency is on."""

    value = "value"
    policy = "policy"


class Strategy(StrEnum):
    """What a run is spread over."""

    none = "none"
    mirrored = "mirrored"
    multiworker = "multiworker"


class Mode(StrEnum):
    """How the update is executed."""

    graph = "graph"
    eager = "eager"
    xla = "xla"


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files may be no text
    sys.path.append(str(Path.cwd()))  # so that module:Id-v0 finds a module of the current folder
    try:
        sys.exit(app(standalone_mode=False))
    except UserError as error:
        fail(str(error), error.exit_code)
    except TyperException as error:
        message = error.format_message()
        if not message:
            sys.exit(2)  # no command: the help has been printed
        fail(f"{message.rstrip('.')}; see `a2c --help`.")
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output has left: not an error
        _drop_output()
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        fail(f"{error.filename or 'a file'}: {error.strerror or error}.")


def fail(sentence: str, code: int = 2) -> None:
    """Print one sentence on stderr and exit."""
    _warn(" ".join(sentence.split()))
    sys.exit(code)


def complete_env(incomplete: str) -> list[str]:
    """Shell completion of games and toys."""
    from a2c.envs import game_names
    from a2c.envs.toy import TOYS

    return [name for name in [*game_names(), *TOYS] if name.lower().startswith(incomplete.lower())]


def complete_config(incomplete: str) -> list[str]:
    """Shell completion of presets."""
    return [name for name in preset_names() if name.startswith(incomplete)]


def complete_set(incomplete: str) -> list[str]:
    """Shell completion of keys."""
    return [f"{key}=" for key in all_keys() if key.startswith(incomplete)]


def print_version(wanted: bool) -> None:
    """--version."""
    if wanted:
        out.print(f"a2c {__version__}")
        raise typer.Exit


Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Agent steps over all environments.")]
TrustedEnv = Annotated[
    str | None,
    typer.Option("--env", help="Its environment; must be said where it is module:Id, since that runs code."),
]
OnNan = Annotated[
    OnNanChoice | None,
    typer.Option(help="Where loss or gradients are not finite; the update is never applied. Default: stop."),
]
Greedy = Annotated[
    bool | None,
    typer.Option("--greedy/--sample", help="The most probable action, or a draw. Default: the run's own."),
]
EvaluationSeed = Annotated[
    int | None, typer.Option("--seed", min=0, max=2**63 - 1, help="Of games and draws. Default: the run's own.")
]
Episodes = Annotated[int | None, typer.Option(min=1, help="Whole games to play. Default: the run's own, else 20.")]


Jobs = Annotated[int | None, typer.Option(min=1, max=1024, help="Processes at a time. Default: the cores.")]
RayCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="auto|ADDRESS",
        help="Run them on a Ray cluster: the one running here, or HOST:PORT, ray://HOST:PORT.",
    ),
]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs.")]


@app.callback()
def a2c(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options before a command."""


@app.command()
def train(
    config: Annotated[
        str | None,
        typer.Option(
            help="A preset's name or a YAML file. Default: the game's own preset, else atari.",
            autocompletion=complete_config,
        ),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            help="A game such as Pong (see a2c envs), Catch, any Gymnasium id, or module:Id-v0.",
            autocompletion=complete_env,
        ),
    ] = None,
    steps: Steps = None,
    seed: Annotated[int | None, typer.Option(help="Same config and seed, same bits.")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Train with so many seeds, from --seed on, each in a process of its own."),
    ] = None,
    jobs: Jobs = None,
    cluster: RayCluster = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="The run's folder. Default: runs/<env>-s<seed>-<date>-<time>.")
    ] = None,
    eager: Annotated[bool, typer.Option("--eager", help="The same as --mode eager.")] = False,
    mode: Annotated[Mode | None, typer.Option(help="How the update is executed. Default: graph.")] = None,
    strategy: Annotated[
        Strategy | None,
        typer.Option(help="mirrored: all GPUs of this machine; multiworker: a cluster. Default: none."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Any other setting; may be repeated, and wins over everything else.",
            autocompletion=complete_set,
        ),
    ] = None,
    on_nan: OnNan = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--auto-resume", "--resume", help="Go on with --run-dir if it holds a checkpoint, for whatever restarts it."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Train an agent."""
    if resume and run_dir is None:
        raise UserError("--auto-resume needs --run-dir, the run to go on with; or use `a2c resume RUN`.")
    overrides = {
        "total_env_steps": steps,
        "seed": seed,
        "runtime.mode": _mode(eager, mode),
        "runtime.strategy": strategy and strategy.value,
        "optimizer.on_nan": on_nan and on_nan.value,
    }
    settings, source = load_config(config=config, env_id=env, overrides=overrides, assignments=set_ or [])
    _demand_env(settings.env.id)
    if seeds is not None:
        _train_seeds(settings, seeds, run_dir, jobs, cluster, quiet=quiet)
        return
    if jobs is not None or cluster is not None:
        raise UserError("--jobs and --cluster are for several runs; give --seeds too, or leave them out.")
    if resume and run_dir is not None and any(run_dir.glob("checkpoints/*.npz")):
        stored = _stored_config(run_dir, settings.env.id if config or env or set_ else None)
        total = settings.total_env_steps if _gives_steps(steps, set_) else stored.total_env_steps
        if not (config or env or seed is not None or eager or mode or set_):
            given = {key: overrides[key] for key in ("runtime.strategy", "optimizer.on_nan")}
            settings = changed(stored, given)
        _resume(changed(settings, {"total_env_steps": total}), run_dir, quiet=quiet)
        return
    run_dir = run_dir or _default_run_dir(settings, str(settings.seed))
    headline = f"{settings.env.id} with the recipe {source!r}, seed {settings.seed}, in {run_dir}"
    _run(settings, run_dir, headline, resume=False, quiet=quiet)


@app.command("resume")
def resume_(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    env: TrustedEnv = None,
    steps: Annotated[int | None, typer.Option(min=1, help="A new total of agent steps. Default: as started.")] = None,
    on_nan: OnNan = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Go on with a run from its latest checkpoint, exactly as if it had never stopped."""
    if run.is_file():
        raise UserError(f"{run} is a file; name the run's folder.")
    changes = {"total_env_steps": steps, "optimizer.on_nan": on_nan and on_nan.value}
    _resume(changed(_stored_config(run, env), changes), run, quiet=quiet)


@app.command(context_settings={"allow_interspersed_args": False})
def launch(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND ...", help="train or resume, with its options.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="Processes, each on its share of the cores.")] = 2,
) -> None:
    """Run train or resume in several processes of this machine that train one network together."""
    if not command or command[0] not in ("train", "resume"):
        raise UserError(
            f"`a2c launch` runs train or resume, {f'not {command[0]!r}' if command else 'and was given neither'}; "
            "for example: a2c launch --workers 2 -- train --env Pong."
        )
    if code := import_module("a2c.launch").launch(command, workers, warn=_warn):
        raise typer.Exit(code)


@app.command("eval")
def eval_(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Runs, checkpoints, or folders of runs.")],
    env: TrustedEnv = None,
    episodes: Episodes = None,
    protocol: Annotated[
        Protocol | None,
        typer.Option(help="deepmind: 30 no-ops; machado: sticky actions 0.25. Default: as it was trained."),
    ] = None,
    greedy: Greedy = None,
    seed: EvaluationSeed = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result there.")] = None,
) -> None:
    """Play whole games with raw scores: one agent in full, several as a table."""
    _check_target(json_file)
    for path in paths:
        demand_there(path)
    evaluation, checkpoint = quietly("a2c.evaluation"), quietly("a2c.checkpoint")
    runs = list(dict.fromkeys(run for path in paths for run in checkpoint.find_runs(path)))
    environment = {"env_id": env, "protocol": protocol and protocol.value}
    # every mistake is found before the first game
    defaults = [evaluation.games_to_play(run, **environment) for run in runs]
    results = [
        _evaluate(evaluation, run, episodes or default, greedy=greedy, seed=seed, **environment)
        for run, default in zip(runs, defaults, strict=True)
    ]
    alone = runs == paths and len(runs) == 1
    if json_file is not None:
        evaluation.write_results(results[0] if alone else results, json_file)
    if alone:
        _print_evaluation(results[0])
    else:
        _print_evaluations(results)


@app.command()
def compare(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CONFIG_A CONFIG_B ... | RUN_A RUN_B ...]", help="Presets or files, or run folders."),
    ] = None,
    eager: Annotated[
        bool, typer.Option("--eager", help="Eager against graph: where, why, growth, convergence.")
    ] = False,
    vary: Annotated[
        str | None, typer.Option(metavar="KEY=A,B[,C]", help="One way of training for each value of a key.")
    ] = None,
    loop: Annotated[bool, typer.Option("--loop", help="A bandit's loss as a loop and with arrays.")] = False,
    question: Annotated[
        bool, typer.Option("--question", help="The experiment of the question why eager and graph differ.")
    ] = False,
    only: Annotated[list[ComparisonPart] | None, typer.Option(help="Of --eager; may be repeated.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(help="A game; may be repeated. Default: Catch.", autocompletion=complete_env),
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="A preset's name or a YAML file, as of train.", autocompletion=complete_config)
    ] = None,
    steps: Steps = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Paired seeds 0, 1, ...")] = 8,
    threshold: Annotated[
        float | None, typer.Option(help="The return to reach. Default: the game's own, see README.")
    ] = None,
    updates: Annotated[int, typer.Option(min=1, max=10_000, help="Of where and growth.")] = 50,
    jobs: Jobs = None,
    cluster: RayCluster = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="As of train.", autocompletion=complete_set),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="The folder of results. Default: runs/compare-....")
    ] = None,
) -> None:
    """Compare ways of training over paired seeds; run it again to go on where it was stopped."""
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
    if only and not eager:
        raise UserError("--only chooses parts of --eager; leave it out here.")
    if cluster is not None and loop:
        raise UserError("--loop takes seconds and runs here; leave --cluster out.")
    for env_id in env or ():
        _demand_env(env_id)
    comparing, report = quietly("a2c.analysis.compare"), quietly("a2c.analysis.report")
    try:
        with _place(cluster) as place:
            request = comparing.Request(
                envs=tuple(dict.fromkeys(env or ())),
                config=config,
                overrides={"total_env_steps": steps},
                assignments=tuple(set_ or ()),
                seeds=seeds,
                threshold=threshold,
                updates=updates,
                jobs=jobs or place.cpus,
                place=place,
                folder=out_dir,
                view=quietly("a2c.analysis.view").ConsoleView(out),
            )
            if eager:
                result = comparing.compare_modes(request, [part.value for part in only or ComparisonPart])
            elif vary:
                result = comparing.compare_values(request, vary)
            elif loop:
                result = comparing.compare_loop(request)
            elif question:
                result = comparing.compare_question(request)
            else:
                result = comparing.compare_targets(request, targets)
    except KeyboardInterrupt:
        _print("Stopped. The same command goes on with what is missing.")
        raise
    _print_comparison(report, result)


@app.command()
def bench(
    config: Annotated[
        str | None, typer.Option(help="A preset's name or a YAML file, as of train.", autocompletion=complete_config)
    ] = None,
    env: Annotated[str | None, typer.Option(help="As of train.", autocompletion=complete_env)] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Agent steps to time. Default: 40,000, or 10 updates if they are more.")
    ] = None,
    eager: Annotated[bool, typer.Option("--eager", help="The same as --mode eager.")] = False,
    mode: Annotated[Mode | None, typer.Option(help="How the update is executed. Default: graph.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="As of train.", autocompletion=complete_set),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result there.")] = None,
    compare_to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What --json wrote earlier: show it beside, and the ratios.")
    ] = None,
) -> None:
    """Time the training loop: how fast, where the time goes, how near to the floor of this machine."""
    _check_target(json_file)
    overrides = {"runtime.mode": _mode(eager, mode)}
    settings, source = load_config(config=config, env_id=env, overrides=overrides, assignments=set_ or [])
    _demand_env(settings.env.id)
    benching = quietly("a2c.analysis.bench")
    then = None if compare_to is None else benching.read_bench(compare_to)
    with _view().part("timing", benching.ROUNDS) as part:
        now = benching.run_bench(settings, steps=steps, on_round=part.advance)
    if json_file is not None:
        now.write(json_file)
    _print(f"{settings.env.id} with the recipe {source!r}, {settings.runtime.mode}, {settings.runtime.precision}")
    out.print(benching.table(now, then))
    _print(benching.games_ended(now))
    if then is not None and (differing := benching.differences(now, then)):
        _warn(f"the ratios are not of the code alone, since {compare_to} is of another {', '.join(differing)}.")


@app.command()
def plot(
    paths: Runs,
    what: Annotated[Quantity, typer.Option(help="Which quantities.")] = Quantity.returns,
    x: Annotated[Axis, typer.Option("--x", help="What they are drawn over.")] = Axis.steps,
    smooth: Annotated[
        int | None,
        typer.Option(
            min=0, help="Average each line of metrics with N before and N after. Default: a 100th of the longest run."
        ),
    ] = None,
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.png|.svg",
            help="One picture. Default: both forms, in RUN/plots, or here for several runs.",
        ),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the numbers there.")] = None,
) -> None:
    """Draw learning curves; runs that differ in their seed alone become one line and its band."""
    _check_target(json_file)
    plotting, curves, reading = (import_module(f"a2c.show.{name}") for name in ("plot", "curves", "runs"))
    targets = None if out_file is None else [plotting.check_target(out_file)]
    runs = reading.read_runs(paths, _warn)
    smoothing = curves.default_smoothing(runs) if smooth is None else smooth
    panels = curves.make_panels(runs, what.value, x.value, smoothing)
    targets = targets or plotting.default_targets(runs, what.value, x.value)
    plotting.save(plotting.draw(panels, x.value, smoothing), targets)
    if json_file is not None:
        plotting.save_numbers(panels, x.value, smoothing, json_file)
    _print(f"Saved {' and '.join(str(file) for file in (*targets, json_file) if file)}.")


@app.command()
def report(
    paths: Runs,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The page. Default: RUN/report.html, or here for several runs."),
    ] = None,
) -> None:
    """Write one web page about runs that holds all it shows: numbers, curves, evaluations, video, configuration."""
    page, reading = import_module("a2c.show.page"), import_module("a2c.show.runs")
    runs = reading.read_runs(paths, _warn)
    target = out_file or page.default_target(runs)
    page.write_page(runs, target)
    _print(f"Saved {target}.")


@app.command()
def export(
    path: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A checkpoint or a run's folder.")],
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="A new folder. Default: export-<steps> in the run's."),
    ] = None,
    format_: Annotated[
        list[ExportFormat] | None, typer.Option("--format", help="May be repeated. Default: both.")
    ] = None,
    env: TrustedEnv = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print card.json instead of a table.")] = False,
) -> None:
    """Write the network for other programs, as SavedModel and ONNX, checked, with a card."""
    demand_there(path)
    exporting = quietly("a2c.export")
    with err.status("exporting"):
        written = exporting.export(
            path, out=out_dir, formats=[each.value for each in format_ or ()], env_id=env, warn=_warn
        )
    if as_json:
        out.print_json(json.dumps(written.card))
        return
    table = Table("file", "compared with", "probabilities", "value", "allowed", box=None, header_style="bold")
    for check in written.card["checks"]:
        differences = (f"{check[name]:.1e}" for name in ("probabilities", "value"))
        table.add_row(check["file"], check["compared_with"], *differences, f"{check['tolerance']:g}")
    _print("Largest differences of the files, loaded again, on observations of games the agent played:")
    out.print(table)
    _print(f"Saved in {written.folder}; card.md says how to use it.")


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Look for what is wrong with this installation and machine; exit code 1 where something is."""
    from a2c.analysis.doctor import STATUSES, examine

    with err.status("looking") as status:
        findings = examine(on_check=lambda name: status.update(f"looking at {name}"))
    counts = {each: sum(finding.status == each for finding in findings) for each in STATUSES}
    if as_json:
        out.print_json(json.dumps({"counts": counts, "findings": [finding._asdict() for finding in findings]}))
    else:
        table = Table("", "", "found", "what to do", box=None, header_style="bold", pad_edge=False)
        colours = {"ok": "green", "note": "yellow", "problem": "red"}
        for finding in findings:
            shown = f"[{colours[finding.status]}]{finding.status}[/]"
            table.add_row(finding.check, shown, escape(finding.found), escape(finding.advice))
        out.print(table)
        _print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    if counts["problem"]:
        raise typer.Exit(1)


@app.command()
def watch(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A run's folder or a checkpoint.")],
    env: TrustedEnv = None,
    episode: Annotated[GameChoice, typer.Option(help="Which of the games, by its score.")] = GameChoice.median,
    episodes: Annotated[int, typer.Option(min=1, help="Whole games to choose from.")] = 5,
    greedy: Greedy = None,
    seed: EvaluationSeed = None,
    saliency: Annotated[
        SaliencyChoice | None,
        typer.Option(help="Dye the places that move the value, or the chosen action's probability (policy)."),
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="Play it here as fast as it is, and write no video.")
    ] = False,
    out_path: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE-OR-FOLDER",
            help="FILE.mp4, FILE.gif, or a folder for both. Default: RUN/videos.",
        ),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write what it was there.")] = None,
) -> None:
    """Show a whole game with what the agent sees, thinks of it and does: an MP4, and a GIF.

    The MP4 has every frame of the emulator, 60 a second. The GIF is the same game in half the size, with every 4th
    frame, 15 a second.
    """
    _check_target(json_file)
    if terminal and out_path is not None:
        raise UserError("--terminal writes no video, so --out has no meaning there; give one of them.")
    demand_there(path)
    watching = quietly("a2c.show.watch")
    request = watching.Request(path, env, episode.value, episodes, greedy, seed, saliency and saliency.value)
    stages = quietly("a2c.progress").StageBars(err) if err.is_terminal else None
    if terminal:
        screen = quietly("a2c.show.terminal").Screen(sys.stdout)
        watched = watching.play_in_terminal(request, screen, stages, warn=_warn)
    else:
        watched = watching.make_video(request, out_path, stages, warn=_warn)
    if json_file is not None:
        watched.write(json_file)
    _print_watched(watched)


@app.command()
def envs(
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of a table.")] = False,
) -> None:
    """List every game with its number of actions, and the random and human score."""
    from a2c.envs import games

    if as_json:
        out.print_json(json.dumps([game._asdict() for game in games()]))
        return
    table = Table("game", "id", box=None, header_style="bold")
    for heading in ("actions", "random", "human"):
        table.add_column(heading, justify="right")
    for game in games():
        table.add_row(game.name, f"ALE/{game.name}-v5", str(game.num_actions), _score(game.random), _score(game.human))
    out.print(table)
    out.print("Also: Catch, Bandit, Chain, any Gymnasium id with discrete actions, and module:Id-v0.")
    out.print("Scores: google-deepmind/dqn_zoo, mean score of a game; - where none is published.")


def quietly(module: str) -> Any:
    """Import a module that imports TensorFlow, whose C++ start-up chatter would go to stderr."""
    with _silenced_stderr():
        return import_module(module)


@contextlib.contextmanager
def _silenced_stderr() -> Iterator[None]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _place(cluster: str | None) -> Place:
    if cluster is None:
        return import_module("a2c.analysis.jobs").MACHINE  # type: ignore[no-any-return]
    return import_module("a2c.analysis.ray_jobs").Cluster(cluster)  # type: ignore[no-any-return]


def _train_seeds(
    config: Config, seeds: int, folder: Path | None, jobs: int | None, cluster: str | None, *, quiet: bool
) -> None:
    training, view = quietly("a2c.analysis.seeds"), quietly("a2c.analysis.view")
    numbers = range(config.seed, config.seed + seeds)
    folder = folder or _default_run_dir(config, f"{numbers[0]}-{numbers[-1]}")
    try:
        with _place(cluster) as place:
            shown = view.View() if quiet else view.ConsoleView(out)
            results = training.train_seeds(config, numbers, folder, jobs=jobs or place.cpus, place=place, view=shown)
    except KeyboardInterrupt:
        _print(f"Stopped. The same command with --run-dir {shlex.quote(str(folder))} goes on with what is missing.")
        raise
    if quiet:
        return
    table = Table("seed", box=None, header_style="bold")
    for heading in ("steps", "return (last 100 games)", "minutes"):
        table.add_column(heading, justify="right")
    for result in results:
        score = "-" if result.episode_return_mean is None else f"{result.episode_return_mean:.2f}"
        table.add_row(str(result.seed), f"{result.env_steps:,}", score, f"{result.seconds / 60:.1f}")
    out.print(table)
    runs = shlex.quote(str(folder / "runs"))
    _print(f"Saved in {runs}. Play whole games with each of them, and draw them as one curve:")
    _print(f"  a2c eval {runs}\n  a2c plot {runs}/*")


def _run(config: Config, run_dir: Path, headline: str, *, resume: bool, quiet: bool) -> None:
    training = quietly("a2c.training")
    summary = training.train(config, run_dir, resume=resume, progress=_progress(headline, quiet=quiet), warn=_warn)
    if summary.signal in (signal.SIGHUP, signal.SIGPIPE):
        _drop_output()  # nobody reads it any more
    if not quiet and summary.is_chief:
        _print_summary(summary)
    if summary.signal is not None:
        raise typer.Exit(128 + summary.signal)


def _drop_output() -> None:
    """Write to nowhere, so that neither we nor Python at its end fail on a terminal or pipe that is gone."""
    with Path(os.devnull).open("wb") as nothing:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nothing.fileno(), stream.fileno())


def _progress(headline: str, *, quiet: bool) -> Progress:
    progress = quietly("a2c.progress")
    if quiet:
        return progress.Progress()  # type: ignore[no-any-return]
    view = progress.LiveProgress if out.is_terminal else progress.PlainProgress
    return view(out, headline)  # type: ignore[no-any-return]


def _resume(config: Config, run_dir: Path, *, quiet: bool) -> None:
    headline = f"{config.env.id}: going on in {run_dir} to {config.total_env_steps:,} steps"
    _run(config, run_dir, headline, resume=True, quiet=quiet)


def _stored_config(run_dir: Path, env_id: str | None) -> Config:
    demand_there(run_dir)
    checkpoint = quietly("a2c.checkpoint")
    saved = checkpoint.find_checkpoint(run_dir)
    checkpoint.demand_trust(saved, env_id)
    return saved.config  # type: ignore[no-any-return]


def _demand_env(env_id: str) -> None:
    """Of a mistake in a name nobody should hear only after the seconds in which TensorFlow is imported."""
    from a2c.envs import demand_env

    demand_env(env_id)


def _gives_steps(steps: int | None, assignments: list[str] | None) -> bool:
    return steps is not None or any(text.split("=")[0].strip() == "total_env_steps" for text in assignments or [])


def _mode(eager: bool, mode: Mode | None) -> str | None:
    if eager and mode not in (None, Mode.eager):
        raise UserError(f"--eager and --mode {mode} contradict each other; give one of them.")
    return "eager" if eager else mode and mode.value


def _check_target(json_file: Path | None) -> None:
    if json_file is None:
        return
    folder = json_file.absolute().parent
    if json_file.is_dir() or not folder.is_dir():
        raise UserError(f"--json {json_file} must be a file in a folder that exists.")
    if not json_file.exists():
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise UserError(f"--json {json_file} cannot be written: {error.strerror}.") from None


def _default_run_dir(config: Config, seeds: str) -> Path:
    return Path("runs") / f"{env_slug(config.env.id)}-s{seeds}-{datetime.now():%Y%m%d-%H%M%S}"


def _warn(sentence: str) -> None:
    err.print(f"a2c: {sentence}", markup=False, soft_wrap=True)


def _print(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)


def _print_summary(summary: TrainSummary) -> None:
    counters = summary.counters
    score = "no game ended yet"
    if counters.return_mean is not None:
        score = f"mean return of the last {len(counters.returns)} training games {counters.return_mean:.2f}"
    _print(f"{counters.env_steps:,} steps, {counters.updates:,} updates, {counters.seconds / 60:.1f} minutes: {score}.")
    if summary.evaluation is not None:
        _print_evaluation(summary.evaluation)
    if summary.signal is not None:
        command = quietly("a2c.checkpoint").resume_command(summary.run_dir, summary.config)
        _print(f"Stopped and saved. Go on with:\n  {command}")
    else:
        _print(f"Saved in {summary.run_dir}. Play whole games with it:\n  a2c eval {summary.run_dir}")


def _evaluate(evaluation: Any, run: Path, total: int, **options: Any) -> EvalResult:
    scores: list[float] = []
    with _view().part("playing", total) as part:

        def on_episode(episode: Any) -> None:
            scores.append(episode.episode_return)
            part.at(len(scores), f"{len(scores)} games, mean {sum(scores) / len(scores):.2f}")

        result: EvalResult = evaluation.evaluate(run, episodes=total, on_episode=on_episode, warn=_warn, **options)
    return result


def _view() -> Any:
    """What is under way, on stderr, for a person."""
    view = quietly("a2c.analysis.view")
    return view.ConsoleView(err) if err.is_terminal else view.View()


def _print_evaluations(results: list[EvalResult]) -> None:
    table = Table(box=None, header_style="bold")
    for heading in ("agent", "game", "protocol"):
        table.add_column(heading, overflow="fold")
    for heading in ("steps", "games", "mean", "95 % interval", "median", "human-normalised", "published"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            escape(result.checkpoint),
            escape(result.env),
            f"{result.protocol.get('name', 'its own')}, {result.policy}",
            f"{result.env_steps:,}",
            str(result.episodes),
            f"{result.mean:.2f}",
            "-" if result.interval is None else "{:.2f} to {:.2f}".format(*result.interval),
            f"{result.median:g}",
            "-" if result.human_normalized is None else f"{result.human_normalized:.3f}",
            ", ".join(f"{reference['score']:g}" for reference in result.published) or "-",
        )
    _wide().print(table)
    for citation in dict.fromkeys(_cited(reference) for result in results for reference in result.published):
        _print(f"Published: {citation}.")


def _cited(reference: dict[str, Any]) -> str:
    millions = reference["env_steps"] / 1e6
    return f"{reference['citation']}, {reference['protocol']}, {millions:g} M steps, mean of {reference['games']}"


def _print_evaluation(result: EvalResult) -> None:
    interval = "" if result.interval is None else " (95 % interval {:.2f} to {:.2f})".format(*result.interval)
    _print(f"{result.env}: mean {result.mean:.2f}{interval} over {result.episodes} whole games")
    table = Table.grid(padding=(0, 2))
    table.add_row("median", f"{result.median:g}, from {result.minimum:g} to {result.maximum:g}")
    if result.human_normalized is not None:
        table.add_row("human-normalised", f"{result.human_normalized:.3f} (0 = random play, 1 = human)")
    for reference in result.published:
        table.add_row("published", f"{reference['score']:g} ({_cited(reference)})")
    table.add_row("policy", f"{result.policy}, seed {result.seed}, after {result.env_steps:,} training steps")
    for name, value in result.protocol.items():
        table.add_row("protocol" if name == "name" else name.replace("_", " "), str(value))
    out.print(table)


def _print_watched(watched: Watched) -> None:
    seconds = watched.frames / watched.frames_per_second
    scores = ", ".join(f"{score:g}" for score in sorted(watched.scores, reverse=True))
    _print(
        f"{watched.env}: the {watched.choice} of {len(watched.scores)} games ({scores}) scored {watched.score:g} in "
        f"{watched.length:,} steps, {seconds:.0f} s of play; {watched.policy}, game seed {watched.game_seed}"
    )
    for file in watched.files:
        _print(f"{file}  {Path(file).stat().st_size / 1e6:.2f} MB")


def _print_comparison(report: Any, result: Any) -> None:
    wide = _wide()
    files = report.write_report(result, shlex.join(["a2c", *sys.argv[1:]]))
    for table in report.tables(result):
        shown = Table(title=escape(table.title), title_justify="left", box=None, header_style="bold")
        for heading in table.headings:
            shown.add_column(escape(heading), overflow="fold")
        for row in table.rows:
            shown.add_row(*(escape(cell) for cell in row))
        wide.print(shown)
        wide.print()
    for sentence in report.verdict(result):
        out.print(f"- {sentence}", markup=False, soft_wrap=not out.is_terminal)  # a file's lines are not broken
    _print(f"Saved in {result.folder}: {', '.join(file.name for file in files)}.")


def _wide() -> Console:
    """For tables: a file has no margin."""
    return out if out.is_terminal else Terminal(highlight=False, emoji=False, width=200)


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:,.1f}"
