"""The reference of C++: a page for each subject, with an entry for each class, function and alias of its headers."""

from __future__ import annotations

import html
import tomllib
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


# Namespace -> the Python modules that have the same names.
TWINS = {
    "mica": ("",),
    "mica::nn": ("nn",),
    "mica::nn::functional": ("nn.functional",),
    "mica::nn::utils": ("nn.utils",),
    "mica::nn::utils::rnn": ("nn.utils.rnn",),
    "mica::optim": ("optim", "optim.lr_scheduler"),
    "mica::data": ("utils.data",),
    "mica::distributions": ("distributions",),
    "mica::distributions::constraints": ("distributions.constraints",),
    "mica::autograd": ("autograd",),
    "mica::forward_ad": ("autograd.forward_ad",),
    "mica::func": ("func",),
    "mica::inspect": ("inspect",),
    "mica::cuda": ("cuda",),
}


@cache
def python_sentences() -> dict[tuple[str, str], str]:
    """Module and name -> what Python says of it."""
    return {(n.module, n.name): first_sentence(python_names.explanation(n)) for n in python_names.public()}


@cache
def written_sentences() -> dict[str, str]:
    return tomllib.loads((ROOT / "site" / "cpp_sentences.toml").read_text())


def sentence_of(name: str, group: list[Declaration]) -> str:
    """The comment of the header, else the line of site/cpp_sentences.toml, else what its Python twin says."""
    said = next((d.comment for d in group if d.comment), "") or written_sentences().get(name, "")
    space, _, short = name.rpartition("::")
    twins = (python_sentences().get((module, short), "") for module in TWINS.get(space, ()))
    said = said or next(filter(None, twins), "")
    if not said and short.endswith("Options") and (space, short.removesuffix("Options")) in class_names():
        said = (
            f"The options of `{short.removesuffix('Options')}`, with the names and defaults of its arguments in Python."
        )
    return said


@cache
def class_names() -> set[tuple[str, str]]:
    """Namespace and name of each class, under the name that programs use."""
    declared = (d for contents in subjects().values() for _, part in contents for d in part)
    return {(d.namespace, public_name(d)) for d in declared}


def names() -> list[tuple[str, list[Declaration]]]:
    """Every name of the reference with its declarations, once for each header that has it."""
    return [item for contents in subjects().values() for _, declared in contents for item in grouped(declared).items()]


def without_a_sentence() -> list[str]:
    """The names of the reference that neither their header nor anything else explains."""
    return sorted({name for name, group in names() if not sentence_of(name, group).strip()})


def left_over() -> list[str]:
    """Lines of site/cpp_sentences.toml for names that are not there, or that their headers explain."""
    needed = {name for name, group in names() if not any(d.comment for d in group)}
    return sorted(set(written_sentences()) - needed)


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
    sentence = sentence_of(name, group)
    short = name.rpartition("::")[2]
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
