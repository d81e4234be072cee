"""Writes tests/recorded/torch_names.txt: the modules of the torch that runs this, with the names that each defines.
And python/mica/_operators/aten_names.txt: its operators on tensors, by their schemas.

usage: PYTHON-WITH-TORCH scripts/record_torch_names.py

One line per module: its name below torch (a slash after a package's), its classes, its functions, its other names, and
what it imports from other modules of torch's (name=module.name), which programs import from it too.
"""

import ast
import importlib
import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests" / "recorded" / "torch_names.txt"
OPERATORS = ROOT / "python" / "mica" / "_operators" / "aten_names.txt"
# Modules that no package outside of torch names, or that are vendored, generated or programs of their own.
LEFT_OUT = (
    "_lazy", "_numpy", "_strobelight", "_vendor", "bin", "csrc", "distributed._tools", "distributed.benchmarks",
    "distributed.tensor._ops", "include", "lib", "nn.intrinsic.", "nn.qat.", "quantization.", "share", "testing._internal",
    "utils.benchmark", "utils.bottleneck", "utils.hipify", "utils.viz", "_prims.", "_refs.", "distributed.fsdp._fully_shard.",
    "_inductor.autoheuristic", "_inductor.kernel.vendored", "_dynamo.polyfills", "onnx._internal.exporter._torchlib",
    "_inductor.fx_passes.serialized", "_export.db",
)  # fmt: skip
KEPT = {"testing._internal", "testing._internal.common_utils"}
# Modules of which packages name only classes and functions.
INNER = ("_inductor.", "_dynamo.", "_export.", "onnx._internal", "fx.", "ao.")


def statements(body):
    """The statements of a module that run when it is imported."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from statements(node.body + node.orelse)
        elif isinstance(node, ast.Try):
            yield from statements(node.body)


def starred(path: Path, node: ast.ImportFrom):
    """The file that `from .module import *` takes names from; None if it is not in the package."""
    base = path.parent
    for _ in range(node.level - 1):
        base = base.parent
    if not node.level:
        base = path
        while base.name != "torch":
            base = base.parent
        base = base.parent
    target = base.joinpath(*(node.module or "").split("."))
    for candidate in (target.with_suffix(".py"), target / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


def module_of(path: Path, node: ast.ImportFrom):
    """The module below torch that `from .module import name` names."""
    if not node.level:
        return node.module.removeprefix("torch").removeprefix(".")
    parts = list(path.relative_to(ROOT).parts[: -node.level])
    return ".".join([*parts, *([node.module] if node.module else [])])


# Packages from whose modules programs take names that these import.
IMPORTED_FROM = ("_functorch", "amp", "autograd", "cuda", "distributed", "distributions", "nn", "optim", "utils")


def imported(path: Path):
    """name=module.name for each name that a module, but not a package, imports from torch."""
    parts = path.relative_to(ROOT).parts
    if path.name == "__init__.py" or (len(parts) > 1 and parts[0] not in IMPORTED_FROM):
        return set()
    found = set()
    for node in statements(ast.parse(path.read_text()).body):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "torch"):
            module = module_of(path, node)
            found |= {f"{a.asname or a.name}={module}.{a.name}" for a in node.names if a.name != "*"}
    return found


def names(path: Path, depth: int = 0):
    """The classes, functions and other names that a file defines."""
    try:
        tree = ast.parse(path.read_text())
    except (SyntaxError, UnicodeDecodeError):
        return set(), set(), set()
    is_package = path.name == "__init__.py"
    classes, functions, others = set(), set(), set()
    for node in statements(tree.body):
        if isinstance(node, ast.ClassDef):
            classes.add(node.name)
        elif isinstance(node, ast.FunctionDef):
            functions.add(node.name)
        elif isinstance(node, ast.Assign):
            others |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            others.add(node.target.id)
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("torch")):
            if node.names[0].name == "*":
                source = starred(path, node) if depth < 4 else None
                if source is not None:
                    for group, more in zip((classes, functions, others), names(source, depth + 1), strict=True):
                        group |= {name for name in more if not name.startswith("_")}
            elif is_package:
                for alias in node.names:
                    name = alias.asname or alias.name
                    (classes if name[0].isupper() and not name.isupper() else functions).add(name)
    functions -= classes
    public = [{n for n in group if not n.startswith("__") and n != "*"} for group in (classes, functions, others)]
    public[2] -= public[0] | public[1]
    return tuple(public)


def at_run_time(module: str):
    """The names of a module whose functions come from the engine."""
    import types

    found = importlib.import_module(f"torch.{module}" if module else "torch")
    values = {
        n: getattr(found, n)
        for n in dir(found)
        if not n.startswith("__" if not module or module.startswith("_C") else "_")
    }
    values = {n: v for n, v in values.items() if not isinstance(v, types.ModuleType)}
    classes = {n for n, v in values.items() if isinstance(v, type)}
    functions = {n for n, v in values.items() if callable(v)} - classes
    return classes, functions, values.keys() - classes - functions


# Modules whose names are not all in their files.
FROM_ENGINE = ("", "fft", "linalg", "nn.functional", "special", "sparse", "nested", "masked", "_C")


# Packages that torch puts under a second name while it runs.
SECOND_NAMES = {"distributed.tensor.": "distributed._tensor."}
ROOT = Path(importlib.util.find_spec("torch").origin).parent


def main() -> None:
    lines = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = list(path.relative_to(ROOT).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        if module.startswith(LEFT_OUT) and module not in KEPT:
            continue
        found = at_run_time(module) if module in FROM_ENGINE else names(path)
        if module.startswith(INNER):
            found = (*({n for n in group if not n.startswith("_")} for group in found[:2]), set())
        defined = set().union(*found)
        others = {pair for pair in imported(path) if pair.partition("=")[0] not in defined}
        groups = "\t".join(" ".join(sorted(group)) for group in (*found, others))
        slash = "/" if is_package else ""
        lines.append(f"{module}{slash}\t{groups}")
        for first, second in SECOND_NAMES.items():
            if module.startswith(first):
                lines.append(f"{module.replace(first, second, 1)}{slash}\t{groups}")
    for name in sorted(name for name in sys.modules if name.startswith("torch._C._")):
        module = name.removeprefix("torch.")
        lines.append("\t".join([module, *(" ".join(sorted(group)) for group in (*at_run_time(module), ()))]))
    lines.append("\t".join(["_C/", *(" ".join(sorted(group)) for group in (*at_run_time("_C"), ()))]))
    TARGET.write_text("\n".join(sorted(lines)) + "\n")
    print(f"{TARGET}: {len(lines)} modules, {TARGET.stat().st_size} bytes")


def record_operators() -> None:
    """The schemas of aten without their namespace, then those of other namespaces with it."""
    import torch
    import torch.ao.quantization.fx._decomposed
    import torch.distributed._functional_collectives

    found = {str(schema).removeprefix("aten::") for schema in torch._C._jit_get_all_schemas()}
    found = {
        s
        for s in found
        if ("Tensor" in s or s.startswith("_assert_scalar("))
        and "..." not in s
        and "_test_" not in s
        and not s.startswith(("_foobar", "prim::"))
    }
    schemas = sorted(found, key=lambda s: ("::" in s.partition("(")[0], s))
    OPERATORS.write_text("\n".join(schemas) + "\n")
    print(f"{OPERATORS}: {len(schemas)} operators, {OPERATORS.stat().st_size} bytes")


if __name__ == "__main__":
    main()
    record_operators()
