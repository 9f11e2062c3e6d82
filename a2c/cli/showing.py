"""a2c runs, plot, report, watch, export."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from a2c.cli.console import cell, err, out, progress_view, say, warn, wide
from a2c.cli.options import (
    EvaluationSeed,
    Greedy,
    Runs,
    TrustedAlgorithm,
    TrustedEnv,
    TrustedModel,
    TrustedWrappers,
    check_target,
    trust_named,
)
from a2c.config import MOST_GAMES, UserError
from a2c.messages import counted, interval, number
from a2c.quiet import fast
from a2c.run.files import check_exists

NAMES = {  # of the columns of `runs`, by the least width of the terminal in letters
    120: ("game", "algorithm", "seed", "steps", "%", "return", "best", "eval", "steps/s", "state", "changed"),
    80: ("game", "steps", "%", "return", "eval", "state"),
    0: ("steps", "return", "state"),
}

if TYPE_CHECKING:
    from a2c.show.listing import Listed
    from a2c.show.watch import Watched


class ExportFormat(StrEnum):  # typer does not support lists of Literal
    """A kind of file that `export` writes."""

    savedmodel = "savedmodel"
    onnx = "onnx"
    bundle = "bundle"


def plot(
    paths: Runs,
    what: Annotated[Literal["return", "losses", "speed", "all"], typer.Option(help="Which quantities.")] = "return",
    x: Annotated[
        Literal["steps", "frames", "minutes"], typer.Option("--x", help="What they are drawn over.")
    ] = "steps",
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
    """Draw learning curves; runs that learn alike but for the seed become one line and its band."""
    check_target(json_file, out_file)
    plotting, curves, reading = (import_module(f"a2c.show.{name}") for name in ("plot", "curves", "runs"))
    targets = None if out_file is None else [plotting.check_target(out_file)]
    runs = reading.read_runs(paths, warn)
    smoothing = curves.default_smoothing(runs) if smooth is None else smooth
    panels = curves.make_panels(runs, what, x, smoothing)
    targets = targets or plotting.default_targets(runs, what, x)
    below = plotting.home(runs) if out_file is None else None
    plotting.save(plotting.draw(panels, x, smoothing), targets, below=below)
    if json_file is not None:
        plotting.save_numbers(panels, x, smoothing, json_file)
    say(f"Saved {' and '.join(str(file) for file in (*targets, json_file) if file)}.")


def report(
    paths: Runs,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The page. Default: RUN/report.html, or here for several runs."),
    ] = None,
) -> None:
    """Write one self-contained web page about runs: numbers, curves, evaluations, video, configuration."""
    page, reading = import_module("a2c.show.page"), import_module("a2c.show.runs")
    say(f"Saved {page.write_page(reading.read_runs(paths, warn), out_file)}.")


def runs(
    folder: Annotated[Path, typer.Argument(help="A folder of runs.")] = Path("runs"),
    sort: Annotated[
        Literal["changed", "run", "game", "algorithm", "steps", "return", "best", "eval", "speed", "state"],
        typer.Option(help="Numbers highest first, times latest first, texts from A."),
    ] = "changed",
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects, not a table.")] = False,
) -> None:
    """List runs: how far each is, how well it plays, whether it is under way."""
    listed, unreadable = import_module("a2c.show.listing").list_runs(folder, sort, warn)
    if as_json:
        out.print_json(json.dumps([asdict(run) for run in listed]), ensure_ascii=True)
    else:
        print_runs(listed, folder)
    for sentence in unreadable:
        warn(sentence)
    if unreadable:
        raise typer.Exit(1)


def print_runs(listed: Sequence[Listed], folder: Path) -> None:
    """Print runs below a folder as a table; a narrow terminal gets fewer columns."""
    console, table = wide(), Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("run", overflow="fold", min_width=10)
    names = next(names for least, names in NAMES.items() if console.width >= least)
    for name in names:
        table.add_column(name, justify="left" if name in ("game", "algorithm", "state") else "right", no_wrap=True)
    for cells in (_cells(run, folder) for run in listed):
        table.add_row(cells["run"], *(cells[name] for name in names))
    console.print(table)


def _cells(run: Listed, folder: Path) -> dict[str, str]:
    path, total = Path(run.run), run.total_env_steps
    return {
        "run": cell(str(path.relative_to(folder)) if path != folder else path.resolve().name),
        "game": cell(run.game),
        "algorithm": cell(run.algorithm),
        "seed": "-" if run.seed is None else str(run.seed),
        "steps": number(run.env_steps, ",.0f"),
        "%": f"{min(100, 100 * run.env_steps // total)}%" if total else "",
        "return": number(run.episode_return_mean),
        "best": number(run.best_return_mean),
        "eval": number(run.evaluation_mean),
        "steps/s": number(run.steps_per_second, ",.0f"),
        "state": run.state,
        "changed": run.changed[:16],
    }


def export(
    path: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A checkpoint, a bundle or a run's folder.")],
    out_path: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER|FILE.a2c",
            help="A new folder, or the bundle. Default: export-<steps> or <game>-<steps>-steps.a2c in RUN.",
        ),
    ] = None,
    format_: Annotated[
        list[ExportFormat] | None,
        typer.Option("--format", help="May be repeated. Default: SavedModel and ONNX."),
    ] = None,
    env: TrustedEnv = None,
    algorithm: TrustedAlgorithm = None,
    model: TrustedModel = None,
    wrapper: TrustedWrappers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON, not a table.")] = False,
) -> None:
    """Write the network for other programs, as SavedModel and ONNX, checked, with a card; or share the agent.

    With --format bundle, the agent becomes one file, FILE.a2c, for `a2c eval`, `watch` and `train --init-from`.
    """
    trust_named(algorithm, model, *(wrapper or ()))
    check_exists(path)
    exporting = fast("a2c.export.export")
    if "onnx" in (format_ or ("onnx",)):
        with suppress(ImportError):  # `export` says what is missing
            fast("onnx"), fast("onnxruntime")
    formats = list(dict.fromkeys(each.value for each in format_ or ()))
    if "bundle" in formats:
        _export_bundle(exporting, path, formats, as_json=as_json, out=out_path, env_id=env)
        return
    with err.status("exporting"):
        written = exporting.export(path, out=out_path, formats=formats, env_id=env, warn=warn)
    if as_json:
        out.print_json(json.dumps(written.card), ensure_ascii=True)
        return
    table = Table("file", "compared with", "actions", "value", "allowed", box=None, header_style="bold")
    for check in written.card["checks"]:
        differences = (f"{check[name]:.1e}" for name in ("actions", "value"))
        table.add_row(check["file"], check["compared_with"], *differences, f"{check['tolerance']:g}")
    say("Largest differences of the files, loaded again, on observations of games the agent played:")
    out.print(table)
    say(f"Saved in {written.folder}; card.md says how to use it.")


def _export_bundle(exporting: Any, path: Path, formats: list[str], *, as_json: bool, **how: Any) -> None:
    if len(formats) > 1:
        raise UserError("A bundle is a file by itself; give --format bundle alone, and the others in another command.")
    with err.status("packing the agent; whole games are played if its run has no evaluation of it"):
        written = exporting.export_bundle(path, warn=warn, **how)
    if as_json:
        out.print_json(json.dumps(written.facts), ensure_ascii=True)
        return
    facts, judged = written.facts, written.facts["evaluation"]
    within = f" (95 % interval {interval(judged['interval'])})" if judged["interval"] else ""
    say(
        f"{facts['game']} after {facts['training']['env_steps']:,} steps: mean {number(judged['mean'])}{within} over "
        + counted(judged["episodes"], "whole game"),
        _with_size(written.file),
        "Whoever gets the file plays whole games with:",
        f"  {written.command}",
    )


def watch(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A run's folder, a checkpoint or a bundle.")],
    env: TrustedEnv = None,
    algorithm: TrustedAlgorithm = None,
    model: TrustedModel = None,
    wrapper: TrustedWrappers = None,
    episode: Annotated[
        Literal["best", "worst", "median"], typer.Option(help="Which of the games, by its score.")
    ] = "median",
    episodes: Annotated[int, typer.Option(min=1, max=MOST_GAMES, help="Whole games to choose from.")] = 5,
    greedy: Greedy = None,
    seed: EvaluationSeed = None,
    saliency: Annotated[
        Literal["value", "policy"] | None,
        typer.Option(help="Highlight what moves the value, or the chosen action's probability or Q (policy)."),
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="Play it in the terminal at the game's speed, and write no video.")
    ] = False,
    out_path: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE-OR-FOLDER",
            help="FILE.mp4, FILE.gif, or a folder for both. Default: RUN/videos.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write which game was shown there.")
    ] = None,
) -> None:
    """Show a whole game with what the agent sees, thinks of it and does: an MP4, and a GIF.

    The MP4 has every frame, of Atari 60 a second. The GIF is the same game in half the size, of Atari with every 4th
    frame, 15 a second.
    """
    trust_named(algorithm, model, *(wrapper or ()))
    check_target(json_file, out_path)
    if terminal and out_path is not None:
        raise UserError("--terminal writes no video, so --out has no meaning there; give one of them.")
    check_exists(path)
    watching = fast("a2c.show.watch")
    request = watching.WatchRequest(path, env, episode, episodes, greedy, seed, saliency)
    view = progress_view(transient=True)
    if terminal:
        screen = fast("a2c.show.terminal").Screen(sys.stdout)
        watched = watching.play_in_terminal(request, screen, view=view, warn=warn)
    else:
        watched = watching.make_video(request, out_path, view=view, warn=warn)
    _print_watched(watched)
    if json_file is not None:
        watched.write(json_file)


def _print_watched(watched: Watched) -> None:
    seconds = watched.frames / watched.frames_per_second
    scores = ", ".join(f"{score:g}" for score in sorted(watched.scores, reverse=True))
    say(
        f"{watched.env}: {watched.which} ({scores}) scored {watched.score:g} in "
        f"{watched.length:,} steps, {seconds:.0f} s of play; {watched.policy}, game seed {watched.game_seed}"
    )
    for file in watched.files:
        say(_with_size(Path(file)))


def _with_size(file: Path) -> str:
    size = file.stat().st_size
    return f"{file}  {size / 1e6:.2f} MB" if size >= 1e5 else f"{file}  {size / 1e3:.1f} kB"
