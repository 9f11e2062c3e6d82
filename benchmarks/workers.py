"""What several workers make together: `python benchmarks/workers.py`.

Workers of one core each on this machine, in turn 1, 2 and 4 of them, each round anew. Every worker plays and learns
as in `a2c train`; besides, it makes each update alone, on the same rollout, and times the two: what the joint one takes
longer is the all-reduce, and waiting for the slowest. Then it times all-reduces alone, of one number and of as many as
there are gradients. Medians over the rounds, as the chief measures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HEADINGS = (
    "| workers | cores | steps/s | of the first row | rollout, ms | update alone, ms | all-reduce and waiting, ms "
    "| its share | all-reduce of one number, ms | of all gradients, ms |"
)
WARM_UP = 5  # updates
REDUCTIONS = 50  # of each size


def main() -> None:
    """Print the table, a row for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Pong", help="(default: %(default)s)")
    parser.add_argument("--config", default="atari", help="a preset or file (default: %(default)s)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], help="(default: 1 2 4)")
    parser.add_argument("--updates", type=int, default=60, help="of each round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    given = parser.parse_args()
    if min(given.rounds, given.updates, *given.workers) < 1:
        parser.error("--rounds, --updates and --workers must be at least 1")
    found: dict[int, list[dict[str, float]]] = {workers: [] for workers in given.workers}
    for _ in range(given.rounds):
        for workers in given.workers:
            found[workers].append(measure(given, workers))
    print(HEADINGS + "\n" + "|---:" * (HEADINGS.count("|") - 1) + "|")
    first = median(found[given.workers[0]], "steps_per_second")
    for workers, rounds in found.items():
        print(row(workers, rounds, first))


def measure(given: argparse.Namespace, workers: int) -> dict[str, float]:
    """One round of so many workers, as the chief measures it."""
    from a2c.execution.launch import launch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "chief.json")
        arguments = [given.env, given.config, str(given.updates), str(file)]
        code = launch(arguments, workers, command=(sys.executable, __file__, "worker"), warn=sys.exit)
        if code:
            sys.exit(code)
        times: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
        return times


def row(workers: int, rounds: list[dict[str, float]], first: float) -> str:
    """A line of the table."""
    keys = ("steps_per_second", "rollout", "alone", "all_reduce_and_waiting", "one_number", "all_gradients")
    speed, rollout, alone, more, one, every = (median(rounds, key) for key in keys)
    cores = min(workers, len(os.sched_getaffinity(0)))
    cells = (
        f"{workers}",
        f"{cores}",
        f"{speed:,.0f}",
        f"{speed / first:.2f}x",
        f"{rollout:.1f}",
        f"{alone:.1f}",
        f"{more:.1f}",
        f"{100 * more / (rollout + alone + more):.0f} %",
        f"{one:.2f}",
        f"{every:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def median(rounds: list[dict[str, float]], key: str) -> float:
    """Over the rounds."""
    return statistics.median(each[key] for each in rounds)


def work(env: str, preset: str, updates: int, file: Path) -> None:
    """One worker: play, learn alone and together, and where this is the chief leave the mean times in a file."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})  # one worker alone would have them all
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

    from a2c.quiet import quietly

    quietly("a2c.algorithms.algorithm")  # without TensorFlow's words

    from a2c.algorithms.algorithm import build_algorithm
    from a2c.config import load_config
    from a2c.data.collector import build_collector
    from a2c.envs import make_vec_env
    from a2c.execution.replicas import open_replicas
    from a2c.execution.runtime import setup

    config, _ = load_config(config=preset, env_id=env, overrides={"runtime.strategy": "multiworker"})
    setup(config.runtime)
    config, replicas = open_replicas(config)
    first = replicas.index * config.env.num_envs
    with make_vec_env(config.env, seed=0, first=first) as envs:
        together = build_algorithm(config, envs.observation_space, envs.num_actions, replicas=replicas)
        alone = build_algorithm(config, envs.observation_space, envs.num_actions)
        collector = build_collector(config, envs, together.policy)
        times: dict[str, list[float]] = {"rollout": [], "alone": [], "joint": []}
        for _ in range(WARM_UP + updates):
            rollout, _ = timed(times["rollout"], collector.collect)
            timed(times["alone"], lambda r=rollout: float(alone.update(r, 0).metrics["total_loss"]))  # type: ignore[misc]
            timed(times["joint"], lambda r=rollout: float(together.update(r, 0).metrics["total_loss"]))  # type: ignore[misc]
        size = sum(variable.shape.num_elements() for variable in together.policy.model.trainable_variables)
        one, every = (all_reduce_milliseconds(replicas, numbers) for numbers in (1, size))
        replicas.barrier()
    collecting, own, joint = (1e3 * statistics.fmean(each[WARM_UP:]) for each in times.values())
    if replicas.is_chief:
        speed = 1e3 * config.env_steps_per_update / (collecting + joint)
        result = {"steps_per_second": speed, "rollout": collecting, "alone": own, "all_reduce_and_waiting": joint - own}
        result |= {"one_number": one, "all_gradients": every}
        file.write_text(json.dumps(result), encoding="utf-8")


def all_reduce_milliseconds(replicas: Any, numbers: int) -> float:
    """Of one all-reduce of so many float32 numbers, the mean of many."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((numbers,), tf.float32)], autograph=False)
    def reduce(x: Any) -> Any:
        return replicas.first(replicas.run(lambda x: replicas.mean([tf.identity(x)])[0], x))

    x = tf.ones((numbers,))
    float(reduce(x)[0])
    start = time.perf_counter()
    for _ in range(REDUCTIONS):
        float(reduce(x)[0])
    return 1e3 * (time.perf_counter() - start) / REDUCTIONS


def timed(times: list[float], action: Any) -> Any:
    """What an action returns; its seconds are added to `times`."""
    start = time.perf_counter()
    result = action()
    times.append(time.perf_counter() - start)
    return result


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
    else:
        main()
