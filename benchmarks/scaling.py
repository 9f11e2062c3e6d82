"""How speed and memory grow with environments, threads and batch: `python benchmarks/scaling.py`.

Each row is an `a2c bench` of its own process: the training loop on real frames, warmed up, beside the bare emulator.
Memory is what is resident after the warm-up, before anything is made for the floor.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ENVIRONMENTS = (8, 16, 32, 64, 128, 256, 512)
HEADINGS = "| envs | threads | steps/s | of the floor | emulator, ms | forward, ms | update, ms | batch | memory, MB |"


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="Pong", help="(default: %(default)s)")
    parser.add_argument("--config", default="atari", help="a preset or file (default: %(default)s)")
    parser.add_argument("--envs", type=int, nargs="+", default=ENVIRONMENTS, help="(default: 8 to 512)")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}), help="of each part")
    options = parser.parse_args()
    print(HEADINGS + "\n" + "|---:" * HEADINGS.count(" |") + "|")
    for threads in options.threads:
        for envs in options.envs:
            print(row(envs, threads, measure(options.game, options.config, envs, threads)), flush=True)


def measure(game: str, config: str, envs: int, threads: int) -> dict[str, Any]:
    """One `a2c bench`, as its JSON; what it says against its options is the user's to read."""
    settings = {"env.num_envs": envs, "env.threads": threads, "runtime.threads": threads}
    assignments = [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bench.json")
        command = ["bench", "--env", game, "--config", config, *assignments, "--json", str(file)]
        done = subprocess.run([sys.executable, "-m", "a2c", *command], stdout=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(done.returncode)
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found


def row(envs: int, threads: int, bench: dict[str, Any]) -> str:
    """A line of the table; the times are those of one step of all environments, and of one update."""
    batch = envs * bench["config"]["algorithm"]["rollout_length"]
    middle, each = bench["median"], bench["milliseconds"]
    cells = (
        f"{envs}",
        f"{threads}",
        f"{middle['steps_per_second']:,.0f}",
        f"{middle['achieved']:.2f}",
        f"{envs * each['emulator']:.2f}",
        f"{envs * each['policy forward']:.2f}",
        f"{batch * each['update']:.1f}",
        f"{batch:,}",
        "-" if bench["memory"] is None else f"{bench['memory'] / 1e6:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
