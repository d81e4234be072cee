"""Puts the Lab without a server into a folder: the page, the engine as WebAssembly, and the sources that it links to.

usage: python lab/wasm/export.py --engine build-wasm --to build/lab
"""

from __future__ import annotations

import argparse
import gzip
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "python" / "mica" / "lab" / "page"
ENGINE = ("lab_engine.js", "lab_engine.wasm")
# The engine is fetched beside the page's scripts, not after them.
EARLY = '<link rel="preload" href="lab_engine.wasm" as="fetch" type="application/wasm" crossorigin>\n'
BEFORE = '<script type="module" src="main.js">'
MOST = 4_000_000  # bytes of all that is fetched, compressed


def linked_sources() -> list[str]:
    """The files that the page's instruments name as the code that does what they show."""
    found = {"docs/errata.md"}
    for path in sorted((PAGE / "instruments").glob("*.js")):
        named = re.search(r"^export const source = \[(.*?)\];", path.read_text(), re.M | re.S)
        found.update(re.findall(r'"([^"]+)"', named[1]) if named else [])
    return sorted(found)


def export(engine: Path, to: Path) -> int:
    """Writes the folder anew and returns what a reader fetches of it, in bytes, compressed by gzip."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(PAGE, to)
    shutil.copytree(ROOT / "lab" / "wasm" / "page", to, dirs_exist_ok=True)
    for name in ENGINE:
        shutil.copy(engine / name, to / name)
    index = to / "index.html"
    text = index.read_text()
    assert text.count(BEFORE) == 1, "index.html has no script where the engine can be asked for first"
    index.write_text(text.replace(BEFORE, EARLY + BEFORE))
    weight = sum(len(gzip.compress(p.read_bytes(), 9)) for p in to.rglob("*") if p.is_file())
    for name in linked_sources():
        target = to / "source" / f"{name}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    return weight


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, default=ROOT / "build-wasm", help="where emscripten left the engine")
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "lab")
    arguments = parser.parse_args()
    weight = export(arguments.engine, arguments.to)
    print(f"The Lab without a server: {arguments.to}, {weight / 1e6:.2f} MB compressed")
    if weight > MOST:
        print(f"It may weigh {MOST / 1e6:.0f} MB at most: cmake/LabWasm.cmake says what goes in.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
