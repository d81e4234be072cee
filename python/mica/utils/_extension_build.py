"""How an extension is compiled: where the headers and the library lie, which flags, which commands."""

import contextlib
import dataclasses
import fcntl
import glob
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor

import mica._C

# ----------------------------------------------------------------------------------------------------- what is where

_PACKAGE = os.path.dirname(os.path.abspath(mica._C.__file__))


def header_folders():
    """Mica's headers, and those with torch's spellings: of the installed package, or of a development tree."""
    installed = os.path.join(_PACKAGE, "include")
    if os.path.isdir(installed):
        return [installed, os.path.join(installed, "torch_headers")]
    build = os.path.dirname(os.path.dirname(_PACKAGE))
    source = os.path.dirname(os.path.realpath(__file__)).removesuffix(os.path.join("python", "mica", "utils"))
    return [
        os.path.join(source, "include"),
        os.path.join(build, "generated", "include"),
        os.path.join(source, "torch_headers"),
    ]


def library_folder():
    """The folder of libmica.so."""
    installed = os.path.join(_PACKAGE, "lib")
    if os.path.isdir(installed):
        return installed
    return os.path.join(os.path.dirname(os.path.dirname(_PACKAGE)), "lib")


def pybind_folder():
    """The folder of pybind11's headers, which the bindings of an extension are written with."""
    spec = importlib.util.find_spec("pybind11")
    if spec is not None:
        return os.path.join(os.path.dirname(spec.origin), "include")
    for folder in ("/usr/local/include", "/usr/include"):
        if os.path.exists(os.path.join(folder, "pybind11", "pybind11.h")):
            return folder
    raise RuntimeError(
        "C++ extensions need the headers of pybind11, which are not installed: pip install pybind11 (on Debian: apt install pybind11-dev)"
    )


def cuda_home():
    """The folder of the CUDA toolkit; None where there is none."""
    given = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if given:
        return given
    compiler = shutil.which("nvcc")
    beside = os.path.dirname(os.path.dirname(os.path.realpath(compiler))) if compiler else None
    for folder in (beside, "/usr/local/cuda"):  # nvcc may be a script that calls another one elsewhere
        if folder and os.path.exists(os.path.join(folder, "include", "cuda_runtime.h")):
            return folder
    return beside


def required_cuda_home():
    """The folder of the CUDA toolkit, or an error that says what to set."""
    home = cuda_home()
    if home is None:
        raise OSError("CUDA_HOME environment variable is not set. Please set it to your CUDA install root.")
    return home


# ------------------------------------------------------------------------------------------------------------ flags


def is_cuda_source(path):
    """Whether a file is compiled by nvcc."""
    return os.path.splitext(path)[1] in (".cu", ".cuh")


def _definitions(name):
    return [f"-DTORCH_EXTENSION_NAME={name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]


def cxx_flags(name):
    """The flags of the C++ compiler beyond the folders of headers."""
    return ["-std=c++20", "-fPIC", *_definitions(name), f"-I{pybind_folder()}"]


def nvcc_flags(name):
    """The flags of nvcc beyond the folders of headers."""
    architectures = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    chosen = [a.split("+")[0].replace(".", "") for a in architectures.replace(";", " ").split() if a[0].isdigit()]
    targets = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in chosen] or ["-arch=native"]
    return [
        "-std=c++20",
        "-Xcompiler=-fPIC",
        "--expt-relaxed-constexpr",
        # Nvcc's first pass does not know the attribute tls_model, which the host's compiler reads.
        "--diag-suppress=1835",
        *targets,
        *_definitions(name),
        f"-I{pybind_folder()}",
    ]


# --------------------------------------------------------------------------------------------------------- building


@dataclasses.dataclass
class Extension:
    """What `load` was asked for."""

    name: str
    sources: list
    folder: str
    cflags: list
    cuda_cflags: list
    ldflags: list
    include_paths: list
    with_cuda: bool


def write_source(path, text):
    """Write a generated source, unless it is there already, so that nothing is compiled anew without need."""
    with contextlib.suppress(FileNotFoundError), open(path) as file:
        if file.read() == text:
            return path
    with open(path, "w") as file:
        file.write(text)
    return path


def _commands(extension):
    """The commands that compile each source, with their objects; and the one that links."""
    includes = [f"-I{p}" for p in (*extension.include_paths, *header_folders(), sysconfig.get_path("include"))]
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    compiles = []
    for i, source in enumerate(extension.sources):
        target = os.path.join(extension.folder, f"{os.path.splitext(os.path.basename(source))[0]}_{i}.o")
        if is_cuda_source(source):
            nvcc = os.path.join(required_cuda_home(), "bin", "nvcc")
            command = [nvcc, *nvcc_flags(extension.name), *includes, *extension.cuda_cflags]
        else:
            command = [*compiler, *cxx_flags(extension.name), *includes, "-O2", *extension.cflags]
            if extension.with_cuda:
                command.append(f"-I{os.path.join(required_cuda_home(), 'include')}")
        compiles.append((source, target, [*command, "-c", source, "-o", target]))
    library = library_folder()
    link = [
        *compiler,
        "-shared",
        *(target for _, target, _ in compiles),
        f"-L{library}",
        "-lmica",
        f"-Wl,-rpath,{library}",
    ]
    if extension.with_cuda:
        link += [f"-L{os.path.join(required_cuda_home(), 'lib64')}", "-lcudart"]
    return compiles, [*link, *extension.ldflags]


def _library_stamp():
    """What changes when Mica itself is built anew."""
    files = [mica._C.__file__, *sorted(glob.glob(os.path.join(library_folder(), "libmica.so*")))]
    return [f"{f} {os.stat(f).st_mtime_ns}" for f in files]


def _fingerprint(extension, compiles, link):
    digest = hashlib.sha256()
    for part in (repr([c for _, _, c in compiles]), repr(link), sys.version, *_library_stamp()):
        digest.update(part.encode())
    for source in extension.sources:
        with open(source, "rb") as file:
            digest.update(file.read())
    for folder in extension.include_paths:  # headers of the extension's own
        for header in sorted(glob.glob(os.path.join(folder, "*.h*")) + glob.glob(os.path.join(folder, "*.cuh"))):
            digest.update(f"{header} {os.stat(header).st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _run(command, name, verbose):
    if verbose:
        print(shlex.join(command), flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Error building extension '{name}': {done.stdout}{done.stderr}\n$ {shlex.join(command)}")
    if verbose and (done.stdout or done.stderr):
        print(done.stdout + done.stderr, flush=True)


def build(extension, verbose):
    """Compile and link what is not there yet; returns the path of the library.

    The library's name holds a fingerprint of all that went into it: a changed source gives another file, which a
    process that has the old one loaded can import beside it.
    """
    for source in extension.sources:
        if not os.path.exists(source):
            raise FileNotFoundError(f"{extension.name}: there is no source {source}")
    compiles, link = _commands(extension)
    path = os.path.join(extension.folder, f"{extension.name}_{_fingerprint(extension, compiles, link)}.so")
    with open(os.path.join(extension.folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes wait for the one that compiles
        if os.path.exists(path):
            return path
        with ThreadPoolExecutor(int(os.environ.get("MAX_JOBS", os.cpu_count() or 1))) as pool:
            list(pool.map(lambda c: _run(c[2], extension.name, verbose), compiles))
        unfinished = f"{path}.{os.getpid()}"
        _run([*link, "-o", unfinished], extension.name, verbose)
        os.replace(unfinished, path)
    return path


# -------------------------------------------------------------------------------------------------------- setuptools


def teach_cuda(compiler):
    """Let a compiler of setuptools take .cu files, and flags that are given for each of the two compilers."""
    compiler.src_extensions += [".cu", ".cuh"]
    compile_one, plain = compiler._compile, compiler.compiler_so

    def compile_source(target, source, extension, cc_args, postargs, pp_opts):
        flags = postargs if isinstance(postargs, dict) else {"cxx": postargs, "nvcc": postargs}
        try:
            if is_cuda_source(source):
                compiler.set_executable("compiler_so", os.path.join(required_cuda_home(), "bin", "nvcc"))
                cc_args = [a for a in cc_args if a != "-g"]
                chosen = flags["nvcc"]
            else:
                chosen = flags["cxx"]
            compile_one(target, source, extension, cc_args, chosen, pp_opts)
        finally:
            compiler.compiler_so = plain

    compiler._compile = compile_source
