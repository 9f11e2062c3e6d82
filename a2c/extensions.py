"""Users' algorithms, networks and wrappers, named as `module:name`. Their code runs only if the user named them."""

from __future__ import annotations

import importlib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from a2c.messages import nearest
from a2c.quiet import quietly
from a2c.types import UserError

TRUSTED = "A2C_TRUST"  # an environment variable, so that the processes of a comparison or a cluster trust it too
EXAMPLES = {"algorithm": "reinforce:Reinforce", "model": "network:build", "wrapper": "steady:Steady"}
MOST_LETTERS = 300  # of what a user's code raised
_given: dict[str, Any] = {}
_NOT_THEIRS = (  # no places in a user's code
    str(Path(__file__).parent) + os.sep,
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")),
    "<",
)


def trust(name: str) -> None:
    """Allow the code of `module:name` to run in this process and in its child processes."""
    os.environ[TRUSTED] = ",".join(dict.fromkeys([*_trusted(), name]))


def register(thing: Any) -> str:
    """Make a class or function known under its `module:name`; returns this name.

    Raises:
        UserError: if it has no name.
    """
    if not hasattr(thing, "__qualname__"):  # such as a functools.partial
        raise UserError(f"{thing!r} has no name under which another process finds it; give a class or a function.")
    name = f"{_module(thing)}:{thing.__qualname__}"
    _given[name] = thing
    return name


def is_extension(name: object) -> bool:
    """Whether a name is of the form `module:name`."""
    return isinstance(name, str) and ":" in name


def naming(env: str, algorithm: str, model: str, wrappers: Any) -> list[str]:
    """The command-line options that name the user code of a run, if any; `wrappers` is the value of env.wrappers."""
    names = [("--env", env), ("--algorithm", algorithm), ("--model", model)]
    names += [("--wrapper", name) for name in wrapper_names(wrappers)]
    return [word for option, name in dict.fromkeys(names) if is_extension(name) for word in (option, name)]


def split_wrapper(entry: str | Mapping[str, Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of an entry of env.wrappers: `module:Name` or {`module:Name`: arguments}.

    Lists become tuples, which Gymnasium's wrappers take for shapes.
    """
    name, arguments = (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))
    return name, {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}


def wrapper_names(entries: Any) -> list[str]:
    """The names in the value of env.wrappers; what is not of its form has none."""
    listed = entries if isinstance(entries, list | tuple) else []
    names = (next(iter(entry), None) if isinstance(entry, Mapping) else entry for entry in listed)
    return [str(name) for name in names if is_extension(name)]


def check_trusted(name: str, option: str) -> None:
    """Check that the user has named the code `module:name`; arguments and error as for `find_extension`."""
    if name not in _given and name not in _trusted():
        raise UserError(
            f"The {option} {name!r} is code of that module, which would be run; if you trust it, say so with "
            f"--{option} {name}."
        )


def find_extension(name: str, option: str) -> Any:
    """The object `module:name`, imported if necessary.

    Args:
        name: as typed by a user or written in a configuration.
        option: the option with which a user trusts it, such as algorithm.

    Raises:
        UserError: if it is not trusted, or does not exist.
    """
    check_trusted(name, option)
    if name in _given:
        return _given[name]
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise UserError(f"--{option} {name} is not of the form module:name, for example {EXAMPLES[option]}.")
    if module == "__main__":
        raise UserError(f"--{option} {name}: no other process can import what a notebook defines; put it into a file.")
    if option in ("algorithm", "model") and _is_there(module.partition(".")[0]):
        quietly("tensorflow")  # which their modules import
    try:
        imported = import_named(module)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise UserError(f"--{option} {name}: there is no module {error.name!r} here or on PYTHONPATH.") from None
        raise UserError(f"--{option} {name}: the module {module!r} cannot be imported: {described(error)}.") from error
    if not hasattr(imported, attribute):
        names = [each for each in dir(imported) if not each.startswith("_")]
        raise UserError(f"--{option} {name}: the module {module!r} has no {attribute!r}.{nearest(attribute, names)}")
    _given[name] = getattr(imported, attribute)
    return _given[name]


def import_named(module: str) -> ModuleType:
    """Import a module that the user has named, from the current folder if Python finds it nowhere else.

    Only then is the folder searched, and from then on: TensorFlow and others look for packages that may be missing, and
    a stranger's folder may hold files of those names.
    """
    package = module.partition(".")[0]
    if package not in sys.modules and not find_spec(package):
        sys.path.append(str(Path.cwd()))
    return importlib.import_module(module)


@contextmanager
def as_user_error(failure: str, kind: type[UserError] = UserError) -> Iterator[None]:
    """Make whatever a user's code raises an error of this kind: `failure`, what was raised, and where."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        raise kind(f"{failure}: {described(error)}.") from error


def described(error: BaseException) -> str:
    """What a user's code raised, and where: `ValueError: no such colour (mine.py, line 3)`."""
    first_line = " ".join(str(error).strip().splitlines()[:1])
    text = re.sub(r"\{\{function_node .*?\}\} *", "", first_line).rstrip(". ")  # names of TensorFlow's own come first
    text = text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_NOT_THEIRS)]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


def _is_there(module: str) -> bool:
    return bool(find_spec(module) or PathFinder.find_spec(module, [str(Path.cwd())]))


def _module(thing: Any) -> str:
    """The module name of a class or function by which another process can import it, instead of __main__."""
    if thing.__module__ != "__main__":
        return str(thing.__module__)
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):  # python -m package.module
        return str(spec.name)
    return Path(file).stem if (file := getattr(main, "__file__", None)) else "__main__"  # a notebook has no file


def _trusted() -> list[str]:
    return [name for name in os.environ.get(TRUSTED, "").split(",") if name]
