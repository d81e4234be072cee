"""Stand-ins for CUDA's libraries, so that torchvision's and torchaudio's wheels load beside a torch without CUDA.

PyPI's wheels of both are linked against libtorch_cuda.so, libc10_cuda.so and libcudart, and compute on the CPU without a
call into the first two. What they call of libcudart as they are loaded registers kernels, which a function that does
nothing serves. The stand-ins serve the side with torch alone: Mica opens neither wheel's library.
"""

import re
import shutil
import subprocess
from pathlib import Path

LIBRARIES = ("libc10_cuda.so", "libtorch_cuda.so")
RUNTIME = re.compile(r"libcudart[\w.]*\.so[.\d]*")


def _names(library: Path, kind: str) -> set[str]:
    """The names that a library defines or lacks, each with its version where it has one: name@version."""
    lines = subprocess.run(["nm", "-D", kind, str(library)], capture_output=True, text=True).stdout.splitlines()
    return {line.split()[-1].replace("@@", "@") for line in lines if line.strip()}


def _compiled(target: Path, name: str, source: Path, *flags: str) -> Path:
    path = target / name
    linked = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", *flags]
    subprocess.run(["cc", *linked, "-o", str(path), str(source)], check=True)
    return path


def _runtime(target: Path, name: str, functions: Path) -> Path:
    """A stand-in for libcudart. Its names have a version, as those that the wheels ask for."""
    versions = target / f"{name}.versions"
    versions.write_text(f"{name} {{ global: *; }};\n")
    return _compiled(target, name, functions, f"-Wl,--version-script={versions}")


def make(target: Path, packages: Path, torch_libraries: Path) -> list[Path]:
    """Write the stand-ins; none if torch has the libraries, or there is no compiler."""
    if (torch_libraries / LIBRARIES[0]).exists() or not shutil.which("cc") or not shutil.which("nm"):
        return []
    wheels = [*packages.glob("torchvision/*.so"), *packages.glob("torchaudio/lib/*.so")]
    wanted = {name for wheel in wheels for name in _names(wheel, "--undefined-only") if "cuda" in name.lower()}
    runtimes = {name.partition("@")[2] for name in wanted if RUNTIME.fullmatch(name.partition("@")[2])}
    calls = {name.partition("@")[0] for name in wanted if name.partition("@")[2] in runtimes}
    memory = {name.partition("@")[0] for name in wanted} - calls
    for library in torch_libraries.glob("*.so"):
        memory -= {name.partition("@")[0] for name in _names(library, "--defined-only")}
    target.mkdir(parents=True, exist_ok=True)
    nothing, functions, names = target / "nothing.c", target / "functions.c", target / "names.s"
    nothing.write_text("")
    # Registered kernels get a handle, which is passed back and never read.
    functions.write_text("".join(f"void* {name}(void) {{ return 0; }}\n" for name in sorted(calls)))
    text = [".data", ".balign 16"]
    for name in sorted(memory):
        text += [f".globl {name}", f".type {name},%object", f"{name}: .zero 256", f".size {name},256"]
    names.write_text("\n".join(text) + "\n")
    made = [_runtime(target, runtime, functions) for runtime in sorted(runtimes)]
    return [*made, _compiled(target, LIBRARIES[0], nothing), _compiled(target, LIBRARIES[1], names)]
