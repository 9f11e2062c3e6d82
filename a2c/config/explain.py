"""Every setting of a configuration with its meaning, allowed values and default: YAML that `--config` takes."""

from __future__ import annotations

import textwrap
from typing import Any

import yaml
from pydantic_core import PydanticUndefined, to_jsonable_python

from a2c.algorithms.sections import ALLOWED
from a2c.config.loading import dump_config, schema_of
from a2c.config.schema import Config, sections
from a2c.messages import allowed
from a2c.types import Section

SOURCES = {
    "[zoo]": "DLR-RM/rl-baselines3-zoo, hyperparams/*.yml, atari",
    "[oa]": "openai/baselines",
    "[sb3]": "Stable-Baselines3-contrib",
    "[ale]": "ALE's AtariPreprocessing as Gymnasium documents it",
    "[a3c]": "Mnih et al. 2016, arXiv 1602.01783",
    "[trpo]": "Schulman et al. 2015, arXiv 1502.05477, appendix C",
    "[dqn]": "Mnih et al. 2015, doi 10.1038/nature14236",
    "[sacd]": "Christodoulou 2019, arXiv 1910.07207",
    "[rainbow]": "Hessel et al. 2018, arXiv 1710.02298",
}


def explained(config: Config, *, only_changed: bool = False) -> str:
    """The settings as YAML, each below its explanation.

    Args:
        config: whose values are shown.
        only_changed: leave out settings that have their default.
    """
    fields = type(config.algorithm).model_fields
    own = {key: to_jsonable_python(field.default) for key, field in fields.items() if not field.is_required()}
    defaults = {**dump_config(Config()), "algorithm": own}
    lines: list[str] = []
    for name, value in dump_config(config).items():
        if not isinstance(value, dict):
            lines += _setting(config, name, value, defaults[name], only_changed=only_changed)
            continue
        found: list[str] = []
        for key, each in value.items():
            default = defaults[name].get(key, PydanticUndefined)
            setting = _setting(config, f"{name}.{key}", each, default, only_changed=only_changed)
            found += [f"  {line}" for line in setting]
        lines += [f"{name}:", *found] if found else []
    text = "\n".join(lines)
    legend = [f"# {mark} {source}" for mark, source in SOURCES.items() if mark in text]
    return "\n".join([*legend, *lines]) + "\n"


def _setting(config: Config, key: str, value: Any, default: Any, *, only_changed: bool) -> list[str]:
    section, _, leaf = key.rpartition(".")
    kind = type(config.algorithm)
    may_be = ALLOWED
    if key == "algorithm.name":  # its section allows only its own name, which is its default too
        default = Config().algorithm.name
    else:
        may_be = allowed(schema_of(key, kind)).removesuffix(f" to {2**63 - 1}")  # the largest integer is no real limit
    if only_changed and value == default:
        return []
    text = f"{_meaning(sections(kind).get(section, Config), leaf)} Allowed: {may_be}.".lstrip()
    if default is not PydanticUndefined:  # a key of a user's own section may have no default
        text += f" Default: {as_yaml(default)}."
    return [*textwrap.wrap(text, 114, initial_indent="# ", subsequent_indent="# "), f"{leaf}: {as_yaml(value)}"]


def _meaning(owner: type[Section], key: str) -> str:
    """The description of a key in its section, else in the nearest base section."""
    fields = (base.model_fields.get(key) for base in owner.__mro__ if issubclass(base, Section))
    return next((field.description for field in fields if field and field.description), "")


def as_yaml(value: Any) -> str:
    """A value as YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
