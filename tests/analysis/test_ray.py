"""Jobs on a real Ray cluster: two nodes with one CPU each, on this machine."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from conftest import press_ctrl_c
from killing import assert_same_run

from a2c.analysis.arms import steps_done
from a2c.analysis.jobs import MACHINE, Job, run_jobs
from a2c.analysis.ray_jobs import RayCluster
from a2c.config import UserError

pytestmark = pytest.mark.integration

TINY = {
    "env": {"id": "Catch", "num_envs": 4},
    "algorithm": {"rollout_length": 8},
    "logging": {"every_updates": 1},
    "total_env_steps": 640,
}
# small enough for containers; what has a fixed port would meet the cluster of another test process
NODE = (
    "--num-cpus=1 --object-store-memory=80000000 --min-worker-port=0 --max-worker-port=0 --disable-usage-stats".split()
)


@contextlib.contextmanager
def node(*arguments: str, under: tuple[str, ...] = ()) -> Iterator[subprocess.Popen]:
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *NODE, *arguments]
    process = subprocess.Popen([*under, *ray], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()  # it ends what it started; `ray stop` would end every cluster of this machine
        process.wait(60)


def wait_for_nodes(address: str, number: int) -> None:
    command = f"import ray; ray.init({address!r}); print(sum(node['Alive'] for node in ray.nodes()))"
    for _ in range(30):
        told = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=100)
        if told.stdout.strip() == str(number):
            return
        time.sleep(0.5)
    raise AssertionError(told.stderr)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Its address."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # the names of sockets are 107 bytes at most
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    ports = ["--port=0", "--dashboard-port=0", "--dashboard-agent-listen-port=0", f"--ray-client-server-port={port}"]
    file = folder / "ray_current_cluster"
    try:
        with node("--head", "--include-dashboard=false", f"--temp-dir={folder}", *ports) as head:
            while not (file.is_file() and file.read_text()):
                assert head.poll() is None
                time.sleep(0.1)
            address = file.read_text()
            with node(f"--address={address}"):
                wait_for_nodes(address, 2)
                yield address
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def job(folder: Path, name: str, program: str, **more) -> Job:
    command = (sys.executable, "-c", program, str(folder), name)
    return Job(name, command, folder / "logs" / f"{name}.log", (folder / f"done-{name}").exists, **more)


def compare(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "a2c", "compare", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


def files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if not path.name.startswith("."))


@pytest.mark.parametrize(
    "gammas", ["0.9,0.99", pytest.param("0.9,0.93,0.95,0.97,0.99,1.0", marks=pytest.mark.slow)], ids=["two", "six"]
)
def test_a_sweep_over_two_ray_workers_leaves_the_files_it_leaves_without_ray(tmp_path, cluster, gammas):
    """Only clocks may differ: `seconds` and `steps_per_second` of the metrics, and what the report makes of them."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    sweep = ["--vary", f"algorithm.gamma={gammas}", "--config", "tiny.yaml", "--seeds", "1"]
    start = time.monotonic()
    here = compare(*sweep, "--jobs", "2", "--out", "here", cwd=tmp_path)
    between = time.monotonic()
    there = compare(*sweep, "--cluster", cluster, "--out", "there", cwd=tmp_path)
    print(
        f"\n{len(gammas.split(','))} arms here: {between - start:.1f} s; over Ray: {time.monotonic() - between:.1f} s"
    )
    assert [(here.returncode, here.stderr), (there.returncode, there.stderr)] == [(0, ""), (0, "")]
    assert [line for line in there.stdout.splitlines() if "ray" in line.lower() and "there" not in line] == []
    one, other = tmp_path / "here", tmp_path / "there"
    assert files(one) == files(other)
    runs = sorted((one / "runs").iterdir())
    assert len(runs) == len(gammas.split(","))
    for run in runs:
        assert_same_run(run, other / "runs" / run.name)
        assert (run / "config.yaml").read_bytes() == (other / "runs" / run.name / "config.yaml").read_bytes()
    plain = [name for name in files(one) if name.parts[0] in ("arms", "logs", "comparison.json")]
    for name in plain:
        assert not (one / name).is_file() or (one / name).read_bytes() == (other / name).read_bytes(), name
    results = [json.loads((folder / "results.json").read_text())["convergence"]["runs"] for folder in (one, other)]
    for a, b in zip(*results, strict=True):
        assert {key for key in a if a[key] != b[key]} <= {"seconds", "steps_per_second"}


@pytest.mark.slow
def test_a_sweep_stopped_by_ctrl_c_saves_its_runs_and_goes_on(tmp_path, cluster):
    quick = ["--vary", "algorithm.gamma=0.9,0.99", "--set", "logging.every_updates=1", "--set", "env.num_envs=4"]
    arguments = [*quick, "--seeds", "1", "--steps", "8000", "--cluster", cluster, "--out", "out"]
    command = [sys.executable, "-m", "a2c", "compare", *arguments]
    runs = [tmp_path / f"out/runs/gamma-{gamma}-s0" for gamma in (0.9, 0.99)]
    stopped = press_ctrl_c(command, lambda: all(map(steps_done, runs)), cwd=tmp_path, timeout=90)
    assert (stopped.returncode, stopped.stderr) == (130, "")
    assert "Stopped. The same command continues with what is missing." in stopped.stdout
    for run in runs:
        steps = steps_done(run)
        assert 0 < steps < 8000
        assert (run / f"checkpoints/step-{steps:012d}.npz").exists()
    before = [(run / "metrics.jsonl").read_bytes() for run in runs]
    again = compare(*arguments, cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    for run, lines in zip(runs, before, strict=True):
        assert steps_done(run) == 8000
        assert (run / "metrics.jsonl").read_bytes().startswith(lines)


@pytest.mark.slow
def test_a_search_over_two_ray_workers_finds_what_it_finds_without_ray(tmp_path, cluster):
    """The first four draws do not depend on the order in which trials end."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    search = ["tune", "--config", "tiny.yaml", "--trials", "4", "--jobs", "2", "--judge-seeds", "1"]
    found = []
    for out, how in (("here", []), ("there", ["--cluster", cluster])):
        command = [sys.executable, "-m", "a2c", *search, "--out", out, *how]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
        assert (ended.returncode, ended.stderr) == (0, "")
        trials = json.loads((tmp_path / out / "report/study.json").read_text())["trials"]
        found.append([{key: value for key, value in trial.items() if key != "seconds"} for trial in trials])
    assert found[0] == found[1]
    assert [trial["state"] for trial in found[0]] == ["complete"] * 4
    for number in range(4):
        assert_same_run(*(tmp_path / out / f"trials/{number:04d}" for out in ("here", "there")))
    judged = [sorted(path.name for path in tmp_path.glob(f"{out}/judge/*/runs/*")) for out in ("here", "there")]
    assert judged[0] == judged[1]


SURROUNDINGS = """
import json, os, pathlib, sys
told = {"cwd": os.getcwd(), "environment": dict(os.environ), "input": os.fstat(0).st_rdev, "python": sys.executable}
pathlib.Path(sys.argv[1], f"done-{sys.argv[2]}").write_text(json.dumps(told))
"""


def test_a_job_has_the_surroundings_it_has_without_ray_and_is_not_run_again(tmp_path, cluster, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # Ray sets it to 1 in its workers
    monkeypatch.chdir(tmp_path)
    jobs = [job(Path(), name, SURROUNDINGS, environment={"GREETING": "hi"}) for name in ("there", "here")]
    with RayCluster(cluster) as place:
        assert place.cpus == 2
        run_jobs(jobs[:1], workers=2, folder=Path(), place=place)
        first = Path("done-there").stat()
        run_jobs(jobs[:1], workers=2, folder=Path(), place=place)
        run_jobs(jobs[1:], workers=1, folder=Path(), place=MACHINE)
    assert Path("done-there").stat() == first
    there, here = (json.loads(Path(f"done-{name}").read_text()) for name in ("there", "here"))
    assert there == here
    assert here["environment"]["GREETING"] == "hi"
    assert list(Path().glob(".seen*")) == []


SLOW = "import time; time.sleep(1000)"


def test_a_job_that_fails_is_told_as_without_ray_and_the_others_are_stopped(tmp_path, cluster):
    broken = job(tmp_path, "broken", "import sys; print('a2c: There is no such game.'); sys.exit(2)")
    start = time.monotonic()
    said = []
    with RayCluster(cluster) as place:
        for where in (MACHINE, place):
            with pytest.raises(UserError) as told:
                run_jobs([job(tmp_path, "slow", SLOW), broken], workers=2, folder=tmp_path, place=where)
            said.append(str(told.value))
    assert "broken failed with exit code 2: There is no such game." in said[0]
    assert said[0] == said[1]
    assert time.monotonic() - start < 500


def test_a_result_that_is_seen_late_is_waited_for(tmp_path, cluster):
    """As a network file system shows what another machine wrote."""
    file = tmp_path / "done-late"
    late = job(tmp_path, "late", f"import pathlib; pathlib.Path({str(file)!r}).touch()")
    late = replace(late, is_done=lambda: file.exists() and time.time() > file.stat().st_mtime + 3)
    with RayCluster(cluster) as place:
        run_jobs([late], workers=1, folder=tmp_path, place=place)
    assert late.is_done()


STOPPABLE = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def save(*_):
    time.sleep(1)
    (folder / "saved").touch()
    sys.exit(143)
signal.signal(signal.SIGUSR1, save)
(folder / "started").touch()
time.sleep(1000)  # longer than Ray takes to ask it on a busy machine
"""


def test_a_job_that_is_asked_to_stop_ends_after_it_has_saved(tmp_path, cluster):
    (tmp_path / "logs").mkdir()
    with RayCluster(cluster) as place:
        process = place.start(job(tmp_path, "a", STOPPABLE))
        while not (tmp_path / "started").exists():
            assert process.poll() is None
            time.sleep(0.1)
        process.terminate()
        process.wait(120)
        assert process.poll() == -signal.SIGTERM
        assert (tmp_path / "saved").exists()


PID = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], f"pid-{sys.argv[2]}").write_text(str(os.getpid()))
time.sleep(100)
"""


@pytest.mark.slow
def test_a_node_that_dies_is_told_in_one_sentence(tmp_path, cluster, capfd):
    with node(f"--address={cluster}") as third, RayCluster(cluster) as place:
        wait_for_nodes(cluster, 3)

        def kill(_: int) -> None:
            if len(list(tmp_path.glob("pid-*"))) == 3:
                for pid in subprocess.run(
                    ["pgrep", "-P", str(third.pid), "raylet"], capture_output=True, text=True
                ).stdout.split():
                    os.kill(int(pid), signal.SIGKILL)

        jobs = [job(tmp_path, name, PID) for name in "abc"]
        with pytest.raises(UserError, match=r"^[abc] was lost with its node .*; the same command continues") as told:
            run_jobs(jobs, workers=3, folder=tmp_path, place=place, on_tick=kill)
    assert "\n" not in str(told.value)
    assert [line for line in capfd.readouterr().out.splitlines() if "raylet" in line] == []


def can(*command: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run([*command, "true"], capture_output=True).returncode == 0
    return False


@pytest.mark.slow
@pytest.mark.skipif(not can("unshare", "--mount"), reason="needs a mount namespace")
def test_a_node_that_does_not_see_the_folder_is_named_before_anything_runs(tmp_path, cluster):
    (tmp_path / "out").mkdir()
    elsewhere = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {tmp_path}/out && exec "$@"', "sh")
    with node(f"--address={cluster}", under=elsewhere), RayCluster(cluster) as place:
        wait_for_nodes(cluster, 3)
        with pytest.raises(UserError, match=rf"^The node .* does not see {tmp_path}/out/.*; every node needs a2c"):
            run_jobs([job(tmp_path / "out", "a", PID)], workers=1, folder=tmp_path / "out", place=place)
    assert not (tmp_path / "out/pid-a").exists()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        pytest.param("localhost:1", "no answer in 60 seconds", marks=pytest.mark.slow),
        ("nonsense", "Invalid address format: nonsense"),
    ],
)
def test_an_address_without_a_cluster_is_refused_in_one_sentence(tmp_path, address, why):
    start = time.monotonic()
    result = compare("--vary", "algorithm.gamma=0.9,0.99", "--cluster", address, cwd=tmp_path)
    said = f"a2c: No Ray cluster can be joined at --cluster {address} ({why}); start one with `ray start --head`, or "
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(said)
    assert result.stderr.count("\n") == 1
    assert time.monotonic() - start < 150
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not can("unshare", "--pid", "--fork", "--mount-proc"), reason="other tests' clusters are seen")
def test_auto_without_a_running_cluster_says_how_to_start_one(tmp_path):
    alone = ["unshare", "--pid", "--fork", "--mount-proc", "env", "-u", "RAY_ADDRESS", f"RAY_TMPDIR={tmp_path}"]
    command = [sys.executable, "-m", "a2c", "compare", "--vary", "algorithm.gamma=0.9,0.99", "--cluster", "auto"]
    result = subprocess.run([*alone, *command], capture_output=True, text=True, cwd=tmp_path, timeout=90)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Could not find any running Ray instance" in result.stderr
    assert "`ray start --head`" in result.stderr
    assert result.stderr.count("\n") == 1
