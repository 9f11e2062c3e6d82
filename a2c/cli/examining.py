"""a2c doctor, envs, config."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Annotated

import typer
from rich.table import Table

from a2c.analysis.finding import STATUSES, Finding
from a2c.cli.console import cell, err, out, say, warn
from a2c.cli.options import (
    AlgorithmOption,
    Assignments,
    ConfigOption,
    EnvOption,
    ModelOption,
    WrapperOption,
    check_env,
    complete_config,
)
from a2c.config import load_config
from a2c.config.explain import explained
from a2c.messages import number
from a2c.quiet import fast


def doctor(
    config: ConfigOption = None,
    env: EnvOption = None,
    algorithm: AlgorithmOption = None,
    model: ModelOption = None,
    wrapper: WrapperOption = None,
    set_: Assignments = None,
    updates: Annotated[
        int | None, typer.Option(min=2, max=10_000, help="Updates of each run that is compared. Default: 17.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Look for what is wrong with this installation and machine; exit code 1 if something is.

    With options but --json: check only that such a run (of Catch by default) has the same bits eagerly and if resumed.
    """
    overrides = {"algorithm.name": algorithm, "model.name": model}
    if config or env or algorithm or model or wrapper or set_ or updates:
        settings, _ = load_config(
            config=config,
            env_id=env or (None if config else "Catch"),
            overrides=overrides,
            assignments=set_ or [],
            wrappers=wrapper or [],
            tell=lambda text: None if as_json else say(text),
        )
        check_env(settings.env.id)
        with err.status(f"training {settings.env.id}"):
            promises = fast("a2c.analysis.promises")
            findings = [*promises.check_promises(settings, updates or promises.UPDATES, warn)]
    else:
        examine = import_module("a2c.analysis.doctor").examine
        with err.status("looking") as status:
            findings = examine(on_check=lambda name: status.update(f"looking at {name}"))
    counts = {each: sum(finding.status == each for finding in findings) for each in STATUSES}
    if as_json:
        out.print_json(
            json.dumps({"counts": counts, "findings": [finding._asdict() for finding in findings]}), ensure_ascii=True
        )
    else:
        _print_findings(findings)
        say(", ".join(f"{name}: {count}" for name, count in counts.items()))
    if counts["problem"]:
        raise typer.Exit(1)


def _print_findings(findings: list[Finding]) -> None:
    table = Table("", "", "found", "what to do", box=None, header_style="bold", pad_edge=False)
    colours = {"ok": "green", "note": "yellow", "problem": "red"}
    for finding in findings:
        shown = f"[{colours[finding.status]}]{finding.status}[/]"
        table.add_row(finding.check, shown, cell(finding.found), cell(finding.advice))
    out.print(table)


def envs(
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of a table.")] = False,
) -> None:
    """List every game with its number of actions, and the random and human score."""
    from a2c.games import games

    if as_json:
        out.print_json(json.dumps([{"id": f"ALE/{game.name}-v5", **game._asdict()} for game in games()]))
        return
    table = Table("game", "id", box=None, header_style="bold")
    for heading in ("actions", "random", "human"):
        table.add_column(heading, justify="right")
    for game in games():
        scores = (number(score, ",.1f") for score in (game.random, game.human))
        table.add_row(game.name, f"ALE/{game.name}-v5", str(game.num_actions), *scores)
    out.print(table)
    out.print("Also: Catch, Bandit, Chain, any Gymnasium id with discrete actions, and module:Id-v0.")
    out.print("Scores: google-deepmind/dqn_zoo, mean score of a game; - where none is published.")


def config(
    preset: Annotated[
        str | None,
        typer.Argument(metavar="[PRESET]", help="A preset's name or a YAML file.", autocompletion=complete_config),
    ] = None,
    env: EnvOption = None,
    algorithm: AlgorithmOption = None,
    set_: Assignments = None,
    diff: Annotated[bool, typer.Option("--diff", help="Only what differs from the defaults.")] = False,
) -> None:
    """Print every setting with its meaning, what is allowed and its default, as YAML that --config takes."""
    if env is not None:
        check_env(env)
    settings, _ = load_config(
        config=preset, env_id=env, overrides={"algorithm.name": algorithm}, assignments=set_ or []
    )
    out.print(explained(settings, only_changed=diff), markup=False, soft_wrap=True, end="")
