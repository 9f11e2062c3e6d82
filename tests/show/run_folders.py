"""Run folders with logs made up for the case at hand, in the form that training writes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from conftest import small_config

from a2c.algorithms.sections import A2CSection
from a2c.config import SCHEMA, dump_config
from a2c.run.metrics import RUN_COLUMNS

STEPS = 100  # agent steps between two lines


def make_run(
    folder: Path,
    returns: Sequence[float | None],
    *,
    evaluations: Sequence[dict[str, Any]] = (),
    init_from: str | None = None,
    **config: Any,
) -> Path:
    """A run that logged these mean returns, every 100 agent steps and 2 seconds, after 10 games each."""
    folder.mkdir(parents=True)
    settings = dump_config(small_config(**config))
    provenance = {"a2c": "0.1.0", "git": "abc", **({"init_from": init_from} if init_from else {})}
    (folder / "config.yaml").write_text(yaml.safe_dump({"schema": SCHEMA, **settings, "provenance": provenance}))
    lines = [record((i + 1) * STEPS, value) for i, value in enumerate(returns)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in evaluations))
    return folder


def record(env_steps: int, value: float | None) -> dict[str, Any]:
    """A line of metrics; all quantities that say nothing of the agent's score are 1."""
    values = dict.fromkeys([*RUN_COLUMNS, *(metric.name for metric in A2CSection.METRICS)], 1.0)
    values |= {"env_steps": env_steps, "frames": 4 * env_steps, "seconds": env_steps / 50, "updates": env_steps // 10}
    values |= {"episodes": env_steps // 10, "episode_return_mean": value}
    return values


def evaluation(env_steps: int, mean: float, **changes: Any) -> dict[str, Any]:
    """A line of evaluations.jsonl."""
    values = {"env_steps": env_steps, "mean": mean, "interval": [mean - 1, mean + 2], "median": mean, "minimum": -5.0}
    values |= {"maximum": 7.0, "human_normalized": 0.5, "episodes": 20, "seed": 3, "policy": "sampled"}
    return {**values, "protocol": {"sticky_action_probability": 0.25, "noop_max": 30}, **changes}
