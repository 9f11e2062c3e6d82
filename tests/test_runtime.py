"""What is in force in this process: numerics, by mode and by device, and how a wish for the impossible is refused."""

import os
import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import tensorflow as tf
from conftest import assert_one_sentence

import a2c
from a2c.config import RuntimeConfig, UserError
from a2c.execution.machine import processor, versions
from a2c.execution.runtime import INEXACT_PASSES, graph_rewrites, is_exact, machine, setup, stream_seed

pytestmark = pytest.mark.usefixtures("exact_numerics")


@pytest.fixture
def a_gpu(monkeypatch):
    """This machine has none: TensorFlow is made to say that it sees one."""
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["GPU:0"] if kind == "GPU" else ["CPU:0"])


CASES = [  # mode, numerics, exact on a CPU, exact on a GPU; None is refused
    ("graph", "auto", True, False),
    ("eager", "auto", True, False),
    ("xla", "auto", False, False),
    ("graph", "exact", True, None),
    ("eager", "exact", True, None),
    ("graph", "fast", False, False),
    ("eager", "fast", False, False),
    ("xla", "fast", False, False),
]


def in_force(config: RuntimeConfig) -> bool:
    """Set up, and ask TensorFlow: all passes of the precision are off, or none."""
    setup(config)
    options = tf.config.optimizer.get_experimental_options()
    switched_off = {name for name in INEXACT_PASSES if not options[name]}
    assert switched_off in (set(), set(INEXACT_PASSES))
    return bool(switched_off)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(("mode", "numerics", "on_cpu", "on_gpu"), CASES)
def test_numerics_in_force_on_a_cpu(mode, numerics, precision, on_cpu, on_gpu):
    config = RuntimeConfig(mode=mode, numerics=numerics, precision=precision)
    assert is_exact(config) == on_cpu == in_force(config)


@pytest.mark.parametrize(("mode", "numerics", "on_cpu", "on_gpu"), CASES)
def test_numerics_in_force_on_a_gpu(mode, numerics, on_cpu, on_gpu, a_gpu):
    config = RuntimeConfig(mode=mode, numerics=numerics)
    if on_gpu is None:
        with pytest.raises(UserError, match=r"^runtime\.numerics=exact holds on CPUs only, .*; use numerics=fast, or "):
            setup(config)
    else:
        assert is_exact(config) == on_gpu == in_force(config)


def test_a_clone_that_is_not_installed_knows_its_version(monkeypatch):
    def version(package: str) -> str:
        if package == "a2c":
            raise PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr("a2c.execution.machine.version", version)
    assert versions()["a2c"] == a2c.__version__


@pytest.mark.parametrize(("parts", "set_to", "threads"), [(1, 0, 5), (1, 3, 3), (4, 1, 4)])
def test_the_machine_is_named_by_all_that_bits_depend_on(parts, set_to, threads, monkeypatch):
    monkeypatch.setattr("a2c.execution.runtime.allowed_cores", lambda: 5)
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: set_to)
    here = machine(parts)
    assert here.startswith(f"{processor()} (features ")
    assert here.endswith(f"), threads {threads}, parts {parts}")
    monkeypatch.setattr("a2c.execution.runtime.processor_features", lambda: frozenset({"vax"}))
    assert machine(parts).endswith(f"(features 8d056e18), threads {threads}, parts {parts}")
    monkeypatch.setattr("a2c.execution.runtime.processor", lambda: "VAX")
    assert machine(parts).startswith("VAX (")


def test_a_machine_without_onednn_is_another_machine(monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "False")
    assert machine(1).endswith(", parts 1, oneDNN off")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    assert machine(1).endswith(", parts 1")


ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="TensorFlow decides on other processors")


@ON_X86
def test_tensorflow_uses_onednn_on_every_x86_unless_the_user_says_no():
    program = "import a2c, os; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"
    others = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    for asked, on in ({}, "1"), ({"TF_ENABLE_ONEDNN_OPTS": "0"}, "0"):
        done = subprocess.run([sys.executable, "-c", program], env=others | asked, capture_output=True, text=True)
        assert done.stdout == f"{on}\n", done.stderr


@pytest.mark.integration
@ON_X86
@pytest.mark.parametrize(("asked", "on"), [({}, True), ({"TF_ENABLE_ONEDNN_OPTS": "0"}, False)])
def test_tensorflow_heeds_what_is_asked_of_onednn(asked, on):
    command = [sys.executable, "-c", "import a2c, tensorflow"]
    others = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    done = subprocess.run(command, env=others | asked, capture_output=True, text=True)
    assert ("oneDNN custom operations are on" in done.stderr) == on


SIGNALLED = """
import signal
import tensorflow as tf
from a2c.config import RuntimeConfig
from a2c.execution.runtime import setup

setup(RuntimeConfig(threads=1))
came = []
signal.signal(signal.SIGALRM, lambda *_: came.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
matrix = tf.ones((256, 256))
while len(came) < 2000:
    tf.matmul(matrix, matrix)
signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.integration
def test_signals_that_come_in_a_matrix_product_do_no_harm():
    """Without a stack of their own the process aborts, on a processor with AVX2."""
    ended = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_gpu_is_another_machine(a_gpu):
    assert machine(1).endswith(", parts 1, GPU")


@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_operations_are_rewritten_as_functions_are(numerics):
    setup(RuntimeConfig(numerics=numerics))
    options = tf.compat.v1.ConfigProto.FromString(graph_rewrites()).graph_options.rewrite_options
    state = options.OFF if numerics == "exact" else options.ON
    assert {getattr(options, name) for name in INEXACT_PASSES} == {state}
    assert not options.disable_meta_optimizer  # would switch off all of Grappler
    assert not options.disable_model_pruning


def test_a_process_may_go_from_exact_to_fast_and_back():
    for numerics in ("exact", "fast", "exact", "auto"):
        config = RuntimeConfig(numerics=numerics, precision="mixed_bfloat16")
        assert in_force(config) == is_exact(config) == (numerics != "fast")


def test_the_command_line_refuses_exact_on_a_gpu_in_one_sentence(a_gpu, tmp_path, run_cli):
    ended = run_cli("train", "--env", "Catch", "--set", "runtime.numerics=exact", cwd=tmp_path)
    assert_one_sentence(ended, 2, "CUDA_VISIBLE_DEVICES=")
    assert not list(tmp_path.iterdir())


def test_every_stream_of_every_run_has_a_seed_of_its_own():
    """Else actions, minibatches and weights would be drawn from the same numbers, or runs share their noise."""
    sources = [path.read_text() for path in Path(a2c.__file__).parent.rglob("*.py")]
    used = [name for text in sources for name in re.findall(r'stream_seed\([\w.]+, f?"([^"]+)"', text)]
    streams, several = set(used), {"minibatches", "samples"}  # of algorithms that never meet
    assert {name for name in used if used.count(name) > 1} == several
    assert streams > several | {"actions", "evaluation actions", "export actions", "weights"}
    seeds = {stream_seed(seed, stream) for seed in range(20) for stream in streams}
    assert len(seeds) == 20 * len(streams)
    assert all(0 <= seed < 2**63 for seed in seeds)
