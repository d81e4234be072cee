"""Writes python/mica/_as_torch/torch_names.txt: the modules of the torch that runs this, with the names that each defines.
And python/mica/_operators/aten_names.txt: its operators on tensors, by their schemas.

usage: PYTHON-WITH-TORCH scripts/record_torch_names.py

One line per module: its name below torch (a slash after a package's), its classes, its functions, its other names, and
what it imports from other modules of torch's (name=module.name), which programs import from it too.
"""

import ast
import importlib
import importlib.util
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "python" / "mica" / "_as_torch" / "torch_names.txt"
OPERATORS = TARGET.parent.parent / "_operators" / "aten_names.txt"
# What no package outside torch names, or what is vendored, generated or a program of its own.
LEFT_OUT = (
    "_dynamo.", "_export.", "_functorch.", "_inductor.", "_lazy", "_numpy", "_strobelight", "_vendor", "ao.nn.", "ao.ns",
    "ao.pruning.", "bin", "csrc", "distributed._tools", "distributed.benchmarks",
    "distributed.tensor._ops", "fx.experimental.", "fx.passes.", "include", "lib", "nn.intrinsic.",
    "nn.qat.", "onnx._internal", "profiler._", "quantization.", "share", "testing._internal",
    "utils.benchmark", "utils.bottleneck", "utils.data.datapipes.", "utils.hipify", "utils.viz", "_prims.", "_refs.",
    "_decomp.", "distributed.fsdp._fully_shard.", "utils._sympy.",
)  # fmt: skip
KEPT = {
    "_dynamo.eval_frame", "_dynamo.exc", "_dynamo.utils", "_functorch.aot_autograd", "_functorch.apis",
    "_functorch.eager_transforms", "_functorch.vmap", "_inductor.compile_fx", "_inductor.cpu_vec_isa", "_inductor.runtime",
    "_inductor.runtime.cache_dir_utils", "_inductor.utils", "ao.nn.quantized", "ao.nn.intrinsic", "distributed._shard",
    "distributed._shard.sharded_tensor", "distributed.elastic.agent", "distributed.elastic.multiprocessing",
    "distributed.elastic.multiprocessing.errors", "distributed.elastic.rendezvous", "distributed.elastic.utils",
    "fx.experimental.optimization", "fx.experimental.proxy_tensor", "fx.experimental.symbolic_shapes",
    "fx.passes.infra", "fx.passes.infra.pass_base", "fx.passes.shape_prop", "testing._internal",
    "testing._internal.common_utils", "utils._sympy.functions", "utils._sympy.numbers", "utils._sympy.value_ranges",
    "utils.data.datapipes.datapipe", "utils.data.datapipes.iter", "utils.data.datapipes.map",
    "utils.data.datapipes.iter.combinatorics",
}  # fmt: skip


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


# Packages whose modules programs ask for what those import.
IMPORTED_FROM = ("amp", "autograd", "cuda", "distributions", "nn", "optim", "utils")


def imported(path: Path):
    """name=module.name for what a module that is no package imports from torch."""
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
        n: getattr(found, n) for n in dir(found) if not n.startswith("_") or (module == "_C" and not n.startswith("__"))
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
        defined = set().union(*found)
        others = {pair for pair in imported(path) if pair.partition("=")[0] not in defined}
        groups = "\t".join(" ".join(sorted(group)) for group in (*found, others))
        slash = "/" if is_package else ""
        lines.append(f"{module}{slash}\t{groups}")
        for first, second in SECOND_NAMES.items():
            if module.startswith(first):
                lines.append(f"{module.replace(first, second, 1)}{slash}\t{groups}")
    lines.append("\t".join(["_C/", *(" ".join(sorted(group)) for group in (*at_run_time("_C"), ()))]))
    TARGET.write_text("\n".join(sorted(lines)) + "\n")
    print(f"{TARGET}: {len(lines)} modules, {TARGET.stat().st_size} bytes")


def record_operators() -> None:
    import torch

    schemas = [
        str(schema).removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
    ]
    about_tensors = sorted(
        {s for s in schemas if "Tensor" in s and "..." not in s and "_test_" not in s and not s.startswith("_foobar")}
    )
    OPERATORS.write_text("\n".join(about_tensors) + "\n")
    print(f"{OPERATORS}: {len(about_tensors)} operators, {OPERATORS.stat().st_size} bytes")


if __name__ == "__main__":
    main()
    record_operators()
