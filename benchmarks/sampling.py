"""The replay: seconds to add, to sample and to save transitions, and the memory they take.

    python benchmarks/sampling.py --capacity 1000000 --size 84

The screens are random bytes, of 8 environments. Run it where nothing else runs, with room for the replay in memory, and
on the disk of --folder.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from gymnasium.spaces import Box

from a2c.data.replay import Replay
from a2c.data.rollout import Rollout
from a2c.run.segments import Segments

B, T, BATCH = 8, 16, 32


def seconds(work: Callable[[], object], times: int) -> float:
    """The median over some calls."""
    each = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        each.append(time.perf_counter() - start)
    return float(np.median(each))


def random_rollout(rng: np.random.Generator, size: int) -> Rollout:
    """T steps of B environments; an episode ends every 500 steps or so."""
    ended = rng.random((T, B)) < 0.002
    return Rollout(
        observations=rng.integers(256, size=(T + 1, B, size, size, 4), dtype=np.uint8),
        actions=rng.integers(6, size=(T, B), dtype=np.int32),
        rewards=rng.normal(size=(T, B)).astype(np.float32),
        terminated=ended,
        truncated=np.zeros_like(ended),
        life_lost=np.zeros_like(ended),
        last_observations=np.zeros((0, size, size, 4), np.uint8),
        said={},
    )


def resident() -> float:
    """GB of memory in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e9


def measure(capacity: int, size: int, *, alpha: float | None, folder: Path) -> None:
    """Print one block of figures."""
    rng, before = np.random.default_rng(0), resident()
    space = Box(0, 255, (size, size, 4), np.uint8)
    replay = Replay(space, capacity=capacity, num_envs=B, n_step=3, stack=4, alpha=alpha)
    rollouts = [random_rollout(rng, size) for _ in range(4)]
    levels = []
    for _ in range(3):  # the first fills the ring; after the third it has been wrapped round twice
        start = time.perf_counter()
        for number in range(-(-capacity // (T * B))):
            replay.add(rollouts[number % 4])
        added = (time.perf_counter() - start) / capacity
        levels.append(f"{resident() - before:.2f}")
    print(f"{capacity:,} of {size} x {size}, {'evenly' if alpha is None else 'by priority'}")
    print(f"  adding {1e6 * added:.1f} us a transition; resident GB after each time round: {', '.join(levels)}")
    print(f"  sampling {BATCH}: {1e3 * seconds(lambda: replay.sample(BATCH, rng), 300):.3f} ms")
    if alpha is not None:
        samples, errors = replay.sample(BATCH, rng), rng.random(BATCH).astype(np.float32)
        print(
            f"  priorities of {BATCH}: {1e3 * seconds(lambda: replay.reprioritise(samples.places, errors), 300):.3f} ms"
        )
    segments = Segments(folder, replay)
    whole = seconds(lambda: segments.save("step-1"), 1)
    for rollout in rollouts * 20:
        replay.add(rollout)
    start = time.perf_counter()
    saved = segments.save("step-2")
    more = time.perf_counter() - start
    print(f"  saving all: {whole:.2f} s; then {20 * 4 * T * B:,} new ones: {more:.3f} s")
    again = Replay(space, capacity=capacity, num_envs=B, n_step=3, stack=4, alpha=alpha)
    again.restore(replay.state())
    print(f"  reading all again: {seconds(lambda: Segments(folder, again).restore(saved), 1):.2f} s")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=84)
    parser.add_argument("--folder", type=Path, help="For the files; default: the system's for temporary files.")
    arguments = parser.parse_args()
    for alpha in (None, 0.6):
        with TemporaryDirectory(dir=arguments.folder) as folder:
            measure(arguments.capacity, arguments.size, alpha=alpha, folder=Path(folder))


if __name__ == "__main__":
    main()
