"""Configuration: the sections and their defaults, presets and files, and the error messages."""

from a2c.config.loading import (
    build_config,
    changed,
    dotted,
    dump_config,
    keys_of_all_algorithms,
    load_config,
    lookup,
    nearest_key,
    parse_assignment,
    preset_config,
)
from a2c.config.schema import (
    MOST_GAMES,
    Config,
    EnvConfig,
    ModelConfig,
    OptimizerConfig,
    RuntimeConfig,
    all_keys,
)
from a2c.config.sources import (
    SCHEMA,
    bring_up_to_date,
    env_slug,
    preset_names,
    read_config_file,
    read_run_config,
)
from a2c.messages import cut, nearest, printable, printable_lines, short_key, short_keys, shown, typed
from a2c.types import CrashError, UserError

__all__ = [
    "MOST_GAMES",
    "SCHEMA",
    "Config",
    "CrashError",
    "EnvConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RuntimeConfig",
    "UserError",
    "all_keys",
    "bring_up_to_date",
    "build_config",
    "changed",
    "cut",
    "dotted",
    "dump_config",
    "env_slug",
    "keys_of_all_algorithms",
    "load_config",
    "lookup",
    "nearest",
    "nearest_key",
    "parse_assignment",
    "preset_config",
    "preset_names",
    "printable",
    "printable_lines",
    "read_config_file",
    "read_run_config",
    "short_key",
    "short_keys",
    "shown",
    "typed",
]
