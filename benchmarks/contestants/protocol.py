"""How the driver talks to a contestant, a process of its own that lives through all rounds.

Its arguments are the settings as JSON and a file descriptor for its answers (libraries may print what they like to
stdout). It builds, warms up and answers with its versions. From then on each line on stdin is a number of seconds to
train for, answered with what was done; in between it blocks on stdin and leaves the machine to the others.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

CALL_STEPS = 800  # agent steps of one call of `Train`, or a whole rollout: how fine the end of a measurement is
WARM_UP_CALLS = 3

Train = Callable[[], int]  # does some updates, waits for the last, returns the agent steps that were done


class Settings(NamedTuple):
    """What is the same for all contestants, and the variant of this one."""

    game: str  # SpaceInvaders
    rom: str  # space_invaders
    num_envs: int
    rollout_length: int
    threads: int  # of the emulators and of the maths; never both at once
    variant: Any  # whatever the contestant's `build` understands


def updates_per_call(rollout_steps: int) -> int:
    """Updates of one call of `Train`, each of so many agent steps."""
    return max(1, CALL_STEPS // rollout_steps)


def serve(build: Callable[[Settings], Train], packages: list[str]) -> None:
    """Be a contestant: see above.

    Args:
        build: makes everything that the measurement leaves out.
        packages: whose versions decide the speed.
    """
    settings, descriptor = Settings(**json.loads(sys.argv[1])), int(sys.argv[2])
    with os.fdopen(descriptor, "w", buffering=1) as answers:
        train = build(settings)
        for _ in range(WARM_UP_CALLS):
            train()
        print(json.dumps({name: version(name) for name in packages}), file=answers)
        for line in sys.stdin:
            print(json.dumps(measure(train, float(line))), file=answers)


def measure(train: Train, seconds: float) -> dict[str, float]:
    """Train for at least `seconds`: agent steps done, seconds it took, CPU seconds of the whole answer."""
    cpu_start = time.process_time()
    train()  # uncounted: the others had the caches
    steps, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        steps += train()
    return {"steps": steps, "seconds": passed, "cpu_seconds": time.process_time() - cpu_start}
