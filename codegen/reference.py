"""The reference page: every operation with its calls, its meaning and what it has, in one Markdown file."""

from __future__ import annotations

import re

from model import Op
from overloads import Group, Overload, collect
from stubs import parameters, result

HEADER = """\
# Reference

Every operation of the table in `ops/`, generated with the build. `mica.name` is the function, `x.name` the method of
a tensor; in C++ both have the same names in namespace `mica`. Arguments are torch's. `python3 codegen/generate.py show
NAME` prints all the code that exists for one operation.
"""


def plain(text: str) -> str:
    """Annotations as a reader wants them: without the underscores that stubs need."""
    return re.sub(r"\b_(bool|int|float|complex|dtype|layout|device|memory_format|Sizes|Device)\b", r"\1", text)


def call(group: Group, o: Overload, method: bool) -> str:
    returned = plain(result(group, o, method)).replace("Self", "Tensor")
    if returned.startswith("_"):
        returned = f"({', '.join(r.name for r in o.schema.returns)})"
    arguments = plain(parameters(o, method)).removeprefix("self, ").removeprefix("self")
    space = f"mica.{group.space}." if group.space else "mica."
    return f"{'x.' if method else space}{group.name}({arguments}) -> {returned}"


def title(group: Group) -> str:
    return f"{group.space}.{group.name}" if group.space else group.name


def anchor(group: Group) -> str:
    return title(group).replace(".", "")


def calls(group: Group) -> list[str]:
    """The calls of an operation: its functions, or its methods where it has no function."""
    lines = [call(group, o, False) for o in group.overloads if o.function and not o.deprecated]
    if not lines:
        lines = [call(group, o, True) for o in group.overloads if o.method and not o.deprecated]
    return list(dict.fromkeys(lines))


def remarks(group: Group, names: set[tuple[str, str]]) -> str:
    """`Also x.abs(), abs_(). Also known as absolute. Not differentiable.`"""
    notes = []
    functions = any(o.function for o in group.overloads)
    also = [f"`x.{group.name}()`"] if functions and any(o.method for o in group.overloads) else []
    if (group.space, group.name + "_") in names:
        also.append(f"`{group.name}_`, in place")
    if also:
        notes.append(f"Also {' and '.join(also)}.")
    if group.aliases:
        notes.append(f"Also known as {', '.join(f'`{a}`' for a in group.aliases)}.")
    if not any(o.op.differentiable for o in group.overloads):
        notes.append("Not differentiable.")
    return " ".join(notes)


def as_markdown(doc: str) -> str:
    """The documentation of an operation with its arguments as a list. help() shows it as the table has it."""
    lines, listed = [], False
    for line in doc.strip().splitlines():
        if line == "Args:":
            listed = True
            lines += ["Arguments:", ""]
        elif listed and line.startswith("    "):
            name, _, meaning = line.strip().partition(": ")
            lines.append(f"- `{name}`: {meaning}")
        else:
            listed = False
            lines.append("Example:" if line == "Example::" else line)
    return "\n".join(lines)


def section(group: Group, names: set[tuple[str, str]]) -> list[str]:
    lines = [
        f"### {title(group)}",
        "",
        "```python",
        *calls(group),
        "```",
        "",
        as_markdown(group.doc) or "(undocumented)",
    ]
    said = remarks(group, names)
    return [*lines, *(["", said] if said else []), ""]


def generate(ops: list[Op]) -> dict[str, str]:
    """relative path -> text"""
    groups = [g for g in collect(ops) if not g.name.startswith("_")]
    names = {(g.space, g.name) for g in groups}
    # An in-place form stands with the operation it belongs to.
    shown = [g for g in groups if not (g.name.endswith("_") and (g.space, g.name[:-1]) in names)]
    families: dict[str, list[Group]] = {}
    for g in shown:
        families.setdefault(g.family, []).append(g)
    lines = [HEADER]
    for family, members in sorted(families.items()):
        links = ", ".join(f"[{title(g)}](#{anchor(g)})" for g in members)
        lines += [f"- **{family.replace('_', ' ')}**: {links}"]
    for family, members in sorted(families.items()):
        lines += ["", f"## {family.replace('_', ' ').capitalize()}", ""]
        for g in members:
            lines += section(g, names)
    return {"docs/reference.md": "\n".join(lines).rstrip() + "\n"}
