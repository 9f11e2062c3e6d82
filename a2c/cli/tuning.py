"""a2c tune."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from a2c.cli.console import cell, out, say, wide
from a2c.cli.options import (
    AlgorithmOption,
    Assignments,
    ConfigOption,
    EnvOption,
    Jobs,
    RayCluster,
    Steps,
    check_env,
)
from a2c.cli.places import place_of
from a2c.config import load_config
from a2c.quiet import fast

Pruner = Literal["median", "hyperband", "none"]


def tune(
    env: EnvOption = None,
    config: ConfigOption = None,
    algorithm: AlgorithmOption = None,
    steps: Steps = None,
    trials: Annotated[int, typer.Option(min=2, max=9999, help="Settings to try in all.")] = 20,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Start no new trial after so many. Default: no limit.")
    ] = None,
    space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML of keys to vary. Default: the algorithm's own.")
    ] = None,
    pruner: Annotated[Pruner, typer.Option(help="What stops hopeless trials early.")] = "median",
    seed: Annotated[int | None, typer.Option(help="Of the search, and of every trial.")] = None,
    jobs: Jobs = None,
    cluster: RayCluster = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="An Optuna storage. Default: study.db in --out.")
    ] = None,
    set_: Assignments = None,
    out_dir: Annotated[Path | None, typer.Option("--out", help="The folder. Default: runs/tune-....")] = None,
) -> None:
    """Search for better settings with Optuna; run it again, or several times at once, to continue."""
    overrides = {"algorithm.name": algorithm, "total_env_steps": steps, "seed": seed}
    settings, _ = load_config(config=config, env_id=env, overrides=overrides, assignments=set_ or [], tell=say)
    check_env(settings.env.id)
    tuning = fast("a2c.analysis.tune")
    with place_of(cluster) as place:
        options = tuning.Search(
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
        found = tuning.search(options)
    if found.signal is not None:
        say("Stopped. The same command continues with what is missing.")
        raise typer.Exit(128 + found.signal)
    _print_trials(tuning.table(found))
    file = tuning.write_best(settings, found, shlex.join(["a2c", *sys.argv[1:]]))
    if file is not None:
        say(f"Saved in {found.folder}: {file.name}.")


def _print_trials(rows: list[tuple[str, ...]]) -> None:
    headings, *trials = rows
    table = Table(box=None, header_style="bold", title="The best trials", title_justify="left")
    for heading in headings:
        table.add_column(cell(heading), justify="right")
    for row in trials:
        table.add_row(*map(cell, row))
    wide().print(table)
