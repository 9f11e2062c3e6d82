"""One worker of a test's cluster: `python worker.py LEARNED SETTINGS [FLAG ...]`, with TF_CONFIG in the environment.

Trains as `a2c train` does, and leaves all that it has learned in the file LEARNED, which no worker does by itself.
Flags: --auto-resume as of `a2c train`; --sick makes the environments of test_faults known; --other-version pretends.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from a2c.config import UserError, build_config
from a2c.run import training
from a2c.run.checkpoint import learned_arrays


def main(learned: str, settings: str, *flags: str) -> None:
    values = json.loads(Path(settings).read_text())
    built: list[Any] = []
    build = training.build_algorithm

    def keep(*arguments: Any, **options: Any) -> Any:
        built.append(build(*arguments, **options))
        return built[-1]

    training.build_algorithm = keep
    if "--sick" in flags:
        from test_faults import sick_config

        sick_config("reward")
    if "--other-version" in flags:
        here = training.versions()
        training.versions = lambda: {**here, "ale-py": "0.0.1"}
    config = build_config(values["config"], where=settings)
    begun = any(Path(values["run_dir"]).glob("checkpoints/*.npz"))
    training.train(config, values["run_dir"], resume=begun and "--auto-resume" in flags)
    np.savez(learned, **learned_arrays(built[0]))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except UserError as error:
        print(f"a2c: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
