"""The command line: every command parses, builds a Config, calls one function and prints. No TensorFlow at import."""

from __future__ import annotations

import os
import re
import signal
import sys
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from typer.exceptions import TyperException

from a2c import __version__
from a2c.algorithms.sections import SECTIONS
from a2c.cli import examining, judging, showing, training, tuning
from a2c.cli.console import TerminatedError, drop_output, fail, out
from a2c.config import UserError, nearest_key, shown

_NAMES = [name.upper() for name in SECTIONS]
app = typer.Typer(
    help=f"Train, evaluate and compare reinforcement-learning agents ({', '.join(_NAMES)}) on Atari games.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names may not be valid text
    os.environ["MPLBACKEND"] = "agg"  # one for windows is of no use, and one that is not there ends in a traceback
    signal.signal(signal.SIGTERM, _leave)  # as on Ctrl-C, nothing half-written is left
    _check_for_empty(sys.argv)
    try:
        Path.cwd()
    except FileNotFoundError:
        fail("The current folder does not exist any more; change to another.")
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except UserError as error:
        fail(str(error), error.exit_code)
    except TyperException as error:
        message = error.format_message()
        if not message:
            sys.exit(2)  # no command: the help has been printed
        text = f"{_plain(message).rstrip('.')}{_setting_for(error)}"
        fail(f"{text}{' See' if text.endswith('?') else '; see'} `{_command(error)} --help`.")
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except TerminatedError as error:
        sys.exit(128 + error.signal)
    except BrokenPipeError:
        # the reader of our output has closed the pipe: not an error
        drop_output()
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        fail(f"{error.filename or 'output'}: {error.strerror or error}.")
    except RecursionError:  # raised by Python's own walk through folders
        fail("Its folders are too deep in each other.")


def _check_for_empty(arguments: list[str]) -> None:
    """Fail if one is empty, as a variable that is not set is: as a path it would be the current folder."""
    for before, argument in pairwise(arguments):
        option, separator, value = argument.partition("=")
        if not argument:
            fail(f"What follows {shown(before)} is empty; give it a value.")
        if option.startswith("--") and separator and not value:
            fail(f"{option} is empty; give it a value.")


def _leave(number: int, _: FrameType | None) -> None:
    raise TerminatedError(number)


# messages of libraries, and ours
_WORDS = (
    (r"Value error, ", ""),
    (r"Input should be a valid integer, unable to parse string as an integer", "it should be a whole number"),
    (r"Input should be a valid number, unable to parse string as a number", "it should be a number"),
    (r"Input should be greater than or equal to (\S+)", r"it should be \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"it should be \1 or less"),
)


def _plain(message: str) -> str:
    for theirs, ours in _WORDS:
        message = re.sub(theirs, ours, message)
    return message


def _setting_for(error: TyperException) -> str:
    """A hint at the setting that an unknown option may mean, if the command has --set."""
    option = str(getattr(error, "option_name", "") or "").lstrip("-").replace("-", "_")
    command = getattr(getattr(error, "ctx", None), "command", None)
    changes_settings = any("--set" in parameter.opts for parameter in getattr(command, "params", ()))
    if len(option) < 2 or not changes_settings or "No such option" not in error.format_message():
        return ""
    key = nearest_key(option)
    return f"; the setting {key} is changed by --set {key}=..." if key else ""


def _command(error: TyperException) -> str:
    """The command that was called, such as `a2c train`."""
    context = getattr(error, "ctx", None)
    if context is not None and context.parent is not None:
        return f"a2c {context.info_name}"
    first = sys.argv[1] if len(sys.argv) > 1 else ""  # an option that lacks its value has no context
    return f"a2c {first}" if first in typer.main.get_group(app).commands else "a2c"


def print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        out.print(f"a2c {__version__}")
        raise typer.Exit


@app.callback()
def a2c(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options before a command."""


app.command()(training.train)
app.command("resume")(training.resume)
app.command(context_settings={"allow_interspersed_args": False})(training.launch)
app.command("eval")(judging.eval_)
app.command()(judging.compare)
app.command()(tuning.tune)
app.command()(judging.bench)
app.command()(showing.runs)
app.command()(showing.plot)
app.command()(showing.report)
app.command()(showing.export)
app.command()(examining.doctor)
app.command()(showing.watch)
app.command()(examining.envs)
app.command()(examining.config)
