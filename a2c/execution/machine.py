"""Facts about the processor, memory, graphics cards and software of this machine."""

from __future__ import annotations

import math
import os
import platform
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from a2c.version import __version__

_CPUINFO = Path("/proc/cpuinfo")
_MEMORY = (  # files of a cgroup, version 2 and 1: the limit, and what is used
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # PCI vendor, and prefix of the class of display controllers


def processor() -> str:
    """Its name; on Linux on x86 with family and model: a hypervisor may give many processors the same name."""
    name = _cpuinfo("model name") or platform.processor() or platform.machine()
    family, model = _cpuinfo("cpu family"), _cpuinfo("model")
    return f"{name}, family {family} model {model}" if family and model else name


def processor_features() -> frozenset[str]:
    """Its instruction set features, by Linux's names; empty if the system does not list them."""
    return frozenset((_cpuinfo("flags") or _cpuinfo("Features")).split())


def is_x86() -> bool:
    """Whether it is an Intel or AMD processor of 64 bits."""
    return platform.machine().lower() in ("x86_64", "amd64")


def onednn_is_off() -> bool:
    """Whether the user has switched off oneDNN, TensorFlow's fast kernels for x86."""
    return os.environ.get("TF_ENABLE_ONEDNN_OPTS", "").lower() in ("0", "false")


def allowed_cores() -> int:
    """The number of cores this process may run on: the default for TensorFlow's and ale-py's threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_numbers() -> list[int]:
    """The numbers of the cores this process may run on, sorted; empty if the system cannot pin threads."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def stay_on(core: int | None) -> None:
    """Pin the calling thread to a core; does nothing for None, or if the core is no longer available."""
    if core is not None:
        with suppress(OSError):
            os.sched_setaffinity(0, {core})


def core_quota(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """The CPU limit of a container in cores (cgroup version 2 or 1), which core counts ignore; inf if none."""
    quota, period = [*_words(cgroup / "cpu.max"), "max", "max"][:2]
    if quota == "max":
        quota, period = ("".join(_words(cgroup / f"cpu/cpu.cfs_{name}_us")[:1]) or "-1" for name in ("quota", "period"))
    return math.inf if float(quota) < 0 else float(quota) / float(period)


def memory_limit(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """The memory limit of a container in bytes (cgroup version 2 or 1), which physical memory ignores; inf if none."""
    limits = [word for limit, _ in _MEMORY for word in _words(cgroup / limit)]
    return min((float(limit) for limit in limits if limit != "max"), default=math.inf)


def free_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes available without swapping, within a container's limit (cgroup 2 or 1); None if the system does not say."""
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    for names in _MEMORY:
        pair = zip(*(_words(cgroup / name) for name in names), strict=False)  # none if a file is missing
        free += [max(int(limit) - int(used), 0) for limit, used in pair if limit != "max"]
    return min(free, default=None)


def nvidia_cards(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """NVIDIA graphics cards on the PCI bus, with or without a driver."""
    return sum(
        _words(device / "vendor") == [_NVIDIA] and _words(device / "class")[0].startswith(_DISPLAY)
        for device in (devices.iterdir() if devices.is_dir() else ())
    )


def _cpuinfo(name: str) -> str:
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:  # missing or not readable
        return []


def versions() -> dict[str, str]:
    """The versions of everything that affects the bits of a run."""
    packages = ("tensorflow", "keras", "numpy", "gymnasium", "ale-py")
    return {"python": platform.python_version(), "a2c": __version__, **{name: version(name) for name in packages}}
