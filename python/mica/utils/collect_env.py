"""What a report of a problem should say: versions and the machine. `python -m mica.utils.collect_env` prints it."""

import os
import platform
import sys
from collections import namedtuple

SystemEnv = namedtuple(
    "SystemEnv",
    ["torch_version", "mica_version", "is_debug_build", "os", "libc_version", "python_version", "python_platform",
     "is_cuda_available", "cuda_compiled_version", "cpu_info", "pip_packages"],
)  # fmt: skip


def get_cpu_info():
    """The processor's name and how many of them there are."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith(("model name", "CPU part")):
                    name = line.split(":", 1)[1].strip()
                    break
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} cores"


def get_pip_packages(patterns=("torch", "mica", "numpy", "onnx", "triton", "mypy", "flake8")):
    """Installed packages whose names hold one of the words."""
    from importlib.metadata import distributions

    found = {f"{d.metadata['Name']}=={d.version}" for d in distributions() if d.metadata["Name"]}
    return sorted(name for name in found if any(word in name.lower() for word in patterns))


def get_env_info():
    """Everything that is reported."""
    import mica

    return SystemEnv(
        torch_version=mica.__version__,
        mica_version=mica.version.mica if hasattr(mica.version, "mica") else mica.__version__,
        is_debug_build=str(mica.version.debug),
        os=platform.platform(),
        libc_version="-".join(platform.libc_ver()),
        python_version=sys.version.replace("\n", " "),
        python_platform=sys.platform,
        is_cuda_available=str(mica.cuda.is_available()),
        cuda_compiled_version=str(mica.version.cuda),
        cpu_info=get_cpu_info(),
        pip_packages="\n".join(get_pip_packages()),
    )


def pretty_str(envinfo):
    """The report as text."""
    return "\n".join(
        f"{field.replace('_', ' ')}: {value}" for field, value in zip(envinfo._fields, envinfo, strict=True)
    )


def get_pretty_env_info():
    """The report of this machine as text."""
    return pretty_str(get_env_info())


def main():
    """Print the report."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
