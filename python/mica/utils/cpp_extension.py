"""Extensions in C++ and CUDA: their sources are compiled against Mica's headers, which have torch's spellings too.

`load_inline` and `load` compile and import at once; `CppExtension`, `CUDAExtension` and `BuildExtension` serve a
setup.py. An extension that was compiled for libtorch is refused: its classes lie differently in memory.
"""

import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig

from mica.utils import _extension_build

__all__ = [  # noqa: F822 - BuildExtension arrives when it is asked for
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "get_cxx_compiler",
    "get_default_build_root",
    "include_paths",
    "is_ninja_available",
    "library_paths",
    "load",
    "load_inline",
    "verify_ninja_availability",
]

IS_WINDOWS, IS_MACOS, IS_LINUX = False, sys.platform == "darwin", sys.platform.startswith("linux")
CUDA_HOME = _extension_build.cuda_home()
ROCM_HOME = None
IS_HIP_EXTENSION = False
COMMON_NVCC_FLAGS = ["--expt-relaxed-constexpr"]
LIB_EXT = ".so"
CLIB_PREFIX, CLIB_EXT, EXEC_EXT = "lib", ".so", ""


def include_paths(device_type="cpu", torch_include_dirs=True):
    """The folders of the headers that an extension includes."""
    paths = _extension_build.header_folders() if torch_include_dirs else []
    if device_type == "cuda":
        paths.append(os.path.join(_extension_build.required_cuda_home(), "include"))
    return paths


def library_paths(device_type="cpu", torch_include_dirs=True, cross_target_platform=None):
    """The folders of the libraries that an extension is linked to."""
    paths = [_extension_build.library_folder()] if torch_include_dirs else []
    if device_type == "cuda":
        paths.append(os.path.join(_extension_build.required_cuda_home(), "lib64"))
    return paths


def is_ninja_available():
    """Whether Ninja is installed. Extensions are compiled without it."""
    return shutil.which("ninja") is not None


def verify_ninja_availability():
    """Raise an error where Ninja is not installed."""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def get_cxx_compiler():
    """The C++ compiler: $CXX, or c++."""
    return os.environ.get("CXX", "c++")


def check_compiler_is_gcc(compiler):
    """Whether a compiler's name is that of GCC."""
    return "g++" in os.path.basename(compiler) or "gcc" in os.path.basename(compiler)


def check_compiler_ok_for_platform(compiler):
    """Whether there is such a compiler: every C++20 compiler of the platform serves."""
    return shutil.which(shlex.split(compiler)[0]) is not None


def get_default_build_root():
    """The folder in which extensions are compiled: $TORCH_EXTENSIONS_DIR, or one in the user's cache."""
    given = os.environ.get("TORCH_EXTENSIONS_DIR")
    cache = os.environ.get("XDG_CACHE_HOME", os.path.join(os.path.expanduser("~"), ".cache"))
    return os.path.realpath(given or os.path.join(cache, "mica_extensions"))


def _build_folder(name, given, with_cuda):
    if given is not None:
        if not os.path.isdir(given):
            raise RuntimeError(f"The build directory does not exist: {given}")
        return given
    python = f"py{sys.version_info.major}{sys.version_info.minor}{getattr(sys, 'abiflags', '')}"
    folder = os.path.join(get_default_build_root(), f"{python}_{'cu' if with_cuda else 'cpu'}", name)
    os.makedirs(folder, exist_ok=True)
    return folder


def _get_build_directory(name, verbose):
    """The folder in which an extension of this name is compiled. It is made if it is not there."""
    from mica import version

    return _build_folder(name, None, version.cuda is not None)


def _as_list(value):
    if value is None:
        return []
    return [value] if isinstance(value, (str, os.PathLike)) else list(value)


def load(
    name, sources, extra_cflags=None, extra_cuda_cflags=None, extra_sycl_cflags=None, extra_ldflags=None,
    extra_include_paths=None, build_directory=None, verbose=False, with_cuda=None, with_sycl=None,
    is_python_module=True, is_standalone=False, keep_intermediates=True,
):  # fmt: skip
    """Compile the sources of an extension, unless nothing has changed since, and import it.

    With `is_python_module=False` the library is only loaded, for the operators that it registers (TORCH_LIBRARY);
    its path is returned.
    """
    if is_standalone:
        raise NotImplementedError(
            "cpp_extension.load(is_standalone=True) is not available: compile a program with CMake and find_package(mica)"
        )
    if with_sycl:
        raise NotImplementedError("cpp_extension.load(with_sycl=True) is not available: Mica has no SYCL backend")
    sources = [os.fspath(s) for s in _as_list(sources)]
    if with_cuda is None:
        with_cuda = any(_extension_build.is_cuda_source(s) for s in sources)
    path = _extension_build.build(
        _extension_build.Extension(
            name=name,
            sources=sources,
            folder=_build_folder(name, build_directory, with_cuda),
            cflags=_as_list(extra_cflags),
            cuda_cflags=_as_list(extra_cuda_cflags),
            ldflags=_as_list(extra_ldflags),
            include_paths=[os.fspath(p) for p in _as_list(extra_include_paths)],
            with_cuda=with_cuda,
        ),
        verbose,
    )
    if not is_python_module:
        import mica

        mica.ops.load_library(path)
        return path
    return _import_module(name, path)


def _import_module(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _binding(functions):
    if isinstance(functions, str):
        functions = [functions]
    if isinstance(functions, (list, tuple)):
        functions = {f: f for f in functions}
    if not isinstance(functions, dict):
        raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(functions)}")
    definitions = "".join(f'  m.def("{f}", &{f}, R"doc({text})doc");\n' for f, text in functions.items())
    return f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{definitions}}}\n"


def load_inline(
    name, cpp_sources, cuda_sources=None, sycl_sources=None, functions=None, extra_cflags=None,
    extra_cuda_cflags=None, extra_sycl_cflags=None, extra_ldflags=None, extra_include_paths=None,
    build_directory=None, verbose=False, with_cuda=None, with_sycl=None, is_python_module=True,
    with_pytorch_error_handling=True, keep_intermediates=True, use_pch=False, no_implicit_headers=False,
):  # fmt: skip
    """Compile an extension whose sources are strings, and import it.

    `functions` names those that Python shall see: a list, or a dict with their docstrings. The C++ source then only
    declares what the CUDA source defines.
    """
    if sycl_sources:
        raise NotImplementedError("cpp_extension.load_inline(sycl_sources=) is not available: Mica has no SYCL backend")
    cpp_sources, cuda_sources = _as_list(cpp_sources), _as_list(cuda_sources)
    with_cuda = bool(cuda_sources) if with_cuda is None else with_cuda
    folder = _build_folder(name, build_directory, with_cuda)
    header = "" if no_implicit_headers else "#include <torch/extension.h>\n"
    cuda_header = (
        "" if no_implicit_headers else "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
    )
    parts = [header, *cpp_sources]
    if functions is not None:
        parts.append(_binding(functions))
    sources = [_extension_build.write_source(os.path.join(folder, "main.cpp"), "\n".join(parts))]
    if cuda_sources:
        text = "\n".join([cuda_header, *cuda_sources])
        sources.append(_extension_build.write_source(os.path.join(folder, "cuda.cu"), text))
    return load(
        name, sources, extra_cflags, extra_cuda_cflags, None, extra_ldflags, extra_include_paths, folder, verbose,
        with_cuda, None, is_python_module, False, keep_intermediates,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------- setup.py


def _extension(name, sources, cuda, args, kwargs):
    import setuptools

    def extended(key, values):
        kwargs[key] = [*kwargs.get(key, []), *values]

    extended("include_dirs", include_paths("cuda" if cuda else "cpu"))
    extended("library_dirs", library_paths("cuda" if cuda else "cpu"))
    extended("libraries", ["mica", *(["cudart"] if cuda else [])])
    extended("runtime_library_dirs", [] if kwargs.pop("py_limited_api", False) else [_extension_build.library_folder()])
    kwargs["language"] = "c++"
    return setuptools.Extension(name, sources, *args, **kwargs)


def CppExtension(name, sources, *args, **kwargs):
    """An extension in C++, for the ext_modules of setuptools.setup()."""
    return _extension(name, sources, False, args, kwargs)


def CUDAExtension(name, sources, *args, **kwargs):
    """An extension in C++ and CUDA, for the ext_modules of setuptools.setup()."""
    return _extension(name, sources, True, args, kwargs)


def _build_extension_class():
    from setuptools.command.build_ext import build_ext

    class BuildExtension(build_ext):
        """The command of setuptools that compiles extensions, those in CUDA too."""

        @classmethod
        def with_options(cls, **options):
            """This class with options set: use_ninja and no_python_abi_suffix are accepted."""

            class WithOptions(cls):
                def __init__(self, *args, **kwargs):
                    super().__init__(*args, **(kwargs | options))

            return WithOptions

        def __init__(self, *args, use_ninja=True, no_python_abi_suffix=False, **kwargs):
            super().__init__(*args, **kwargs)
            self.no_python_abi_suffix = no_python_abi_suffix

        def get_ext_filename(self, ext_name):
            name = super().get_ext_filename(ext_name)
            return name.replace(sysconfig.get_config_var("EXT_SUFFIX"), ".so") if self.no_python_abi_suffix else name

        def build_extensions(self):
            _extension_build.teach_cuda(self.compiler)
            for extension in self.extensions:
                flags = extension.extra_compile_args or []
                flags = flags if isinstance(flags, dict) else {"cxx": flags, "nvcc": []}
                module = extension.name.rpartition(".")[2]
                extension.extra_compile_args = {
                    "cxx": [*_extension_build.cxx_flags(module), *flags.get("cxx", [])],
                    "nvcc": [*_extension_build.nvcc_flags(module), *flags.get("nvcc", [])],
                }
            super().build_extensions()

    return BuildExtension


def __getattr__(name):
    if name == "BuildExtension":  # setuptools is loaded when a setup.py asks for it
        globals()[name] = _build_extension_class()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
