"""torch.package: a package that torch has written, and packages of our own."""

import io
import pathlib
import sys

import mica as torch
import pytest
from mica.package import (
    EmptyMatchError,
    GlobGroup,
    ObjMismatchError,
    PackageExporter,
    PackageImporter,
    PackagingError,
    is_from_package,
    sys_importer,
)

RECORDED = pathlib.Path(__file__).parent.parent / "recorded" / "files" / "package.pt"


def packed(**sources):
    """A package of modules of these sources, opened."""
    buffer = io.BytesIO()
    with PackageExporter(buffer) as exporter:
        for name, source in sources.items():
            exporter.save_source_string(name.replace("__", "."), source)
    buffer.seek(0)
    return PackageImporter(buffer)


def test_a_package_of_torchs():
    package = PackageImporter(RECORDED)
    net = package.load_pickle("model", "net.pkl")
    assert net(torch.ones(1, 3)).tolist() == [[13.0, 0.0]]
    assert type(net).__module__ == f"{package.id()}.packed_net.model" and is_from_package(net)
    assert "packed_net.model" not in sys.modules
    assert package.load_text("notes", "a.txt") == "hello" and package.import_module("made.code").x == 3
    assert package.file_structure().has_file("packed_net/inner.py")
    assert package.python_version().startswith("3.")
    other = PackageImporter(RECORDED).load_pickle("model", "net.pkl")
    assert type(other) is not type(net)


def test_packaged_again():
    package = PackageImporter(RECORDED)
    net = package.load_pickle("model", "net.pkl")
    buffer = io.BytesIO()
    with PackageExporter(buffer, importer=(package, sys_importer)) as exporter:
        exporter.intern("packed_net.**")
        exporter.extern("numpy.**")
        exporter.save_pickle("model", "net.pkl", {"a": net, "b": net.fc.weight})
        exporter.save_binary("notes", "b.bin", b"\0\1")
        assert exporter.interned_modules() == ["packed_net.inner", "packed_net.model"]
        assert "numpy" in exporter.externed_modules() and exporter.get_rdeps("packed_net.inner") == ["packed_net.model"]
    buffer.seek(0)
    again = PackageImporter(buffer)
    loaded = again.load_pickle("model", "net.pkl")
    assert loaded["a"](torch.ones(1, 3)).tolist() == [[13.0, 0.0]]
    assert loaded["b"].data_ptr() == loaded["a"].fc.weight.data_ptr()
    assert again.load_binary("notes", "b.bin") == b"\0\1"
    meta = again.load_pickle("model", "net.pkl", map_location="meta")
    assert meta["b"].is_meta


def test_an_object_of_another_package():
    net = PackageImporter(RECORDED).load_pickle("model", "net.pkl")
    exporter = PackageExporter(io.BytesIO(), importer=(PackageImporter(RECORDED), sys_importer))
    with pytest.raises(ObjMismatchError, match="importer"):
        exporter.save_pickle("model", "net.pkl", net)


def test_imports_within():
    package = packed(
        one__a="from . import b\nfrom .b import y as z\nimport one.b\nvalue = b.y + z + one.b.y\nimport torch.nn as nn\n",
        one__b="y = 2\n",
    )
    module = package.import_module("one.a")
    assert module.value == 6 and module.nn is torch.nn
    assert package.import_module(module.__name__) is module
    with pytest.raises(ModuleNotFoundError, match="not in the list of allowed external modules"):
        package.import_module("numpy_that_is_not_there")
    with pytest.raises(ImportError, match="disallowed"):
        PackageImporter(RECORDED, module_allowed=lambda name: name != "numpy")


def test_what_is_missing_is_said(tmp_path):
    path = tmp_path / "p.pt"
    with (
        pytest.raises(PackagingError, match="did not match against any action pattern"),
        PackageExporter(path) as exporter,
    ):
        exporter.save_source_string("a", "import numpy\n")
    assert not path.exists()
    with pytest.raises(PackagingError, match="denied"), PackageExporter(path) as exporter:
        exporter.deny("numpy")
        exporter.save_source_string("a", "import numpy\n")
    with pytest.raises(PackagingError, match="reaches the system"), PackageExporter(path) as exporter:
        exporter.save_source_string("a", "import sys\n")
    with pytest.raises(EmptyMatchError), PackageExporter(path) as exporter:
        exporter.extern("scipy.**", allow_empty=False)
    with pytest.raises(AssertionError, match="already exists"), PackageExporter(path) as exporter:
        exporter.save_text("a", "b.txt", "")
        exporter.save_text("a", "b.txt", "")


def test_mocks_and_hooks():
    buffer, seen = io.BytesIO(), []
    with PackageExporter(buffer) as exporter:
        exporter.mock("numpy.**")
        exporter.register_mock_hook(lambda _, name: seen.append(name))
        exporter.save_source_string("a", "import numpy\n\n\ndef use():\n    return numpy.ones(2)\n")
    buffer.seek(0)
    module = PackageImporter(buffer).import_module("a")
    assert seen == ["numpy"]
    with pytest.raises(NotImplementedError, match="mocked out"):
        module.use()


def test_patterns():
    group = GlobGroup(["a.**", "b.*.c"], exclude="a.secret.**")
    names = ("a", "a.x", "a.x.y", "a.secret", "a.secret.z", "b.x.c", "b.c", "b.x.y.c", "ab")
    assert [name for name in names if group.matches(name)] == ["a", "a.x", "a.x.y", "b.x.c"]


def test_opening_runs_nothing():
    package = packed(loud="raise RuntimeError('it ran')\n")
    assert package.file_structure().has_file("loud.py")
    with pytest.raises(RuntimeError, match="it ran"):
        package.import_module("loud")
    with pytest.raises(RuntimeError, match="not found"):
        package.load_text("a", "nothing.txt")
