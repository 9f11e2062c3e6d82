"""One task of a comparison in a separate process, since most of TensorFlow's settings are per process.

`python -m a2c.analysis.worker TASK CONFIG ROLLOUTS OUTPUT UPDATES [SWITCH ...]`; the named switches are off.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from a2c.algorithms.algorithm import Algorithm, build_algorithm
from a2c.analysis import numerics
from a2c.analysis.studies.question import run_question
from a2c.analysis.switches import THREADS, switch_off
from a2c.config import Config, UserError, build_config, changed, read_config_file
from a2c.envs import make_vec_env
from a2c.execution.runtime import parts_of, setup
from a2c.run.files import write_atomically


def main(task: str, config_file: str, rollouts_file: str, output: str, updates: str, *off: str) -> None:
    """Do the task and write its result as JSON."""
    if task == "question":
        switch_off(off)
        result: Any = asdict(run_question(updates=int(updates)))
    else:
        config = build_config(read_config_file(Path(config_file)), where=config_file)
        result = _on_rollouts(task, config, Path(rollouts_file), int(updates), off)
    write_atomically(Path(output), json.dumps(result, indent=2) + "\n")


def _on_rollouts(task: str, config: Config, file: Path, updates: int, off: Sequence[str]) -> Any:
    if task == "record":
        setup(config.runtime, parts=parts_of(config))
        numerics.save_rollouts(file, numerics.record(config, updates))
        return {"updates": updates}
    if THREADS not in off:
        setup(config.runtime, parts=parts_of(config))
    switch_off(off)
    rollouts = numerics.load_rollouts(file, updates)
    eager, graph = _algorithms(config)
    if task == "where":
        return asdict(numerics.find_where(eager, graph, rollouts))
    if task == "agree":
        return asdict(numerics.agree(eager, graph, rollouts))
    distances = numerics.growth(eager, graph, rollouts)
    return [{name: asdict(distance) for name, distance in update.items()} for update in distances]


def _algorithms(config: Config) -> list[Algorithm]:
    """The algorithm of a run in eager and in graph mode, with equal weights."""
    with make_vec_env(config.env.model_copy(update={"num_envs": 1}), seed=0) as envs:
        space, num_actions = envs.observation_space, envs.num_actions
    modes = [changed(config, {"runtime.mode": mode}) for mode in ("eager", "graph")]
    return [build_algorithm(each, space, num_actions) for each in modes]


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except UserError as error:
        sys.exit(f"a2c: {error}")
