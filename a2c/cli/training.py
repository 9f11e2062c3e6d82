"""a2c train, resume, launch."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a2c.algorithms.sections import DEFAULT, STRONGEST
from a2c.analysis.ray_jobs import place_of
from a2c.cli.console import continuing, drop_output, out, say, warn
from a2c.cli.judging import print_evaluation
from a2c.cli.options import (
    AlgorithmOption,
    Assignments,
    AutoResume,
    ConfigOption,
    Eager,
    EnvOption,
    InitFrom,
    Jobs,
    ModelOption,
    ModeOption,
    NewTotal,
    OnNan,
    Quiet,
    RayCluster,
    Seeds,
    Steps,
    StopAt,
    Strategy,
    TrustedAlgorithm,
    TrustedEnv,
    TrustedModel,
    TrustedWrappers,
    WrapperOption,
    check_env,
    mode_of,
    trust_named,
)
from a2c.cli.showing import print_runs
from a2c.config import Config, UserError, changed, cut, env_slug, load_config, typed
from a2c.games import atari_game
from a2c.quiet import fast
from a2c.run.files import BUNDLE, check_exists, check_folder, check_writable

if TYPE_CHECKING:
    from a2c.run import callbacks
    from a2c.run.checkpoint import Saved
    from a2c.run.counters import Counters
    from a2c.run.progress import Progress
    from a2c.run.training import TrainSummary


def train(
    config: ConfigOption = None,
    env: EnvOption = None,
    algorithm: AlgorithmOption = None,
    model: ModelOption = None,
    wrapper: WrapperOption = None,
    steps: Steps = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random; default: the preset's.")] = None,
    seeds: Seeds = None,
    jobs: Jobs = None,
    cluster: RayCluster = None,
    run_dir: Annotated[Path | None, typer.Option(help="The run's folder. Default: a new one in runs/.")] = None,
    eager: Eager = False,
    mode: ModeOption = None,
    strategy: Strategy = None,
    set_: Assignments = None,
    on_nan: OnNan = None,
    init_from: InitFrom = None,
    stop_at: StopAt = None,
    resume: AutoResume = False,
    quiet: Quiet = False,
) -> None:
    """Train an agent."""
    if resume and run_dir is None:
        raise UserError("--auto-resume needs --run-dir, the run to resume; or use `a2c resume RUN`.")
    overrides = {
        "algorithm.name": algorithm,
        "model.name": model,
        "total_env_steps": steps,
        "seed": seed,
        "runtime.mode": mode_of(eager, mode),
        "runtime.strategy": strategy,
        "optimizer.on_nan": on_nan,
    }
    tell = (lambda text: None) if quiet else say
    begun = run_dir if resume and run_dir is not None and any(run_dir.glob("checkpoints/*.npz")) else None
    named = bool(config or env or algorithm or model or wrapper or set_)
    if begun is not None and named and not (config or env or _sets("env.id", set_)):
        with suppress(UserError):  # code that the options name is trusted below
            env = _saved(begun, None).config.env.id
    saved = _saved(begun, None) if begun is not None and not named else None
    if saved is not None:
        settings, source = changed(saved.config, overrides), ""
    else:
        settings, source = load_config(
            config=config, env_id=env, overrides=overrides, assignments=set_ or [], wrappers=wrapper or [], tell=tell
        )
    check_env(settings.env.id)
    if settings.runtime.strategy != "multiworker":  # else only the chief needs them
        import_module("a2c.run.follower").check_installed(settings)
    if seeds is not None:
        if init_from is not None or stop_at is not None:
            raise UserError("--init-from and --stop-at are for a single run; leave --seeds or them out.")
        _train_seeds(settings, seeds, run_dir, jobs, cluster, quiet=quiet)
        return
    if jobs is not None or cluster is not None:
        raise UserError("--jobs and --cluster are for several runs; give --seeds too, or leave them out.")
    if begun is not None:
        saved = _saved(begun, settings.env.id) if saved is None else saved
        if init_from is not None:
            _tell_of_start(begun, saved, init_from, tell)
        if named and steps is None and not _sets("total_env_steps", set_):
            settings = changed(settings, {"total_env_steps": saved.config.total_env_steps})
        _resume(settings, begun, stop_at, quiet=quiet)
        return
    _start(settings, source, run_dir, stop_at=stop_at, init_from=init_from, quiet=quiet)


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    env: TrustedEnv = None,
    algorithm: TrustedAlgorithm = None,
    model: TrustedModel = None,
    wrapper: TrustedWrappers = None,
    steps: NewTotal = None,
    stop_at: StopAt = None,
    on_nan: OnNan = None,
    quiet: Quiet = False,
) -> None:
    """Resume a run from its latest checkpoint, exactly as if it had never stopped."""
    if run.is_file():
        if run.suffix == BUNDLE:
            raise _no_run(run)
        raise UserError(f"{run} is a file; name the run's folder.")
    trust_named(algorithm, model, *(wrapper or ()))
    changes = {"total_env_steps": steps, "optimizer.on_nan": on_nan}
    _resume(changed(_saved(run, env).config, changes), run, stop_at, quiet=quiet)


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
    if code := import_module("a2c.execution.launch").launch(command, workers, warn=warn):
        raise typer.Exit(code)


def _train_seeds(
    config: Config, seeds: int, folder: Path | None, jobs: int | None, cluster: str | None, *, quiet: bool
) -> None:
    training, view = fast("a2c.analysis.seeds"), fast("a2c.run.view")
    numbers = range(config.seed, config.seed + seeds)
    changed(config, {"seed": numbers[-1]})  # raises UserError if that is too large
    folder = folder or _default_run_dir(config, f"{numbers[0]}-{numbers[-1]}")
    check_writable(folder)
    with continuing(f"The same command with --run-dir {typed(folder)}"), place_of(cluster) as place:
        shown = view.View() if quiet else view.ConsoleView(out)
        runs = training.train_seeds(config, numbers, folder, jobs=jobs or place.cpus, place=place, view=shown)
    if quiet:
        return
    listed = fast("a2c.show.listing").listed
    print_runs([listed(run, warn) for run in runs], folder / "runs")
    saved = typed(folder / "runs")
    say(f"Saved in {saved}. Play whole games with each of them, and draw them as one curve:")
    say(f"  {fast('a2c.run.lookup').command_for('eval', folder / 'runs', config)}", f"  a2c plot {saved}/*")


def _start(
    config: Config, source: str, folder: Path | None, *, stop_at: float | None, init_from: Path | None, quiet: bool
) -> None:
    folder = folder or _default_run_dir(config, str(config.seed))
    if config.runtime.strategy != "multiworker":  # with multiworker, perhaps only the chief has the folders
        if init_from is not None:
            check_exists(init_from)
        check_folder(folder, resume=False)
    headline = f"{config.env.id} with the recipe {source!r}, seed {config.seed}, in {folder}"
    headline += "" if init_from is None else f", with the network of {init_from}"
    _run(config, folder, headline, stop_at=stop_at, init_from=init_from, quiet=quiet)


def _run(config: Config, run_dir: Path, headline: str, *, stop_at: float | None, quiet: bool, **how: Any) -> None:
    progress = _progress(headline, quiet=quiet)
    progress.announce()
    training = fast("a2c.run.training")
    stop = None if stop_at is None else fast("a2c.run.callbacks").StopAt(stop_at)
    summary = training.train(
        config, run_dir, callbacks=[] if stop is None else [stop], progress=progress, warn=warn, **how
    )
    if summary.signal in (signal.SIGHUP, signal.SIGPIPE):
        drop_output()  # nobody can read it any more
    if not quiet and summary.is_chief:
        _print_summary(summary)
        if stop is not None and summary.signal is None:
            _tell_if_missed(stop, summary.counters)
    if summary.signal is not None:
        raise typer.Exit(128 + summary.signal)


def _tell_if_missed(stop: callbacks.StopAt, counters: Counters) -> None:
    games, needed = len(counters.returns), fast("a2c.run.counters").WINDOW
    if not stop.is_reached(counters.return_mean, games):
        few = f": it takes the mean of {needed} games, and {games} have ended" if games < needed else ""
        say(f"{stop} was not reached{few}.")


def _progress(headline: str, *, quiet: bool) -> Progress:
    progress = import_module("a2c.run.progress")
    if quiet:
        return progress.Progress()  # type: ignore[no-any-return]
    view = progress.LiveProgress if out.is_terminal and not out.is_dumb_terminal else progress.PlainProgress
    return view(out, headline)  # type: ignore[no-any-return]


def _resume(config: Config, run_dir: Path, stop_at: float | None, *, quiet: bool) -> None:
    headline = f"{config.env.id}: resuming {run_dir} to {config.total_env_steps:,} steps"
    _run(config, run_dir, headline, stop_at=stop_at, quiet=quiet, resume=True)


def _saved(run_dir: Path, env_id: str | None) -> Saved:
    """The checkpoint to resume from; raises UserError if it is not of the environment that the user named."""
    check_exists(run_dir)
    saved: Saved = fast("a2c.run.lookup").trusted_checkpoint(run_dir, env_id)
    if all(name.startswith("model/") for name in saved.arrays):  # the weights alone
        raise _no_run(run_dir)
    return saved


def _no_run(path: Path) -> UserError:
    start = f"`a2c train --init-from {typed(path)}` starts a new run with its network"
    return UserError(f"{path} holds an agent but no run to resume; {start}.")


def _tell_of_start(run_dir: Path, saved: Saved, init_from: Path, tell: Callable[[str], None]) -> None:
    """Say that a run that is resumed does not take another's weights again; raises UserError if it never did."""
    if "init_from" not in saved.meta:
        raise UserError(f"{run_dir} was started without --init-from; leave it out, or start a new run.")
    origin = cut(saved.meta["init_from"])
    if origin.startswith((f"{init_from}/", f"{init_from},")):
        tell(f"{run_dir} resumes from its own checkpoint; {init_from} was used at its start.")
    else:
        warn(f"{run_dir} resumes from its own checkpoint; it started with {origin}, and {init_from} is not used.")


def _sets(key: str, assignments: list[str] | None) -> bool:
    return any(text.partition("=")[0].strip() == key for text in assignments or [])


def _default_run_dir(config: Config, seeds: str) -> Path:
    return Path("runs") / f"{env_slug(config.env.id)}-s{seeds}-{datetime.now():%Y%m%d-%H%M%S}"


def _print_summary(summary: TrainSummary) -> None:
    counters = summary.counters
    score = "no game ended yet"
    if counters.return_mean is not None:
        score = f"mean return of the last {len(counters.returns)} training games {counters.return_mean:.2f}"
    say(f"{counters.env_steps:,} steps, {counters.updates:,} updates, {counters.seconds / 60:.1f} minutes: {score}.")
    if summary.evaluation is not None:
        print_evaluation(summary.evaluation)
    lookup = fast("a2c.run.lookup")
    if summary.signal is not None or summary.stopped_by is not None:
        by = f" by {summary.stopped_by}" if summary.stopped_by is not None else ""
        say(f"Stopped{by} and saved. Resume with:", f"  {lookup.resume_command(summary.run_dir, summary.config)}")
    if summary.signal is None:
        command = lookup.command_for("eval", summary.run_dir, summary.config)
        say(f"Saved in {summary.run_dir}. Play whole games with it:", f"  {command}")
        if summary.config.algorithm.name == DEFAULT and atari_game(summary.config.env.id):
            say(f"The strongest recipe for games is --algorithm {STRONGEST}: Pong at 18 after half a million steps.")
