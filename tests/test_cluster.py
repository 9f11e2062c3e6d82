"""Who the workers are, from TF_CONFIG and SLURM as TensorFlow itself reads them; and whether all of them are there."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from conftest import heed_sigint

from a2c.config import UserError
from a2c.execution.cluster import Cluster, find_cluster, listen, obstacle

A, B, C = "host-1.svc.cluster.local:2222", "10.0.0.2:2222", "[fe80::1]:65535"
WORKER = {"type": "worker", "index": 0}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM") or name == "TF_CONFIG"]:
        monkeypatch.delenv(name)


def tf_config(monkeypatch, cluster: object, task: object, **more: object) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task, **more}))


def step(monkeypatch, rank="0", tasks="2", nodes="n1", per_node="2", node=None, place=None) -> None:
    names = ("PROCID", "STEP_NUM_TASKS", "STEP_NODELIST", "STEP_TASKS_PER_NODE")
    for name, value in zip(names, (rank, tasks, nodes, per_node), strict=True):
        if value is not None:
            monkeypatch.setenv(f"SLURM_{name}", value)
    for name, value in (("SLURMD_NODENAME", node), ("SLURM_LOCALID", place)):
        if value is not None:
            monkeypatch.setenv(name, value)


# --- TF_CONFIG ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "kind", "number", "addresses", "index"),
    [
        ({"worker": [A]}, "worker", 0, (A,), 0),
        ({"worker": [A, B, C]}, "worker", 0, (A, B, C), 0),
        ({"worker": [A, B, C]}, "worker", 2, (A, B, C), 2),
        ({"worker": [A, B], "chief": [C]}, "chief", 0, (C, A, B), 0),
        ({"worker": [A, B], "chief": [C]}, "worker", 0, (C, A, B), 1),
        ({"chief": [C], "worker": [A, B]}, "worker", 1, (C, A, B), 2),
        ({"chief": [A]}, "chief", 0, (A,), 0),
    ],
)
def test_tf_config_is_read_as_tensorflow_reads_it(monkeypatch, cluster, kind, number, addresses, index):
    from tensorflow.python.distribute import multi_worker_util

    tf_config(monkeypatch, cluster, {"type": kind, "index": number})
    found = find_cluster()
    assert found == Cluster(addresses, index, "TF_CONFIG")
    assert found.size == len(addresses)
    resolver = found.resolver()
    assert type(resolver).__name__ == "TFConfigClusterResolver"
    theirs = resolver.cluster_spec(), resolver.task_type, resolver.task_id
    assert multi_worker_util.id_in_cluster(*theirs) == found.index
    assert multi_worker_util.is_chief(*theirs) == (found.index == 0)
    assert multi_worker_util.worker_count(theirs[0], kind) == found.size


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "TF_CONFIG='{' is not valid JSON"),
        ("1" * 5000, "is not valid JSON"),  # Python refuses to read it
        ('{"cluster": ' * 20_000, "is not valid JSON"),  # deeper than Python reads
        ("\udcff", "is not valid JSON"),  # no text at all
        ("[]", "TF_CONFIG='[]' is not a JSON object"),
        ("null", "is not a JSON object"),
        ("{}", "has no cluster"),
        ('{"cluster": ["a:1"]}', "has cluster=['a:1'], which should be an object"),
    ],
)
def test_a_tf_config_that_is_no_configuration_is_refused_in_one_sentence(monkeypatch, text, said):
    monkeypatch.setenv("TF_CONFIG", text)
    assert_refused(said)


@pytest.mark.parametrize(
    ("cluster", "task", "said"),
    [
        ({}, WORKER, "has a cluster without workers"),
        ({"worker": []}, WORKER, "cluster.worker=[], which should be a list of addresses"),
        ({"worker": {"0": A}}, WORKER, "cluster.worker={'0': "),
        ({"worker": A}, WORKER, "should be a list of addresses"),
        ({"worker": [A], "chief": []}, WORKER, "cluster.chief=[]"),
        ({"worker": [A], "chief": None}, WORKER, "cluster.chief=null"),
        ({"worker": [A], "chief": [B, C]}, WORKER, "has 2 chiefs"),
        ({"worker": [A], "ps": [B]}, WORKER, "has 'ps' in its cluster"),
        ({"worker": [A], "evaluator": [B]}, WORKER, "has 'evaluator' in its cluster"),
        ({"worker": [A], "\x1b[31m": [B]}, WORKER, r"has '\x1b[31m' in its cluster"),
        ({"worker": [A, B, A]}, WORKER, f"has the address {A!r} twice"),
        ({"worker": [A], "chief": [A]}, WORKER, f"has the address {A!r} twice"),
        *(
            ({"worker": [A, address]}, WORKER, "which should be host:port with a port from 1 to 65535")
            for address in (
                *(
                    "",
                    "host",
                    "host:",
                    ":2222",
                    "host:0",
                    "host:65536",
                    "host:-1",
                    "host:22x",
                    "host:²",
                    "a b:1",
                    "a:1:2",
                ),
                *(
                    "grpc://host:1",
                    "a..b:1",
                    f"{'x' * 64}:1",
                    "[::1]",
                    "::1:2222",
                    "host:1\n",
                    "x" * 100_000,
                    None,
                    3,
                    [A],
                ),
            )
        ),
        ({"worker": [A]}, None, "has no task"),
        ({"worker": [A]}, "worker", "has task='worker', which should be an object"),
        ({"worker": [A]}, {}, "has task.type=null"),
        ({"worker": [A]}, {"type": "ps", "index": 0}, "task.type='ps', which should be chief or worker"),
        ({"worker": [A]}, {"type": "evaluator", "index": 0}, "evaluation is done by the chief here"),
        ({"worker": [A]}, {"type": ["worker"], "index": 0}, "task.type=['worker']"),
        ({"worker": [A]}, {"type": "chief", "index": 0}, "task.type=chief, and its cluster has no chief"),
        ({"chief": [A]}, {"type": "worker", "index": 0}, "task.type=worker, and its cluster has no worker"),
        ({"worker": [A]}, {"type": "worker"}, "task.index=null, which should be 0 for a worker"),
        *(
            ({"worker": [A, B], "chief": [C]}, {"type": "worker", "index": index}, "which should be from 0 to 1 for a")
            for index in (2, -1, True, 0.0, "0", None, [], 10**400)
        ),
    ],
)
def test_a_malformed_tf_config_is_refused_in_one_sentence(monkeypatch, cluster, task, said):
    tf_config(monkeypatch, cluster, task)
    assert_refused(said)


def test_another_transport_than_grpc_is_refused(monkeypatch):
    tf_config(monkeypatch, {"worker": [A]}, WORKER, rpc_layer="grpc")
    assert find_cluster().size == 1
    tf_config(monkeypatch, {"worker": [A]}, WORKER, rpc_layer="carrier pigeon")
    assert_refused("rpc_layer='carrier pigeon'")


def test_without_a_cluster_the_sentence_says_where_one_comes_from(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "")
    assert_refused("`a2c launch --workers 2 -- train ...`", "SLURM's srun")


def assert_refused(*said: str) -> None:
    with pytest.raises(UserError) as refused:
        find_cluster()
    sentence = str(refused.value)
    assert all(part in sentence for part in said), sentence
    assert sentence.isprintable()
    assert sentence.endswith(".")
    assert len(sentence) < 600


# --- SLURM --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "addresses", "index"),
    [
        ({}, ("n1:8888", "n1:8889"), 0),
        ({"rank": "1", "node": "n1"}, ("n1:8888", "n1:8889"), 1),
        ({"tasks": "1", "per_node": "1"}, ("n1:8888",), 0),
        (
            {"rank": "2", "tasks": "4", "nodes": "gpu[07-08],x", "per_node": "1(x2),2", "node": "x"},
            ("gpu07:8888", "gpu08:8888", "x:8888", "x:8889"),
            2,
        ),
        # as srun set them on two real nodes: TensorFlow sorts n9 behind n10, SLURM before it
        (
            {"rank": "0", "nodes": "n[9-10]", "per_node": "1(x2)", "node": "n9", "place": "0"},
            ("n10:8888", "n9:8888"),
            1,
        ),
        # --distribution=cyclic: the second task of the first node is the third of all
        (
            {"rank": "2", "tasks": "4", "nodes": "a,b", "per_node": "2(x2)", "node": "a", "place": "1"},
            ("a:8888", "a:8889", "b:8888", "b:8889"),
            1,
        ),
    ],
)
def test_slurm_is_read_by_tensorflow(monkeypatch, variables, addresses, index):
    import tensorflow as tf

    step(monkeypatch, **variables)
    before = dict(os.environ)
    found = find_cluster()
    assert found == Cluster(addresses, index, "SLURM")
    resolver = found.resolver()
    assert isinstance(resolver, tf.distribute.cluster_resolver.SlurmClusterResolver)
    assert resolver.cluster_spec().as_dict() == {"worker": list(addresses)}
    assert (resolver.task_type, resolver.task_id) == ("worker", index)
    # those there are, not the one that the arithmetic is told; a strategy would look for it in vain
    assert resolver.num_accelerators() == {"GPU": len(tf.config.get_visible_devices("GPU"))}
    assert dict(os.environ) == before  # CUDA_VISIBLE_DEVICES too


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"nodes": None}, "SLURM_PROCID but not SLURM_STEP_NODELIST"),  # the script of sbatch itself
        ({"rank": "2"}, "SLURM_PROCID='2'"),
        ({"rank": "-1"}, "SLURM_PROCID='-1'"),
        ({"rank": "first"}, "contradict each other: SLURM_PROCID='first'"),
        ({"tasks": "3"}, "contradict"),
        ({"tasks": "two"}, "contradict"),
        ({"tasks": "0", "per_node": "0"}, "contradict"),
        ({"tasks": "-1"}, "contradict"),
        ({"nodes": ""}, "contradict"),
        ({"nodes": "n[1-"}, "contradict"),
        ({"nodes": "n[2-1]"}, "contradict"),
        ({"nodes": "n1,n1", "tasks": "4", "per_node": "2(x2)"}, "contradict"),
        ({"nodes": "a b"}, "contradict"),
        ({"per_node": "2(x"}, "contradict"),
        ({"nodes": "n[1-3]", "tasks": "3", "per_node": "1(x2)"}, "contradict"),
        ({"rank": "0", "nodes": "n[2,10]", "per_node": "1(x2)", "node": "n3"}, "runs worker 0 on 'n3', and its list"),
    ],
)
def test_slurm_variables_that_do_not_fit_are_refused_in_one_sentence(monkeypatch, variables, said):
    step(monkeypatch, **variables)
    assert_refused(said, "srun")


def test_tf_config_wins_over_slurm(monkeypatch):
    step(monkeypatch)
    tf_config(monkeypatch, {"worker": [A]}, WORKER)
    assert find_cluster().source == "TF_CONFIG"


# --- meeting ------------------------------------------------------------------------------------------------


def free_ports(number: int) -> list[int]:
    doors = [listen(0) for _ in range(number)]
    ports = [door.getsockname()[1] for door in doors]
    for door in doors:
        door.close()
    return ports


def local_clusters(number: int, host: str = "127.0.0.1") -> list[Cluster]:
    addresses = tuple(f"{host}:{port}" for port in free_ports(number))
    return [Cluster(addresses, index, "TF_CONFIG") for index in range(number)]


class Meeting(threading.Thread):
    """A worker that waits for the others beside the test, then opens its port again as TensorFlow does."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.server: socket.socket | None = None
        self.start()

    def run(self) -> None:
        self.cluster.meet(30)
        self.server = listen(int(self.cluster.addresses[self.cluster.index].rpartition(":")[2]))

    def has_met(self) -> bool:
        self.join(20)
        return self.server is not None

    def close(self) -> None:
        self.join(40)
        if self.server is not None:
            self.server.close()


@pytest.fixture
def waiting() -> Iterator[tuple[Meeting, Cluster]]:
    """One that waits for a second, and that second's cluster."""
    first, second = local_clusters(2)
    meeting = Meeting(first)
    wait_until_open(first.addresses[0])
    yield meeting, second
    meeting.close()


def wait_until_open(address: str) -> None:
    for _ in range(200):
        if not obstacle(address):
            return
        time.sleep(0.05)
    raise AssertionError(f"{address} never opened")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_workers_meet_whoever_comes_first_and_leave_their_ports_to_tensorflow(host):
    if host == "[::1]" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine knows no IPv6")
    clusters = local_clusters(3, host)
    early = [Meeting(cluster) for cluster in (clusters[2], clusters[0])]
    time.sleep(0.5)
    assert all(meeting.is_alive() for meeting in early)
    meetings = [*early, Meeting(clusters[1])]
    assert all(meeting.has_met() for meeting in meetings)
    for meeting in meetings:
        meeting.close()


def test_one_worker_alone_has_nobody_to_wait_for_and_its_name_need_not_be_of_this_machine():
    (port,) = free_ports(1)
    Cluster((f"elsewhere.invalid:{port}",), 0, "TF_CONFIG").meet(0)


def test_a_server_that_opens_late_counts_as_a_worker(waiting):
    """A worker that has met all is away for a moment, until TensorFlow opens the port again."""
    meeting, second = waiting
    time.sleep(0.3)
    with listen(int(second.addresses[1].rpartition(":")[2])):
        assert meeting.has_met()


def test_a_port_that_is_taken_is_told_at_once():
    first, _ = local_clusters(2)
    port = int(first.addresses[0].rpartition(":")[2])
    # not on all interfaces, and open to be shared, as TensorFlow's servers are
    with socket.create_server(("127.0.0.1", port), reuse_port=True):
        started = time.monotonic()
        with pytest.raises(UserError, match=rf"Port {port} of worker 0 \(127.*\) cannot be opened: Address already in"):
            first.meet(60)
        assert time.monotonic() - started < 20


def test_who_does_not_come_is_named_with_the_reason():
    ports = free_ports(2)
    here = f"127.0.0.1:{ports[0]}"
    with listen(0) as door:
        there = f"127.0.0.1:{door.getsockname()[1]}"
        cluster = Cluster((here, there, f"127.0.0.1:{ports[1]}", "nobody.invalid:2222"), 0, "TF_CONFIG")
        with pytest.raises(UserError) as refused:
            cluster.meet(0.5)
    sentence = str(refused.value)
    assert "Worker 0 tried for 0.5 seconds" in sentence
    assert f"worker 2 at 127.0.0.1:{ports[1]} (Connection refused)" in sentence
    assert "worker 3 at nobody.invalid:2222 (" in sentence
    assert there not in sentence
    assert "firewalls" in sentence
    listen(ports[0]).close()


def test_many_who_do_not_come_are_counted():
    crowd = local_clusters(9)[0]
    with pytest.raises(UserError, match=r"worker 5 at \S+ \(Connection refused\) and 3 more; start"):
        crowd.meet(0)


def test_any_number_of_callers_finds_an_open_door(waiting):
    """More than the 128 that Python queues by itself; the second worker is one of them."""
    meeting, second = waiting
    for _ in range(400):
        assert obstacle(second.addresses[0]) == ""
    late = Meeting(second)
    assert meeting.has_met()
    assert late.has_met()
    late.close()


def test_a_call_that_reaches_the_caller_itself_is_not_taken_for_a_worker():
    """Linux draws the port of the calling end from a range that the called one may be in: one call of thousands."""
    # servers are given odd ports and callers even ones
    port = next(port - 1 for port in free_ports(20) if obstacle(f"127.0.0.1:{port - 1}"))
    assert {obstacle(f"127.0.0.1:{port}") for _ in range(30_000)} == {"Connection refused"}


WAITER = """
from a2c.execution.cluster import Cluster
print("waiting", flush=True)
Cluster(("127.0.0.1:{}", "127.0.0.1:{}"), 0, "TF_CONFIG").meet(100)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_at_once(number):
    program = WAITER.format(*free_ports(2))
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=heed_sigint
    ) as process:
        assert process.stdout.readline() == b"waiting\n"
        time.sleep(0.3)
        started = time.monotonic()
        process.send_signal(number)
        assert process.wait(30) == -number
        assert time.monotonic() - started < 10


def test_no_tensorflow_is_imported_to_find_a_cluster():
    program = "import sys, a2c.execution.cluster, a2c.execution.launch; a2c.execution.cluster.find_cluster(); "
    program += "assert 'tensorflow' not in sys.modules"
    environment = {**os.environ, "TF_CONFIG": json.dumps({"cluster": {"worker": [A]}, "task": WORKER})}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=300)
