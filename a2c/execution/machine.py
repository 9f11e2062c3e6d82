"""What the system says about the processor, memory and graphics cards of this machine."""

from __future__ import annotations

import math
import os
import platform
from contextlib import suppress
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # PCI vendor, and how the class of a display controller begins


def processor() -> str:
    """Its name; on x86, where Linux says, with family and model: a hypervisor may give many the same name."""
    name = _cpuinfo("model name") or platform.processor() or platform.machine()
    family, model = _cpuinfo("cpu family"), _cpuinfo("model")
    return f"{name}, family {family} model {model}" if family and model else name


def processor_features() -> frozenset[str]:
    """What it can do, in Linux's names; empty where the system does not say."""
    return frozenset((_cpuinfo("flags") or _cpuinfo("Features")).split())


def allowed_cores() -> int:
    """Cores this process may run on, which TensorFlow counts for its threads, and we for ale-py's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_numbers() -> list[int]:
    """The numbers of those cores, in order; none where the system does not let a thread be kept on one of them."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def stay_on(core: int | None) -> None:
    """Keep the calling thread on one core, None = any; where that core is no longer to be had, on any."""
    if core is not None:
        with suppress(OSError):
            os.sched_setaffinity(0, {core})


def core_quota(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """Cores' worth of time that a container's limit (cgroup version 2 or 1) leaves, which nobody counts; else inf."""
    quota, period = [*_words(cgroup / "cpu.max"), "max", "max"][:2]
    if quota == "max":
        quota, period = ("".join(_words(cgroup / f"cpu/cpu.cfs_{name}_us")[:1]) or "-1" for name in ("quota", "period"))
    return math.inf if float(quota) < 0 else float(quota) / float(period)


def free_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that can be had without swapping, a container's limit heeded; None where the system does not say."""
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    limit, used = (_words(cgroup / f"memory.{name}") for name in ("max", "current"))
    if limit and used and limit != ["max"]:
        free.append(max(int(limit[0]) - int(used[0]), 0))
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
    except OSError:  # not there, or not for us
        return []
