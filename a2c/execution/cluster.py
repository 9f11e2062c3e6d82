"""The worker processes that train one network together: their addresses, and a check that all can be reached.

Each worker reads them from TF_CONFIG (Kubeflow, Ray, `a2c launch`) or from the variables of a SLURM step.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from a2c.config import UserError, shown

CONNECT_SECONDS = 1.0  # for one attempt; a host that is down does not answer at all
PAUSE_SECONDS = 0.1  # between two attempts
ATTEMPTS = 64  # at a time
NAMED = 5  # workers named in an error, at most

LAUNCHED = "A2C_LAUNCHED"  # in the environment of workers started by `a2c launch`

_JOBS = ("chief", "worker")  # in TensorFlow's order
_EXAMPLE = '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[\w-]{1,63}(\.[\w-]{1,63})*):(?P<port>[1-9]\d{0,4})", re.A | re.I)
_STEP = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")


@dataclass(frozen=True)
class Cluster:
    """All workers, and the index of this process."""

    addresses: tuple[str, ...]  # host:port, the chief first
    index: int  # of this process
    source: Literal["TF_CONFIG", "SLURM"]

    @property
    def size(self) -> int:
        """Number of workers, including the chief."""
        return len(self.addresses)

    def resolver(self) -> Any:
        """TensorFlow's resolver for the same variables, for a `tf.distribute.MultiWorkerMirroredStrategy`."""
        if self.source == "SLURM":
            return _slurm_resolver()
        import tensorflow as tf

        return tf.distribute.cluster_resolver.TFConfigClusterResolver()

    def meet(self, seconds: float) -> None:
        """Wait until every worker can be reached; call it right before TensorFlow takes this worker's port.

        TensorFlow would wait too, but silently, for an hour, ignoring Ctrl-C and SIGTERM; and it shares a port that
        another TensorFlow program has taken.

        Args:
            seconds: how long to try.

        Raises:
            UserError: if this worker's port is taken, or if a worker cannot be reached in that time.
        """
        deadline = time.monotonic() + seconds
        absent = {i: "" for i in range(self.size) if i != self.index}
        with self._open() as door, ThreadPoolExecutor(ATTEMPTS) as pool:
            while absent := {i: why for i, why in zip(absent, pool.map(self._obstacle, absent), strict=True) if why}:
                if time.monotonic() >= deadline:
                    raise UserError(self._not_met(absent, seconds))
                # a pause that any connection ends, since it may come from a missing worker; callers send no data
                with suppress(TimeoutError, ConnectionError):
                    door.accept()[0].close()

    def _obstacle(self, index: int) -> str:
        return obstacle(self.addresses[index])

    def _open(self) -> socket.socket:
        _, port = _split(self.addresses[self.index])
        try:
            door = listen(port)
        except OSError as error:
            raise UserError(
                f"Port {port} of worker {self.index} ({self.addresses[self.index]}) cannot be opened: "
                f"{os.strerror(error.errno or 0)}; end the program that has it, or give this worker another port."
            ) from None
        door.settimeout(PAUSE_SECONDS)
        return door

    def _not_met(self, absent: dict[int, str], seconds: float) -> str:
        named = [f"worker {i} at {self.addresses[i]} ({why})" for i, why in absent.items()]
        more = [f"{len(named) - NAMED} more"] if len(named) > NAMED else []
        return (
            f"Worker {self.index} tried for {seconds:g} seconds and could not reach "
            f"{' and '.join(named[:NAMED] + more)}; start every worker of the cluster, and check the addresses in "
            f"{self.source} and the firewalls between them."
        )


def find_cluster() -> Cluster:
    """The cluster that the environment names: TF_CONFIG, else the variables of a SLURM step.

    Raises:
        UserError: if there is neither, or it is malformed.
    """
    if text := os.environ.get("TF_CONFIG"):
        return _from_tf_config(text)
    if "SLURM_PROCID" in os.environ:
        return _from_slurm()
    raise UserError(
        "runtime.strategy=multiworker needs a cluster, from TF_CONFIG or from SLURM's srun; "
        "`a2c launch --workers 2 -- train ...` starts one on this machine."
    )


def listen(port: int) -> socket.socket:
    """Open a port (0: any free one) on all interfaces, since an address may name a host other than this machine's."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    # all workers, and health probes, may connect before the first connection is accepted
    return socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=socket.SOMAXCONN)


def obstacle(address: str) -> str:
    """The reason why an address cannot be reached; empty if it can."""
    try:
        with socket.create_connection(_split(address), CONNECT_SECONDS) as line:
            # if nobody listens, the system may give our own socket this port: then we have connected to ourselves
            return "Connection refused" if line.getsockname() == line.getpeername() else ""
    except OSError as error:  # also a name that is not known yet: Kubernetes publishes names late
        return error.strerror or str(error)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _is_address(value: Any) -> bool:
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    return match is not None and int(match["port"]) < 2**16


# --- TF_CONFIG ----------------------------------------------------------------------------------------------


def _from_tf_config(text: str) -> Cluster:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        _refuse(f"={shown(text)} is not valid JSON")
    if not isinstance(values, dict):
        _refuse(f"={shown(text)} is not a JSON object")
    if values.get("rpc_layer") not in (None, "grpc"):
        _refuse(f" has rpc_layer={shown(values['rpc_layer'])}, and only grpc is allowed")
    jobs = _read_jobs(_section(values, "cluster"))
    return Cluster(
        addresses=tuple(address for addresses in jobs.values() for address in addresses),
        index=_read_index(_section(values, "task"), jobs),
        source="TF_CONFIG",
    )


def _read_jobs(cluster: dict[str, Any]) -> dict[str, list[str]]:
    for name in cluster:
        if name not in _JOBS:
            _refuse(f" has {shown(name)} in its cluster, and a cluster here is of a chief and workers only")
    jobs = {name: cluster[name] for name in _JOBS if name in cluster}
    if not jobs:
        _refuse(" has a cluster without workers")
    for name, addresses in jobs.items():
        if not isinstance(addresses, list) or not addresses:
            _refuse(f" has cluster.{name}={shown(addresses)}, which should be a list of addresses")
    everyone = [address for addresses in jobs.values() for address in addresses]
    for address in everyone:
        if not _is_address(address):
            _refuse(f" has the address {shown(address)}, which should be host:port with a port from 1 to 65535")
    if len(set(everyone)) < len(everyone):
        _refuse(f" has the address {shown(max(everyone, key=everyone.count))} twice")
    if len(jobs.get("chief", "1")) != 1:
        _refuse(f" has {len(jobs['chief'])} chiefs, and there is one at most")
    return jobs


def _read_index(task: dict[str, Any], jobs: dict[str, list[str]]) -> int:
    job, index = task.get("type"), task.get("index")
    if job not in _JOBS:
        _refuse(f" has task.type={shown(job)}, which should be chief or worker: evaluation is done by the chief here")
    if job not in jobs:
        _refuse(f" has task.type={job}, and its cluster has no {job}")
    if type(index) is not int or not 0 <= index < len(jobs[job]):  # excludes bool
        allowed = f"from 0 to {len(jobs[job]) - 1}" if len(jobs[job]) > 1 else "0"
        _refuse(f" has task.index={shown(index)}, which should be {allowed} for a {job} of its cluster")
    return index + 1 if job == "worker" and "chief" in jobs else index


def _section(values: dict[str, Any], name: str) -> dict[str, Any]:
    section = values.get(name)
    if not isinstance(section, dict):
        _refuse(f" has no {name}" if section is None else f" has {name}={shown(section)}, which should be an object")
    return section


def _refuse(what: str) -> NoReturn:
    raise UserError(f"TF_CONFIG{what}; it should be like {_EXAMPLE}.") from None


# --- SLURM --------------------------------------------------------------------------------------------------


def _from_slurm() -> Cluster:
    if missing := [name for name in _STEP if name not in os.environ]:
        raise UserError(f"SLURM has set SLURM_PROCID but not {' and '.join(missing)}; start the workers with srun.")
    said = ", ".join(f"{name}={shown(os.environ[name])}" for name in _STEP)
    try:
        resolver = _slurm_resolver()
        addresses = tuple(resolver.cluster_spec().as_dict().get("worker", ()))
    except (ValueError, RuntimeError):
        addresses = ()
    if not addresses or resolver.task_id is None or not all(map(_is_address, addresses)):
        raise UserError(f"SLURM's variables contradict each other: {said}; start the workers with srun, and set none.")
    host, _ = _split(addresses[resolver.task_id])
    if (node := os.environ.get("SLURMD_NODENAME", host)) != host:
        raise UserError(
            f"SLURM runs worker {resolver.task_id} on {shown(node)}, and its list of nodes has it on {host}; start the "
            "workers with srun, one step for all of them."
        )
    return Cluster(addresses, resolver.task_id, "SLURM")


def _slurm_resolver() -> Any:
    import tensorflow as tf

    class Resolver(tf.distribute.cluster_resolver.SlurmClusterResolver):
        """TensorFlow's resolver with two fixes."""

        def num_accelerators(self, *_: object, **__: object) -> dict[str, int]:
            # the original asks nvidia-smi, and fails on machines without GPUs: count the GPUs that this worker sees
            return {"GPU": len(tf.config.get_visible_devices("GPU"))}

        def _resolve_own_rank(self) -> int:
            # the original takes SLURM's rank, but lists nodes by name, n10 before n9, and fills them one by one
            node, place = os.environ.get("SLURMD_NODENAME"), os.environ.get("SLURM_LOCALID")
            if node is None or place is None:
                return int(os.environ["SLURM_PROCID"])
            before: int = sum(n for name, n in self._resolve_task_configuration().items() if name < node)
            return before + int(place)

    # one GPU per worker, not used for anything: with none, the resolver's arithmetic would fail
    workers = int(os.environ["SLURM_STEP_NUM_TASKS"])
    return Resolver(gpus_per_node=workers, gpus_per_task=1, auto_set_gpu=False)
