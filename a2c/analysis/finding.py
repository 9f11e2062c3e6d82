"""What a check of `a2c doctor` found."""

from typing import Literal, NamedTuple, get_args

Status = Literal["ok", "note", "problem"]
STATUSES = get_args(Status)
REPORT = "report it with what `a2c doctor --json` prints"


class Finding(NamedTuple):
    """The result of one check."""

    check: str
    status: Status
    found: str
    advice: str = ""  # what to do if the status is not ok
