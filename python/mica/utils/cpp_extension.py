"""Extensions in C++. Mica does not compile those that are written for libtorch: C++ programs use mica/mica.h."""

import os
import shutil

__all__ = [
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "include_paths",
    "is_ninja_available",
    "load",
    "load_inline",
]

_WHY = (
    "extensions written for libtorch cannot be compiled here: Mica's C++ is #include <mica/mica.h>, with the same functions "
    "in namespace mica (find_package(mica) finds it)"
)


def _folder(*parts):
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), *parts)


def include_paths(device_type="cpu", torch_include_dirs=True):
    """The folders of Mica's headers."""
    return [_folder("include")]


def library_paths(device_type="cpu", torch_include_dirs=True, cross_target_platform=None):
    """The folder of Mica's library."""
    return [_folder("lib")]


def is_ninja_available():
    """Whether Ninja is installed."""
    return shutil.which("ninja") is not None


def verify_ninja_availability():
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def check_compiler_is_gcc(compiler):
    return "g++" in os.path.basename(compiler) or "gcc" in os.path.basename(compiler)


CUDA_HOME = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
ROCM_HOME = None
IS_HIP_EXTENSION = False
COMMON_NVCC_FLAGS = []


def load(name, sources, *args, **kwargs):
    raise NotImplementedError(f"torch.utils.cpp_extension.load({name!r}): {_WHY}")


def load_inline(name, cpp_sources, *args, **kwargs):
    raise NotImplementedError(f"torch.utils.cpp_extension.load_inline({name!r}): {_WHY}")


def CppExtension(name, sources, *args, **kwargs):
    raise NotImplementedError(f"torch.utils.cpp_extension.CppExtension({name!r}): {_WHY}")


def CUDAExtension(name, sources, *args, **kwargs):
    raise NotImplementedError(f"torch.utils.cpp_extension.CUDAExtension({name!r}): {_WHY}")


class BuildExtension:
    """The command of setuptools that would build extensions."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError(f"torch.utils.cpp_extension.BuildExtension: {_WHY}")

    @classmethod
    def with_options(cls, **options):
        return cls
