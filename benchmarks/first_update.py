"""Seconds from `a2c train --env Pong` to the first line of metrics, of several checkouts in turn.

    python benchmarks/first_update.py --rounds 5 ../before .

Run it with an environment in which all of them work; each is started in its own folder.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def seconds_to_first_update(checkout: Path) -> float:
    """Start a run that logs every update, wait for its first line, and kill it."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        command = [sys.executable, "-m", "a2c", "train", "--env", "Pong", "--set", "logging.every_updates=1"]
        start = time.perf_counter()
        with subprocess.Popen(
            [*command, "--run-dir", run], cwd=checkout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            metrics = run / "metrics.jsonl"
            while not (metrics.exists() and metrics.stat().st_size):
                if process.poll() is not None:
                    sys.exit(f"{checkout}: the run ended with code {process.returncode}.")
                time.sleep(0.01)
            seconds = time.perf_counter() - start
            process.kill()
        return seconds


def main() -> None:
    """Time the checkouts in turn and print medians, and ratios to the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    rounds = [[seconds_to_first_update(tree) for tree in arguments.checkouts] for _ in range(arguments.rounds)]
    for number, tree in enumerate(arguments.checkouts):
        seconds = [row[number] for row in rounds]
        ratio = statistics.median(row[number] / row[0] for row in rounds)
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        print(f"{tree}: median {statistics.median(seconds):.2f} s ({spread}), {ratio:.2f} of the first")


if __name__ == "__main__":
    main()
