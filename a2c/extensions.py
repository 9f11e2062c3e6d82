"""Code of users' own: algorithms and networks by `module:name`. They run only if the user named them."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from a2c.config.types import UserError

TRUSTED = "A2C_TRUST"  # in the environment, so that the processes of a comparison or a cluster trust it too
_given: dict[str, Any] = {}


def trust(name: str) -> None:
    """Let the code of `module:name` run in this process and in those it starts."""
    os.environ[TRUSTED] = ",".join(dict.fromkeys([*_trusted(), name]))


def register(thing: Any) -> str:
    """Make a class or a function known under `module:name`, which is returned."""
    name = f"{_module(thing)}:{thing.__qualname__}"
    _given[name] = thing
    return name


def is_extension(name: object) -> bool:
    """Whether a name is of the form `module:name`."""
    return isinstance(name, str) and ":" in name


def naming(env: str, algorithm: str, model: str) -> list[str]:
    """The options with which a command names the code that a run was made with, if it was any."""
    names = {"--env": env, "--algorithm": algorithm, "--model": model}
    return [word for option, name in names.items() if is_extension(name) for word in (option, name)]


def find_extension(name: str, option: str) -> Any:
    """What `module:name` means, imported if need be.

    Args:
        name: as a user typed it, or as it stands in a configuration.
        option: with which a user says that it may run, such as algorithm.

    Raises:
        UserError: if nobody said that it may run, or there is no such thing.
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
    """The module of a class or a function, as another process imports it: a script is none by the name of __main__."""
    if thing.__module__ != "__main__":
        return str(thing.__module__)
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):  # python -m package.module
        return str(spec.name)
    return Path(file).stem if (file := getattr(main, "__file__", None)) else "__main__"  # a notebook has no file


def _trusted() -> list[str]:
    return [name for name in os.environ.get(TRUSTED, "").split(",") if name]
