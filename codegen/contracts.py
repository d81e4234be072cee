"""The contracts of kernel slots: what a slot reads and writes, the same on every backend.

A [[kernel]] of the table says its own in words (`contract`) and names the arguments that it writes whole without
reading them (`writes`), so that a test can fill those with garbage. The slot of a pointwise operation has the contract
of all of them.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from model import Op
from schema import TableError

RULES = """\
# Kernel slots

Every slot of the kernel tables with its contract, generated with the build from `ops/`. What all slots have in common is
in `docs/backends.md`. A slot that \"may be empty\" belongs to an operation that is also a composition of others.
"""


@dataclass
class Contract:
    slot: str
    text: str
    writes: tuple[str, ...]  # arguments that are written whole, and not read
    meaning: str = ""  # what a pointwise slot computes; only the page has it, so that editing it compiles nothing again


def read(kernel: dict) -> Contract:
    name = kernel["name"]
    unknown = set(kernel) - {"name", "arguments", "contract", "writes"}
    if unknown:
        raise TableError(f"kernel {name}: unknown keys {sorted(unknown)}")
    if not kernel.get("contract"):
        raise TableError(f"kernel {name}: say its `contract`: what it reads, what it writes, whether it adds")
    arguments = argument_names(kernel["arguments"])
    writes = tuple(kernel.get("writes", "").split())
    for written in writes:
        if written not in arguments:
            raise TableError(f"kernel {name}: writes {written!r}, which is no argument")
    return Contract(name, kernel["contract"], writes)


def argument_names(arguments: str) -> list[str]:
    return [re.search(r"(\w+)$", a)[1] for a in arguments.split(", ")]


def by_slot(ops: list[Op], kernels: list[dict]) -> dict[str, Contract]:
    found = {k["name"]: read(k) for k in kernels}
    for op in ops:
        if op.kind != "pointwise" or op.kernel in found:
            continue
        schema = op.schema
        operands = [a.name for a in schema.arguments if a.type.base == "Tensor" or a.name in op.operand_numbers()]
        first = (op.doc or op.name).strip().split("\n")[0]
        found[op.kernel] = Contract(op.kernel, f"Pointwise: the result of {', '.join(operands)}.", (), first)
    return found


def comment(contract: Contract) -> list[str]:
    text = contract.text if not contract.writes else f"{contract.text} Writes {', '.join(contract.writes)}."
    return [f"  // {line}" for line in textwrap.wrap(text, 114, break_long_words=False, break_on_hyphens=False)]


def slot_list(macro: str, slots: dict[str, str], known: dict[str, Contract]) -> list[str]:
    """X(slot, written): bit i of `written` says that argument i is written whole, without being read."""
    lines = ["// X(slot, written): bit i of `written` says that argument i is written whole, without being read."]
    lines.append(f"#define {macro}(X) \\")
    for slot, arguments in slots.items():
        names = argument_names(arguments)
        bits = sum(1 << names.index(w) for w in known[slot].writes)
        lines.append(f"  X({slot}, {bits}u) \\")
    lines[-1] = lines[-1].removesuffix(" \\")
    return [*lines, ""]


def page(tables: list[tuple[str, dict[str, str], dict[str, Contract]]]) -> str:
    """Of each table: its title, its slots with their arguments, and their contracts."""
    lines = [RULES]
    for title, slots, known in tables:
        lines += [f"## {title}", ""]
        for slot, arguments in slots.items():
            lines += [f"### {slot}", "", "```cpp", f"void {slot}({arguments})", "```", ""]
            lines += [f"{known[slot].text} {known[slot].meaning}".strip(), ""]
            if known[slot].writes:
                lines += [f"Writes {', '.join(f'`{w}`' for w in known[slot].writes)}.", ""]
    return "\n".join(lines).rstrip() + "\n"
