"""The folders of src/ include each other in one direction only: src/README.md says which."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
ABOVE_THE_CORE = (
    "layers",
    "nn",
    "optim",
    "data",
    "linalg",
    "distributions",
    "func",
    "serialize",
    "tensor_files",
    "hdf5",
)


def includes(folder, *suffixes):
    """(file, what it includes), of the quoted includes."""
    for file in sorted(folder.rglob("*")):
        if file.suffix in suffixes:
            for name in re.findall(r'^#include "([^"]+)"', file.read_text(), re.MULTILINE):
                yield file, name


def allowed():
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \|([^|]*)\|$", (SOURCES / "README.md").read_text(), re.MULTILINE)
    return {folder: set(re.findall(r"\w+", names)) for folder, names in rows}


def folder_of(name):
    """The folder of src/ that an include names, or None where it is a file beside its reader or lies elsewhere."""
    name = name.removeprefix("src/")
    return name.split("/")[0] if "/" in name and (SOURCES / name).exists() else None


def circles(graph):
    """The nodes that are left when those that lead nowhere are taken away again and again."""
    left = {node: set(targets) for node, targets in graph.items()}
    while ends := [node for node, targets in left.items() if not targets & set(left)]:
        for node in ends:
            del left[node]
    return left


def test_circles_finds_one():
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == {}
    assert set(circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()})) == {"a", "b", "c"}


def test_the_table_has_every_folder_and_no_circle():
    table = allowed()
    assert set(table) == {f.name for f in SOURCES.iterdir() if f.is_dir()}
    assert table["core"] == set() and circles(table) == {}


def test_folders_include_what_the_table_allows():
    table = allowed()
    seen = {folder: set() for folder in table}
    wrong = []
    for file, name in includes(SOURCES, ".h", ".cpp"):
        here, there = file.relative_to(SOURCES).parts[0], folder_of(name)
        if there and there != here:
            seen[here].add(there)
            if there not in table[here]:
                wrong.append(f"{file.relative_to(ROOT)} includes {name}")
        assert there or name.startswith(("mica/", "hwy/")) or (file.parent / name).exists(), f"{file}: {name}"
    assert not wrong
    unused = {
        folder: names - seen[folder] - {"core"} for folder, names in table.items() if names - seen[folder] - {"core"}
    }
    assert not unused, "src/README.md allows what nobody includes"


def test_the_core_leaves_what_stands_on_it_alone():
    for file, name in includes(SOURCES / "core", ".h", ".cpp"):
        subject = name.removeprefix("mica/").removeprefix("generated/").split("/")[0].removesuffix(".h")
        assert not name.startswith("mica/") or subject not in ABOVE_THE_CORE, (
            f"{file.relative_to(ROOT)} includes {name}"
        )


def test_kernels_include_the_core_alone():
    for file, name in includes(ROOT / "backends", ".h", ".cpp", ".cu", ".cuh"):
        assert folder_of(name) in (None, "core"), f"{file.relative_to(ROOT)} includes {name}"


def test_public_headers_have_no_circle():
    public = ROOT / "include"
    graph = {str(f.relative_to(public)): set() for f in public.rglob("*.h")}
    for file, name in includes(public, ".h"):
        assert name in graph or name.startswith("mica/generated/"), f"{file.relative_to(ROOT)} includes {name}"
        graph[str(file.relative_to(public))].add(name)
    assert circles(graph) == {}


def test_parts_of_the_tensor_include_neither_operations_nor_layers():
    for folder in ("core", "backend"):
        for file, name in includes(ROOT / "include/mica" / folder, ".h"):
            first = name.removeprefix("mica/").split("/")[0].removesuffix(".h")
            assert first not in (*ABOVE_THE_CORE, "ops", "autograd"), f"{file.relative_to(ROOT)} includes {name}"


def test_the_engine_uses_no_algorithm_that_the_browsers_library_lacks():
    """The Lab's page compiles these sources with a standard library that has no algorithms of std::ranges."""
    algorithm = re.compile(r"std::(ranges|views)::\w+")
    for folder in ("src", "include", "backends/cpu", "lab"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in (".h", ".cpp"):
                found = algorithm.search(file.read_text())
                assert not found, f"{file.relative_to(ROOT)} uses {found[0]}"
