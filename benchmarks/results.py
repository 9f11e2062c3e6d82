"""Train PPO and A2C on ten games, and write docs/results.md and docs/results.png beside the curves of rl-zoo3.

    python benchmarks/results.py train                    # all 30 runs, in turn: 15 to 30 hours on two cores
    python benchmarks/results.py train --games Pong Breakout --algorithms ppo --seeds 0
    python benchmarks/results.py report
    python benchmarks/results.py agents                         # runs/GAME-reference: the weights of PPO, seed 0

`train` resumes what was stopped, skips what is finished, and keeps docs/results/RUN.json of each finished run. The
folders of the runs are runs/results/RUN. `report` needs only what was kept.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
from functools import cache
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from a2c.analysis.statistics import interquartile_mean, stratified_interval
from a2c.config.sources import env_slug
from a2c.execution.machine import allowed_cores
from a2c.execution.replicas import from_text
from a2c.games import atari_game, human_normalized
from a2c.run.archive import write_archive
from a2c.run.checkpoint import read_checkpoint, step_file, step_files
from a2c.run.files import make_folders
from a2c.show.style import colour, line, render

HERE = Path(__file__).resolve().parents[1]
KEPT, RUNS = HERE / "docs/results", HERE / "runs/results"
ZOO = HERE / "benchmarks/zoo_curves.csv"
GAMES = (
    *("Asteroids", "BeamRider", "Breakout", "Enduro", "MsPacman"),
    *("Pong", "Qbert", "RoadRunner", "Seaquest", "SpaceInvaders"),
)
PRESETS = {"ppo": ["--algorithm", "ppo"], "a2c": []}  # what a user types
SEEDS = {"ppo": (0, 1), "a2c": (0,)}
STEPS = 4_000_000
MARKS = (500_000, 1_000_000, 2_000_000, 3_000_000, STEPS)
END = 10_000_000  # of the zoo's runs
TWO_CORES = 1.5  # times the speed of one: 1,160 and 735 steps/s of one run (Qbert), Intel, family 6, model 207


class Run(NamedTuple):
    """One training."""

    game: str
    algorithm: str
    seed: int

    @property
    def name(self) -> str:
        """Of its folder and of its file."""
        return f"{env_slug(self.game)}-{self.algorithm}-{self.seed}"

    @property
    def words(self) -> list[str]:
        """The command, as a user types it after `a2c`."""
        words = ["train", "--env", self.game, *PRESETS[self.algorithm], "--seed", str(self.seed), "--steps", str(STEPS)]
        return [*words, "--set", "evaluation.every_env_steps=500000"]

    @property
    def command(self) -> str:
        """The same, as it is kept."""
        return " ".join(["a2c", *self.words])

    def kept(self) -> dict[str, Any] | None:
        """What was kept of it, if it is finished and its command is still the same."""
        file = KEPT / f"{self.name}.json"
        kept = json.loads(file.read_text()) if file.is_file() else {}
        return kept if kept.get("command") == self.command else None

    def score(self, steps: int) -> float:
        """The mean score of the first evaluation at or after so many steps."""
        kept = self.kept() or {}
        return next(each["mean"] for each in kept["evaluations"] if each["env_steps"] >= steps)


def plan(games: list[str], algorithms: list[str], seeds: list[int] | None = None) -> list[Run]:
    """The runs, so that each game has one before any has two."""
    runs = [Run(game, name, seed) for name, game in product(algorithms, games) for seed in SEEDS[name]]
    return sorted((run for run in runs if seeds is None or run.seed in seeds), key=lambda run: run.seed)


def train(run: Run) -> str:
    """Train or resume a run, and keep its evaluations."""
    if run.kept():
        return f"{run.name}: kept already"
    folder = RUNS / run.name
    command = [sys.executable, "-m", "a2c", *run.words, "--run-dir", str(folder), "--auto-resume", "--quiet"]
    ended = subprocess.run(command, cwd=HERE, check=False).returncode
    evaluations = _lines(folder / "evaluations.jsonl")
    if not evaluations or evaluations[-1]["env_steps"] < STEPS:
        return f"{run.name}: stopped (code {ended}); the same command resumes it"
    KEPT.mkdir(exist_ok=True)
    kept = {
        "command": run.command,
        "seconds": round(_lines(folder / "metrics.jsonl")[-1]["seconds"]),  # of training
        "cores": allowed_cores(),
        "evaluations": [{key: each[key] for key in ("env_steps", "mean", "returns")} for each in evaluations],
    }
    (KEPT / f"{run.name}.json").write_text(json.dumps(kept) + "\n")
    return f"{run.name}: {evaluations[-1]['mean']:,.1f} after {kept['seconds'] / 60:.0f} minutes"


def keep_agent(run: Run) -> str:
    """Copy the final weights, the configuration and the last evaluation of a run to runs/GAME-reference."""
    folder, slug = RUNS / run.name, env_slug(run.game)
    if not run.kept() or not folder.is_dir():
        return f"{run.name}: its folder is not here"
    reference = RUNS.parent / f"{slug}-reference"
    saved = read_checkpoint(step_files(folder / "checkpoints")[-1])
    weights = {f"model/{name}": array for name, array in saved.group("model").items()}
    header = from_text(json.dumps(saved.meta))
    shutil.rmtree(reference, ignore_errors=True)
    make_folders(reference / "checkpoints")
    write_archive(step_file(reference / "checkpoints", saved.env_steps), {"meta": header, **weights})
    shutil.copy(folder / "config.yaml", reference)
    last = _lines(folder / "evaluations.jsonl")[-1] | {"checkpoint": f"runs/{reference.name}"}
    (reference / "evaluations.jsonl").write_text(json.dumps(last) + "\n")
    return f"{reference}: {saved.path.name}"


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in file.read_text().splitlines()] if file.is_file() else []


@cache
def zoo() -> dict[tuple[str, str, int], float]:
    """The zoo's scores by game, algorithm and steps."""
    with ZOO.open() as file:
        rows = csv.DictReader(row for row in file if not row.startswith("#"))
        return {(row["game"], row["algorithm"], int(row["steps"])): float(row["score"]) for row in rows}


def finished(algorithm: str) -> dict[str, list[Run]]:
    """The finished runs of each game."""
    runs = {game: [run for run in plan([game], [algorithm]) if run.kept()] for game in GAMES}
    return {game: found for game, found in runs.items() if found}


def table(algorithm: str, runs: dict[str, list[Run]]) -> list[str]:
    """One row a game: our means over seeds by step, and the zoo's at the last mark and at the end of its runs."""
    marks = [f"{steps / 1e6:g} M" for steps in MARKS]
    zoos = ("a2c", "ppo", "dqn")
    heads = [f"zoo {name.upper()}, {at}" for at in (marks[-1], "10 M") for name in zoos]
    rows = [f"| {algorithm.upper()} | seeds | {' | '.join(marks)} | {' | '.join(heads)} |"]
    rows.append("|---|---:|" + "---:|" * (len(marks) + len(heads)))
    for game, found in runs.items():
        ours = [np.mean([run.score(steps) for run in found]) for steps in MARKS]
        theirs = [zoo().get((game, name, steps)) for steps in (STEPS, END) for name in zoos]
        cells = [*ours, *theirs]
        best = " | ".join("-" if score is None else f"{score:,.{0 if abs(score) >= 100 else 1}f}" for score in cells)
        rows.append(f"| {game} | {len(found)} | {best} |")
    return rows


def _normalized(game: str, score: float) -> float:
    known = atari_game(game)
    scaled = None if known is None else human_normalized(known, score)
    assert scaled is not None, f"{game} has no reference scores"
    return scaled


def aggregate(algorithm: str, runs: dict[str, list[Run]], steps: int) -> str:
    """The interquartile mean of the human-normalized scores, with its interval over seeds if there are any."""
    scores = {game: [_normalized(game, run.score(steps)) for run in found] for game, found in runs.items()}
    text = f"{interquartile_mean(scores):.2f}"
    if all(len(each) > 1 for each in scores.values()):
        low, high = stratified_interval(interquartile_mean, scores)
        text += f" (95 % {low:.2f} to {high:.2f})"
    return f"| {algorithm.upper()}, {steps / 1e6:g} M | {len(runs)} | {text} |"


def zoo_aggregate(algorithm: str, games: list[str], steps: int) -> str:
    """The same of the zoo's single runs, over the same games."""
    scores = {game: [_normalized(game, zoo()[game, algorithm, steps])] for game in games}
    return f"| zoo {algorithm.upper()}, {steps / 1e6:g} M | {len(scores)} | {interquartile_mean(scores):.2f} |"


def wins(runs: dict[str, list[Run]], algorithm: str, steps: int) -> str:
    """On how many games the mean over seeds at the end is above the zoo's."""
    above = [
        game for game, found in runs.items() if np.mean([r.score(STEPS) for r in found]) > zoo()[game, algorithm, steps]
    ]
    return f"above the zoo's {algorithm.upper()} at {steps / 1e6:g} M in {len(above)} of {len(runs)} games"


def draw(runs: dict[str, dict[str, list[Run]]]) -> bytes:
    """A panel for each game with a finished run: our runs and the zoo's by step."""
    games = [game for game in GAMES if any(game in by_game for by_game in runs.values())]
    rows = -(-len(games) // 2)
    figure = Figure(figsize=(11, 1 + 2.4 * rows), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False).flat
    for axes, game in zip_longest(panels, games):
        if game is None:
            axes.remove()
            continue
        for index, (algorithm, by_game) in enumerate(runs.items()):
            for number, run in enumerate(by_game.get(game, [])):
                points = [(each["env_steps"], each["mean"]) for each in (run.kept() or {})["evaluations"]]
                label = f"{algorithm.upper()}, each seed" if not number else None
                axes.plot(*zip(*points, strict=True), **line(index), label=label)
        for index, algorithm in enumerate(("a2c", "ppo", "dqn"), start=len(runs)):
            points = [(at, score) for (of, name, at), score in zoo().items() if (of, name) == (game, algorithm)]
            points = sorted(point for point in points if point[0] <= STEPS)
            label = f"zoo {algorithm.upper()}"
            axes.plot(*zip(*points, strict=True), color=colour(index), ls=":", lw=1.4, label=label)
        axes.set_title(game, fontsize=10)
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
        axes.grid(alpha=0.3)
    handles = {name: h for axes in figure.axes for h, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, fontsize=9)
    return render(figure, "png")


def report() -> None:
    """Write docs/results.md and docs/results.png from what was kept."""
    runs = {algorithm: finished(algorithm) for algorithm in PRESETS}
    if not any(runs.values()):
        sys.exit("No run is finished; `python benchmarks/results.py train` makes them.")
    text = ["# Results", "", INTRODUCTION, "", "![scores by step](results.png)"]
    summary = ["| agent, steps | games | interquartile mean |", "|---|---:|---|"]
    for algorithm, by_game in runs.items():
        if by_game:
            kept = [run.kept() or {} for found in by_game.values() for run in found]
            minutes = max(each["seconds"] / (TWO_CORES if each["cores"] == 1 else 1) / 60 for each in kept)
            verdicts = [wins(by_game, *rival) for rival in (("a2c", STEPS), ("ppo", STEPS), ("a2c", END))]
            text += [
                "",
                f"## {algorithm.upper()}: `{' '.join(['a2c train --env GAME', *PRESETS[algorithm]])}`",
                "",
                *table(algorithm, by_game),
                "",
            ]
            text += [f"At {STEPS / 1e6:g} M it is", *(f"- {verdict}" for verdict in verdicts), ""]
            text.append(SPEED.format(minutes=round(minutes), times=TWO_CORES))
            summary += [aggregate(algorithm, by_game, steps) for steps in (MARKS[1], STEPS)]
    common = [game for game in GAMES if any(game in by_game for by_game in runs.values())]
    summary += [zoo_aggregate(name, common, steps) for name, steps in product(("a2c", "ppo", "dqn"), (STEPS, END))]
    text += ["", "## All games", "", AGGREGATE, "", *summary, ""]
    (HERE / "docs/results.md").write_text("\n".join(text))
    (HERE / "docs/results.png").write_bytes(draw(runs))


INTRODUCTION = """\
Mean scores of whole games: 20 an evaluation, sampled actions, no sticky actions, the mean over seeds. Each run is one
command, which `docs/results/RUN.json` holds with every score. `python benchmarks/results.py train` makes the runs
again, `python benchmarks/results.py report` this page. The zoo's are the evaluations of rl-zoo3's own trainings, one
run each, averaged over the 0.25 M steps before (`benchmarks/zoo_curves.csv` names the source)."""
SPEED = """\
A run takes at most {minutes} minutes on two cores. Those made on one core are counted {times} times as fast there, as
measured."""
AGGREGATE = """\
The interquartile mean over games of human-normalized scores (Agarwal et al. 2021; 0 is random play, 1 a human); the
interval is over seeds, by stratified bootstrap, and too narrow with two seeds."""


def main() -> None:
    """Train or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "report", "agents"))
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES), metavar="GAME")
    parser.add_argument("--algorithms", nargs="+", choices=tuple(PRESETS), default=list(PRESETS))
    parser.add_argument("--seeds", nargs="+", type=int)
    chosen = parser.parse_args()
    if chosen.what == "report":
        return report()
    runs = plan(chosen.games, chosen.algorithms, chosen.seeds)
    if chosen.what == "agents":
        print(*(keep_agent(run) for run in runs if (run.algorithm, run.seed) == ("ppo", 0)), sep="\n")
        return None
    for run in runs:
        print(train(run), flush=True)
    return None


if __name__ == "__main__":
    main()
