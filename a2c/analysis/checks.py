"""The checks of `a2c doctor`: packages, the machine, the emulator, TensorFlow, a short training.

Packages that may be broken are imported only inside the checks.
"""

from __future__ import annotations

import locale
import math
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from a2c.algorithms.sections import SECTIONS
from a2c.analysis.finding import Finding, Status
from a2c.config import EnvConfig, load_config
from a2c.execution import machine
from a2c.execution.memory import physical_memory
from a2c.quiet import keras_file
from a2c.run.files import try_writing

GB = 1e9

# Distributions that write the same files: the one installed last wins.
CLASHES = (
    ("tensorflow", "tensorflow-cpu"),
    ("tensorflow", "tf-nightly"),
    ("keras", "keras-nightly"),
    ("opencv-python-headless", "opencv-python"),
    ("opencv-python-headless", "opencv-contrib-python"),
)
BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last is ARM's

Check = Callable[[], Iterator[Finding]]


# --- packages ---------------------------------------------------------------------------------------------------------


def check_packages() -> Iterator[Finding]:
    """Compare Python, the requirements of a2c and their own requirements with what is installed."""
    from packaging.specifiers import SpecifierSet

    try:
        own = distribution("a2c")
    except PackageNotFoundError:
        yield Finding("a2c", "problem", "not installed, only found", "pip install -e . in its folder")
        return
    wanted = own.metadata["Requires-Python"]
    here = platform.python_version()
    if here in SpecifierSet(wanted, prereleases=True):
        yield Finding("python", "ok", here)
    else:
        yield Finding("python", "problem", f"{here}, and a2c needs {wanted}", "make an environment with a newer Python")
    yield Finding("a2c", "ok", f"{own.version}, in {Path(__file__).parents[1]}")
    yield from _requirements("a2c")
    for first, second in CLASHES:
        if _version(first) and _version(second):
            yield Finding(
                second,
                "note",
                f"installed beside {first}: both write the same files",
                f"pip uninstall {first} {second}, then pip install --force-reinstall {first}",
            )


def _requirements(name: str) -> Iterator[Finding]:
    """The requirements of a package, then the unmet ones of those packages; each unmet package once."""
    wrong: set[str] = set()
    direct = list(_required(name))
    indirect = [(r.name, each) for r in direct if _version(r.name) for each in _required(r.name)]
    for owner, requirement in [*((name, r) for r in direct), *indirect]:
        finding = _compare(owner, requirement)
        if finding.status == "ok" and owner == name:
            yield finding
        elif finding.status != "ok" and requirement.name not in wrong:
            wrong.add(requirement.name)
            yield finding


def _compare(owner: str, requirement: Any) -> Finding:
    installed = _version(requirement.name)
    if installed is not None and requirement.specifier.contains(installed, prereleases=True):
        return Finding(requirement.name, "ok", installed)
    wanted = f"{requirement.name}{requirement.specifier}"
    return Finding(
        requirement.name,
        "problem",
        f"{installed or 'missing'}, and {owner} needs {wanted}",
        f"pip install '{wanted}'",
    )


def _required(name: str) -> Iterator[Any]:
    """The requirements of a distribution that apply here, without its extras."""
    from packaging.requirements import Requirement

    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# --- machine ----------------------------------------------------------------------------------------------------------


def check_processor() -> Iterator[Finding]:
    """Check the cores, the processor's features for matrix kernels, and oneDNN."""
    cores, quota = machine.allowed_cores(), machine.core_quota()
    if quota < cores:
        threads = max(1, math.floor(quota))
        yield Finding(
            "cores",
            "note",
            f"{cores}, but a limit leaves the time of {quota:g}, and threads are made for {cores}",
            f"train with --set runtime.threads={threads} --set env.threads={threads}",
        )
    else:
        of = f" of {os.cpu_count()}, the others are not for this process" if cores != os.cpu_count() else ""
        yield Finding("cores", "ok", f"{cores}{of}")
    features = machine.processor_features()
    is_x86 = machine.is_x86()
    if is_x86 and features and "avx" not in features:
        yield Finding(
            "processor",
            "problem",
            f"{machine.processor()} has no AVX, which TensorFlow's packages need",
            "use another machine, or build TensorFlow for this one",
        )
    else:
        told = [name for name in ("avx2", "fma", "avx512f", "avx512_vnni", *sorted(BFLOAT16)) if name in features]
        yield Finding("processor", "ok", f"{machine.processor()}: {', '.join(told) or 'features unknown'}")
    if is_x86 and machine.onednn_is_off():
        yield Finding(
            "oneDNN",
            "note",
            "switched off by TF_ENABLE_ONEDNN_OPTS: updates take about twice as long",
            "unset TF_ENABLE_ONEDNN_OPTS; exactness does not need it off",
        )
    else:
        yield Finding("oneDNN", "ok", "on" if is_x86 else "on if TensorFlow uses it on this processor")


def check_memory() -> Iterator[Finding]:
    """Check the free memory; a run of a preset takes 0.8 to 1 GB."""
    free = machine.free_memory()
    found = f"{physical_memory() / GB:.1f} GB" + ("" if free is None else f", {free / GB:.1f} free")
    if free is None or free > 2 * GB:
        yield Finding("memory", "ok", found)
    else:
        status: Status = "note" if free > GB else "problem"
        yield Finding("memory", status, found, "a run takes about 1 GB: end other programs, or train one run at a time")


def check_folders() -> Iterator[Finding]:
    """Check that the default folder of runs can be written, and its free disk space."""
    here, runs = Path.cwd(), Path("runs")
    target = runs if runs.is_dir() else here
    try:
        try_writing(target)
        yield Finding("folder", "ok", f"{target.absolute()} can be written")
    except OSError as error:
        yield Finding(
            "folder",
            "problem",
            f"{target.absolute()} cannot be written: {error.strerror}",
            "work in another folder, or train with --run-dir",
        )
    free = shutil.disk_usage(target).free
    status: Status = "ok" if free > GB else "note" if free > GB / 4 else "problem"
    advice = "" if status == "ok" else "make room; a run of the Nature network takes about 0.1 GB"
    yield Finding("disk", status, f"{free / GB:,.1f} GB free", advice)


def check_surroundings() -> Iterator[Finding]:
    """Check the clock and the text encoding; no findings if both are right."""
    if time.time() < Path(__file__).stat().st_mtime - 86_400:
        yield Finding(
            "clock",
            "note",
            f"it says {time.strftime('%Y-%m-%d %H:%M')}, which is before a2c was installed",
            "set it; TensorBoard shows runs by the clock",
        )
    if (encoding := locale.getpreferredencoding(False)).lower().replace("-", "") != "utf8":
        yield Finding(
            "text", "note", f"the encoding of this terminal is {encoding}", "set PYTHONUTF8=1 or LANG=C.UTF-8"
        )


# --- in a separate process --------------------------------------------------------------------------------------------


def check_emulator() -> Iterator[Finding]:
    """Check the ROMs, and play Pong for a few steps."""
    import numpy as np
    from ale_py.roms import get_rom_path

    from a2c.envs import make_vec_env
    from a2c.games import games

    missing = []
    for game in games():
        try:
            get_rom_path(game.rom)
        except OSError:
            missing.append(game.name)
    folder = os.environ.get("ALE_ROMS_DIR")
    advice = (
        "unset ALE_ROMS_DIR, which points elsewhere: ale-py has the ROMs itself"
        if folder
        else "pip install --force-reinstall ale-py: it has the ROMs itself"
    )
    if missing:
        where = f" in {folder}" if folder else ""
        status: Status = "problem" if "Pong" in missing else "note"
        yield Finding("ROMs", status, f"{len(missing)} of {len(games())} are missing or damaged{where}", advice)
    else:
        yield Finding("ROMs", "ok", f"all {len(games())} games")
    if "Pong" in missing:
        return
    with make_vec_env(EnvConfig(id="Pong", num_envs=1), seed=0) as envs:
        seen = envs.reset()
        for _ in range(10):
            seen = envs.step(np.zeros(1, np.int64)).observations
    if seen.any():
        yield Finding("Pong", "ok", "starts and runs")
    else:
        yield Finding("Pong", "problem", "starts, but its screen is black", advice)


def check_tensorflow() -> Iterator[Finding]:
    """Check that TensorFlow and Keras can be imported, the settings of Keras, and the GPUs."""
    remedy = f"unset KERAS_BACKEND, and mend {keras_file()}"
    for name in ("tensorflow", "keras"):
        spec = find_spec(name)
        try:
            import_module(name)
        except (Exception, SystemExit) as error:  # a broken package may raise anything
            found = f"cannot be imported from {spec.origin if spec else 'anywhere'}: {told(error)}"
            again = f"pip install --force-reinstall {name}; if that is not the installed one, look at PYTHONPATH"
            of_keras = os.environ["KERAS_BACKEND"] != "tensorflow" or isinstance(error, AssertionError)  # see `quiet`
            yield Finding(name, "problem", found, remedy if of_keras else again)
            return
    import keras
    import tensorflow as tf

    from a2c.execution.runtime import keras_faults

    yield Finding("tensorflow", "ok", f"{tf.__version__} and Keras {keras.__version__} can be imported")
    for fault in keras_faults():
        yield Finding("keras", "problem", fault, remedy)
    yield _gpus(len(tf.config.list_physical_devices("GPU")))


def _gpus(seen: int) -> Finding:
    there = machine.nvidia_cards()
    if seen:
        return Finding("GPU", "ok", f"{seen}; the same bits in eager and graph are promised on processors only")
    if not there:
        return Finding("GPU", "ok", "none; none is needed")
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        hidden = f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']}"
        return Finding("GPU", "note", f"{there}, hidden by {hidden}", "unset CUDA_VISIBLE_DEVICES to use it")
    driver = Path("/proc/driver/nvidia").exists()
    advice = "pip install 'a2c[gpu]'" if driver else "install NVIDIA's driver, then pip install 'a2c[gpu]'"
    return Finding("GPU", "note", f"{there}, which TensorFlow does not see", advice)


def check_precision() -> Iterator[Finding]:
    """Compare the rates of matrix products in bfloat16 and float32."""
    if not machine.processor_features() & BFLOAT16:
        yield Finding("bfloat16", "ok", "the processor has none: keep runtime.precision=float32")
        return
    from a2c.analysis.floor import matrix_rate

    matrix_rate("float32")  # the first call starts the threads
    ratio = matrix_rate("mixed_bfloat16") / matrix_rate("float32")
    worth = "worth a try with large networks" if ratio > 1.5 else "not worth it"
    yield Finding(
        "bfloat16",
        "ok",
        f"matrix products are {ratio:.1f} times as fast as in float32: runtime.precision=mixed_bfloat16 is {worth}"
        + (" (a2c bench measures yours)" if ratio > 1.5 else ""),
    )


def check_training() -> Iterator[Finding]:
    """Train Catch for a few updates, and check the promises.

    It uses RMSProp, since Adam's updates hide a difference in the last bits of the gradients.
    """
    from a2c.analysis.promises import check_promises

    config, _ = load_config(config="catch-rmsprop", overrides={"runtime.threads": 0})
    yield from check_promises(config)
    for name, section in SECTIONS.items():
        if not section.PROMISES.exact:
            yield Finding("promises", "ok", f"algorithm.name={name} does not promise the same bits")


def told(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
