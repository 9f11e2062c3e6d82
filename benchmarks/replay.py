"""How long resuming plays again: seconds for series of games of several lengths, in every environment.

    python benchmarks/replay.py --game Pong --lengths 1000 10000 27000

27,000 steps are the longest Atari episode there is (108,000 frames); `env.reseed_after` is 10,000 by default, so that a
series is longer only by what its last episode goes beyond that.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from a2c.config import EnvConfig
from a2c.envs import make_vec_env
from a2c.envs.vector import VecEnv


def played(envs: VecEnv, length: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The state of environments that have all played `length` steps, at random, on their first seeds."""
    envs.reset()
    for _ in range(length):
        envs.step(rng.integers(envs.num_actions, size=envs.num_envs))
    return envs.state()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="Pong")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1_000, 5_000, 10_000, 27_000])
    arguments = parser.parse_args()
    # one seed for all: games end as they do, and the series does not
    config = EnvConfig(id=arguments.game, num_envs=arguments.num_envs, reseed_after=10**9)
    print(f"{arguments.game}, {arguments.num_envs} environments")
    print(f"{'steps of each':>14} {'seconds':>8} {'steps/s':>8}")
    for length in arguments.lengths:
        with make_vec_env(config, seed=0) as envs:
            state = played(envs, length, np.random.default_rng(0))
        with make_vec_env(config, seed=0) as envs:
            start = time.perf_counter()
            _, lost = envs.restore(state)
            seconds = time.perf_counter() - start
        assert lost == 0
        print(f"{length:>14,} {seconds:>8.1f} {length * arguments.num_envs / seconds:>8,.0f}")


if __name__ == "__main__":
    main()
