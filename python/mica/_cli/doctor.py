"""What `mica doctor` prints: versions, the CPU, devices. It names everything that it finds, and says why something is missing."""

import os
import platform
import sys

from mica import _C
from mica.version import mica as _VERSION

# Arm's own designs, by the numbers that Linux gives.
_ARM_PARTS = {
    "0xd03": "Cortex-A53",
    "0xd08": "Cortex-A72",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse N1",
    "0xd40": "Neoverse V1",
    "0xd49": "Neoverse N2",
    "0xd4f": "Neoverse V2",
}
_THREAD_VARIABLES = ("MICA_NUM_THREADS", "OMP_NUM_THREADS")


def _cpu_name():
    """The model as the system names it; on aarch64 only numbers are there."""
    fields = {}
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                key, _, value = line.partition(":")
                fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:
        numbers = f"implementer {fields.get('CPU implementer', '?')}, part {fields['CPU part']}"
        known = _ARM_PARTS.get(fields["CPU part"]) if fields.get("CPU implementer") == "0x41" else None
        return f"{known} ({numbers})" if known else numbers
    return platform.processor() or "unknown"


def _package_version(name):
    """The version of an installed package, without importing it."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _device_lines(kind):
    count = _C._device_count(kind)
    if count:
        return [f"{kind}:{i} {_C._device_name(_C.device(kind, i))}" for i in range(count)]
    try:
        _C._current_device(kind)
    except (RuntimeError, AssertionError) as error:  # the second is torch's word for a build without CUDA
        return [f"{kind} none: {error}"]
    return [f"{kind} none"]


def report():
    """The text, one fact a line."""
    info = _C._build_info()
    threads = _C.get_num_threads()
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    set_by = "".join(f" ({name}={os.environ[name]})" for name in _THREAD_VARIABLES if name in os.environ)
    sections = {
        "mica": [
            f"version {_VERSION}, which behaves as torch 2.13",
            f"package {os.path.dirname(os.path.dirname(__file__))}",
            f"compiled by {info['compiler']} with Highway {info['highway']}",
        ],
        "python": [
            f"version {platform.python_version()} at {sys.executable}",
            f"NumPy {_package_version('numpy')}",
            f"safetensors {_package_version('safetensors')}",
            f"torch {_package_version('torch')} (not needed)",
        ],
        "cpu": [
            f"model {_cpu_name()} ({platform.machine()})",
            f"instruction set {info['cpu_target']}, of {info['compiled_targets']} that kernels are compiled for",
            f"threads {threads}{set_by}; this process may use {available} processors",
        ],
        "devices": ["cpu", "meta", *_device_lines("cuda")],
    }
    lines = []
    for name, facts in sections.items():
        lines.append(name)
        lines += [f"  {fact}" for fact in facts]
    return "\n".join(lines) + "\n"
