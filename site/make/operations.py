"""The reference of operations: a page for each family of ops/*.toml, an entry for each name."""

from __future__ import annotations

import html
import re
import sys
from functools import cache
from pathlib import Path

from sources import Sources, implementation_lines, kernel_lines, table_lines, test_lines

from examples import accepted, dtypes_in_words, example

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "codegen"))
import cpp  # noqa: E402
import model  # noqa: E402
import reference  # noqa: E402
from overloads import Group, collect  # noqa: E402

UP = "../../"  # from a family's page to the root of the site

PROMOTION = {
    "arithmetic": "inputs meet in their common dtype, which is the result's",
    "float": "inputs meet in their common dtype; integers and bool become the default float",
    "compare": "inputs meet in their common dtype; the result is bool",
    "real": "inputs meet in their common dtype; a complex result is its real counterpart",
    "float_real": "as for floats; a complex result is its real counterpart",
}


@cache
def table() -> list[model.Op]:
    return model.load(ROOT / "ops")


@cache
def groups() -> list[Group]:
    """What Python can call, an in-place form with the operation it belongs to."""
    found = [g for g in collect(table()) if not g.name.startswith("_")]
    names = {(g.space, g.name) for g in found}
    return [g for g in found if not (g.name.endswith("_") and (g.space, g.name[:-1]) in names)]


@cache
def names() -> set[tuple[str, str]]:
    return {(g.space, g.name) for g in collect(table())}


def title(group: Group) -> str:
    return f"torch.{reference.title(group)}" if any(o.function for o in group.overloads) else f"Tensor.{group.name}"


def page_of(group: Group) -> str:
    return f"reference/operations/{group.family}.md"


@cache
def places() -> dict[str, str]:
    """`add`, `linalg.inv` -> the page and anchor that explain it; aliases too."""
    found = {}
    for group in groups():
        here = f"{page_of(group)}#{title(group)}"
        space = f"{group.space}." if group.space else ""
        for name in (group.name, *group.aliases):
            found.setdefault(space + name, here)
    return found


def ops_of(group: Group) -> list[model.Op]:
    return list({id(o.op): o.op for o in group.overloads}.values())


def cpp_declarations(group: Group) -> list[str]:
    ops = [op for op in ops_of(group) if "function" in op.forms or "method" in op.forms]
    lines = cpp.ops_header(ops).splitlines() if ops else []
    kept = [
        line for line in lines if re.match(r"^(Tensor|const |std::|void|bool|int64_t|double|Scalar)[^;]*\(.*;", line)
    ]
    return [line for line in kept if not re.search(r"\b\w+_(out)?\(", line.split("(")[0] + "(")]


def gradient(group: Group) -> str:
    ops = ops_of(group)
    if not any(op.differentiable for op in ops):
        return "none: not differentiable"
    written = {}
    for op in ops:
        for argument, formula in op.grad.items():
            written.setdefault(argument, formula)
    if written:
        shown = "; ".join(f"<code>{html.escape(a)}</code>: <code>{html.escape(f)}</code>" for a, f in written.items())
        return f"by {shown}"
    return "of the operations that it is made of" if any(op.kind == "composite" for op in ops) else ""


def kernel_link(group: Group, sources: Sources) -> str:
    links = []
    for op in ops_of(group):
        for slot in (op.kernel or op.name, op.name):
            if op.kind in ("pointwise", "native") and slot in kernel_lines():
                links.append(sources.link(kernel_lines()[slot][0], UP, kernel_lines()[slot][1]))
                break
        else:
            name = op.implementation or op.name
            if name in implementation_lines():
                links.append(sources.link(implementation_lines()[name][0], UP, implementation_lines()[name][1]))
    return ", ".join(dict.fromkeys(links))


def test_link(group: Group, sources: Sources) -> str:
    links = []
    if any(op.samples for op in ops_of(group)):
        links.append(sources.link("tests/ops/test_samples.py", UP, text="every sample in every mode"))
    for path, line in test_lines().get(group.name, [])[:3]:
        links.append(sources.link(path, UP, line))
    return ", ".join(links)


def table_link(group: Group, sources: Sources) -> str:
    for o in group.overloads:
        found = table_lines().get(o.schema.full_name)
        if found:
            return sources.link(found[0], UP, found[1])
    return ""


def facts(group: Group, sources: Sources, benchmark_rows) -> str:
    ops = ops_of(group)
    rows = {"Forms": "", "Dtypes": "", "Gradient": gradient(group)}
    forms = ["function"] if any(o.function for o in group.overloads) else []
    if any(o.method for o in group.overloads):
        forms.append(f"<code>x.{group.name}()</code>")
    if (group.space, group.name + "_") in names():
        forms.append(f"<code>{group.name}_</code> in place")
    if any(o.out for o in group.overloads):
        forms.append("<code>out=</code>")
    rows["Forms"] = ", ".join(forms)
    if group.aliases:
        rows["Also"] = ", ".join(f"<code>{a}</code>" for a in group.aliases)
    samples = [s for op in ops for s in op.samples if "T(" in s or "P(" in s]
    if samples:
        taken = dtypes_in_words(accepted(samples[0]))
        rule = next((PROMOTION[op.promotion] for op in ops if op.promotion in PROMOTION), "")
        rows["Dtypes"] = taken + (f" ({rule})" if taken and rule else "")
    layouts = sorted({layout for op in ops for entry in op.layouts.values() for layout in entry})
    if layouts:
        rows["Layouts"] = ", ".join(["strided", *layouts])
    rows["Table"] = table_link(group, sources)
    rows["Written in"] = kernel_link(group, sources)
    rows["Tests"] = test_link(group, sources)
    rows["Measured"] = benchmark_rows(group.name, UP)
    lines = [f"<dt>{key}</dt><dd>{value}</dd>" for key, value in rows.items() if value]
    return f'<dl class="facts">{"".join(lines)}</dl>'


def entry(group: Group, sources: Sources, benchmark_rows, mica) -> list[str]:
    name = title(group)
    calls = [c.replace("mica.", "torch.", 1) for c in reference.calls(group)]
    lines = [f"### `{name}` {{ #{name} }}", "", "```python", *calls, "```", "", reference.as_markdown(group.doc), ""]
    declared = cpp_declarations(group)
    if declared:
        declared = [
            line.replace("Tensor", "mica::Tensor", 1) if line.startswith("Tensor") else line for line in declared
        ]
        lines += ["```cpp", *declared, "```", ""]
    lines += [facts(group, sources, benchmark_rows), ""]
    found = example([s for op in ops_of(group) for s in op.samples], mica)
    if found:
        code, text = found
        lines += ["```python", *code, "```", "", "``` { .text .output }", text, "```", ""]
    return lines


def heading(family: str) -> str:
    return family.replace("_", " ").capitalize()


def pages(sources: Sources, benchmark_rows) -> dict[str, str]:
    import mica

    families: dict[str, list[Group]] = {}
    for group in groups():
        families.setdefault(group.family, []).append(group)
    written = {}
    for family, members in sorted(families.items()):
        lines = [f"# {heading(family)}", "", '<ul class="entries">']
        lines += [f'<li><a href="#{title(g)}"><code>{html.escape(reference.title(g))}</code></a></li>' for g in members]
        lines += ["</ul>", ""]
        for group in members:
            lines += entry(group, sources, benchmark_rows, mica)
        written[f"reference/operations/{family}.md"] = "\n".join(lines)
    index = ["# Operations", "", INTRODUCTION, ""]
    for family, members in sorted(families.items()):
        index += [f"## [{heading(family)}]({family}.md)", "", '<ul class="entries">']
        for g in members:
            index.append(
                f'<li><a href="{family}.html#{title(g)}"><code>{html.escape(reference.title(g))}</code></a></li>'
            )
        index += ["</ul>", ""]
    written["reference/operations/index.md"] = "\n".join(index)
    return written


INTRODUCTION = """Every operation of the table in `ops/`, by family. An entry has the calls of Python and C++, what the operation
computes, the dtypes that it took when this page was made, its derivative as the table has it, where it is written and tested, and an example that was run
as the site was built. `torch` stands for `mica` after `import mica as torch`."""
