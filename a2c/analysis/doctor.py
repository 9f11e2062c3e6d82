"""Examine an installation and its machine, with advice for each problem.

Checks that may crash the process (TensorFlow, the emulator) run in a separate one, which prints its findings.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator

from a2c.analysis import checks
from a2c.analysis.checks import Check, told
from a2c.analysis.finding import REPORT, Finding

RISKY_SECONDS = 300  # limit for the separate process, which takes 15 on two cores


def examine(on_check: Callable[[str], None] = lambda name: None) -> list[Finding]:
    """Run all checks.

    Args:
        on_check: called with the name of each check before it runs.
    """
    findings: list[Finding] = []
    for name, check in CHECKS.items():
        on_check(name)
        findings += run_check(name, check)
    on_check(", ".join(RISKY))
    return [*findings, *_in_own_process(list(RISKY))]


def run_check(name: str, check: Check) -> Iterator[Finding]:
    """The findings of a check; an exception becomes a finding too."""
    try:
        yield from check()
    except (Exception, SystemExit) as error:  # broken packages may raise anything
        yield Finding(name, "problem", f"the check failed: {told(error)}", REPORT)


# --- in a separate process --------------------------------------------------------------------------------------------


def _in_own_process(names: list[str]) -> Iterator[Finding]:
    """The findings of RISKY checks. If one ends the process or hangs, that is a finding; the rest run in a new one."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import run_risky; run_risky({names!r})"
    try:
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=RISKY_SECONDS)
        how, said = _exit(ended.returncode, ended.stderr.decode(errors="replace")), ended.stdout
    except subprocess.TimeoutExpired as error:
        how, said = f"nothing more for {RISKY_SECONDS} seconds", error.stdout or b""
    left = list(names)
    for line in said.decode(errors="replace").splitlines():
        if line.startswith(_FINDING):
            yield Finding(*json.loads(line.removeprefix(_FINDING)))
        elif line.startswith(_DONE):
            left.remove(line.removeprefix(_DONE))
    if left:
        yield Finding(left[0], "problem", f"the check ended its process: {how}", REPORT)
        yield from _not_run(left[1:]) if left[0] == _TENSORFLOW else _in_own_process(left[1:])


def run_risky(names: list[str]) -> None:
    """Print the findings of RISKY checks for `_in_own_process`; libraries may print lines between them."""
    for index, name in enumerate(names):
        findings = list(run_check(name, RISKY[name]))
        _hand_over(findings, [name])
        if name == _TENSORFLOW and any(finding.status == "problem" for finding in findings):
            rest = names[index + 1 :]
            _hand_over(_not_run(rest), rest)
            break


def _hand_over(findings: Iterable[Finding], done: Iterable[str]) -> None:
    lines = [_FINDING + json.dumps(finding) for finding in findings] + [_DONE + name for name in done]
    print(*lines, sep="\n", flush=True)


def _not_run(names: Iterable[str]) -> Iterator[Finding]:
    return (Finding(name, "note", "not run, since TensorFlow is broken", "mend TensorFlow first") for name in names)


def _exit(code: int, complaint: str) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        return f"{name}, the processor lacks what a package was built for" if name == "SIGILL" else name
    return " ".join([f"exit code {code}", *complaint.strip().splitlines()[-1:]])


_FINDING, _DONE = "a2c-finding:", "a2c-done:"  # prefixes of the lines between the processes
CHECKS: dict[str, Check] = {
    "packages": checks.check_packages,
    "processor": checks.check_processor,
    "memory": checks.check_memory,
    "folders": checks.check_folders,
    "surroundings": checks.check_surroundings,
}
_TENSORFLOW = "tensorflow"
RISKY: dict[str, Check] = {  # in this order: from TensorFlow on, all need it
    "emulator": checks.check_emulator,
    _TENSORFLOW: checks.check_tensorflow,
    "precision": checks.check_precision,
    "training": checks.check_training,
}
