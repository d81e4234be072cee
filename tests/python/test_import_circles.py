"""No module of the package or of the generator needs one that needs it, at once or when a function is called.

Two imports are no need of that kind: of `mica` itself, by whose public names a module reaches what stands above it when
it is called, and those within a module's own `__getattr__`, which hands out names that stand elsewhere.
"""

import ast
import functools
from pathlib import Path

import pytest

# The sources: in a build the package is made of links to its folders, which rglob does not follow.
ROOT = Path(__file__).resolve().parents[2] / "python" / "mica"


def module_files():
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[:2] == ("_as_torch", "path"):  # stands for torch itself
            continue
        yield ".".join(("mica", *parts)).removesuffix(".__init__"), path


def imports(statements, in_functions):
    """The import statements of a module: those that run with it, or all but its `__getattr__`'s."""
    for node in statements:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not in_functions:
            continue
        else:
            inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.ExceptHandler))]
            yield from imports(inner, in_functions)


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def is_reexport(node):
    return isinstance(node, ast.FunctionDef) and node.name == "__getattr__"


def needs_of(name, path, files, in_functions):
    """The modules that a module imports, by name."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    body = [node for node in parsed(path).body if not is_reexport(node)]
    for node in imports(body, in_functions):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            continue
        base = node.module or ""
        if node.level:
            above = package.split(".")[: package.count(".") + 2 - node.level]
            base = ".".join([*above, *([base] if base else [])])
        for alias in node.names:
            yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in files else base


def circles(in_functions, files=None):
    """What is left of the graph of imports when everything that needs nothing of it is taken away, again and again."""
    files = files or dict(module_files())
    needs = {
        name: {
            each for each in needs_of(name, path, files, in_functions) if each in files and each not in ("mica", name)
        }
        for name, path in files.items()
    }
    while free := [name for name, others in needs.items() if not others & needs.keys()]:
        for name in free:
            del needs[name]
    return {name: sorted(others & needs.keys()) for name, others in needs.items()}


@pytest.mark.parametrize("in_functions", [False, True], ids=["at once", "when called"])
def test_modules_import_one_another_without_circles(in_functions):
    assert len(dict(module_files())) > 500
    assert circles(in_functions) == {}


def test_the_generator_has_no_circles():
    files = {path.stem: path for path in (ROOT.parents[1] / "codegen").glob("*.py")}
    assert len(files) > 20
    assert circles(True, files) == {}


def test_a_circle_would_be_found(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "a.py").write_text("def f():\n    if True:\n        from mica.b import x\n")
    (tmp_path / "b.py").write_text("from mica import a\n")
    (tmp_path / "c.py").write_text("import mica.a\ndef __getattr__(name):\n    from mica import c2\n")
    (tmp_path / "c2.py").write_text("from mica import c\n")
    assert circles(False) == {} and set(circles(True)) == {"mica.a", "mica.b", "mica.c", "mica.c2"}
