"""Jobs on the machines of a Ray cluster, which all share the same folders.

Ray gets only commands: each runs in a separate process on some node, with the working directory, environment and log
that it would have here, so that it writes the same files. Ray's worker waits for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from a2c.analysis.jobs import MACHINE, POLL_SECONDS, Child, Job, Place, Process, end
from a2c.config import UserError
from a2c.execution.machine import versions
from a2c.messages import last_line
from a2c.run.files import create

JOIN_SECONDS = 60.0  # until a cluster counts as absent
EXAMINE_SECONDS = 120.0  # for every node to answer
LATE_SECONDS = 60.0  # until a file that another machine wrote is seen here: acdirmax of NFS
OURS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # under `uv run`, Ray would copy the working directory to the nodes
}
JOIN = """
import sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False)
except Exception as error:
    sys.exit(" ".join(str(error).split()).partition(". ")[0])
"""
TELL_VERSIONS = "import json; from a2c.execution.machine import versions; print(json.dumps(versions()))"


class RayCluster(Place):
    """The nodes of a running Ray cluster, which this process joins within the context.

    Args:
        address: `host:port` or `ray://host:port`; "auto" means RAY_ADDRESS, else the cluster of this machine.

    Raises:
        UserError: on entering, if Ray is not installed or no cluster answers.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def __enter__(self) -> RayCluster:
        os.environ.update(OURS)
        try:
            import ray
        except ImportError:
            raise UserError("--cluster needs Ray on this machine and on every node: pip install 'a2c[ray]'.") from None
        _check_answers(self.address)
        self.ray: Any = ray
        before = signal.getsignal(signal.SIGTERM)
        ray.init(self.address, log_to_driver=False, configure_logging=False)
        signal.signal(signal.SIGTERM, before)  # Ray installs its own handler
        # silences Ray's messages on stdout about ended workers; there is no setting for it
        ray._private.worker.print_to_stdstream = lambda *_, **__: None
        self.cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        return self

    def __exit__(self, *_: object) -> None:
        self.ray.shutdown()

    def examine(self, folder: Path) -> None:
        """Check that every node sees the folder and has the same versions, without which the bits would differ."""
        nodes = [node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".seen-by-all-") as token:
            paths = (str(Path.cwd()), str(Path(token.name).absolute()))
            asked = [(node["NodeManagerHostname"], self._ask(node["NodeID"], paths)) for node in nodes]
            for name, answer in asked:  # several nodes may share a name
                _check_fits(name, self._answer(answer))

    def start(self, job: Job) -> Process:
        """Run a job's command on a node as soon as one has a free CPU."""
        work = self.ray.remote(run_command).options(num_cpus=1, max_retries=0, name=job.name)
        return _Task(self.ray, job, work.remote(job.command, str(Path.cwd()), str(job.log), job.whole_environment()))

    def _ask(self, node: str, paths: Sequence[str]) -> Any:
        there = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        look = self.ray.remote(look_around).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        return look.remote(paths, dict(os.environ))

    def _answer(self, answer: Any) -> Any:
        try:
            return self.ray.get(answer, timeout=EXAMINE_SECONDS)
        except self.ray.exceptions.RayError as error:
            return _words(error)


def place_of(cluster: str | None) -> Place:
    """The place that --cluster names: this machine by default."""
    return MACHINE if cluster is None else RayCluster(cluster)


class _Task:
    """A job that Ray runs."""

    def __init__(self, ray: Any, job: Job, reference: Any) -> None:
        self.ray, self.job, self.reference = ray, job, reference
        self.ended: float | None = None

    def poll(self) -> int | None:
        if not self._is_over(0):
            return None
        code = self._code()
        self.ended = self.ended or time.monotonic()
        late = code == 0 and not self.job.is_done() and time.monotonic() < self.ended + LATE_SECONDS
        return None if late else code

    def wait(self, timeout: float | None = None) -> None:
        if not self._is_over(timeout):
            raise subprocess.TimeoutExpired(self.job.command, timeout or 0)

    def terminate(self) -> None:
        self.ray.cancel(self.reference)

    def kill(self) -> None:
        self.ray.cancel(self.reference, force=True)

    def _is_over(self, timeout: float | None) -> bool:
        return bool(self.ray.wait([self.reference], timeout=timeout)[0])

    def _code(self) -> int:
        try:
            return int(self.ray.get(self.reference))
        except self.ray.exceptions.TaskCancelledError:  # it was asked to stop
            return -signal.SIGTERM
        except self.ray.exceptions.RayTaskError as error:
            raise UserError(f"{self.job.name} could not be run on the cluster: {_words(error)}.") from None
        except self.ray.exceptions.RayError as error:
            raise UserError(
                f"{self.job.name} was lost with its node ({type(error).__name__}); the same command continues with "
                "what is missing."
            ) from None


def _check_answers(address: str) -> None:
    """Check in a separate process that a cluster answers: Ray would try for minutes, and write to the terminal."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", JOIN, address], capture_output=True, text=True, timeout=JOIN_SECONDS
        )
        said = "" if done.returncode == 0 else _words(done.stderr)
    except subprocess.TimeoutExpired:
        said = f"no answer in {JOIN_SECONDS:.0f} seconds"
    if said:
        raise UserError(
            f"No Ray cluster can be joined at --cluster {address} ({said}); start one with `ray start --head`, or give "
            "the HOST:PORT or ray://HOST:PORT of one that runs."
        )


def _check_fits(node: str, found: Any) -> None:
    if isinstance(found, str):
        raise UserError(
            f"The node {node} cannot run these jobs: {found}; every node needs a2c installed, and the current folder "
            "and --out shared under the same paths."
        )
    for name, version in versions().items():
        if found[name] != version:
            raise UserError(
                f"The node {node} has {name} {found[name]}, and this machine {version}; install the same versions on "
                "all, since others would give other bits."
            )


def _words(error: object) -> str:
    return last_line(str(error)).strip(" .")


# --- on the nodes -----------------------------------------------------------------------------------------------------


def run_command(command: Sequence[str], cwd: str, log: str, environment: Mapping[str, str]) -> int:
    """Run a command with the node's own interpreter, and ask it to stop when this is cancelled."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # how Ray cancels; ignored if `ray start` ignored it
    with create(Path(cwd, log)) as file:
        process = Child(
            [sys.executable, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=cwd,
            env=environment,  # not this worker's, in which Ray sets OMP_NUM_THREADS=1 and hides the GPUs
        )
    try:
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
    finally:
        process.terminate()
        end(process)
    return process.returncode


def look_around(paths: Sequence[str], environment: Mapping[str, str]) -> dict[str, str] | str:
    """The versions that a job would find here, or the reason why it cannot run."""
    for path in paths:
        if not Path(path).exists():
            return f"it does not see {path}"
    command = [sys.executable, "-P", "-c", TELL_VERSIONS]
    told = subprocess.run(command, capture_output=True, text=True, cwd=paths[0], env=environment)
    return json.loads(told.stdout) if told.returncode == 0 else _words(told.stderr)
