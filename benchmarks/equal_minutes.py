"""Score against minutes: a2c's PPO and A2C beside Stable-Baselines3's, both cores each, in turn.

    python benchmarks/equal_minutes.py train --games Pong      # 80 minutes of a machine that does nothing else
    python benchmarks/equal_minutes.py report                  # docs/equal_minutes.md and .png

Each contestant is the command that a user types, in a process group of its own, which runs while the others are stopped
(SIGSTOP), for SLICE seconds at a time: whatever else the machine does meets all alike. Its minutes count from the
start of its command. `train` keeps docs/equal_minutes/GAME.json; `report` needs nothing else.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from install import LeftOutError, last_error, virtual_environment
from matplotlib.figure import Figure
from results import exit_on_signals

from a2c.config import UserError
from a2c.config.sources import env_slug
from a2c.execution.machine import processor
from a2c.show.style import line, render

HERE = Path(__file__).resolve().parents[1]
KEPT = HERE / "docs/equal_minutes"
GAMES = ("Pong", "Breakout", "Qbert")
NAMES = {"ppo": "a2c, PPO", "a2c": "a2c, A2C", "sb3-ppo": "Stable-Baselines3, PPO", "sb3-a2c": "Stable-Baselines3, A2C"}
OURS = {"ppo": ["--algorithm", "ppo"], "a2c": []}  # what a user types
SLICE = 30.0  # seconds
Point = tuple[float, int, float]  # minutes, agent steps, mean return of the last 100 training games


class Contestant:
    """A training under way, stopped unless its turn has come."""

    def __init__(self, name: str, game: str, seed: int, folder: Path) -> None:
        self.name, self.folder, self.log = name, folder / name, folder / f"{name}.log"
        if name in OURS:
            command = [sys.executable, "-m", "a2c", "train", "--env", game, *OURS[name], "--quiet"]
            command += ["--seed", str(seed), "--run-dir", str(self.folder)]
        else:
            script = str(HERE / "benchmarks/contestants/sb3_run.py")
            peer, algorithm = name.split("-")
            command = [str(virtual_environment(peer)), script, game, algorithm, str(seed), str(self.folder)]
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.seconds, self.points = 0.0, list[Point]()

    def play(self, seconds: float) -> None:
        """Run for so long, and note how well it plays.

        Raises:
            SystemExit: if it failed.
        """
        start = time.monotonic()
        if self.process is None:
            with self.log.open("w") as log:
                self.process = subprocess.Popen(self.command, stdout=log, stderr=log, start_new_session=True)
        else:
            self._signal(signal.SIGCONT)
        try:
            if self.process.wait(timeout=seconds):
                sys.exit(f"{self.name} failed: {last_error(self.log.read_text())}")
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGSTOP)
        self.seconds += time.monotonic() - start
        if latest := self._latest():
            self.points.append((self.seconds / 60, *latest))

    def kill(self) -> None:
        """End it with its children."""
        if self.process is not None:
            self._signal(signal.SIGKILL)
            self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def _latest(self) -> tuple[int, float] | None:
        """Steps and score of the last line of its log that has a score."""
        if (ours := self.folder / "metrics.jsonl").is_file():
            rows = [json.loads(text) for text in ours.read_text().splitlines() if text.endswith("}")]
            keys = ("env_steps", "episode_return_mean")
        elif (theirs := self.folder / "progress.csv").is_file():
            with theirs.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if None not in row.values()]
            keys = ("time/total_timesteps", "rollout/ep_rew_mean")
        else:
            return None
        scored = [row for row in rows if row.get(keys[1]) not in (None, "")]
        return (int(scored[-1][keys[0]]), float(scored[-1][keys[1]])) if scored else None


def train(game: str, seed: int, minutes: float) -> None:
    """Train all contestants on a game, in turn, and keep their curves."""
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        running = {name: Contestant(name, game, seed, Path(folder)) for name in NAMES}
        try:
            for _ in range(round(minutes * 60 / SLICE)):
                for name, contestant in running.items():
                    contestant.play(SLICE)
                    print(game, name, *contestant.points[-1:], flush=True)
                keep(game, seed, running)
        finally:
            for contestant in running.values():
                contestant.kill()


def keep(game: str, seed: int, running: dict[str, Contestant]) -> None:
    """Write docs/equal_minutes/GAME.json, after each round: what stops the last one takes nothing away."""
    curves = {name: contestant.points for name, contestant in running.items()}
    minutes = round(min(contestant.seconds for contestant in running.values()) / 60, 1)
    kept = {"machine": processor(), "cores": os.cpu_count(), "seed": seed, "minutes": minutes, "curves": curves}
    (KEPT / f"{env_slug(game)}.json").write_text(json.dumps(kept) + "\n")


def report() -> None:
    """Write docs/equal_minutes.md and docs/equal_minutes.png from what was kept."""
    files = {game: KEPT / f"{env_slug(game)}.json" for game in GAMES}
    kept = {game: json.loads(file.read_text()) for game, file in files.items() if file.is_file()}
    if not kept:
        sys.exit("No game was played; `python benchmarks/equal_minutes.py train` plays them.")
    rows = ["| game | after | " + " | ".join(NAMES.values()) + " |", "|---|---:|" + "---:|" * len(NAMES)]
    for game, found in kept.items():
        for minutes in (found["minutes"] / 2, found["minutes"]):
            cells = " | ".join(cell(found["curves"][name], minutes) for name in NAMES)
            rows.append(f"| {game} | {minutes:g} minutes | {cells} |")
    machines = "; ".join(f"{game}: {found['machine']}, {found['cores']} cores" for game, found in kept.items())
    text = ["# Equal minutes", "", INTRODUCTION, "", "![score by minutes](equal_minutes.png)", "", *rows, ""]
    (HERE / "docs/equal_minutes.md").write_text("\n".join([*text, f"{machines}.", ""]))
    (HERE / "docs/equal_minutes.png").write_bytes(draw(kept))


def cell(points: list[Point], minutes: float) -> str:
    """Score and steps at the last look within so many minutes; a slice may end a moment late."""
    seen = [point for point in points if point[0] <= minutes + SLICE / 120]
    return f"{seen[-1][2]:,.1f} ({seen[-1][1] / 1e6:.2f} M)" if seen else "-"


def draw(kept: dict[str, dict[str, Any]]) -> bytes:
    """A panel for each game."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for axes, (game, found) in zip(figure.subplots(1, len(kept), squeeze=False).flat, kept.items(), strict=True):
        for index, (name, title) in enumerate(NAMES.items()):
            curve = [(minutes, score) for minutes, _, score in found["curves"][name]]
            axes.plot(*np.reshape(curve, (-1, 2)).T, **line(index), label=title)
        axes.set(title=game, xlabel="minutes")
        axes.grid(alpha=0.3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return render(figure, "png")


INTRODUCTION = """\
Mean raw return of the last 100 training games, with the agent steps that were made. Each contestant has both cores for
the same minutes, start-up included; Stable-Baselines3 has the settings of its zoo
(`benchmarks/contestants/sb3_run.py`), a2c those that `a2c train --env GAME` and `--algorithm ppo` have (on Breakout the
presets `a2c` and `ppo-few-actions`, not today's `breakout` and `breakout-ppo`). The zoo's are one setting for all
games, for 10 M steps; a2c's presets were chosen on these games, Pong's for Pong alone, with this seed among those
looked at. One seed each: enough to see large differences, not small ones. `python benchmarks/equal_minutes.py train`
plays again, `report` writes this page."""


def main() -> int:
    """Train or report; 2 if the user has to change something first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "report"))
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES), metavar="GAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=20.0, help="of each contestant (default: %(default)s)")
    chosen = parser.parse_args()
    if chosen.what == "report":
        report()
        return 0
    exit_on_signals()
    try:
        for game in chosen.games:
            train(game, chosen.seed, chosen.minutes)
    except (UserError, LeftOutError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
