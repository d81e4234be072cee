"""Builds the site: runs the guides, writes the reference, and hands both to Zensical.

usage: python site/make/build.py --to build/site [--only guides/views.md]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parent))

import benchmarks
import cpp_pages
import documents
import front
import navigation
import operations
import python_pages
from blocks import PageError
from execute import executed
from sources import Sources

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
FOREIGN = '<script src="https://unpkg.com/iframe-worker/shim" type="text/javascript"></script>'


def environment(build: Path) -> dict[str, str]:
    """What the examples of a page find: this build's package, command and C++ library."""
    tools = build / "site-tools"
    tools.mkdir(parents=True, exist_ok=True)
    command = tools / "mica"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, '{build}/python')\n"
        "from mica.cli import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    return {
        "PYTHONPATH": f"{build}/python",
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "MICA_SOURCE": str(ROOT),
        "MICA_BUILD": str(build),
    }


def run_pages(only: str | None, build: Path, jobs: int) -> dict[str, str]:
    """Every page of site/pages, its examples carried out."""
    paths = sorted((SITE / "pages").rglob("*.md"))
    names = [str(p.relative_to(SITE / "pages")) for p in paths]
    surroundings = environment(build)

    def carry_out(path: Path, name: str) -> tuple[str, str]:
        text = path.read_text()
        if only and name != only:
            return name, text
        began = time.monotonic()
        done = executed(text, f"site/pages/{name}", surroundings)
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
        return name, done

    with ThreadPoolExecutor(jobs) as pool:
        return dict(pool.map(carry_out, paths, names))


def write(folder: Path, pages: dict[str, str]) -> None:
    for name, text in pages.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def configuration(work: Path, names: set[str]) -> Path:
    settings = yaml.safe_load((SITE / "mkdocs.yml").read_text())
    settings |= {"docs_dir": "pages", "site_dir": "site", "nav": navigation.tree(names)}
    path = work / "mkdocs.yml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


def keep_to_itself(site: Path) -> None:
    """The generator's pages fetch one script from elsewhere, for pages opened from a folder; ours does its work."""
    for path in site.rglob("*.html"):
        text = path.read_text()
        up = "../" * len(path.relative_to(site).parent.parts)
        text = text.replace(FOREIGN, f'<script src="{up}look/frame_worker.js"></script>')
        path.write_text(lighter(text))


def lighter(text: str) -> str:
    """Without the indentation of the generator's templates, and without marks in code that have no colour of their own.

    A page's list of contents loses its line breaks, too: that of nn has 270 entries of ten lines.
    """
    parts = re.split(r"(<(?:pre|script|textarea)\b.*?</(?:pre|script|textarea)>)", text, flags=re.S)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            part = re.sub(r"\s*\n\s*", "\n", part)
            parts[i] = re.sub(r"<nav\b.*?</nav>", lambda nav: nav[0].replace(">\n<", "><"), part, flags=re.S)
        elif part.startswith("<pre"):
            part = re.sub(r'<a id="__codelineno[^>]*></a>', "", part)
            part = re.sub(r'<span id="__span-[^>]*>(.*?)\n</span>', r"\1\n", part)
            parts[i] = re.sub(r'<span class="(?:w|n|p|fm)">([^<]*)</span>', r"\1", part)
    return "".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build of Mica that the examples use")
    parser.add_argument("--lab", type=Path, help="the Lab without a server (default: lab in the build)")
    parser.add_argument("--only", help="run the examples of this page alone")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    build, site = arguments.build.resolve(), arguments.to.resolve()
    lab = (arguments.lab or build / "lab").resolve()
    if not (lab / "index.html").is_file():
        print(f"there is no Lab in {lab}: make lab-wasm", file=sys.stderr)
        return 1
    work = build / "site-work"
    shutil.rmtree(work, ignore_errors=True)
    sources = Sources()
    try:
        pages = run_pages(arguments.only, build, arguments.jobs)
        pages["index.md"] = front.page(pages["index.md"])
        pages["lab.md"] = front.lab_page(pages["lab.md"])
        pages |= benchmarks.pages()
        pages |= documents.pages(sources)
        pages |= operations.pages(sources, benchmarks.links)
        pages |= python_pages.pages(sources, cpp_pages.classes())
        pages |= cpp_pages.pages(sources)
    except PageError as error:
        print(error, file=sys.stderr)
        return 1
    write(work / "pages", pages)
    shutil.copytree(SITE / "look", work / "pages" / "look")
    for name, picture in documents.pictures().items():
        documents.lighter_picture(picture, work / "pages" / name)
    config = configuration(work, set(pages))
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--config-file", config], cwd=work)
    if done.returncode:
        return done.returncode
    shutil.rmtree(site, ignore_errors=True)
    shutil.move(work / "site", site)
    keep_to_itself(site)
    shutil.copytree(lab, site / "lab")
    count = sources.write(site)
    print(f"{len(pages)} pages and {count} sources in {site}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
