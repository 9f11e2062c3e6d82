"""Clusters of real worker processes, each in a network namespace of its own where that is allowed."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np

PATIENCE = 300  # seconds for anything to end
PORT = 2222


class Hosts:
    """Places to run workers at: namespaces that are joined by a bridge in one more, else ports of this machine."""

    def __init__(self, number: int) -> None:
        self.names = [f"a2c-{os.getpid()}-{index}" for index in range(number)]
        self.switch = f"a2c-{os.getpid()}-sw"
        self.are_apart = shutil.which("ip") is not None and _ip("netns", "add", self.switch, check=False)
        self.addresses = [f"10.77.0.{1 + index}:{PORT}" for index in range(number)]
        if self.are_apart:
            self._join()
        else:
            self.addresses = [f"127.0.0.1:{port}" for port in free_ports(number)]

    def command(self, index: int, words: Sequence[str]) -> list[str]:
        """What runs a command at one of them."""
        return ["ip", "netns", "exec", self.names[index], *words] if self.are_apart else list(words)

    def unplug(self, index: int) -> None:
        """Nothing reaches it any more, and it reaches nothing; no connection is told of it."""
        _ip("-n", self.switch, "link", "set", f"port{index}", "down")

    def close(self) -> None:
        if self.are_apart:
            for name in (*self.names, self.switch):
                _ip("netns", "delete", name, check=False)

    def _join(self) -> None:
        _ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "bridge", "up")
        for index, name in enumerate(self.names):
            _ip("netns", "add", name)
            _ip("-n", self.switch, "link", "add", f"port{index}", "type", "veth", "peer", "name", "eth", "netns", name)
            _ip("-n", self.switch, "link", "set", f"port{index}", "master", "bridge", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "address", "add", f"10.77.0.{1 + index}/24", "dev", "eth")
            _ip("-n", name, "link", "set", "eth", "up")


class Workers:
    """The processes of one session of a cluster, worker 0 the chief.

    Args:
        hosts: where they run.
        commands: of each.
    """

    def __init__(self, hosts: Hosts, commands: Sequence[Sequence[str]]) -> None:
        self.processes = []
        self.errors = [tempfile.TemporaryFile("w+") for _ in commands]  # noqa: SIM115
        for index, words in enumerate(commands):
            environment = {**os.environ, "TF_CONFIG": tf_config(hosts.addresses[: len(commands)], index)}
            environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
            self.processes.append(
                subprocess.Popen(
                    hosts.command(index, words),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self.errors[index],
                    start_new_session=True,
                )
            )

    def wait(self, seconds: float = PATIENCE) -> list[int]:
        """Their exit codes, once all have ended; what does not end in time is a failure."""
        deadline = time.monotonic() + seconds
        for process in self.processes:
            process.wait(max(0.1, deadline - time.monotonic()))
        return [process.returncode for process in self.processes]

    def said(self, index: int) -> str:
        """What one of them wrote on stderr."""
        self.errors[index].seek(0)
        return self.errors[index].read()

    def finish(self) -> None:
        """Wait for their good end."""
        assert self.wait() == [0] * len(self.processes), [self.said(i) for i in range(len(self.processes))]

    def close(self) -> None:
        for process, errors in zip(self.processes, self.errors, strict=True):
            process.kill()
            process.wait()
            errors.close()


@contextmanager
def some_hosts(number: int) -> Iterator[Hosts]:
    with closing(Hosts(number)) as hosts:
        yield hosts


def python(*words: str) -> list[str]:
    """A command of the interpreter that runs the tests."""
    return [sys.executable, *words]


@contextmanager
def session(
    hosts: Hosts, settings: Sequence[Path], *flags: str, flags_of_last: Sequence[str] = ()
) -> Iterator[Workers]:
    """Workers that train by `worker.py`, each with its settings, and leave what they learned beside those."""
    worker = str(Path(__file__).with_name("worker.py"))
    commands = [python(worker, str(learned(file, index)), str(file), *flags) for index, file in enumerate(settings)]
    commands[-1] += flags_of_last
    with closing(Workers(hosts, commands)) as workers:
        yield workers


def learned(settings: Path, index: int) -> Path:
    return settings.with_name(f"{settings.stem}-learned-{index}.npz")


def read_learned(settings: Path, number: int) -> list[dict[str, np.ndarray]]:
    """What each of the workers had learned at its end."""
    each = []
    for index in range(number):
        with np.load(learned(settings, index)) as file:
            each.append(dict(file))
    return each


def write_settings(folder: Path, name: str, config: dict) -> Path:
    """The settings of a run in `folder/name`."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"config": config, "run_dir": str(folder / name)}))
    return file


def tf_config(addresses: Sequence[str], index: int) -> str:
    return json.dumps({"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": index}})


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [each.getsockname()[1] for each in sockets]


def _ip(*words: str, check: bool = True) -> bool:
    return subprocess.run(["ip", *words], check=check, capture_output=True).returncode == 0
