"""The reference of C++: a page for each subject, with an entry for each class, function and alias of its headers."""

from __future__ import annotations

import html
from functools import cache
from pathlib import Path

import python_names
import python_pages
from cpp_headers import Declaration, declarations, opening_comment
from python_names import first_sentence
from python_pages import markdown
from sources import Sources

ROOT = Path(__file__).resolve().parents[2]
UP = "../../"
LONGEST = 22_000  # characters of declarations on a page, which are six times as many bytes of HTML

# Page -> title, headers. What a program includes; what the library's parts say to each other is left to its folders.
SUBJECTS = {
    "tensors": ("Tensors", ["tensor.h", "dtype.h", "device.h", "indexing.h", "core/options.h", "core/scalar.h", "core/array_ref.h",
                            "core/accessor.h", "generator.h", "print.h", "values.h", "names.h", "weight_only.h"]),
    "autograd": ("Autograd and functions of functions", ["autograd.h", "custom_function.h", "core/grad_mode.h", "func.h", "autocast.h"]),
    "nn": ("Modules", ["nn.h", "nn/*.h", "init.h"]),
    "optim": ("Optimizers", ["optim.h", "optim/*.h"]),
    "data": ("Data and files", ["data.h", "serialize.h", "tensor_files.h", "hdf5.h", "mapped_memory.h"]),
    "distributions": ("Distributions", ["distributions.h", "distributions/*.h"]),
    "linalg": ("Linear algebra and layers as functions", ["linalg.h", "layers.h", "ops.h"]),
    "engine": ("Engine", ["mica.h", "error.h", "warning.h", "allocator.h", "parallel.h", "inspect.h", "observe.h", "profiler.h",
                          "build_info.h", "python_api.h"]),
    "devices": ("Devices and backends", ["cuda.h", "backend.h", "backend/*.h"]),
}  # fmt: skip


@cache
def python_sentences() -> dict[str, str]:
    """Class name -> what the Python class of that name says of itself."""
    said = {}
    for name in python_names.public():
        if name.module in ("nn", "optim", "optim.lr_scheduler", "distributions", "utils.data", "nn.utils.rnn"):
            said.setdefault(name.name, first_sentence(python_names.explanation(name)))
    return said


def headers(patterns: list[str]) -> list[Path]:
    folder = ROOT / "include" / "mica"
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


@cache
def subjects() -> dict[str, list[tuple[Path, list[Declaration]]]]:
    return {
        page: [(path, declarations(path.read_text())) for path in headers(patterns)]
        for page, (_, patterns) in SUBJECTS.items()
    }


def public_name(d: Declaration) -> str:
    return d.name.removesuffix("Impl") if "nn" in d.namespace and d.kind == "class" else d.name


@cache
def parts(page: str) -> list[list[tuple[Path, list[Declaration]]]]:
    """The headers of a subject, in as many pages as their length asks for."""
    found: list[list] = [[]]
    room = LONGEST
    for path, declared in subjects()[page]:
        size = sum(len(d.text) + len(d.comment) + 200 for d in declared)
        if room < size and found[-1]:
            found.append([])
            room = LONGEST
        found[-1].append((path, declared))
        room -= size
    return found


def file_of(page: str, number: int) -> str:
    return f"reference/cpp/{page}{f'-{number + 1}' if number else ''}"


@cache
def classes() -> dict[str, str]:
    """Class name -> the page and anchor of its C++ counterpart."""
    found = {}
    for page in SUBJECTS:
        for number, contents in enumerate(parts(page)):
            for _, declared in contents:
                for d in declared:
                    if d.kind == "class":
                        found.setdefault(public_name(d), f"{file_of(page, number)}.html#{anchor(d)}")
    return found


def anchor(d: Declaration) -> str:
    return f"{d.namespace}::{public_name(d)}".replace(" ", "")


def grouped(declared: list[Declaration]) -> dict[str, list[Declaration]]:
    """Overloads stand together, under the name that they share."""
    groups: dict[str, list[Declaration]] = {}
    for d in declared:
        if d.namespace.startswith("mica") and not d.name.startswith("_") and "detail" not in d.namespace:
            groups.setdefault(anchor(d), []).append(d)
    return groups


def entry(name: str, group: list[Declaration], header: str, sources: Sources) -> list[str]:
    sentence = next((d.comment for d in group if d.comment), "")
    short = name.rpartition("::")[2]
    if not sentence and any(d.kind == "class" for d in group):
        sentence = python_sentences().get(short, "")
    shown = html.escape(name)
    lines = [f"### `{name}` {{ #{name.replace('<', '').replace('>', '')} }}" if "<" not in name else f"### {shown}", ""]
    if sentence:
        lines += [markdown(sentence), ""]
    lines += ["```cpp", *"\n".join(d.text for d in group).splitlines(), "```", ""]
    place = sources.link(header, UP, group[0].line)
    twin = [n for n in python_names.public() if n.name == short and n.module in ("nn", "optim", "distributions")]
    facts = f"<dt>Header</dt><dd>{place}</dd>"
    if twin and any(d.kind == "class" for d in group):
        path = twin[0].path
        place = python_pages.places()[path].replace(".md#", ".html#")
        facts += f'<dt>Python</dt><dd><a href="{UP}{place}">{path}</a></dd>'
    return [*lines, f'<dl class="facts">{facts}</dl>', ""]


def pages(sources: Sources) -> dict[str, str]:
    written, index = {}, []
    for page, (title, patterns) in SUBJECTS.items():
        seen: set[str] = set()
        links = []
        for number, contents in enumerate(parts(page)):
            names = [str(path.relative_to(ROOT / "include" / "mica")) for path, _ in contents]
            heading = title if len(parts(page)) == 1 else f"{title}: {Path(names[0]).stem} to {Path(names[-1]).stem}"
            if len(names) == 1 and len(parts(page)) > 1:
                heading = f"{title}: {Path(names[0]).stem}"
            lines = [f"# {heading}", ""]
            for path, declared in contents:
                lines += header_section(path, declared, seen, sources)
            written[f"{file_of(page, number)}.md"] = "\n".join(lines)
            links.append(f"[{heading}]({Path(file_of(page, number)).name}.md)")
        index.append(f"| {'<br>'.join(links)} | {len(seen)} | {', '.join(f'`{p}`' for p in patterns)} |")
    rows = ["| subject | names | headers below `mica/` |", "| --- | --- | --- |", *index]
    written["reference/cpp/index.md"] = "\n".join(["# C++", "", INTRODUCTION, "", *rows, ""])
    return written


def header_section(path: Path, declared: list[Declaration], seen: set[str], sources: Sources) -> list[str]:
    header = str(path.relative_to(ROOT))
    groups = {k: v for k, v in grouped(declared).items() if k not in seen}
    seen |= set(groups)
    lines = [f"## mica/{path.relative_to(ROOT / 'include' / 'mica')}", ""]
    lines += [*comment_blocks(opening_comment(path.read_text())), ""]
    lines += [f'<p class="facts">{sources.link(header, UP)}</p>', ""]
    for name, group in groups.items():
        lines += entry(name, group, header, sources)
    return lines


def comment_blocks(text: str) -> list[str]:
    """A header's comment: what is indented is code."""
    lines, code = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("  "):
            code.append(line)
            continue
        if code and line.strip():
            lines += ["", "```cpp", *[c[2:] for c in code], "```", ""]
            code = []
        elif code:
            code.append("")
            continue
        lines.append(markdown(line))
    if any(c.strip() for c in code):
        lines += ["", "```cpp", *[c[2:] for c in code if True], "```", ""]
    return lines


INTRODUCTION = """What a program includes. `#include <mica/mica.h>` has tensors and operations; `mica/nn.h`, `mica/optim.h`, `mica/data.h`,
`mica/distributions.h` and `mica/func.h` have one subject each. The functions for operations are with the [operations](../operations/index.md): every one of them is
in namespace `mica` under its Python name (`torch.linalg.inv` is `mica::linalg_inv`), and most are methods of `mica::Tensor`. What a class shows
here is its public part, as its header has it."""
