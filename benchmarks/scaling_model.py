"""What more workers give, on paper: `python benchmarks/scaling_model.py --iteration-ms 39 --steps 80 --megabytes 6.75`.

A worker alone makes an update of `--steps` agent steps in `--iteration-ms`. With N workers an update takes as long as
the slowest of them, plus a ring all-reduce of the gradients: 2 (N - 1) messages one after the other, each of 1/N of the
bytes. So give the slowest worker's time, and what is measured between workers rather than what is written on the link.
Where an update makes several all-reduces, the small ones cost their messages: give that many times the latency.
"""

from __future__ import annotations

import argparse


def all_reduce_seconds(workers: int, size: float, bandwidth: float, latency: float) -> float:
    """Of `size` bytes in a ring, at `bandwidth` bytes and `latency` seconds a message."""
    messages = 2 * (workers - 1)
    return messages * (latency + size / workers / bandwidth)


def main() -> None:
    """Print a table: a row for each number of workers, a column for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iteration-ms", type=float, required=True, help="of one worker alone: rollout and update")
    parser.add_argument("--steps", type=int, required=True, help="of one worker's rollout: T x B")
    parser.add_argument("--megabytes", type=float, required=True, help="of gradients: parameters x 4 / 10^6")
    parser.add_argument("--gbits", type=float, nargs="+", default=[1, 10, 100], help="a second, of each worker's link")
    parser.add_argument("--latency-us", type=float, default=50, help="of one message (default: %(default)s)")
    parser.add_argument("--workers", type=int, nargs="+", default=[8, 64, 512])
    given = parser.parse_args()
    alone = given.iteration_ms / 1e3
    print("| workers | steps of an update |" + "".join(f" {g:g} Gbit/s |" for g in given.gbits))
    print("|---:" * (2 + len(given.gbits)) + "|")
    for workers in given.workers:
        cells = []
        for gbits in given.gbits:
            reduce = all_reduce_seconds(workers, given.megabytes * 1e6, gbits * 1e9 / 8, given.latency_us / 1e6)
            rate = workers * given.steps / (alone + reduce)
            cells.append(f"{1e3 * reduce:,.1f} ms, {float(f'{rate:.3g}'):,.0f} steps/s, {alone / (alone + reduce):.0%}")
        print(f"| {workers:,} | {workers * given.steps:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
