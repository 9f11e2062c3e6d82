"""`a2c` and `python -m a2c`: what has to be done before the command line is imported."""

import os
import re
import signal
import sys
from pathlib import Path


def main() -> None:
    """Run the command line."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the shell, as by `2>&-`; the next file would get its descriptor
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 (for as long as the process)
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):  # rich and Typer print nothing, or fail, with other texts
        if not re.fullmatch("0*[1-9][0-9]{0,3}", os.environ.get(name, ""), re.ASCII):
            os.environ.pop(name, None)
    if is_ours := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports without a traceback
    from a2c.cli import main

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


if __name__ == "__main__":
    main()
