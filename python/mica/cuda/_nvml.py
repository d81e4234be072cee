"""What NVIDIA's management library says of a GPU. It comes with the driver and is opened when first asked."""

import ctypes

from mica import _C

_library = None


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def _nvml():
    global _library
    if _library is None:
        try:
            opened = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise RuntimeError("libnvidia-ml.so.1 cannot be opened: it comes with NVIDIA's driver") from None
        opened.nvmlErrorString.restype = ctypes.c_char_p
        if status := opened.nvmlInit_v2():
            raise RuntimeError(f"nvml cannot be started: {opened.nvmlErrorString(status).decode()}")
        _library = opened
    return _library


def _call(name, *arguments):
    if status := getattr(_nvml(), name)(*arguments):
        raise RuntimeError(f"{name}: {_nvml().nvmlErrorString(status).decode()}")


def _handle(device):
    from mica.cuda import get_device_properties

    uuid = f"GPU-{get_device_properties(device).uuid}".encode()
    handle = ctypes.c_void_p()
    _call("nvmlDeviceGetHandleByUUID", uuid, ctypes.byref(handle))
    return handle


def _number(device, name, *before):
    found = ctypes.c_uint()
    _call(name, _handle(device), *before, ctypes.byref(found))
    return found.value


def utilization(device=None):
    """The share of the last second in which a kernel ran, in percent."""
    found = _Utilization()
    _call("nvmlDeviceGetUtilizationRates", _handle(device), ctypes.byref(found))
    return found.gpu


def memory_usage(device=None):
    """The share of the last second in which memory was read or written, in percent."""
    found = _Utilization()
    _call("nvmlDeviceGetUtilizationRates", _handle(device), ctypes.byref(found))
    return found.memory


def device_memory_used(device=None):
    """Bytes of the GPU's memory that are in use, by whomever."""
    found = _Memory()
    _call("nvmlDeviceGetMemoryInfo", _handle(device), ctypes.byref(found))
    return found.used


def temperature(device=None):
    """The GPU's temperature in degrees Celsius."""
    return _number(device, "nvmlDeviceGetTemperature", ctypes.c_uint(0))


def power_draw(device=None):
    """The power that the GPU draws, in milliwatts."""
    return _number(device, "nvmlDeviceGetPowerUsage")


def clock_rate(device=None):
    """The clock of the multiprocessors in MHz."""
    return _number(device, "nvmlDeviceGetClockInfo", ctypes.c_uint(1))


def list_gpu_processes(device=None):
    """The processes that use a GPU and how much of its memory, as text."""
    handle, count = _handle(device), ctypes.c_uint(0)
    _nvml().nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None)
    found = (_Process * max(count.value + 8, 1))()
    count = ctypes.c_uint(len(found))
    _call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found)
    index = _C._current_device("cuda") if device is None else device
    lines = [f"GPU:{index}"]
    if not count.value:
        lines.append("no processes are running")
    for process in found[: count.value]:
        lines.append(f"process {process.pid:>10d} uses {process.used / 2**20:>12.3f} MB GPU memory")
    return "\n".join(lines)
