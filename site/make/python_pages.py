"""The reference of Python: a page for each module of some size, with an entry for each name it explains."""

from __future__ import annotations

import html
import inspect
import re
from functools import cache
from pathlib import Path

import operations
import python_names
from python_names import Name, explanation, first_sentence
from sources import Sources

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 27_000  # characters of entries on a page, which are three times as many bytes of HTML
SMALLEST = 8  # a module that explains fewer names is a part of its parent's page
TITLES = {
    "": "torch", "inspect": "mica.inspect", "lab": "mica.lab",
}  # fmt: skip


def markdown(text: str) -> str:
    """A docstring as Markdown: what is not code says what it says."""
    pieces = []
    for i, part in enumerate(re.split(r"(`[^`\n]+`)", text)):
        if i % 2:
            pieces.append(part)
        else:
            part = html.escape(part, quote=False)
            pieces.append(re.sub(r"([*_\[\]#])", r"\\\1", part).replace("|", "&#124;"))
    return "".join(pieces)


def paragraphs(text: str) -> list[str]:
    """Paragraphs of a docstring; indented ones and those of an interpreter are code."""
    lines = []
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.lstrip().startswith(">>>") or all(line.startswith("    ") for line in block.splitlines()):
            lines += ["```python", inspect.cleandoc(block), "```", ""]
        else:
            lines += [markdown(block), ""]
    return lines


def signature(value) -> str:
    try:
        text = str(inspect.signature(value))
    except (ValueError, TypeError):
        return ""
    text = re.sub(r"<(?:module|function|class|object) '?([\w.]+)'?[^>]*>", r"\1", text)
    text = re.sub(r"<([\w. ]+) object at 0x[0-9a-f]+>", r"<\1>", text)
    return text.replace("mica.", "torch.")


def kind(value) -> str:
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if callable(value) else type(value).__name__


def defined_at(value) -> tuple[str, int] | None:
    """The file and line in python/mica where it is written."""
    try:
        value = inspect.unwrap(value)
        path = Path(inspect.getsourcefile(value)).resolve()
        line = inspect.getsourcelines(value)[1]
        if line > len(path.read_text().splitlines()):
            return None
        return str(path.relative_to(ROOT)), line
    except (TypeError, OSError, ValueError):
        return None


def written_bases(value) -> list[type]:
    """The classes it is based on; those that the build writes from a table stand for what they are based on themselves."""
    found = []
    for base in value.__bases__:
        found += written_bases(base) if "._generated" in base.__module__ else [base]
    return list(dict.fromkeys(found))


def members(value) -> list[tuple[str, str, str]]:
    """Public methods and properties that a class defines itself: name, arguments, sentence."""
    found = []
    for name, member in vars(value).items():
        if name.startswith("_"):
            continue
        raw = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
        if not (inspect.isfunction(raw) or isinstance(raw, property)):
            continue
        text = first_sentence(inspect.cleandoc(raw.__doc__)) if raw.__doc__ else ""
        if not text:
            continue
        arguments = re.sub(r"^\((self|cls)(, )?", "(", signature(raw)) if inspect.isfunction(raw) else ""
        found.append((name, arguments, text))
    return found


def entry(name: Name, sources: Sources, up: str, cpp_classes: dict[str, str]) -> list[str]:
    value = name.value
    lines = [f"### `{name.path}` {{ #{name.path} }}", ""]
    if callable(value):
        shape = signature(value)
        if shape:
            prefix = "class " if inspect.isclass(value) else ""
            lines += ["```python", f"{prefix}{name.path}{shape}", "```", ""]
    lines += paragraphs(explanation(name))
    facts = []
    if inspect.isclass(value):
        bases = [b.__name__ for b in written_bases(value) if b is not object]
        if bases:
            facts.append(f"<dt>Based on</dt><dd>{', '.join(map(html.escape, bases))}</dd>")
        if name.name in cpp_classes and name.module in (
            "nn",
            "optim",
            "distributions",
            "optim.lr_scheduler",
            "utils.data",
        ):
            facts.append(f'<dt>C++</dt><dd><a href="{up}{cpp_classes[name.name]}">mica::…::{name.name}</a></dd>')
    where = defined_at(value)
    if where:
        facts.append(f"<dt>Written in</dt><dd>{sources.link(where[0], up, where[1])}</dd>")
    if facts:
        lines += [f'<dl class="facts">{"".join(facts)}</dl>', ""]
    if inspect.isclass(value):
        for method, arguments, text in members(value):
            lines.append(f"- `{method}{arguments}`: {markdown(text)}")
        lines.append("")
    return lines


@cache
def page_names() -> dict[str, list[str]]:
    """Page (a module) -> the modules whose names it explains."""
    counts: dict[str, int] = {}
    for name in python_names.public():
        counts[name.module] = counts.get(name.module, 0) + 1
    pages: dict[str, list[str]] = {}
    for module in counts:
        home = module
        while home and counts.get(home, 0) < SMALLEST and "." in home:
            home = home.rpartition(".")[0]
        pages.setdefault(home, []).append(module)
    return pages


def has_entry(name: Name) -> bool:
    """Whether it has an entry of its own: constants and operations of the table have a row."""
    return callable(name.value) and not operation_of(name)


def size(name: Name) -> int:
    """About how long its entry is."""
    words = len(signature(name.value)) + len(explanation(name)) + 2 * len(name.path) + 150
    return words + sum(len(" ".join(m)) for m in members(name.value)) if inspect.isclass(name.value) else words


@cache
def chunks(home: str) -> list[list[Name]]:
    """The entries of a page, in as many pages as their length asks for."""
    parts = page_names()[home]
    names = sorted(
        (n for n in python_names.public() if n.module in parts and has_entry(n)), key=lambda n: parts.index(n.module)
    )
    found: list[list[Name]] = [[]]
    room = LONGEST
    for name in names:
        if room < size(name) and found[-1]:
            found.append([])
            room = LONGEST
        found[-1].append(name)
        room -= size(name)
    return found


def file_of(module: str, number: int = 0) -> str:
    return f"reference/python/{module or 'torch'}{f'-{number + 1}' if number else ''}.md"


@cache
def places() -> dict[str, str]:
    """Path of a name -> the page and anchor that explain it."""
    found = {}
    for home in page_names():
        for number, names in enumerate(chunks(home)):
            for name in names:
                found[name.path] = f"{file_of(home, number)}#{name.path}"
    return found


def operation_of(name: Name) -> str | None:
    """Where the table's entry for this function is explained, if it is one."""
    if inspect.isclass(name.value) or not callable(name.value):
        return None
    return operations.places().get(f"{name.module}.{name.name}" if name.module else name.name)


def row(name: Name, link: str) -> str:
    sentence = first_sentence(explanation(name)).replace("\n", " ")
    return f"| [`{name.name}`]({link}) | {markdown(sentence)} |"


def title_of(home: str) -> str:
    return TITLES.get(home, f"torch.{home}")


def entries(home: str, names: list[Name], sources: Sources, cpp_classes: dict[str, str]) -> list[str]:
    """Entries, with a heading where another module's begin."""
    lines, module = [], home
    for name in names:
        if name.module != module:
            module = name.module
            lines += [f"## torch.{module}", ""]
        lines += entry(name, sources, "../../", cpp_classes)
    return lines


def tables(home: str) -> tuple[list[str], list[str]]:
    """The rows of operations and of constants of a page's modules."""
    names = [n for n in python_names.public() if n.module in page_names()[home]]
    in_table = [n for n in names if operation_of(n)]
    data = [n for n in names if not callable(n.value)]
    found: tuple[list[str], list[str]] = ([], [])
    if in_table:
        found[0].extend(["| operation | what it computes |", "| --- | --- |"])
        found[0].extend([row(n, f"../../{operation_of(n)}") for n in in_table] + [""])
    if data:
        found[1].extend(["| name | what it is |", "| --- | --- |"])
        for n in data:
            shown = n.path.removeprefix("torch.") if n.module != home else n.name
            found[1].append(f'| <a id="{n.path}"></a>`{shown}` | {markdown(first_sentence(explanation(n)))} |')
        found[1].append("")
    return found


def module_pages(home: str, sources: Sources, cpp_classes: dict[str, str]) -> dict[str, str]:
    about = inspect.cleandoc(python_names.modules()[home].__doc__ or "") if home in python_names.modules() else ""
    parts = chunks(home)
    listed = [n for names in parts for n in names]
    in_table, data = tables(home)
    lines = [f"# {title_of(home)}", "", *paragraphs(about)]
    if len(listed) > 4:
        lines.append('<ul class="entries">')
        for n in listed:
            page, _, anchor = places()[n.path].partition("#")
            link = f"#{anchor}" if page == file_of(home) else f"{Path(page).stem}.html#{anchor}"
            shown = n.name if n.module == home else n.path.removeprefix("torch.")
            lines.append(f'<li><a href="{link}"><code>{shown}</code></a></li>')
        lines += ["</ul>", ""]
    written = {}
    if in_table and len(in_table) > 300:
        lines += ["The [operations](torch.operations.md) have a page of their own.", ""]
        written["reference/python/torch.operations.md"] = "\n".join(["# torch: operations", "", *in_table])
    elif in_table:
        lines += ["## Operations", "", *in_table]
    lines += ["## Constants", "", *data] if data else []
    lines += ["## Classes and functions", ""] if (in_table or data) and listed else []
    lines += entries(home, parts[0], sources, cpp_classes)
    written[file_of(home)] = "\n".join(lines)
    for number, names in enumerate(parts[1:], 1):
        title = f"# {title_of(home)}, {names[0].name} to {names[-1].name}"
        written[file_of(home, number)] = "\n".join([title, "", *entries(home, names, sources, cpp_classes)])
    return written


def pages(sources: Sources, cpp_classes: dict[str, str]) -> dict[str, str]:
    counts: dict[str, int] = {}
    for name in python_names.public():
        counts[name.module] = counts.get(name.module, 0) + 1
    written, index = {}, []
    for home, parts in sorted(page_names().items()):
        written |= module_pages(home, sources, cpp_classes)
        about = inspect.cleandoc(python_names.modules()[home].__doc__ or "") if home in python_names.modules() else ""
        count = sum(counts[m] for m in parts)
        index.append(f"| [{title_of(home)}]({home or 'torch'}.md) | {count} | {markdown(first_sentence(about))} |")
    written["reference/python/Tensor.md"] = tensor_page(sources)
    rows = ["| module | names | what it has |", "| --- | --- | --- |", *index]
    written["reference/python/index.md"] = "\n".join(["# Python", "", INTRODUCTION, "", *rows, ""])
    return written


def tensor_page(sources: Sources) -> str:
    lines = ["# torch.Tensor", "", explanation(next(n for n in python_names.public() if n.path == "torch.Tensor")), ""]
    lines += ["Attributes and methods; those that are operations of the table link to their entries.", ""]
    lines += ["| name | what it is |", "| --- | --- |"]
    for name in python_names.tensor_names():
        place = operations.places().get(name) or operations.places().get(name.removesuffix("_"))
        shown = f"[`{name}`](../../{place})" if place else f"`{name}`"
        sentence = markdown(first_sentence(python_names.tensor_explanation(name)))
        lines.append(f'| <a id="torch.Tensor.{name}"></a>{shown} | {sentence} |')
    return "\n".join([*lines, ""])


INTRODUCTION = """Every public name, by module. A name that several modules export is explained where its path is shortest; operations of
the table have their own [pages](../operations/index.md). `torch` stands for `mica`, as it does after `import mica as torch` or under `mica run`."""
