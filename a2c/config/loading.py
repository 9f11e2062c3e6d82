"""Build a configuration from presets, YAML files, flags and `--set section.key=value`.

Later sources win: the default in `schema`, the preset or file, the command line's flags, `--set`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from a2c.algorithms.section import AlgorithmSection
from a2c.algorithms.sections import DEFAULT, SECTIONS, section_named
from a2c.config.schema import Config, EnvConfig, all_keys, sections
from a2c.config.sources import read_source
from a2c.config.yaml_loader import load_yaml
from a2c.extensions import as_user_error, check_trusted, is_extension, trust, wrapper_names
from a2c.games import gymnasium_id
from a2c.messages import LIST_KEYS, MOST_MISTAKES, allowed, cut, joined, nearest, shown
from a2c.types import Section, UserError

GIVEN = "the options given"  # what an error calls them


def load_config(
    *,
    config: str | Path | None = None,
    env_id: str | None = None,
    overrides: dict[str, Any] | None = None,
    assignments: tuple[str, ...] | list[str] = (),
    wrappers: tuple[str, ...] | list[str] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[Config, str]:
    """Build the configuration of a run.

    Args:
        config: a preset's name or a YAML file. Default: the game's own preset for the algorithm if there is one, else
            the algorithm's own; for the default algorithm `a2c` on Atari games, `vector` for what is neither game nor
            toy.
        env_id: the environment; wins over the file's.
        overrides: dotted keys to values, from flags; None values are ignored.
        assignments: `section.key=value` texts; they win over everything else.
        wrappers: `module:Name` each; those that `env.wrappers` does not have yet are added to it.
        tell: called with a sentence about what the id of the environment means, if it is one of Gymnasium's for Atari.

    Returns:
        The configuration, and the name of the preset or file it came from.

    Raises:
        UserError: for an unknown preset or file; for wrong assignments, keys and values, all in one.
    """
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    if env_id is not None:
        given["env.id"] = env_id
    mistakes: list[str] = []
    for text in assignments:
        with _noted(mistakes):
            key, given[key] = parse_assignment(text)
    names = [given.get(key) for key in ("env.id", "algorithm.name", "model.name")]
    for name in filter(is_extension, [*names, *wrapper_names(given.get("env.wrappers")), *wrappers]):
        trust(str(name))
    source, values = _read(config, given)
    _algorithm(values, source)  # a mistake in it is the file's
    from_file = deepcopy(values)
    _assign_all(values, given, mistakes)
    _add_wrappers(values, wrappers, mistakes)
    with _noted(mistakes):
        built = _build(values, from_file, source)
    if mistakes:  # one of the file's may be told twice, with its name and without
        raise UserError(joined([each for each in mistakes if not any(each in more[1:] for more in mistakes)]))
    if is_extension(built.env.id):
        check_trusted(built.env.id, "env")
    _tell_of_id(values, built.env, tell)
    return built, source


def preset_config(preset: str | None, given: dict[str, Any]) -> Config:
    """A preset, None for the default one, with other values under dotted keys; unlike `load_config` it trusts no code.

    Raises:
        UserError: for an unknown key or a value that is not allowed.
    """
    return _with(_read(preset, given)[1], given)


def _read(config: str | Path | None, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the values of the preset or file that belongs to an environment and an algorithm."""
    algorithm = given.get("algorithm.name")
    source, values = read_source(config, given.get("env.id"), algorithm)
    if is_extension(algorithm):
        _keep_what_it_has(values, str(algorithm), source)
    return source, values


def _build(values: dict[str, Any], from_file: dict[str, Any], source: str) -> Config:
    """Validate a source's values with the options over them; a mistake of the source alone names the source."""
    try:
        return build_config(values, where=GIVEN)
    except UserError:
        build_config(from_file, where=source)
        raise


def _tell_of_id(values: dict[str, Any], env: EnvConfig, tell: Callable[[str], None]) -> None:
    """Say which settings a Gymnasium id of an Atari game stands for, and which of its own are not used."""
    given = (values.get("env") or {}).get("id")
    if given is None or (own := gymnasium_id(given)) is None:
        return
    unused = []
    if env.sticky_action_probability != own.sticky_action_probability:
        unused.append(f"sticky actions {own.sticky_action_probability}")
    if f"{env.frame_skip}" != own.frames:
        unused.append(f"frames {own.frames}")
    text = (
        f"{given} is {env.id} with env.sticky_action_probability={env.sticky_action_probability} and "
        f"env.frame_skip={env.frame_skip}"
    )
    tell(f"{text}; in Gymnasium: {', '.join(unused)}." if unused else f"{text}.")


def build_config(values: Any, *, where: str) -> Config:
    """Validate a nested mapping into a Config; one UserError names all mistakes, up to MOST_MISTAKES."""
    kind = _algorithm(values, where)
    name = kind.model_fields["name"].default
    failure = f"{name}: its Section cannot check the settings"
    with as_user_error(failure) if is_extension(name) else nullcontext():
        try:
            return Config.model_validate(values)
        except ValidationError as error:
            mistakes = error
    raise UserError(f"{where}: {_explain(mistakes, values, kind)}")


def changed(config: Config, changes: dict[str, Any]) -> Config:
    """A configuration with other values under dotted keys, validated like any other; None leaves a key as it is.

    Raises:
        UserError: for an unknown key or a value that is not allowed.
    """
    return _with(dump_config(config), {key: value for key, value in changes.items() if value is not None})


def _with(values: dict[str, Any], given: dict[str, Any]) -> Config:
    mistakes: list[str] = []
    _assign_all(values, given, mistakes)
    if mistakes:
        raise UserError(joined(mistakes))
    return build_config(values, where=GIVEN)


def dump_config(config: Config) -> dict[str, Any]:
    """The configuration as plain nested values, every default written out."""
    return config.model_dump(mode="json")


def dotted(values: dict[str, Any]) -> dict[str, Any]:
    """Nested values, as from `dump_config`, under dotted keys, as for `lookup`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def parse_assignment(text: str) -> tuple[str, Any]:
    """Split `section.key=value`; the value is read as YAML: `true` is a bool, `[64, 64]` a list.

    `1e-3` is a text in YAML, which becomes a number if the setting is one; an argument of a wrapper needs `1.0e-3`.
    """
    key, separator, raw = text.partition("=")
    key = key.strip()
    if not separator or not key:
        raise UserError(
            f"--set {shown(text)} is not of the form section.key=value, for example optimizer.learning_rate=1e-3."
        )
    try:
        value = load_yaml(raw)
    except Exception as error:  # PyYAML may raise anything on hostile text
        why = f" ({cut(problem)})" if (problem := getattr(error, "problem", None)) else ""
        raise UserError(
            f"--set {shown(key)}: the value {shown(raw)} cannot be read as YAML{why}; if it is a text, put quotes "
            "into it."
        ) from None
    return key, value if raw.strip() else raw


def lookup(config: Config, key: str) -> Any:
    """The value of a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _keep_what_it_has(values: dict[str, Any], algorithm: str, source: str) -> None:
    """Drop another algorithm's settings that a user's own algorithm lacks: there is no preset for it."""
    section = values.get("algorithm")
    if isinstance(section, dict) and section.get("name") != algorithm:
        lacking = _algorithm(values, source).model_fields.keys() - section_named(algorithm).model_fields
        values["algorithm"] = {key: value for key, value in section.items() if key not in lacking}


def _add_wrappers(values: dict[str, Any], names: Sequence[str], mistakes: list[str]) -> None:
    env = values.get("env")
    there = (env.get("wrappers") if isinstance(env, dict) else None) or []
    missing = [name for name in dict.fromkeys(names) if name not in wrapper_names(there)]
    if missing and isinstance(there, list):
        _assign_all(values, {"env.wrappers": [*there, *missing]}, mistakes)


@contextmanager
def _noted(mistakes: list[str]) -> Iterator[None]:
    """Note a mistake, so that others can be told with it."""
    try:
        yield
    except UserError as error:
        mistakes.append(str(error))


def _assign_all(values: dict[str, Any], given: dict[str, Any], mistakes: list[str]) -> None:
    """Set dotted keys; the name of the algorithm first, since it decides which keys exist."""
    for key in sorted(given, key=lambda key: key != "algorithm.name"):
        kind = _algorithm(values, GIVEN)
        with _noted(mistakes):
            _assign(values, key, given[key], kind)


def check_key(key: str, kind: type[AlgorithmSection]) -> None:
    """Check that a dotted key exists and is no section.

    Raises:
        UserError: if not.
    """
    if key in sections(kind):
        raise UserError(f"{key} is a section; set one of its keys, such as {_keys_of(key, kind)}.")
    if key not in all_keys(kind):
        raise UserError(_no_such_key(key, kind))


def _assign(values: dict[str, Any], key: str, value: Any, kind: type[AlgorithmSection]) -> None:
    check_key(key, kind)
    *owners, leaf = key.split(".")
    for section in owners:
        inner = values.get(section)
        inner = values[section] = {} if inner is None else inner
        if not isinstance(inner, dict):
            raise UserError(f"{_no_section(section, inner, kind)}.")
        values = inner
    values[leaf] = value


def _algorithm(values: Any, where: str) -> type[AlgorithmSection]:
    """The section of the named algorithm, which decides which keys exist."""
    algorithm = values.get("algorithm") if isinstance(values, dict) else None
    try:
        return section_named(algorithm.get("name", DEFAULT) if isinstance(algorithm, dict) else DEFAULT)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def _explain(error: ValidationError, values: Any, kind: type[AlgorithmSection]) -> str:
    """All mistakes, each in a sentence, up to MOST_MISTAKES."""
    errors = error.errors()
    sentences: dict[str, None] = {}  # a value that may be of two kinds is wrong twice
    inspected = 0
    while inspected < len(errors) and len(sentences) < MOST_MISTAKES:
        sentences[_mistake(errors[inspected], values, kind)] = None
        inspected += 1
    return joined([*sentences], more=len(errors) - inspected)


def _mistake(error: ErrorDetails, values: Any, kind: type[AlgorithmSection]) -> str:
    key = ".".join(str(part) for part in error["loc"][:2])  # the rest are positions in a list
    if error["type"] == "missing" and len(error["loc"]) <= 2:
        return f"{key} must be given."
    if key in all_keys(kind):
        value, schema = value_at(values, key, error["input"]), schema_of(key, kind)
        choices = [each for each in schema.get("enum", ()) if isinstance(each, str) and ":" not in each]
        hint = nearest(value, choices) if isinstance(value, str) else ""
        return f"{key}={shown(value)} is not allowed: it should be {allowed(schema)}.{hint}"
    if error["type"] in ("value_error", "assertion_error"):  # keys of one or several sections contradict each other
        return f"{error['msg'].removeprefix('Value error, ').removeprefix('Assertion failed, ')}."
    if key in sections(kind):
        return f"{_no_section(key, values[key], kind)}."
    if not error["loc"]:
        return f"a configuration must hold sections and keys such as optimizer and seed, not {shown(values)}."
    return _no_such_key(key, kind)


def value_at(values: Any, key: str, default: Any) -> Any:
    """The value of a dotted key; `default` if it was not given, as the default of a user's own Section is wrong."""
    for part in key.split("."):
        if not isinstance(values, dict) or part not in values:
            return default
        values = values[part]
    return values


def schema_of(key: str, kind: type[AlgorithmSection]) -> dict[str, Any]:
    """The allowed values of a dotted key, as a JSON schema."""
    section, _, leaf = key.rpartition(".")
    owner: type[Section] = sections(kind)[section] if section else Config
    schema: dict[str, Any] = _schemas(owner)[leaf]
    return schema


@cache
def _schemas(section: type[Section]) -> dict[str, Any]:
    """The JSON schema of each key of a section."""
    schemas: dict[str, Any] = section.model_json_schema()["properties"]
    return schemas


def _no_such_key(key: str, kind: type[AlgorithmSection]) -> str:
    own = [name for name, section in SECTIONS.items() if key in all_keys(section)]
    if own:
        return f"There is no key {shown(key)} of {kind.model_fields['name'].default}; it is one of {', '.join(own)}."
    meant = nearest_key(key)
    hint = f" Did you mean {meant}?" if meant in all_keys(kind) else nearest(key[:80], all_keys(kind))
    return f"There is no key {shown(key)}.{hint}{LIST_KEYS}"


def keys_of_all_algorithms() -> list[str]:
    """Every dotted key that any algorithm in SECTIONS has, sorted."""
    return sorted({key for section in SECTIONS.values() for key in all_keys(section)})


def nearest_key(word: str) -> str | None:
    """The setting that a name (`learning_rate`) or its initials (`lr`) mean, with or without the section before."""
    section, _, leaf = word.rpartition(".")
    for key in keys_of_all_algorithms():
        owner, _, name = key.rpartition(".")
        if section in ("", owner) and leaf in (name, "".join(part[0] for part in name.split("_"))):
            return key
    return None


def _no_section(name: str, value: Any, kind: type[AlgorithmSection]) -> str:
    return f"{name}={shown(value)} is not allowed: it should be a section with keys such as {_keys_of(name, kind)}"


def _keys_of(section: str, kind: type[AlgorithmSection]) -> str:
    return " and ".join(f"{section}.{key}" for key in list(sections(kind)[section].model_fields)[:2])
