"""The room for thread-local state that the loader keeps for all libraries of a process."""

import struct
from pathlib import Path

import mica
import pytest

PACKAGE = Path(mica._C.__file__).parent
# The relocation that wants state to lie in that room, by the architecture in the file's header.
FIXED_PLACE = {62: 18, 183: 1030}  # R_X86_64_TPOFF64, R_AARCH64_TLS_TPREL64
SHT_RELA = 4


def relocations(path):
    """The machine's number in the header, and the kinds of relocations without a symbol: those of the file's own state."""
    data = path.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01"
    (machine,) = struct.unpack_from("<H", data, 18)
    (sections,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    kinds = set()
    for i in range(count):
        header = struct.unpack_from("<IIQQQQIIQQ", data, sections + i * size)
        if header[1] == SHT_RELA:
            entries = data[header[4] : header[4] + header[5]]
            kinds.update(info for _, info, _ in struct.iter_unpack("<QQq", entries) if info < 2**32)
    return machine, kinds


def libraries(*patterns):
    return [path for pattern in patterns for path in PACKAGE.glob(pattern)]


@pytest.mark.parametrize("path", libraries("_distributed*.so", "_lab*.so", "libmica_gloo.so"), ids=lambda p: p.name)
def test_libraries_that_are_opened_late_take_none(path):
    """Packages may have used it up by then: the loader would refuse them ("static TLS block")."""
    machine, kinds = relocations(path)
    assert FIXED_PLACE[machine] not in kinds


def test_the_extension_takes_some():
    """It is opened first, and reads its state at every call."""
    (path,) = libraries("_C.*.so")
    machine, kinds = relocations(path)
    assert FIXED_PLACE[machine] in kinds
