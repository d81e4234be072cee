"""Stand-ins for torch's CUDA libraries, so that torchvision's and torchaudio's wheels load beside a torch without CUDA.

PyPI's wheels of both are linked against libtorch_cuda.so and libc10_cuda.so, and compute on the CPU without a call into
them. The stand-ins define the names that would be missing, as memory that nobody reads. They serve the side with torch
alone: Mica opens neither wheel's library.
"""

import shutil
import subprocess
from pathlib import Path

LIBRARIES = ("libc10_cuda.so", "libtorch_cuda.so")


def _names(library: Path, kind: str) -> set[str]:
    lines = subprocess.run(["nm", "-D", kind, str(library)], capture_output=True, text=True).stdout.splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines if line.strip()}


def make(target: Path, packages: Path, torch_libraries: Path) -> list[Path]:
    """Write the stand-ins; none if torch has the libraries, or there is no compiler."""
    if (torch_libraries / LIBRARIES[0]).exists() or not shutil.which("cc") or not shutil.which("nm"):
        return []
    wanted = set()
    for library in [*packages.glob("torchvision/*.so"), *packages.glob("torchaudio/lib/*.so")]:
        wanted |= {name for name in _names(library, "--undefined-only") if "cuda" in name.lower()}
    for library in torch_libraries.glob("*.so"):
        wanted -= _names(library, "--defined-only")
    target.mkdir(parents=True, exist_ok=True)
    source = target / "names.s"
    text = [".data", ".balign 16"]
    for name in sorted(wanted):
        text += [f".globl {name}", f".type {name},%object", f"{name}: .zero 256", f".size {name},256"]
    source.write_text("\n".join(text) + "\n")
    made = []
    for library in LIBRARIES:
        path = target / library
        given = [str(source)] if library == LIBRARIES[-1] else ["-x", "c", "/dev/null"]
        subprocess.run(["cc", "-shared", "-o", str(path), f"-Wl,-soname,{library}", *given], check=True)
        made.append(path)
    return made
