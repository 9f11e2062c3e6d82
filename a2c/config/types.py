"""What the sections of a configuration are made of: their base, their numbers and texts; and the errors of users."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class UserError(Exception):
    """A mistake of the user's, told in one sentence: what was wrong, what is allowed, what to do."""

    exit_code = 2


class CrashError(UserError):
    """No mistake of the user's: the program, or an environment, failed; told in one sentence all the same."""

    exit_code = 1


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic would take true for 1
        raise ValueError("not a number")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():  # names end up on screens and in the names of folders
        raise ValueError("not printable")
    return value


NUMBER = BeforeValidator(_no_truth_value)
Text = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**63 - 1), NUMBER]
PositiveInt = Annotated[int, Field(ge=1, le=2**63 - 1), NUMBER]
Size = Annotated[int, Field(ge=1, le=65_536), NUMBER]  # of what memory is allocated for
NonNegative = Annotated[float, Field(ge=0), NUMBER]
Probability = Annotated[float, Field(ge=0, le=1), NUMBER]
LAYERS = 64  # the most that a network may have of one kind


class Section(BaseModel):
    """Base of all configuration models: frozen, strict about unknown keys, finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
