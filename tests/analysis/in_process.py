"""A place that runs jobs in this process, one after the other: without the 5 s of imports that a new one takes."""

import contextlib
import runpy
import sys

import pytest

from a2c.analysis.jobs import Job, Place


class InProcess(Place):
    """Where a comparison's own code is the subject; processes, their environment and signals need a real place.

    Args:
        stop_before: jobs that are begun before one is refused as by Ctrl-C; None: all are run.
    """

    cpus = 1

    def __init__(self, stop_before: int | None = None) -> None:
        self.names: list[str] = []
        self.stop_before = stop_before

    def start(self, job: Job) -> "Ended":
        if len(self.names) == self.stop_before:
            raise KeyboardInterrupt
        self.names.append(job.name)
        python, safe_path, option, module, *words = job.command
        assert (python, safe_path, option) == (sys.executable, "-P", "-m")
        with (
            pytest.MonkeyPatch.context() as patch,
            job.log.open("w") as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            patch.setattr(sys, "argv", [module, *words])
            patch.setattr(sys, "path", list(sys.path))  # the import of what is named adds the folder
            try:
                runpy.run_module(module, run_name="__main__")
            except SystemExit as ended:
                return Ended(ended.code or 0)
        return Ended(0)


class Ended:
    """A job that has ended, in the words of `subprocess.Popen`."""

    def __init__(self, code: int) -> None:
        self.code = code

    def poll(self) -> int:
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        return self.code

    def terminate(self) -> None: ...

    def kill(self) -> None: ...
