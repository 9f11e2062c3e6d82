"""The commands that repeat a run and replay its games."""

from __future__ import annotations

import shlex
from typing import Any

from a2c.algorithms.sections import DEFAULT
from a2c.config import Config, dotted, dump_config, preset_config, preset_names
from a2c.config.explain import as_yaml
from a2c.extensions import naming
from a2c.messages import typed_command
from a2c.show.runs import RunRecord

_FLAGS = {"total_env_steps": "--steps", "seed": "--seed", "algorithm.name": "--algorithm"}


def train_command(config: Config) -> str:
    """The command that trains with exactly this configuration: the nearest preset, and `--set` for what differs."""
    wanted, workers = dotted(dump_config(config)), config.runtime.workers
    launched = ["launch", "--workers", str(workers), "--"] if workers > 1 else []
    if launched:  # it says so itself
        del wanted["runtime.workers"], wanted["runtime.strategy"]
    shortest: dict[str, Any] = {}
    words: list[str] = []
    for preset in (None, *preset_names()):  # None: the default of `a2c train`
        named = {"algorithm.name": config.algorithm.name} if preset is None else {}
        near = preset_config(preset, {"env.id": config.env.id, **named})
        if near.algorithm.name != config.algorithm.name:
            continue  # keys of its own would remain
        values = dotted(dump_config(near))
        differing = {key: value for key, value in wanted.items() if key not in values or values[key] != value}
        if preset is None or len(differing) < len(shortest):
            shortest = differing
            words = ["--env", config.env.id, *(["--config", preset] if preset else [])]
            if preset is None and config.algorithm.name != DEFAULT:
                words += ["--algorithm", config.algorithm.name]
    for key, value in ({"seed": config.seed} | shortest).items():
        words += [_FLAGS[key], str(value)] if key in _FLAGS else ["--set", f"{key}={as_yaml(value)}"]
    return shlex.join(["a2c", *launched, "train", *words])


def eval_command(run: RunRecord) -> str:
    """The command that replays the games of the last evaluation, or plays any if there was none."""
    words = _naming(run)
    if run.evaluations:
        last = run.evaluations[-1]
        words += ["--episodes", str(last.episodes)] if last.episodes else []
        words += ["--greedy" if last.policy == "greedy" else "--sample"]
        words += ["--seed", str(last.seed)] if last.seed is not None else []
    return typed_command("eval", run.path, words)


def watch_command(run: RunRecord) -> str:
    """The command that makes a video of a run."""
    return typed_command("watch", run.path, _naming(run))


def _naming(run: RunRecord) -> list[str]:
    env, algorithm, model = (str(run.settings.get(key)) for key in ("env.id", "algorithm.name", "model.name"))
    return naming(env, algorithm, model, run.settings.get("env.wrappers"))
