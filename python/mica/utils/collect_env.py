"""What a report of a problem should say: versions and the machine. `python -m mica.utils.collect_env` prints it.

The report has torch's fields and words, so that forms for reports read it; Mica's own version stands beside.
"""

import locale
import os
import platform
import re
import subprocess
import sys
from collections import namedtuple

SystemEnv = namedtuple(
    "SystemEnv",
    [
        "torch_version", "is_debug_build", "cuda_compiled_version", "gcc_version", "clang_version", "cmake_version", "os",
        "libc_version", "python_version", "python_platform", "is_cuda_available", "cuda_runtime_version",
        "cuda_module_loading", "nvidia_driver_version", "nvidia_gpu_models", "cudnn_version", "is_xpu_available",
        "pip_version", "pip_packages", "conda_packages", "hip_compiled_version", "hip_runtime_version",
        "miopen_runtime_version", "caching_allocator_config", "is_xnnpack_available", "cpu_info", "mica_version",
    ],
)  # fmt: skip

COMMON_PATTERNS = ["torch", "numpy", "triton", "optree"]
PIP_PATTERNS = ["mypy", "flake8", "onnx", "mica"]
CONDA_PATTERNS = ["cudatoolkit", "soumith", "mkl", "magma"]
NVIDIA_PATTERNS = ["cuda-cudart", "cuda-nvrtc", "cublas", "cudnn", "cufft", "cusolver", "cusparse", "nccl", "nvjitlink"]

# ---- what programs say


def run(command):
    """(exit status, output, errors) of a command; 127 where there is no such program."""
    try:
        done = subprocess.run(command, shell=isinstance(command, str), capture_output=True, check=False)
    except FileNotFoundError as error:
        return 127, "", str(error)
    encoding = locale.getpreferredencoding()
    return done.returncode, *(text.decode(encoding, "replace").strip() for text in (done.stdout, done.stderr))


def run_and_read_all(run_lambda, command):
    """The output of a command that succeeds, otherwise None."""
    status, output, _ = run_lambda(command)
    return output if status == 0 else None


def run_and_parse_first_match(run_lambda, command, regex):
    """The first group of the expression in a command's output."""
    output = run_and_read_all(run_lambda, command)
    match = None if output is None else re.search(regex, output)
    return None if match is None else match.group(1)


def run_and_return_first_line(run_lambda, command):
    """The first line of what a command says."""
    output = run_and_read_all(run_lambda, command)
    return None if output is None else output.split("\n")[0]


def get_gcc_version(run_lambda):
    return run_and_parse_first_match(run_lambda, ["gcc", "--version"], r"gcc (.*)")


def get_clang_version(run_lambda):
    return run_and_parse_first_match(run_lambda, ["clang", "--version"], r"clang version (.*)")


def get_cmake_version(run_lambda):
    return run_and_parse_first_match(run_lambda, ["cmake", "--version"], r"cmake (.*)")


def get_running_cuda_version(run_lambda):
    return run_and_parse_first_match(run_lambda, ["nvcc", "--version"], r"release .+ V(.*)")


def get_nvidia_smi():
    return "nvidia-smi"


def get_nvidia_driver_version(run_lambda):
    return run_and_parse_first_match(run_lambda, [get_nvidia_smi()], r"Driver Version: (.*?) ")


def get_gpu_info(run_lambda):
    """The GPUs, one a line, without the numbers that tell one card from another of its kind."""
    listed = run_and_read_all(run_lambda, [get_nvidia_smi(), "-L"])
    return None if listed is None else re.sub(r" \(UUID: .+?\)", "", listed)


def get_conda_packages(run_lambda, patterns=None):
    """Packages of conda's environment whose names hold one of the words; None without conda."""
    listed = run_and_read_all(run_lambda, [os.environ.get("CONDA_EXE", "conda"), "list"])
    if listed is None:
        return None
    words = patterns or [*CONDA_PATTERNS, *COMMON_PATTERNS, *NVIDIA_PATTERNS]
    lines = (line for line in listed.splitlines() if not line.startswith("#"))
    return "\n".join(line for line in lines if any(word in line for word in words))


# ---- what Python and the system say


def get_platform():
    return sys.platform


def get_python_platform():
    return platform.platform()


def get_libc_version():
    return "-".join(platform.libc_ver()) if get_platform().startswith("linux") else "N/A"


def check_release_file(run_lambda):
    """The system's name from /etc/os-release."""
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            match = re.search(r'PRETTY_NAME="(.*)"', file.read())
    except OSError:
        return None
    return match and match.group(1)


def get_mac_version(run_lambda):
    return run_and_parse_first_match(run_lambda, ["sw_vers", "-productVersion"], r"(.*)")


def get_os(run_lambda):
    machine = platform.machine()
    if get_platform() == "darwin":
        version = get_mac_version(run_lambda)
        return None if version is None else f"macOS {version} ({machine})"
    name = check_release_file(run_lambda) if get_platform().startswith("linux") else None
    return f"{name or get_platform()} ({machine})"


def get_cpu_info(run_lambda=run):
    """The processor as lscpu tells it; its name and count where there is no lscpu."""
    listed = run_and_read_all(run_lambda, ["lscpu"])
    if listed:
        return listed
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def get_pip_packages(run_lambda=run, patterns=None):
    """("pip3", installed packages whose names hold one of the words, one a line)."""
    from importlib.metadata import distributions

    words = patterns or [*PIP_PATTERNS, *COMMON_PATTERNS, *NVIDIA_PATTERNS]
    found = {f"{each.metadata['Name']}=={each.version}" for each in distributions() if each.metadata["Name"]}
    return "pip3", "\n".join(sorted(name for name in found if any(word in name.lower() for word in words)))


def get_cudnn_version(run_lambda=run):
    """The version of the cuDNN that Mica opens; None where there is none."""
    import mica

    version = mica.backends.cudnn.version() if mica.cuda.is_available() else None
    return None if version is None else str(version)


def get_cachingallocator_config():
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if os.environ.get(name):
            return os.environ[name]
    return "N/A"


def get_cuda_module_loading_config():
    import mica

    return os.environ.get("CUDA_MODULE_LOADING", "") if mica.cuda.is_available() else "N/A"


def is_xnnpack_available():
    """False: Mica's kernels for the CPU are its own."""
    return False


def get_env_info():
    """Everything that is reported."""
    import mica

    pip_version, pip_packages = get_pip_packages(run)
    return SystemEnv(
        torch_version=str(mica.__version__),
        is_debug_build=str(mica.version.debug),
        cuda_compiled_version=mica.version.cuda,
        gcc_version=get_gcc_version(run),
        clang_version=get_clang_version(run),
        cmake_version=get_cmake_version(run),
        os=get_os(run),
        libc_version=get_libc_version(),
        python_version=f"{sys.version} ({sys.maxsize.bit_length() + 1}-bit runtime)".replace("\n", " "),
        python_platform=get_python_platform(),
        is_cuda_available=str(mica.cuda.is_available()),
        cuda_runtime_version=get_running_cuda_version(run),
        cuda_module_loading=get_cuda_module_loading_config(),
        nvidia_driver_version=get_nvidia_driver_version(run),
        nvidia_gpu_models=get_gpu_info(run),
        cudnn_version=get_cudnn_version(run),
        is_xpu_available="False",
        pip_version=pip_version,
        pip_packages=pip_packages,
        conda_packages=get_conda_packages(run),
        hip_compiled_version="N/A",
        hip_runtime_version="N/A",
        miopen_runtime_version="N/A",
        caching_allocator_config=get_cachingallocator_config(),
        is_xnnpack_available=str(is_xnnpack_available()),
        cpu_info=get_cpu_info(run),
        mica_version=getattr(mica.version, "mica", str(mica.__version__)),
    )


env_info_fmt = """
Mica version: {mica_version}
PyTorch version: {torch_version}
Is debug build: {is_debug_build}
CUDA used to build PyTorch: {cuda_compiled_version}
ROCM used to build PyTorch: {hip_compiled_version}

OS: {os}
GCC version: {gcc_version}
Clang version: {clang_version}
CMake version: {cmake_version}
Libc version: {libc_version}

Python version: {python_version}
Python platform: {python_platform}
Is CUDA available: {is_cuda_available}
CUDA runtime version: {cuda_runtime_version}
CUDA_MODULE_LOADING set to: {cuda_module_loading}
GPU models and configuration: {nvidia_gpu_models}
Nvidia driver version: {nvidia_driver_version}
cuDNN version: {cudnn_version}
Is XPU available: {is_xpu_available}
HIP runtime version: {hip_runtime_version}
MIOpen runtime version: {miopen_runtime_version}
Is XNNPACK available: {is_xnnpack_available}
Caching allocator config: {caching_allocator_config}

CPU:
{cpu_info}

Versions of relevant libraries:
{pip_packages}
{conda_packages}
""".strip()


def pretty_str(envinfo):
    """The report as text."""
    fields = envinfo._asdict()
    for kind, default in (("pip", "No relevant packages"), ("conda", "No relevant packages")):
        lines = (fields[f"{kind}_packages"] or "").splitlines()
        fields[f"{kind}_packages"] = "\n".join(f"[{kind}] {line}" for line in lines) or f"[{kind}] {default}"
    said = {True: "Yes", False: "No", None: "Could not collect"}
    texts = {name: said[value] if value is None or isinstance(value, bool) else value for name, value in fields.items()}
    many = texts["nvidia_gpu_models"]
    if "\n" in many:
        texts["nvidia_gpu_models"] = "\n" + many
    return env_info_fmt.format(**texts)


def get_pretty_env_info():
    """The report of this machine as text."""
    return pretty_str(get_env_info())


def main():
    """Print the report."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
