"""Whether runs of a configuration keep the promises: the same bits in eager execution, and after a stop and resume."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from a2c.analysis.finding import REPORT, Finding
from a2c.analysis.request import FORCED
from a2c.config import Config, CrashError, changed
from a2c.execution.runtime import is_exact
from a2c.execution.signals import StoppedError
from a2c.extensions import described, naming
from a2c.run.callbacks import Callback, Moment
from a2c.run.lookup import find_checkpoint
from a2c.run.training import TrainSummary, train

UPDATES = 17  # of each run
FIRST_PART = 7 / 17  # of them, before the stop: few counters would be the same if they began again there
OF_ONES_OWN = (
    "`variables`, or `state` of its memory, must hold all that changes, and a seed decide all that is random; see "
    "CONTRIBUTING.md"
)
Bits = Mapping[str, object]  # what is compared of each array


class StopEarly(Callback):
    """Stops a run when FIRST_PART of its steps is done."""

    def on_update(self, moment: Moment) -> bool:
        """Whether to continue."""
        return moment.env_steps < FIRST_PART * moment.total_env_steps


def check_promises(
    config: Config, updates: int = UPDATES, warn: Callable[[str], None] = lambda text: None
) -> Iterator[Finding]:
    """Train a few updates at one go, stopped and resumed, and eagerly; compare the last checkpoints.

    What learns from a replay does so from the first update on.

    Args:
        config: of the run; only its length changes, and what does not affect its bits.
        updates: of each run.
        warn: see `train`.

    Raises:
        UserError: as `train` does, except for a crash, which is a finding.
    """
    if not config.algorithm.PROMISES.exact:
        name, advice = config.algorithm.name, "choose another algorithm if two runs must be the same"
        yield Finding("promises", "note", f"algorithm.name={name} does not promise the same bits", advice)
        return
    mode = "graph" if config.runtime.mode == "eager" else None  # None: as it is
    steps = updates * config.env_steps_per_update
    config = changed(config, {**FORCED, "total_env_steps": steps, "runtime.mode": mode})
    config = config.model_copy(update={"algorithm": config.algorithm.warmed_up()})
    own = bool(naming(config.env.id, config.algorithm.name, config.model.name, config.env.wrappers))
    try:
        yield from _compared(config, own, warn)
    except CrashError as error:
        advice = "mend it; `a2c train` with the same options keeps what is needed to repeat it" if own else REPORT
        yield Finding("training", "problem", described(error.__cause__ or error), advice)
    except StoppedError as stopped:
        signal.raise_signal(stopped.args[0])


def _compared(config: Config, own: bool, warn: Callable[[str], None]) -> Iterator[Finding]:
    with TemporaryDirectory(prefix="a2c-doctor-") as name:
        folder = Path(name)
        summary = _train(config, folder / "whole")
        if not summary.counters.gradient_steps:
            found = f"no gradient step in {config.total_updates} updates"
            yield Finding("training", "problem", found, "give more --updates")
            return
        whole = find_checkpoint(folder / "whole").bits
        _train(config, folder / "resumed", callbacks=[StopEarly()])
        _train(config, folder / "resumed", resume=True, warn=warn)
        what = "a run that was stopped and resumed"
        yield same_bits("resume", whole, find_checkpoint(folder / "resumed").bits, what, OF_ONES_OWN if own else REPORT)
        if not config.algorithm.PROMISES.modes:
            yield Finding("exactness", "ok", f"not promised by algorithm.name={config.algorithm.name}")
        elif not is_exact(config.runtime):
            yield Finding("exactness", "ok", "not promised with a GPU, runtime.mode=xla or runtime.numerics=fast")
        else:
            _train(changed(config, {"runtime.mode": "eager"}), folder / "eager")
            advice = "`a2c compare --eager --only where` says where they part" if own else REPORT
            yield same_bits("exactness", whole, find_checkpoint(folder / "eager").bits, "eager execution", advice)
    if summary.record is not None:
        speed = f"{summary.record.steps_per_second:,.0f} agent steps a second of {config.env.id}"
        yield Finding("speed", "ok", f"{speed} (a2c bench measures yours)")


def _train(config: Config, folder: Path, **how: Any) -> TrainSummary:
    """Train; raises StoppedError with the signal, if one stopped the run."""
    summary = train(config, folder, **how)
    if summary.signal is not None:
        raise StoppedError(summary.signal)
    return summary


def same_bits(check: str, expected: Bits, found: Bits, what: str, advice: str) -> Finding:
    """A problem if an array is missing, additional or differs."""
    names = list(dict.fromkeys([*expected, *found]))
    differing = [name for name in names if found.get(name) != expected.get(name)]
    if not differing:
        return Finding(check, "ok", f"{what} gives the same bits ({len(names)} arrays)")
    where = f"in {len(differing)} of {len(names)} arrays, first in {differing[0]}"
    return Finding(check, "problem", f"{what} gives other bits {where}", advice)
