"""Shared fixtures: a small, fast configuration on real environments."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from a2c.config import Config, build_config


def small_config(**sections: object) -> Config:
    """Pong through a small network: 4 environments, 8 steps, an update every 32 agent steps."""
    values = {
        "total_env_steps": 320,
        "env": {"id": "Pong", "num_envs": 4, "screen_size": 42, "sticky_action_probability": 0.25},
        "model": {"name": "small", "conv_layers": [[4, 4, 4], [8, 4, 2]]},
        "algorithm": {"rollout_length": 8, "gae_lambda": 0.95},
        "logging": {"every_updates": 2},
        "checkpoint": {"every_updates": 4},
    }
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section} if isinstance(section, dict) else section
    return build_config(values, where="test")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"
