"""Processes of our own."""

import sys


def own_command(module: str) -> tuple[str, ...]:
    """The command that runs one of our modules; with -P no module of the current folder hides another."""
    return sys.executable, "-P", "-m", module
