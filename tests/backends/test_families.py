"""Both backends keep a slot in a folder of the same name, and the core asks no device for its name."""

import re
from pathlib import Path

CUDA = re.compile(r"is_cuda\(\)|DeviceType::CUDA")
ROOT = Path(__file__).parents[2]
# On the CPU these are loops over chunks beside the masks that they read; on CUDA they are ordinary pointwise kernels.
BY_MASK = {"where", "masked_fill"}
# torch knows CUDA by name: which library is opened for it, and which dtype autocast begins with.
BY_NAME = {"src/backend/registry.cpp", "src/amp/autocast.cpp", "src/core/device.cpp"}


def folders_of(backend, pattern, suffixes):
    found = {}
    for path in sorted((ROOT / "backends" / backend).glob("*/*")):
        if path.suffix in suffixes:
            for slot in re.findall(pattern, path.read_text(), re.MULTILINE):
                found.setdefault(slot, set()).add(path.parent.name)
    return found


def test_a_slot_has_one_family():
    cpu = folders_of("cpu", r"MICA_REGISTER\w*\((\w+)", {".cpp"})
    cuda = folders_of("cuda", r"^void (\w+)\(", {".cu", ".cpp"})
    slots = set(re.findall(r"X\((\w+)\)", (ROOT / "backends/cuda/slots.h").read_text()))
    both = [s for s in sorted(slots & cpu.keys() & cuda.keys()) if s not in BY_MASK and cpu[s] != {"pointwise"}]
    assert len(both) > 100
    apart = {s: (cpu[s], cuda[s]) for s in both if not cpu[s] & cuda[s]}
    assert not apart


def test_the_core_asks_for_capabilities():
    asking = {str(p.relative_to(ROOT)) for p in (ROOT / "src").rglob("*.cpp") if CUDA.search(p.read_text())}
    assert asking <= BY_NAME
