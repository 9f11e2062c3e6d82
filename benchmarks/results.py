"""Train PPO and A2C on ten games, and write docs/results.md and docs/results.png beside the curves of rl-zoo3.

    python benchmarks/results.py train                    # all 30 runs, in turn: 15 to 30 hours on two cores
    python benchmarks/results.py train --long                   # two of 10 M steps: 3 hours
    python benchmarks/results.py train --games Pong Breakout --algorithms ppo --seeds 0
    python benchmarks/results.py report
    python benchmarks/results.py agents                         # runs/GAME-reference: the weights of PPO, seed 0

`train` resumes what was stopped, removes what was begun with other settings, skips what is kept with today's, and keeps
docs/results/RUN.json of each finished run; it ends with 1 if a run was stopped or failed. The folders of the runs are
runs/results/RUN. `report` needs only what was kept.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product, zip_longest
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from a2c.analysis.statistics import MIN_SEEDS, interquartile_mean, stratified_interval
from a2c.config import build_config, dotted, dump_config, env_slug, load_config, read_config_file
from a2c.config.sources import read_yaml
from a2c.execution.machine import allowed_cores
from a2c.games import atari_game, human_normalized
from a2c.run.archive import write_archive
from a2c.run.files import make_folders
from a2c.run.lock import is_locked
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
EVALUATION = "evaluation.every_env_steps=500000"
IDLE = ("checkpoint", "logging")  # sections that decide no score
MARKS = (500_000, 1_000_000, 2_000_000, 3_000_000, STEPS)
END = 10_000_000  # of the zoo's runs and of two of ours
LONG_MARKS = (1_000_000, 2_000_000, 4_000_000, 6_000_000, 8_000_000, END)
TWO_CORES = 1.5  # times the speed of one: 1,160 and 735 steps/s of one run (Qbert), Intel, family 6, model 207


class UnfinishedError(Exception):
    """Why a run did not come to its end: a sentence."""


class Run(NamedTuple):
    """One training."""

    game: str
    algorithm: str
    seed: int
    steps: int = STEPS
    preset: str | None = None  # None = the game's own

    @property
    def name(self) -> str:
        """Of its folder and of its file."""
        length = "" if self.steps == STEPS else f"-{self.steps / 1e6:g}m"
        return f"{env_slug(self.game)}-{self.algorithm}-{self.seed}{length}"

    @property
    def words(self) -> list[str]:
        """The command, as a user types it after `a2c`."""
        preset = ["--config", self.preset] if self.preset else PRESETS[self.algorithm]
        what = ["--env", self.game, *preset, "--seed", str(self.seed), "--steps", str(self.steps)]
        return ["train", *what, "--set", EVALUATION]

    @property
    def command(self) -> str:
        """The same, as it is kept."""
        return " ".join(["a2c", *self.words])

    def kept(self) -> dict[str, Any] | None:
        """What was kept of it, if it is finished and its command is still the same."""
        file = KEPT / f"{self.name}.json"
        kept = json.loads(file.read_text()) if file.is_file() else {}
        return kept if kept.get("command") == self.command else None

    def changed(self) -> list[str]:
        """The dotted keys of a kept run's settings that its command sets otherwise today; [] if nothing was kept."""
        kept = self.kept()
        return [] if kept is None else self.differing(kept["settings"])

    def differing(self, settings: dict[str, Any]) -> list[str]:
        """The dotted keys of a run's settings that its command sets otherwise today.

        A key that is newer than the run had its default then.
        """
        given = {"algorithm.name": self.algorithm, "seed": self.seed, "total_env_steps": self.steps}
        command = load_config(env_id=self.game, config=self.preset, overrides=given, assignments=[EVALUATION])[0]
        today = dotted(dump_config(command))
        defaults = dump_config(build_config({"algorithm": {"name": self.algorithm}}, where=self.name))
        then = dotted(defaults) | dotted(settings)
        differing = [key for key in then | today if then.get(key) != today.get(key)]
        return sorted(key for key in differing if key.split(".")[0] not in IDLE)

    def score(self, steps: int) -> float:
        """The mean score of the first evaluation at or after so many steps."""
        kept = self.kept() or {}
        return next(each["mean"] for each in kept["evaluations"] if each["env_steps"] >= steps)


LONG = (Run("Breakout", "a2c", 0, END, preset="a2c"), Run("Pong", "a2c", 0, END))


def plan(games: list[str], algorithms: list[str], seeds: list[int] | None = None) -> list[Run]:
    """The runs, so that each game has one before any has two."""
    runs = [Run(game, name, seed) for name, game in product(algorithms, games) for seed in SEEDS[name]]
    return sorted((run for run in runs if seeds is None or run.seed in seeds), key=lambda run: run.seed)


def train(run: Run) -> str:
    """Train or resume a run, and keep it.

    Returns:
        What came of it: a sentence.

    Raises:
        UnfinishedError: if it was stopped or failed.
    """
    keys = run.changed()
    if run.kept() and not keys:
        return f"{run.name}: kept already"
    if keys:
        print(f"{run.name}: kept with other settings ({', '.join(keys)}), so it is trained anew", flush=True)
    folder = RUNS / run.name
    begun = folder / "config.yaml"
    if begun.is_file() and (keys := run.differing(read_config_file(begun))):
        if is_locked(folder):
            raise UnfinishedError(f"{run.name}: another process trains in {folder}; stop it first")
        print(f"{run.name}: {folder} was begun with other settings ({', '.join(keys)}), so it is removed", flush=True)
        shutil.rmtree(folder)
    command = [sys.executable, "-m", "a2c", *run.words, "--run-dir", str(folder), "--auto-resume", "--quiet"]
    ended = subprocess.run(command, cwd=HERE, check=False).returncode
    if ended < 0 or ended > 128:  # by a signal
        raise UnfinishedError(f"{run.name}: stopped (code {ended}); the same command resumes it")
    evaluations = _lines(folder / "evaluations.jsonl")
    if ended or not evaluations or evaluations[-1]["env_steps"] < run.steps:
        raise UnfinishedError(f"{run.name}: failed (code {ended}); what it said is above")
    kept = keep(run, folder)
    return f"{run.name}: {evaluations[-1]['mean']:,.1f} after {kept['seconds'] / 60:.0f} minutes"


def keep(run: Run, folder: Path) -> dict[str, Any]:
    """Write docs/results/RUN.json of the folder of a finished run, and return what it holds."""
    evaluations, metrics = _lines(folder / "evaluations.jsonl"), _lines(folder / "metrics.jsonl")
    speed = median(line["steps_per_second"] for line in metrics)  # a pause does not count
    kept = {
        "command": run.command,
        "settings": read_config_file(folder / "config.yaml"),
        "versions": read_yaml(folder / "config.yaml")["provenance"],
        "seconds": round(metrics[-1]["env_steps"] / speed),  # of training
        "cores": allowed_cores(),
        "evaluations": [{key: each[key] for key in ("env_steps", "mean", "returns")} for each in evaluations],
    }
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{run.name}.json").write_text(json.dumps(kept) + "\n")
    return kept


def train_all(runs: list[Run]) -> int:
    """Train the runs in turn; returns the exit code, 1 if any was stopped or failed."""
    exit_on_signals()
    code = 0
    for run in runs:
        try:
            print(train(run), flush=True)
        except UnfinishedError as error:
            print(error, file=sys.stderr, flush=True)
            code = 1
    return code


def exit_on_signals() -> None:
    """Make SIGTERM and SIGHUP end this process as `sys.exit` does, so that it ends its children first.

    A SIGHUP that is ignored stays ignored, for `nohup`.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _exit)


def _exit(number: int, _: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # a second one must not keep it from ending its children
    sys.exit(128 + number)


def keep_agent(run: Run) -> str:
    """Copy the final weights, the configuration and the last evaluation of a run to runs/GAME-reference."""
    from a2c.execution.replicas import from_text  # imports TensorFlow: all else does without it here
    from a2c.run.checkpoint import read_checkpoint
    from a2c.run.step_files import step_file, step_files

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


def table(algorithm: str, runs: dict[str, list[Run]], marks: tuple[int, ...] = MARKS) -> list[str]:
    """One row a game: our means over seeds by step, and the zoo's at the last mark and at the end of its runs."""
    zoos = list(product(dict.fromkeys((marks[-1], END)), ("a2c", "ppo", "dqn")))
    heads = [f"{steps / 1e6:g} M" for steps in marks]
    heads += [f"zoo {name.upper()}, {steps / 1e6:g} M" for steps, name in zoos]
    rows = [f"| {algorithm.upper()} | seeds | {' | '.join(heads)} |", "|---|---:|" + "---:|" * len(heads)]
    for game, found in runs.items():
        ours = [np.mean([run.score(steps) for run in found]) for steps in marks]
        theirs = [zoo().get((game, name, steps)) for steps, name in zoos]
        cells = [*ours, *theirs]
        best = " | ".join("-" if score is None else f"{score:,.{0 if abs(score) >= 100 else 1}f}" for score in cells)
        mark = ", other settings" if any(run.changed() for run in found) else ""
        rows.append(f"| {game}{mark} | {len(found)} | {best} |")
    return rows


def _normalized(game: str, score: float) -> float:
    known = atari_game(game)
    scaled = None if known is None else human_normalized(known, score)
    assert scaled is not None, f"{game} has no reference scores"
    return scaled


def over_games(scores: Mapping[str, Any]) -> float:
    """The interquartile mean of scores, game -> [seeds]; of the games' means if their numbers of seeds differ."""
    if len({len(each) for each in scores.values()}) > 1:  # else a game with more seeds would weigh more
        scores = {game: [np.mean(each)] for game, each in scores.items()}
    return interquartile_mean(scores)


def aggregate(algorithm: str, runs: dict[str, list[Run]], steps: int) -> str:
    """A row: human-normalised scores over games, with the interval over seeds if there are enough of each game."""
    scores = {game: [_normalized(game, run.score(steps)) for run in found] for game, found in runs.items()}
    text = f"{over_games(scores):.2f}"
    if all(len(each) >= MIN_SEEDS for each in scores.values()):
        low, high = stratified_interval(over_games, scores)
        text += f" (95 % {low:.2f} to {high:.2f})"
    return f"| {algorithm.upper()}, {steps / 1e6:g} M | {text} |"


def zoo_aggregate(algorithm: str, games: Iterable[str], steps: int) -> str:
    """The same of the zoo's single runs of these games."""
    scores = {game: [_normalized(game, zoo()[game, algorithm, steps])] for game in games}
    return f"| zoo {algorithm.upper()}, {steps / 1e6:g} M | {over_games(scores):.2f} |"


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


def section(algorithm: str, runs: dict[str, list[Run]]) -> list[str]:
    """The lines about one algorithm and the zoo's runs of the same games."""
    found = [run for each in runs.values() for run in each]
    verdicts = [wins(runs, *rival) for rival in (("a2c", STEPS), ("ppo", STEPS), ("a2c", END))]
    missing = [game for game in GAMES if game not in runs]
    rows = [aggregate(algorithm, runs, steps) for steps in (MARKS[1], STEPS)]
    rows += [zoo_aggregate(name, runs, steps) for name, steps in product(("a2c", "ppo", "dqn"), (STEPS, END))]
    text = [f"## {algorithm.upper()}: `{' '.join(['a2c train --env GAME', *PRESETS[algorithm]])}`", ""]
    text += [*table(algorithm, runs), "", *other_settings(found)]
    text += [f"At {STEPS / 1e6:g} M it is", *(f"- {verdict}" for verdict in verdicts), "", COUNTS, ""]
    text += [speed(found), ""]
    text += [f"### {algorithm.upper()} over {len(runs)} of {len(GAMES)} games", ""]
    if missing:
        text += [f"Not run yet: {', '.join(missing)}.", ""]
    return [*text, AGGREGATE, "", "| agent, steps | interquartile mean |", "|---|---|", *rows, ""]


def long_section() -> list[str]:
    """The lines about the runs of 10 M steps; none if none is finished."""
    found = [run for run in LONG if run.kept()]
    if not found:
        return []
    rows = table("a2c", {run.game: [run] for run in found}, LONG_MARKS)
    text = ["## A2C to 10 M steps: `a2c train --env GAME --steps 10M`", "", *rows, "", *other_settings(found)]
    return [*text, LONGER, "", speed(found), ""]


def other_settings(runs: list[Run]) -> list[str]:
    """A line about the runs whose settings their command does not have today; none if there are none."""
    changed = [f"{run.name} ({', '.join(keys)})" for run in runs if (keys := run.changed())]
    return [f"Made with other settings than this command has today: {'; '.join(changed)}.", ""] if changed else []


def speed(runs: list[Run]) -> str:
    """How long the longest run takes on two cores, as far as it was measured."""
    kept = [run.kept() or {} for run in runs]
    minutes = max(each["seconds"] / (TWO_CORES if each["cores"] == 1 else 1) / 60 for each in kept)
    return SPEED.format(minutes=round(minutes), times=TWO_CORES)


def report() -> None:
    """Write docs/results.md and docs/results.png from what was kept."""
    runs = {algorithm: finished(algorithm) for algorithm in PRESETS}
    if not any(runs.values()):
        sys.exit("No run is finished; `python benchmarks/results.py train` makes them.")
    text = ["# Results", "", INTRODUCTION, "", "![scores by step](results.png)", ""]
    text += [line for algorithm, by_game in runs.items() if by_game for line in section(algorithm, by_game)]
    text += long_section()
    (HERE / "docs/results.md").write_text("\n".join(text))
    (HERE / "docs/results.png").write_bytes(draw(runs))


INTRODUCTION = """\
Mean scores of whole games: 20 an evaluation, sampled actions, no sticky actions, the mean over seeds. Each run is one
command, which `docs/results/RUN.json` holds with its settings, versions and every score. `python benchmarks/results.py
train` makes the runs that are missing or had other settings, and `python benchmarks/results.py report` this page. The
zoo's are the evaluations of rl-zoo3's own trainings, one run each, sampled or greedy as the zoo plays, averaged over
the last 0.25 M steps before the column's (`benchmarks/zoo_curves.csv` names the source). Other seeds can score far
less: with an earlier preset PPO had 293 and 187 on Breakout, in training, with seeds 0 and 1
([experiments](experiments.md))."""
COUNTS = """\
These counts, of scores that are not rounded, are a description, with no interval: so few runs are no test. The presets
were chosen on these games, with seed 0 among the seeds looked at, while each of the zoo's algorithms has one setting
for all games."""
SPEED = """\
A run takes at most {minutes} minutes of training on two cores; its start, its evaluations and pauses are not counted.
Runs made on one core are counted {times} times as fast there, as one of Qbert was."""
LONGER = """\
The rate falls to 0 at 10 M steps, not at 4 M, so these runs are others from the start on. Breakout's has the preset
`a2c` (`--config a2c`), in which the rate falls, not today's `breakout`."""
AGGREGATE = f"""\
The interquartile mean of human-normalised scores over these games (Agarwal et al. 2021; 0 is random play, 1 a human).
If games differ in their number of seeds, it is that of their means over seeds. A 95 % interval over seeds (stratified
bootstrap) is given from {MIN_SEEDS} seeds of each game on: with fewer it would be too narrow."""


def main() -> int:
    """Train, report or keep agents; 1 if a run did not come to its end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    training, agents, _ = (commands.add_parser(name) for name in ("train", "agents", "report"))
    for command in (training, agents):
        command.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES), metavar="GAME")
    training.add_argument("--algorithms", nargs="+", choices=tuple(PRESETS), default=list(PRESETS))
    training.add_argument("--seeds", nargs="+", type=int)
    training.add_argument("--long", action="store_true", help="the runs of 10 M steps, not those of 4 M")
    chosen = parser.parse_args()
    if chosen.what == "report":
        report()
        return 0
    if chosen.what == "agents":
        print(*(keep_agent(run) for run in plan(chosen.games, ["ppo"], [0])), sep="\n")
        return 0
    if chosen.long:
        return train_all([run for run in LONG if run.game in chosen.games])
    runs = plan(chosen.games, chosen.algorithms, chosen.seeds)
    if not runs:
        known = [f"{name} --seeds {' '.join(map(str, SEEDS[name]))}" for name in chosen.algorithms]
        training.error(f"there is no such run; there are --algorithms {', or '.join(known)}")
    return train_all(runs)


if __name__ == "__main__":
    sys.exit(main())
