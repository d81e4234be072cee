"""How the Python package is laid out: torch's modules at its root, and no circles among them."""

import ast
from pathlib import Path

import mica

ROOT = Path(mica.__file__).parent
OWN = {"inspect", "lab", "demo", "cli"}  # what Mica has and torch has not
FOLDERS = {"_as_torch", "_functions", "_interop", "_methods", "_operators", "_checkpoints", "_cli", "_generated"}


def test_the_root_shows_torchs_modules():
    lines = (Path(__file__).parent.parent / "recorded" / "torch_names.txt").read_text().splitlines()
    of_torch = {line.partition("\t")[0].rstrip("/").partition(".")[0] for line in lines} | {"library"}
    found = {p.name.removesuffix(".py") for p in ROOT.iterdir() if p.suffix == ".py" or p.is_dir()}
    assert (
        found - of_torch - OWN - FOLDERS - {"__init__", "__main__", "__pycache__", "_lab_sources", "lib", "include"}
        == set()
    )


def module_files():
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[:2] == ("_as_torch", "path"):  # stands for torch itself
            continue
        yield ".".join(("mica", *parts)).removesuffix(".__init__"), path


def imported_at_once(statements):
    """The imports that run with the module: those within functions wait."""
    for node in statements:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, (ast.If, ast.Try, ast.ClassDef, ast.With)):
            yield from imported_at_once(node.body)
            yield from imported_at_once(getattr(node, "orelse", []))


def test_modules_import_one_another_without_circles():
    files = dict(module_files())
    needs = {}
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        needs[name] = set()
        for node in imported_at_once(ast.parse(path.read_text()).body):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            else:
                base = node.module or ""
                if node.level:
                    base = ".".join(
                        [*package.split(".")[: package.count(".") + 2 - node.level], *([base] if base else [])]
                    )
                wanted = [f"{base}.{a.name}" if f"{base}.{a.name}" in files else base for a in node.names]
            # Every module begins with the package itself, which has loaded what it needs by then.
            needs[name] |= {each for each in wanted if each in files and each not in ("mica", name)}
    while free := [name for name, others in needs.items() if not others & needs.keys()]:
        for name in free:
            del needs[name]
    in_circles = {name: sorted(others & needs.keys()) for name, others in needs.items()}
    assert in_circles == {}
