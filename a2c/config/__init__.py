"""Configuration: the sections and their defaults, presets and files, and the words for what is not allowed."""

from a2c.config.loading import (
    CHANGES,
    SCHEMA,
    build_config,
    changed,
    dotted,
    dump_config,
    env_slug,
    load_config,
    lookup,
    parse_assignment,
    preset_names,
    read_config_file,
    read_provenance,
)
from a2c.config.messages import nearest, shown
from a2c.config.schema import (
    CheckpointConfig,
    Config,
    EnvConfig,
    EvaluationConfig,
    LoggingConfig,
    ModelConfig,
    OptimizerConfig,
    RuntimeConfig,
    all_keys,
)
from a2c.config.types import CrashError, UserError

__all__ = [
    "CHANGES",
    "SCHEMA",
    "CheckpointConfig",
    "Config",
    "CrashError",
    "EnvConfig",
    "EvaluationConfig",
    "LoggingConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RuntimeConfig",
    "UserError",
    "all_keys",
    "build_config",
    "changed",
    "dotted",
    "dump_config",
    "env_slug",
    "load_config",
    "lookup",
    "nearest",
    "parse_assignment",
    "preset_names",
    "read_config_file",
    "read_provenance",
    "shown",
]
