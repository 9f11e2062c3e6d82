"""Callbacks of your own: stop a run that no longer improves, and keep copies of an agent while it learns.

python examples/patience.py runs/mine
"""

import shutil
import sys
from pathlib import Path

from a2c import Callback, load_config, train


class Patience(Callback):
    """Stops after so many agent steps without a better mean return."""

    def __init__(self, steps):
        self.steps, self.best, self.since = steps, None, 0

    def on_update(self, moment):
        if self.best is None or moment.return_mean > self.best:  # None until a game has ended
            self.best, self.since = moment.return_mean, moment.env_steps
        return moment.env_steps - self.since < self.steps  # False stops the run, which is saved


class Copies(Callback):
    """Copies the checkpoints of the given agent steps to a folder; the run itself keeps only its last ones."""

    def __init__(self, folder, *schedule):
        self.folder, self.schedule = Path(folder), sorted(schedule)

    def on_update(self, moment):
        return "save" if self.schedule and moment.env_steps >= self.schedule[0] else None

    def on_checkpoint(self, moment, path):
        while self.schedule and moment.env_steps >= self.schedule[0]:
            self.schedule.pop(0)
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, self.folder)


if __name__ == "__main__":
    run = Path(sys.argv[1])
    config, _ = load_config(config="catch")
    summary = train(config, run, callbacks=[Patience(20_000), Copies(run / "copies", 5_000, 20_000)])
    print(f"{summary.counters.env_steps:,} steps, stopped by {summary.stopped_by or 'nobody'}")
