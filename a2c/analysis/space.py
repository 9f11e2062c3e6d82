"""The space of a hyperparameter search: which keys vary, and over what. No Optuna here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from a2c.algorithms.section import AlgorithmSection
from a2c.config import Config, UserError, build_config, dump_config, shown
from a2c.config.loading import check_key, schema_of
from a2c.config.schema import sections
from a2c.config.sources import read_yaml
from a2c.messages import allowed
from a2c.types import NUMBER

MOST_STEPS = 1_000_000  # of a range
DIGITS = 4  # of numbers that are tried: what a table shows is what was trained
FIXED_SECTIONS = ("runtime", "logging", "checkpoint", "evaluation")  # they do not change what is learned
FIXED_KEYS = ("seed", "total_env_steps", "env.id", "algorithm.name")
FORM = "{low: 1e-4, high: 1e-2, log: true}, {low: 1, high: 8, step: 1} or [8, 16]"


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False  # integers


@dataclass(frozen=True)
class Choices:
    """A list of plain values."""

    values: tuple[Any, ...]


Dimension = Range | Choices
Space = dict[str, Dimension]  # by dotted key


def read_space(file: Path | None, config: Config) -> Space:
    """The space of a file, else the default of the configuration's algorithm.

    Raises:
        UserError: if there is none, or a key or a value is not allowed.
    """
    if file is None:
        given, where = config.algorithm.SPACE, "the default space"
        if not isinstance(given, Mapping):
            raise UserError(f"{config.algorithm.name}: the SPACE of its Section has to be a dict of keys: {FORM}.")
        if not given:
            raise UserError(f"There is no default space for {config.algorithm.name}; give one with --space FILE.")
    else:
        given, where = read_yaml(file), str(file)
        if not given:
            raise UserError(f"{file} holds no key to vary, such as optimizer.learning_rate: {FORM}.")
    space = {}
    for key, value in given.items():
        try:
            _check_key(str(key), type(config.algorithm))
            space[key] = _dimension(key, value, type(config.algorithm))
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
    return space


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """A configuration with other values under dotted keys.

    Raises:
        UserError: if they contradict each other.
    """
    values = dump_config(config)
    for key, value in settings.items():
        section, _, leaf = key.rpartition(".")
        (values[section] if section else values)[leaf] = value
    return build_config(values, where="these settings")


def contains(dimension: Dimension, value: Any) -> bool:
    """Whether a value may be drawn from a dimension."""
    if not isinstance(dimension, Range):
        return value in dimension.values
    if type(value) not in (int, float) or not dimension.low <= value <= dimension.high:
        return False
    steps = 0 if dimension.step is None else (value - dimension.low) / dimension.step
    return bool(abs(steps - round(steps)) < 1e-9)


def rounded(dimension: Dimension, value: Any, default: Any) -> Any:
    """A value as it is trained: numbers have DIGITS digits, except the default."""
    if not isinstance(dimension, Range) or dimension.whole or value == default:
        return value
    return min(max(float(f"{value:.{DIGITS}g}"), dimension.low), dimension.high)


def _check_key(key: str, kind: type[AlgorithmSection]) -> None:
    check_key(key, kind)
    if key in FIXED_KEYS or key.partition(".")[0] in FIXED_SECTIONS:
        raise UserError(f"{key} cannot be searched for; set it with --set, --env, --steps or --seed, or leave it out.")


def _dimension(key: str, given: Any, kind: type[AlgorithmSection]) -> Dimension:
    if isinstance(given, dict) and given.keys() == {"choices"}:
        given = given["choices"]
    if isinstance(given, list):
        values = [_valid(key, value, kind) for value in given]
        unique = [value for at, value in enumerate(values) if value not in values[:at]]
        if len(unique) < 2:
            raise UserError(f"{key} needs two or more different choices, and has {shown(given)}.")
        return Choices(tuple(unique))
    if not isinstance(given, dict) or not {"low", "high"} <= given.keys() <= {"low", "high", "log", "step"}:
        raise UserError(f"{key}: {shown(given)} is not of the form {FORM}.")
    return _range(key, given, kind)


def _range(key: str, given: dict[str, Any], kind: type[AlgorithmSection]) -> Range:
    low, high = (_valid(key, given[bound], kind) for bound in ("low", "high"))
    log, step = given.get("log", False), given.get("step")
    if not all(type(bound) in (int, float) for bound in (low, high)):
        raise UserError(f"{key} has no range, since it is no number; name its choices: [A, B].")
    whole = type(low) is int
    if low >= high:
        raise UserError(f"{key}: low={low:g} must be less than high={high:g}.")
    if type(log) is not bool:
        raise UserError(f"{key}: log={shown(log)} is not allowed: it should be true or false.")
    if log and (low <= 0 or step is not None):
        raise UserError(f"{key}: log=true needs a low above 0 and no step; leave log out, or change them.")
    return Range(low, high, log, None if step is None else _step(key, step, low, high, whole=whole), whole)


def _step(key: str, given: Any, low: float, high: float, *, whole: bool) -> float:
    width = high - low
    least = -(-width // MOST_STEPS) if whole else width / MOST_STEPS
    form: Any = Annotated[int if whole else float, Field(ge=least, le=width), NUMBER]
    adapter: TypeAdapter[float] = TypeAdapter(form)
    try:
        step = adapter.validate_python(given)
    except ValidationError:
        kind_of = "a whole number" if whole else "a number"
        raise UserError(
            f"{key}: step={shown(given)} is not allowed: it should be {kind_of} up to high - low, and at least "
            f"{least:g}."
        ) from None
    if (Decimal(str(high)) - Decimal(str(low))) % Decimal(str(step)):  # as Optuna counts
        raise UserError(f"{key}: steps of {step:g} from low do not reach high; change one of the three.")
    return step


def _valid(key: str, value: Any, kind: type[AlgorithmSection]) -> Any:
    """A value as a configuration has it, in plain types; what other keys say of it is not looked at."""
    section, _, leaf = key.rpartition(".")
    field = sections(kind)[section].model_fields[leaf]
    whole: Any = Annotated[(field.annotation, Field(), *field.metadata)]
    adapter: TypeAdapter[Any] = TypeAdapter(whole, config=ConfigDict(allow_inf_nan=False))
    try:
        return adapter.dump_python(adapter.validate_python(value), mode="json")
    except ValidationError:
        raise UserError(f"{key}={shown(value)} is not allowed: it should be {allowed(schema_of(key, kind))}.") from None
