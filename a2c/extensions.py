"""Users' algorithms and networks, named as `module:name`. Their code runs only if the user named them."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from a2c.config.types import UserError

TRUSTED = "A2C_TRUST"  # an environment variable, so that the processes of a comparison or a cluster trust it too
_given: dict[str, Any] = {}


def trust(name: str) -> None:
    """Allow the code of `module:name` to run in this process and in its child processes."""
    os.environ[TRUSTED] = ",".join(dict.fromkeys([*_trusted(), name]))


def register(thing: Any) -> str:
    """Make a class or function known under its `module:name`; returns this name."""
    name = f"{_module(thing)}:{thing.__qualname__}"
    _given[name] = thing
    return name


def is_extension(name: object) -> bool:
    """Whether a name is of the form `module:name`."""
    return isinstance(name, str) and ":" in name


def naming(env: str, algorithm: str, model: str) -> list[str]:
    """The command-line options that name the user code of a run, if any."""
    names = {"--env": env, "--algorithm": algorithm, "--model": model}
    return [word for option, name in names.items() if is_extension(name) for word in (option, name)]


def find_extension(name: str, option: str) -> Any:
    """The object `module:name`, imported if necessary.

    Args:
        name: as typed by a user or written in a configuration.
        option: the option with which a user trusts it, such as algorithm.

    Raises:
        UserError: if it is not trusted, or does not exist.
    """
    if name in _given:
        return _given[name]
    if name not in _trusted():
        raise UserError(
            f"The {option} {name!r} is code of that module, which would be run; if you trust it, say so with "
            f"--{option} {name}."
        )
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise UserError(f"--{option} {name} is not of the form module:name, for example examples.network:build.")
    try:
        found = getattr(import_module(module), attribute)
    except ImportError as error:
        raise UserError(f"--{option} {name}: the module {module!r} cannot be imported ({error}).") from None
    except AttributeError:
        raise UserError(f"--{option} {name}: the module {module!r} has no {attribute!r}.") from None
    _given[name] = found
    return found


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
