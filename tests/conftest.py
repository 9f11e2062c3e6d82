"""What several files share: a small, fast configuration on real environments, trajectories, exact numerics."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from a2c.config import Config, RuntimeConfig, build_config
from a2c.data.rollout import Rollout
from a2c.run.archive import read_archive, write_archive

T, B, A = 6, 5, 3
GAMMA = 0.9
PONG_RUN = Path(__file__).parents[1] / "runs" / "pong-a2c"  # a whole run of an early version
VECTORS = Box(-1, 1, (4,), np.float32)
GRAPH = {"mode": "graph"}  # of a test about graphs, or with so many updates that tracing pays
TIMES = ("seconds", "steps_per_second", "checkpoint")  # and the name of the run, in its evaluations
MODES = ["eager", pytest.param("graph", marks=pytest.mark.integration)]  # the same bits: test_exactness.py


def small_config(**sections: object) -> Config:
    """Pong through a small network: 4 environments, 8 steps, an update every 32 agent steps; eager, as it is short."""
    values = {
        "total_env_steps": 320,
        "env": {"id": "Pong", "num_envs": 4, "screen_size": 42, "sticky_action_probability": 0.25},
        "model": {"name": "small", "conv_layers": [[4, 4, 4], [8, 4, 2]]},
        "algorithm": {"rollout_length": 8, "gae_lambda": 0.95},
        "logging": {"every_updates": 2},
        "checkpoint": {"every_updates": 4},
        "runtime": {"mode": "eager"},
    }
    if sections.get("model", {}).get("name", "small") != "small":
        del values["model"]["conv_layers"]  # they are of that network
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section} if isinstance(section, dict) else section
    return build_config(values, where="test")


def draw_nothing(patch: pytest.MonkeyPatch) -> None:
    """Replace matplotlib's pictures, of which a page has eight, by a word."""
    for module, name in (("plot", "draw"), ("page", "draw_alone"), ("page", "draw_sign")):
        patch.setattr(f"a2c.show.{module}.{name}", lambda *_: None)
    for module in ("plot", "page"):
        patch.setattr(f"a2c.show.{module}.render", lambda figure, form: b"picture")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def exact_numerics() -> Iterator[None]:
    """The passes of the graph optimizer are switched for the whole process: such a test starts from exact."""
    from a2c.execution import runtime  # imports TensorFlow: most files do without it here

    runtime.setup(RuntimeConfig())
    yield
    runtime.setup(RuntimeConfig())


def make_rollout(seed: int, space: Box = VECTORS, num_actions: int = A, t: int = T, b: int = B) -> Rollout:
    """Random rows with every kind of end: terminated, truncated, a life lost, terminated and truncated, and none."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(5, size=(t, b), p=[0.6, 0.1, 0.15, 0.05, 0.1])
    kind.flat[:5] = range(5)
    truncated = (kind == 2) | (kind == 3)
    return Rollout(
        observations=observations(rng, space, t + 1, b),
        actions=rng.integers(num_actions, size=(t, b), dtype=np.int32),
        rewards=rng.normal(size=(t, b)).astype(np.float32),
        terminated=(kind == 1) | (kind == 3),
        truncated=truncated,
        life_lost=kind == 4,
        last_observations=observations(rng, space, int(truncated.sum())),
        said={
            "logits": rng.normal(size=(t, b, num_actions)).astype(np.float32),
            "values": rng.normal(size=(t, b)).astype(np.float32),
        },
    )


def observations(rng: np.random.Generator, space: Box, *shape: int) -> np.ndarray:
    if space.dtype == np.uint8:
        return rng.integers(256, size=(*shape, *space.shape), dtype=np.uint8)
    return rng.normal(size=(*shape, *space.shape)).astype(np.float32)


def make_trajectory(seed: int, space: Box = VECTORS, num_actions: int = A, t: int = T, b: int = B) -> Any:
    """A `Trajectory` of A2C: rows that are terminated or cut (discount 0), truncated, both in one row, and none."""
    from a2c.algorithms.a2c import Trajectory  # imports TensorFlow: most files do without it here

    rng = np.random.default_rng(seed)
    kind = rng.choice(4, size=(t, b), p=[0.6, 0.15, 0.15, 0.1])
    kind.flat[:4] = 0, 1, 2, 3
    seen = observations(rng, space, t + 1, b)
    return Trajectory(
        observations=seen[:-1],
        actions=rng.integers(num_actions, size=(t, b), dtype=np.int32),
        rewards=rng.normal(size=(t, b)).astype(np.float32),
        discounts=np.where((kind == 1) | (kind == 3), 0.0, GAMMA).astype(np.float32),
        ends=kind > 0,
        final_values=np.where(kind >= 2, rng.normal(size=(t, b)) + 2.0, 0.0).astype(np.float32),
        bootstrap_observations=seen[-1:],
    )


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def timeless(line: dict[str, Any]) -> dict[str, Any]:
    """What two runs that are alike both say in a line."""
    return {key: value for key, value in line.items() if key not in TIMES}


def packed(meta: object) -> np.ndarray:
    """What a checkpoint says of itself, as its array."""
    return np.frombuffer(json.dumps(meta).encode(), np.uint8)


def rewritten(file: Path, change: Callable[[dict[str, Any]], object], to: Path | None = None) -> Path:
    """Change what a checkpoint says of itself, in its place or in another file."""
    arrays = read_archive(file)
    meta = json.loads(arrays["meta"].tobytes())
    change(meta)
    write_archive(to or file, {**arrays, "meta": packed(meta)})
    return to or file


def run_config(
    model: dict,
    optimizer: dict,
    mode: str,
    precision: str = "float32",
    num_envs: int = 4,
    env: dict | None = None,
    runtime: dict | None = None,
    **algorithm,
) -> Config:
    values = {
        "env": {"num_envs": num_envs, **(env or {})},
        "model": model,
        "algorithm": {"rollout_length": 5, "gamma": GAMMA, **algorithm},
        "optimizer": optimizer,
        "runtime": {"mode": mode, "precision": precision, **(runtime or {})},
    }
    return build_config(values, where="test")


@contextmanager
def memory_for(size: int) -> Iterator[None]:
    """Room for so many more bytes of memory."""
    pages, before = int(Path("/proc/self/statm").read_text().split()[0]), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def heed_sigint() -> None:
    """For new processes: if the tests run in the background of a shell, SIGINT is ignored, under nohup SIGHUP too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def wait_for(come: Callable[[], object], process: subprocess.Popen[Any] | None = None, seconds: float = 120) -> None:
    """Wait until `come()`; the process, if there is one, has to live until then."""
    deadline = time.monotonic() + seconds
    while not come():
        assert process is None or process.poll() is None, process.communicate()
        if time.monotonic() > deadline:
            if process is not None:
                process.kill()
            pytest.fail("it never came")
        time.sleep(0.05)


def press_ctrl_c(
    command: Sequence[str],
    begun: Callable[[], bool],
    *,
    cwd: Path,
    timeout: float,
    number: signal.Signals = signal.SIGINT,
) -> subprocess.CompletedProcess[str]:
    """Run a command until `begun()`, send SIGINT or another signal, and wait for its end."""
    process = subprocess.Popen(
        command, cwd=cwd, preexec_fn=heed_sigint, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(begun, process, seconds=600)  # trainings may have to start
    process.send_signal(number)
    output, errors = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


# --- the command line -----------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def assert_one_sentence(ended: Ended | subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """A command ended with this code and said one line, on stderr, in which all these words are."""
    assert (ended.returncode, ended.stdout) == (code, ""), ended
    assert ended.stderr.startswith("a2c: ")
    assert ended.stderr.count("\n") == len(ended.stderr.splitlines()) == 1, ended.stderr
    for word in words:
        assert word in ended.stderr


@pytest.fixture
def run_cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Run `a2c WORDS` in this process, in the folder `cwd`: the same code as a new process, without its 5 s of imports.

    Signals, limits of memory and what a process leaves behind when it ends need a real one.
    """

    def run(*words: object, cwd: Path | None = None) -> Ended:
        from a2c.cli import main

        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["a2c", *map(str, words)])
            patch.setattr(sys, "path", list(sys.path))  # the import of what is named adds the folder
            if cwd is not None:
                patch.chdir(cwd)
            capfd.readouterr()
            with pytest.raises(SystemExit) as ended:
                main()
        stdout, stderr = capfd.readouterr()
        # TensorFlow may run here already, with the threads of another test: a new process would not say so
        said = "".join(line for line in stderr.splitlines(keepends=True) if "comes too late: TensorFlow" not in line)
        return Ended(ended.value.code or 0, stdout, said)

    return run


# --- run folders of agents to watch, of the whole session ---------------------------------------------------


@pytest.fixture(scope="session")
def catch_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return watchable(tmp_path_factory, "Catch", seed=7)


@pytest.fixture(scope="session")
def pong_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its games are cut after 10 seconds."""
    return watchable(tmp_path_factory, "Pong", env={"max_frames_per_episode": 600})


def watchable(factory: pytest.TempPathFactory, env_id: str, **sections: Any) -> Path:
    """A run folder, after a moment of training."""
    from a2c.run.training import train  # imports TensorFlow: most files do without it here

    folder = factory.mktemp("watchable") / "run"
    sections = {"total_env_steps": 64, "logging": {"trackers": []}, **sections}
    env = {"id": env_id, **sections.pop("env", {})}
    train(small_config(env=env, **sections), folder)
    return folder
