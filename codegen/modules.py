"""The options of nn modules, from ops/nn/*.toml: the Python classes that take, check, keep and print them, and the C++
structs and classes that do the same.

What a module computes and which parameters it has is written by hand: python/mica/nn/modules/, include/mica/nn/, src/nn/.
"""

from __future__ import annotations

import re
from pathlib import Path

from conditions import cpp_condition, cpp_message, python_message
from module_table import COUNTS, TYPES, Entry, Option, load


# --------------------------------------------------------------------------------------------------- Python
def python_signature(e: Entry) -> str:
    parts = ["self"]
    for o in e.python_options():
        if o.name == e.keyword_only:
            parts.append("*")
        parts.append(f"{o.name}={o.python_default}" if o.python_default else o.name)
    return ", ".join(parts)


def python_base_call(e: Entry, bases: dict[str, Entry]) -> tuple[str, set[str]]:
    """The call of the base class's __init__, and the options that it keeps."""
    if e.base not in bases:
        return "super().__init__()", set()
    own = {o.name for o in e.options}
    given, in_order = [], True
    for o in bases[e.base].python_options():
        in_order = in_order and o.name in own and o.name != bases[e.base].keyword_only
        if o.name in own:
            given.append(o.name if in_order else f"{o.name}={o.name}")
    return f"super().__init__({', '.join(given)})", {text.partition("=")[0] for text in given}


def python_kept(o: Option) -> str:
    if o.type == "shape":
        return f"({o.name},) if isinstance({o.name}, Integral) else tuple({o.name})"
    value = f"{o.name} if {o.name} is not None else {o.takes_after}" if o.takes_after else o.name
    return f"_ntuple({COUNTS[o.type][0]})({value})" if o.type in COUNTS else value


def python_repr(e: Entry) -> list[str]:
    shown, sometimes = [], []
    by_name = {o.name: o for o in e.options}
    for item in e.repr:
        name = re.sub(r"\W", "", item)
        value = f"{{self.{e.attribute(by_name[name])}{'!r' if by_name[name].type == 'text' else ''}}}"
        if name in e.parameters:
            value = f"{{self.{name} is not None}}"
        if item.endswith("?"):
            sometimes.append((f"self.{name}", f"{name}={value}"))
        else:
            shown.append(value if item.startswith("(") else f"{name}={value}")
    text = 'f"' + ", ".join(shown) + '"' if shown else '""'
    if not sometimes:
        return [f"        return {text}"]
    ((condition, more),) = sometimes
    longer = 'f"' + ", ".join([*shown, more]) + '"'
    return [f"        return {longer} if {condition} else {text}"]


def python_class(e: Entry, bases: dict[str, Entry]) -> list[str]:
    options = e.python_options()
    call, kept = python_base_call(e, bases)
    constants = [e.attribute(o) for o in options if o.name not in e.parameters] if e.constants is None else e.constants
    constants = [name for name in constants if name not in ("size_average", "reduce") and by_type(e, name) != "tensor?"]
    lines = ["", "", f"class {e.name}({e.base}):"]
    if constants:
        lines.append(f"    __constants__ = [{', '.join(f'{name!r}' for name in constants)}]".replace("'", '"'))
    # Classes that share their options have sizes of one, two or three dimensions each, and say so themselves.
    hidden = ("sizes", "sizes?") if e.name.startswith("_") else ()
    annotations = [
        f"    {e.attribute(o)}: {TYPES[o.type][1]}"
        for o in options
        if TYPES[o.type][1] and o.name not in {*kept, *e.parameters} and o.type not in hidden
    ]
    lines += [*annotations, ""] if annotations or constants else []
    lines += [f"    def __init__({python_signature(e)}):", f"        {call}"]
    for condition, words, *error in [*e.checks, *e.python_checks]:
        wrong = condition.removeprefix("not ") if condition.startswith("not ") else f"not ({condition})"
        lines += [f"        if {wrong}:", f"            raise {(error or ['ValueError'])[0]}({python_message(words)})"]
    for o in options:
        if o.name in {*kept, *e.parameters} or o.name in ("size_average", "reduce"):
            continue
        if o.type == "tensor?":
            lines.append(f'        self.register_buffer("{o.name}", {o.name})')
        else:
            lines.append(f"        self.{e.attribute(o)} = {python_kept(o)}")
    if e.parameters:
        lines.append(f"        self._make_parameters({', '.join(e.parameters)})")
    if e.repr is not None:
        lines += ["", "    def extra_repr(self):", *python_repr(e)]
    if e.late:
        by_name = {o.name: o for o in options}
        lines += ["", "    def __setstate__(self, state):", "        super().__setstate__(state)"]
        lines += [f'        self.__dict__.setdefault("{n}", {by_name[n].python_default})' for n in e.late]
    return lines


def by_type(e: Entry, name: str) -> str:
    return next((o.type for o in e.options if e.attribute(o) == name), "")


def python_module(entries: list[Entry]) -> str:
    bases = {e.name: e for e in entries}
    by_hand = sorted({e.base for e in entries if e.base in bases and bases[e.base].python != "written"})
    lines = [
        '"""Generated from ops/nn/*.toml: what modules take, how it is checked, kept and printed."""',
        "",
        "from numbers import Integral",
        "",
        f"from mica.nn.modules._loss_bases import {', '.join(by_hand)}",
        "from mica.nn.modules.module import Module",
        "from mica.nn.modules.utils import _ntuple",
        "",
        "_Sizes = int | tuple[int, ...]",
    ]
    for e in entries:
        if e.python == "written":
            lines += python_class(e, bases)
    return "\n".join([*lines, ""])


# ------------------------------------------------------------------------------------------------------ C++
def cpp_struct(e: Entry) -> list[str]:
    members = [
        f"  {o.cpp_type} {o.name} = {o.cpp_default};" + (f"  // {o.note}" if o.note else "")
        for o in e.cpp_options()
        if o.default
    ]
    return [f"struct {e.cpp_struct} {{", *members, "};"]


def cpp_constructor(e: Entry, defaults: bool) -> str:
    counted = any(o.type in COUNTS for o in e.cpp_options())
    parameters = ["size_t ndim"] if counted else []
    for o in e.cpp_options():
        if not o.default:
            parameters.append(o.cpp_parameter)
        elif not e.cpp_struct:
            parameters.append(o.cpp_parameter + (f" = {o.cpp_default}" if defaults else ""))
    if e.cpp_struct:
        parameters.append(f"const {e.cpp_struct}& o" + (" = {}" if defaults else ""))
    return f"{e.cpp_class}({', '.join(parameters)})"


def cpp_class(e: Entry) -> list[str]:
    members = [f"  const {o.cpp_member} {o.name};" for o in e.cpp_options()]
    lines = [f"class {e.cpp_class} : public Module {{", " public:"]
    if e.cpp_struct:
        lines.append(f"  using Options = {e.cpp_struct};")
    lines.append(f"  explicit {cpp_constructor(e, defaults=True)};")
    if e.repr is not None:
        lines.append("  std::string extra_repr() const override;")
    return [*lines, *members, "};"]


def header(family: str, entries: list[Entry]) -> str:
    lines = [
        f"// Generated from ops/nn/{family}.toml: the options of modules, and the classes that keep and print them.",
        "#pragma once",
        "",
        "#include <optional>",
        "",
        '#include "mica/nn/module.h"',
        *(f'#include "{path}"' for path in entries[0].includes),
        "",
        "namespace mica::nn {",
        "",
    ]
    for e in entries:
        if e.cpp_struct:
            lines += cpp_struct(e)
        if e.cpp_class:
            lines += cpp_class(e)
    return "\n".join([*lines, "", "}  // namespace mica::nn", ""])


def cpp_repr(e: Entry) -> list[str]:
    by_name = {o.name: o for o in e.cpp_options()}
    pieces, last = [], ""
    for item in e.repr:
        name = re.sub(r"\W", "", item)
        if item.endswith("?"):
            last = name
            continue
        lead = ", " if pieces else ""
        lead += "" if item.startswith("(") else f"{name}="
        pieces += [f'"{lead}"'] if lead else []
        pieces.append(by_name[name].cpp_text())
    text = f"cat({', '.join(pieces)})" if pieces else '""'
    return [
        f"std::string {e.cpp_class}::extra_repr() const {{",
        f"  return {f'with_{last}({text}, {last})' if last else text};",
        "}",
    ]


def source(entries: list[Entry]) -> str:
    classes = [e for e in entries if e.cpp_class]
    lines = [
        "// Generated from ops/nn/*.toml: how the classes of modules keep, check and print their options.",
        *sorted({f'#include "mica/generated/nn/{e.family}.h"' for e in classes}),
        '#include "nn/text.h"',
        "",
        "namespace mica::nn {",
        "",
    ]
    for e in classes:
        kept = [
            f"{o.name}({o.cpp_kept(f'o.{o.name}' if o.default and e.cpp_struct else o.name)})" for o in e.cpp_options()
        ]
        by_name = {o.name: o for o in e.cpp_options()}
        lines += [f"{e.cpp_class}::{cpp_constructor(e, defaults=False)}", f"    : {', '.join(kept)} {{"]
        for condition, words, *_ in e.checks:
            test, message = cpp_condition(condition, by_name), cpp_message(words, by_name)
            lines.append(f"  MICA_CHECK_KIND({test}, Value, {message});")
        lines.append("}")
        if e.repr is not None:
            lines += cpp_repr(e)
    return "\n".join([*lines, "", "}  // namespace mica::nn", ""])


def generate(folder: Path) -> dict[str, str]:
    entries = load(folder)
    families: dict[str, list[Entry]] = {}
    for e in entries:
        families.setdefault(e.family, []).append(e)
    files = {f"include/mica/generated/nn/{family}.h": header(family, members) for family, members in families.items()}
    return files | {"src/nn_options.cpp": source(entries), "package/_generated/modules.py": python_module(entries)}
