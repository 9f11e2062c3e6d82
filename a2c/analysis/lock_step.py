"""The same updates on the same recorded rollouts in fresh processes, and the search for what makes them differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from a2c.analysis import switches as sw
from a2c.analysis.jobs import Job, run_jobs
from a2c.analysis.numerics import Agreement, Distance, Where
from a2c.analysis.request import Request
from a2c.analysis.studies.question import QuestionResult
from a2c.config import Config, dump_config
from a2c.execution.processes import own_command
from a2c.execution.runtime import INEXACT_PASSES
from a2c.reading import read_text
from a2c.run.files import remove, write_atomically

WHY_UPDATES = 5
RESULTS: dict[str, Any] = {  # of the tasks of `a2c.analysis.worker`
    "record": dict,
    "where": Where,
    "agree": Agreement,
    "growth": list[dict[str, Distance]],
    "question": QuestionResult,
}


@dataclass(frozen=True)
class Tried:
    """One row of the table of switches: what was off, and the outcome."""

    off: tuple[str, ...]
    outcome: Agreement | QuestionResult


@dataclass(frozen=True)
class Why:
    """The smallest set of switches that makes eager and graph agree when switched off."""

    trials: tuple[Tried, ...]
    smallest: tuple[str, ...] | None  # () if they agree anyway, None if no set suffices


class LockStep:
    """The first three parts of `compare_modes`.

    Args:
        request: the options.
        folder: of the comparison.
        config: of the graph with exact numerics.
    """

    def __init__(self, request: Request, folder: Path, config: Config) -> None:
        self.request = request
        self.folder = folder
        self.config = config

    def where(self) -> dict[str, Where]:
        """Where eager and graph first differ, by the numerics of the graph."""
        return self._by_numerics("where")

    def why(self) -> Why:
        """Which switches make them differ."""
        return explain(partial(self._run, "why", "agree", min(WHY_UPDATES, self.request.updates)))

    def growth(self) -> dict[str, list[dict[str, Distance]]]:
        """How far they are apart after each update, by the numerics of the graph."""
        return self._by_numerics("growth")

    def _by_numerics(self, task: str) -> dict[str, Any]:
        fast, exact = self._run(task, task, self.request.updates, [(), INEXACT_PASSES])
        return {"fast": fast, "exact": exact}

    def _run(self, part: str, task: str, updates: int, sets: Sequence[tuple[str, ...]]) -> list[Any]:
        return run_tasks(self.request, self._recorded, part, task, updates, sets)

    @cached_property
    def _recorded(self) -> Path:
        """The folder, with the configuration and the rollouts in it; written when first needed."""
        write_atomically(self.folder / "config.yaml", yaml.safe_dump(dump_config(self.config), sort_keys=False))
        if not (self.folder / "rollouts.npz").exists():
            with suppress(FileNotFoundError):
                remove(_output(self.folder, "record", ()))
        run_tasks(self.request, self.folder, "record", "record", self.request.updates, [()])
        return self.folder


def run_tasks(
    request: Request, folder: Path, part: str, task: str, updates: int, sets: Sequence[tuple[str, ...]]
) -> list[Any]:
    """Run one task of `a2c.analysis.worker` for each set of switches, and return the results."""
    jobs = [_task_job(folder, task, updates, off) for off in sets]
    if not all(job.is_done() for job in jobs):
        with request.view.part(part, len(jobs)) as view:
            run_jobs(jobs, workers=request.jobs, folder=folder, place=request.place, on_tick=view.at)
    return [_result(task, _output(folder, task, off)) for off in sets]


def _task_job(folder: Path, task: str, updates: int, off: tuple[str, ...]) -> Job:
    output = _output(folder, task, off)
    files = (str(folder / "config.yaml"), str(folder / "rollouts.npz"), str(output))
    return Job(
        name=output.stem,
        command=(*own_command("a2c.analysis.worker"), task, *files, str(updates), *off),
        log=folder / "logs" / f"{output.stem}.log",
        is_done=lambda: _result(task, output) is not None,
        environment={"TF_CPP_MIN_LOG_LEVEL": "3", **sw.environment(off)},
    )


def _output(folder: Path, task: str, off: tuple[str, ...]) -> Path:
    """The file of a task's result, named after the set of switches as a bit mask: their names would be too long."""
    bits = "".join("1" if switch in off else "0" for switch in sw.SWITCHES)
    return folder / "parts" / f"{task}-off-{int(bits, 2):04x}.json"


def _result(task: str, file: Path) -> Any:
    """What a task has written; None if that is missing, damaged or of another form."""
    try:
        return TypeAdapter(RESULTS[task]).validate_json(read_text(file))
    except (OSError, ValueError):
        return None


def explain(run: Callable[[Sequence[tuple[str, ...]]], list[Any]]) -> Why:
    """Search for the smallest set; `run` tries sets of switches."""
    seen: dict[tuple[str, ...], Tried] = {}

    def trial(sets: Sequence[frozenset[str]]) -> list[bool]:
        offs = [tuple(sorted(off)) for off in sets]
        found = [Tried(off, outcome) for off, outcome in zip(offs, run(offs), strict=True)]
        seen.update({tried.off: tried for tried in found})
        return [tried.outcome.complete for tried in found]

    smallest = sw.smallest_set(trial)
    return Why(tuple(seen.values()), None if smallest is None else tuple(sorted(smallest)))
