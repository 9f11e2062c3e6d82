"""a2c tune."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from a2c.analysis.ray_jobs import place_of
from a2c.cli.console import continuing, out, print_table, say
from a2c.cli.options import (
    AlgorithmOption,
    Assignments,
    ConfigOption,
    EnvOption,
    Jobs,
    ModelOption,
    RayCluster,
    Steps,
    WrapperOption,
    check_env,
    duration,
)
from a2c.config import Config, UserError, changed, load_config
from a2c.quiet import fast

if TYPE_CHECKING:
    from a2c.analysis.tune import Search

Pruner = Literal["median", "hyperband", "none"]


def tune(
    env: EnvOption = None,
    config: ConfigOption = None,
    algorithm: AlgorithmOption = None,
    model: ModelOption = None,
    wrapper: WrapperOption = None,
    steps: Steps = None,
    trials: Annotated[int, typer.Option(min=2, max=9999, help="Settings to try in all.")] = 20,
    minutes: Annotated[
        float | None,
        typer.Option(parser=duration, metavar="FLOAT", help="Start no new trial after so many. Default: no limit."),
    ] = None,
    space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML of keys to vary. Default: the algorithm's own.")
    ] = None,
    pruner: Annotated[Pruner, typer.Option(help="What stops hopeless trials early.")] = "median",
    seed: Annotated[int | None, typer.Option(help="Of the search, and of every trial.")] = None,
    judge_seeds: Annotated[
        int, typer.Option(min=0, max=1000, help="New seeds that judge the best settings; 0 = no judgement.")
    ] = 6,
    jobs: Jobs = None,
    cluster: RayCluster = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="An Optuna storage. Default: study.db in --out.")
    ] = None,
    set_: Assignments = None,
    out_dir: Annotated[Path | None, typer.Option("--out", help="The folder. Default: runs/tune-....")] = None,
) -> None:
    """Search for better settings with Optuna; run it again, or several times at once, to continue."""
    overrides = {"algorithm.name": algorithm, "model.name": model, "total_env_steps": steps, "seed": seed}
    settings, _ = load_config(
        config=config, env_id=env, overrides=overrides, assignments=set_ or [], wrappers=wrapper or [], tell=say
    )
    check_env(settings.env.id)
    changed(settings, {"seed": settings.seed + judge_seeds})  # raises UserError if that is too large
    with place_of(cluster) as place:
        options = fast("a2c.analysis.tune").Search(
            config=settings,
            space_file=space,
            trials=trials,
            pruner=pruner,
            minutes=minutes,
            jobs=jobs or place.cpus,
            place=place,
            storage=storage,
            folder=out_dir,
            view=fast("a2c.run.view").ConsoleView(out),
            tell=say,
        )
        with fast("a2c.analysis.trials").storing():
            _search(options, settings, judge_seeds)


def _search(options: Search, settings: Config, judge_seeds: int) -> None:
    tuning, judging, reporting = (fast(f"a2c.analysis.{name}") for name in ("tune", "judge", "tune_report"))
    command = shlex.join(["a2c", *sys.argv[1:]])
    with continuing():
        found = tuning.search(options)
        if found.signal is not None:
            raise typer.Exit(128 + found.signal)
        unjudged = judging.judge(found, options, seeds=0, command=command)
        judging.write_best(settings, found, unjudged, command)
        try:
            judgement = judging.judge(found, options, seeds=judge_seeds, command=command)
        except UserError as error:
            best = found.folder / "best.yaml"
            raise UserError(f"The best settings are in {best}, and could not be judged: {error}") from None
    written = [judging.write_best(settings, found, judgement, command)]
    written.append(reporting.write_tune_report(found, judgement, command))
    print_table(reporting.best_trials(found))
    say(judgement.sentence)
    say(f"Saved in {found.folder}: {', '.join(path.name for path in written if path is not None)}.")
