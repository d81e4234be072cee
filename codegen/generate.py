#!/usr/bin/env python3
"""Writes everything that follows from the operation table in ops/*.toml.

generate.py --out DIR           write DIR/{include,src,python,...}; files that would not change are left alone
generate.py --list --out DIR    print the files that would be written, relative to DIR
generate.py show NAME           print all that exists for one operation
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import contracts
import cpp
import family
import model
import modules
import optimizers
import rare
from schema import TableError

ROOT = Path(__file__).resolve().parent.parent


def optional_generators():
    """Bindings, stubs, reference pages and test cases, each a module with generate(ops) -> {path: text}."""
    for name in ("bindings", "stubs", "aten", "sharding", "boxed", "out_dtypes", "reference", "cases"):
        if (Path(__file__).parent / f"{name}.py").exists():
            yield name, __import__(name)


def kernels(folder: Path, layers: bool) -> list[dict]:
    tables = [table for _, is_layer, table in model.read_tables(folder) if is_layer == layers]
    steps = optimizers.kernel_slots(folder) if layers else []
    return [kernel for table in tables for kernel in table.get("kernel", [])] + steps


def by_family(ops: list[model.Op]) -> dict[str, list[model.Op]]:
    families: dict[str, list[model.Op]] = {}
    for op in ops:
        families.setdefault(op.family, []).append(op)
    return families


def outputs(ops: list[model.Op]) -> dict[str, str]:
    engine = [op for op in ops if not op.is_layer]
    layers = [op for op in ops if op.is_layer]
    engine_kernels, layer_kernels = kernels(ROOT / "ops", False), kernels(ROOT / "ops", True)
    headers = "include/mica/generated"
    files = {
        f"{headers}/ops.h": cpp.ops_header(engine),
        f"{headers}/tensor_methods.inc": cpp.methods_include(engine),
        f"{headers}/kernel_table.h": cpp.kernel_table(engine, engine_kernels),
        f"{headers}/layer_kernel_table.h": cpp.kernel_table(layers, layer_kernels, "LayerKernel", "ops/layers/*.toml"),
        f"{headers}/implementations.h": cpp.implementations_header(engine),
        f"{headers}/layers.h": cpp.layers_header(list(by_family(layers))),
        "src/methods.cpp": cpp.methods_source(engine),
        "src/kernel_registry.cpp": cpp.kernel_registry(
            cpp.kernel_slots(engine, engine_kernels), cpp.kernel_slots(layers, layer_kernels)
        ),
    }
    for name, members in by_family(layers).items():
        source = f"ops/layers/{name}.toml"
        files[f"{headers}/layers/{name}.h"] = cpp.ops_header(members, source)
        files[f"{headers}/layers/{name}_implementations.h"] = cpp.implementations_header(members, source)
    for layout in model.LAYOUTS:
        files[f"{headers}/layouts/{layout}.h"] = rare.layout_header(layout, ops)
    for name, members in by_family(ops).items():
        files[f"src/ops_{name}.cpp"] = family.family_source(name, members)
    for _, module in optional_generators():
        files.update(module.generate(ops))
    tables = (("The engine", engine, engine_kernels), ("Layers", layers, layer_kernels))
    files["docs/kernels.md"] = contracts.page(
        [(title, cpp.kernel_slots(*table), contracts.by_slot(*table)) for title, *table in tables]
    )
    files.update(optimizers.generate(ROOT / "ops"))
    files.update(modules.generate(ROOT / "ops"))
    files["package/_generated/__init__.py"] = '"""What the build writes from the tables in ops/."""\n'
    return files


def show(ops: list[model.Op], name: str) -> int:
    chosen = [op for op in ops if op.name == name or name in op.aliases]
    if not chosen:
        print(f"no operation {name!r} in ops/*.toml", file=sys.stderr)
        return 1
    for op in chosen:
        print(f"== ops/{op.family}.toml: {op.name} ({op.kind}; {' '.join(op.forms)})")
        for schema in op.schemas:
            print("   " + schema.text)
    print(family.family_source(chosen[0].family, chosen))
    print("== C++ declarations")
    print(
        "\n".join(line for line in cpp.ops_header(chosen).splitlines() if line.startswith(("Tensor", "const", "std")))
    )
    for title, module in optional_generators():
        print(f"== {title}")
        for path, text in module.generate(chosen).items():
            print(f"-- {path}\n{text}")
    return 0


def main() -> int:
    if len(sys.argv) > 2 and sys.argv[1] == "show":
        return show(model.load(ROOT / "ops"), sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    try:
        files = outputs(model.load(ROOT / "ops"))
    except TableError as e:
        print(f"codegen: {e}", file=sys.stderr)
        return 1
    for path, text in files.items():
        if arguments.list:
            print(path)
            continue
        target = arguments.out / path
        if not target.exists() or target.read_text() != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
