"""The base class of configuration sections, their types of numbers and texts, and the errors shown to users."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class UserError(Exception):
    """A mistake of the user, explained in one sentence: what was wrong, what is allowed, what to do."""

    exit_code = 2


class CrashError(UserError):
    """A failure of the program or an environment, not the user's mistake; also explained in one sentence."""

    exit_code = 1


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic would take true for 1
        raise ValueError("not a number")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():  # it appears on screens and in names of folders
        raise ValueError("not printable")
    return value


NUMBER = BeforeValidator(_no_truth_value)
Text = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**63 - 1), NUMBER]
PositiveInt = Annotated[int, Field(ge=1, le=2**63 - 1), NUMBER]
Size = Annotated[int, Field(ge=1, le=65_536), NUMBER]  # memory is allocated for it
NonNegative = Annotated[float, Field(ge=0), NUMBER]
Probability = Annotated[float, Field(ge=0, le=1), NUMBER]
Coefficient = Annotated[float, Field(ge=0, le=1e6), NUMBER]  # of a loss in float32
LAYERS = 64  # the most that a network may have of one kind


class Section(BaseModel):
    """Base of all configuration models: frozen, strict about unknown keys, finite."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True, validate_default=True
    )
