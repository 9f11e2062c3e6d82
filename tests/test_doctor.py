"""The doctor: what is right is called right, what is broken is found, named with a remedy, and never a traceback."""

import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from a2c import cli
from a2c.analysis import checks, doctor
from a2c.analysis.doctor import examine, run_check
from a2c.analysis.finding import Finding
from a2c.execution import machine


def find(findings, check: str) -> Finding:
    found = [finding for finding in findings if finding.check == check]
    assert len(found) == 1, (check, found)
    return found[0]


def assert_remedies(findings) -> None:
    for finding in findings:
        assert bool(finding.advice) == (finding.status != "ok"), finding
        assert "\n" not in finding.found


def run_doctor(*first_on_path: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, [*first_on_path, *filter(None, sys.path)]))
    return subprocess.run(
        [sys.executable, "-m", "a2c", "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )


def stand_in(folder: Path, package: str, code: str) -> Path:
    """A package of that name that does something else; to be first on the path."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text(code)
    return folder


def installed(folder: Path, name: str, version: str, *requires: str) -> None:
    """What importlib.metadata takes for an installed distribution."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = [f"Name: {name}", f"Version: {version}", "Requires-Python: >=3.11"]
    (info / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {text}" for text in requires)]) + "\n")


# --- a sound installation ---------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_this_installation_is_sound():
    """Whatever else the machine is busy with."""
    ended = run_doctor()
    said = json.loads(ended.stdout)
    findings = [Finding(**finding) for finding in said["findings"]]
    assert_remedies(findings)
    assert sum(said["counts"].values()) == len(findings)
    assert {finding.check for finding in findings if finding.status == "problem"} <= {"memory", "disk"}
    assert ended.returncode == (1 if said["counts"]["problem"] else 0)
    for check in ("python", "a2c", "numpy", "cores", "ROMs", "Pong", "resume", "exactness", "speed"):
        assert find(findings, check)
    assert "same bits" in find(findings, "exactness").found


# --- what is broken ---------------------------------------------------------------------------------------------------


def test_a_tensorflow_that_cannot_be_imported(tmp_path):
    """All else is looked at all the same."""
    ended = run_doctor(stand_in(tmp_path, "tensorflow", "raise ImportError('libfoo.so.1 is missing')"))
    assert ended.returncode == 1
    assert ended.stderr == ""
    findings = [Finding(**finding) for finding in json.loads(ended.stdout)["findings"]]
    assert_remedies(findings)
    broken = [finding for finding in findings if finding.status == "problem"]
    assert len(broken) == 1
    assert "libfoo.so.1 is missing" in broken[0].found
    assert str(tmp_path) in broken[0].found
    assert find(findings, "Pong").status == "ok"
    assert find(findings, "training").found == "not run, since TensorFlow is broken"


def test_a_numpy_that_cannot_be_imported(tmp_path):
    ended = run_doctor(stand_in(tmp_path, "numpy", "raise ImportError('no numbers here')"))
    assert (ended.returncode, ended.stderr) == (1, "")
    broken = [finding for finding in json.loads(ended.stdout)["findings"] if finding["status"] == "problem"]
    assert [finding["check"] for finding in broken] == ["emulator", "tensorflow"]
    assert all("no numbers here" in finding["found"] for finding in broken)


def test_a_tensorflow_that_kills_its_process(tmp_path, monkeypatch):
    """As one does that was built for another processor."""
    code = "import os, signal\nos.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.syspath_prepend(stand_in(tmp_path, "tensorflow", code))
    findings = list(doctor._in_own_process(["tensorflow", "training"]))
    assert [finding.status for finding in findings] == ["problem", "note"]
    assert "SIGILL" in findings[0].found


def test_a_check_that_hangs_or_dies_does_not_take_the_others_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "RISKY_SECONDS", 2)
    monkeypatch.syspath_prepend(
        stand_in(tmp_path, "ale_py", "print('a line', flush=True)\nimport time\ntime.sleep(60)")
    )
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("import sys\nsys.exit('no')")
    findings = doctor._in_own_process(["emulator", "tensorflow"])
    assert next(findings).found == "the check ended its process: nothing more for 2 seconds"
    monkeypatch.setattr(doctor, "RISKY_SECONDS", 60)  # the other one's process has to start, on a busy machine too
    assert "SystemExit: no" in next(findings).found


@pytest.mark.parametrize("folder", ["empty", "nowhere"])
def test_hidden_roms(folder, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path / folder))
    (finding,) = doctor._in_own_process(["emulator"])
    assert (finding.check, finding.status) == ("ROMs", "problem")
    assert "104 of 104" in finding.found
    assert "unset ALE_ROMS_DIR" in finding.advice


def test_a_broken_emulator(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(stand_in(tmp_path, "ale_py", "raise ImportError('no emulator here')"))
    (finding,) = doctor._in_own_process(["emulator"])
    assert (finding.check, finding.status) == ("emulator", "problem")
    assert "no emulator here" in finding.found


@pytest.mark.integration
@pytest.mark.parametrize(
    ("backend", "settings", "found", "said"),
    [
        ("nonsense", "{}", "Unable to import backend : nonsense", "and a2c needs TensorFlow's Keras"),
        (
            "tensorflow",
            '{"image_data_format": "channels_first"}',
            "its image_data_format is channels_first, and a2c needs channels_last",
            "and a2c needs channels_last; mend {home}/keras.json.",
        ),
        (
            "tensorflow",
            '{"floatx": "float99"}',
            "__init__.py: AssertionError",
            "TensorFlow cannot be imported with the settings in {home}/keras.json; mend it.",
        ),
    ],
)
def test_settings_of_keras_are_found_and_end_other_commands(backend, settings, found, said, tmp_path, monkeypatch):
    (tmp_path / "keras.json").write_text(settings)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", backend)
    findings = list(doctor._in_own_process(["tensorflow", "training"]))
    broken = [finding for finding in findings if finding.status == "problem"]
    assert len(broken) == 1
    assert found in broken[0].found
    assert broken[0].advice == f"unset KERAS_BACKEND, and mend {tmp_path}/keras.json"
    assert find(findings, "training").status == "note"
    command = [sys.executable, "-m", "a2c", "train", "--env", "Catch", "--run-dir", tmp_path / "run", "--quiet"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert said.format(home=tmp_path) in ended.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.integration
@pytest.mark.usefixtures("exact_numerics")
def test_eager_execution_that_differs_from_graphs_is_found(monkeypatch):
    """TensorFlow as it is by default, which a2c takes for exact here; a resumed run has the same bits even so."""
    import tensorflow as tf

    from a2c.execution import runtime

    passes = dict.fromkeys(runtime.INEXACT_PASSES, True)
    tf.config.optimizer.set_experimental_options(passes)
    monkeypatch.setattr(runtime, "INEXACT_PASSES", ())
    findings = list(checks.check_training())
    assert find(findings, "exactness").status == "problem"
    assert re.search(r"gives other bits in \d+ of \d+ arrays, first in model/", find(findings, "exactness").found)
    assert find(findings, "resume").status == "ok"


def test_packages_that_do_not_fit(tmp_path, monkeypatch):
    """Of a2c's own requirements, and of theirs: protobuf is TensorFlow's."""
    monkeypatch.syspath_prepend(tmp_path)
    installed(tmp_path, "numpy", "1.26.4")
    installed(tmp_path, "protobuf", "5.29.5")
    installed(tmp_path, "tensorflow_cpu", "2.21.0")
    findings = list(checks.check_packages())
    assert_remedies(findings)
    numpy = find(findings, "numpy")
    assert (numpy.status, numpy.found, numpy.advice) == (
        "problem",
        "1.26.4, and a2c needs numpy>=2.0",
        "pip install 'numpy>=2.0'",
    )
    assert find(findings, "protobuf").status == "problem"
    assert "needs protobuf<8.0.0,>=6.31.1" in find(findings, "protobuf").found
    assert find(findings, "tensorflow-cpu").status == "note"
    assert find(findings, "typer").status == "ok"


def test_missing_packages(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    installed(tmp_path, "a2c", "0.1.0", "no-such-package>=3", "numpy", "other; extra == 'gpu'")
    findings = list(checks.check_packages())
    assert find(findings, "no-such-package").found == "missing, and a2c needs no-such-package>=3"
    assert not [finding for finding in findings if finding.check == "other"]


def test_a_folder_that_cannot_be_written_to(monkeypatch):
    monkeypatch.chdir("/proc/sys/net")
    findings = list(checks.check_folders())
    assert find(findings, "folder").status == "problem"
    assert find(findings, "disk").status == "problem"
    assert_remedies(findings)


def test_what_a_check_raises_is_a_finding():
    def check():
        yield Finding("first", "ok", "fine")
        raise RuntimeError("two\nlines")

    first, second = run_check("mine", check)
    assert first.status == "ok"
    assert (second.check, second.status, second.found) == (
        "mine",
        "problem",
        "the check failed: RuntimeError: two lines",
    )


# --- machines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, math.inf),
        ({"cpu.max": "max 100000"}, math.inf),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
    ],
)
def test_the_limit_of_a_container(files, quota, tmp_path, monkeypatch):
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert machine.core_quota(tmp_path) == quota
    monkeypatch.setattr(machine, "core_quota", lambda: quota)
    monkeypatch.setattr(machine, "allowed_cores", lambda: 8)
    cores = find(checks.check_processor(), "cores")
    assert cores.status == ("ok" if quota == math.inf else "note")
    assert quota == math.inf or "runtime.threads=1 " in cores.advice


def test_a_graphics_card_that_tensorflow_does_not_see(tmp_path, monkeypatch):
    cards = {"a": ("0x10de", "0x030000"), "b": ("0x10de", "0x040300"), "c": ("0x8086", "0x030000")}  # b is its sound
    for name, (vendor, kind) in cards.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert machine.nvidia_cards(tmp_path) == 1
    assert machine.nvidia_cards(tmp_path / "nowhere") == 0
    monkeypatch.setattr(machine, "nvidia_cards", lambda: 1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    finding = checks._gpus(0)
    assert (finding.status, "a2c[gpu]" in finding.advice) == ("note", True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert checks._gpus(0).found == "1, hidden by CUDA_VISIBLE_DEVICES=-1"
    assert checks._gpus(1).status == "ok"


def test_memory(tmp_path, monkeypatch):
    for files in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        limit, used = (tmp_path / name for name in files)
        limit.parent.mkdir(exist_ok=True)
        assert machine.memory_limit(tmp_path) >= 2**62
        limit.write_text("5000\n")
        assert machine.memory_limit(tmp_path) == 5000
        used.write_text("2000\n")
        assert machine.free_memory(tmp_path) == 3000
        limit.write_text("max\n" if limit.name == "memory.max" else f"{2**63 - 4096}\n")  # without a limit
        assert machine.free_memory(tmp_path) != 3000
    for free, status in ((3e9, "ok"), (1.5e9, "note"), (0.5e9, "problem"), (None, "ok")):
        monkeypatch.setattr(machine, "free_memory", lambda free=free: free)
        assert find(checks.check_memory(), "memory").status == status


def test_features_of_the_processor(monkeypatch):
    monkeypatch.setattr(checks.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(machine, "processor_features", lambda: frozenset({"sse4_2"}))
    assert find(checks.check_processor(), "processor").status == "problem"
    assert "keep runtime.precision=float32" in find(checks.check_precision(), "bfloat16").found
    for value, status in ("0", "note"), ("false", "note"), ("1", "ok"):
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", value)
        assert find(checks.check_processor(), "oneDNN").status == status
    monkeypatch.setattr(machine, "processor_features", lambda: frozenset({"avx", "avx2"}))
    assert find(checks.check_processor(), "processor").status == "ok"


X86 = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n\n"
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n\n"


@pytest.mark.parametrize(
    ("cpuinfo", "name"), [(X86, "AMD EPYC, family 25 model 17"), (ARM, "Neoverse"), (None, "Neoverse")]
)
def test_a_processor_is_told_by_more_than_a_name_that_many_have(cpuinfo, name, tmp_path, monkeypatch):
    if cpuinfo:
        (tmp_path / "cpuinfo").write_text(cpuinfo * 2)
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine.platform, "processor", lambda: "Neoverse")
    assert machine.processor() == name


def test_clock_and_encoding(monkeypatch):
    assert list(checks.check_surroundings()) == []
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(checks.locale, "getpreferredencoding", lambda _: "ISO-8859-1")
    assert [finding.check for finding in checks.check_surroundings()] == ["clock", "text"]


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("note", 0), ("problem", 1)])
def test_what_people_see(status, code, monkeypatch, capsys):
    """Square brackets are text, and a problem is exit code 1."""
    findings = [Finding("first", "ok", "fine"), Finding("gpu", status, "a [red] one", "pip install 'a2c[gpu]'")]
    monkeypatch.setattr(doctor, "examine", lambda on_check: findings)
    monkeypatch.setattr(sys, "argv", ["a2c", "doctor"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code or 0) == code
    said = capsys.readouterr().out
    assert "a [red] one" in said
    assert "pip install 'a2c[gpu]'" in said


def test_checks_are_named_while_they_run(monkeypatch):
    monkeypatch.setattr(doctor, "RISKY", {})
    names: list[str] = []
    examine(names.append)
    assert names[:2] == ["packages", "processor"]
