"""The options of nn modules, from ops/nn/*.toml: the Python classes that take, check, keep and print them, and the C++
structs and classes that do the same.

What a module computes and which parameters it has is written by hand: python/mica/nn/modules/, include/mica/nn/, src/nn/.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

from conditions import cpp_condition, cpp_message, python_message
from schema import TableError

# name: the type of a member of a struct in C++, and the annotation in Python
TYPES = {
    "real": ("double", "float"),
    "real?": ("std::optional<double>", "float | None"),
    "reals?": ("std::vector<double>", ""),
    "integer": ("int64_t", "int"),
    "integer?": ("std::optional<int64_t>", "int | None"),
    "flag": ("bool", "bool"),
    "flag?": ("std::optional<bool>", "bool | None"),
    "text": ("std::string", "str"),
    "tensor?": ("Tensor", ""),
    "sizes": ("Dims", "_Sizes"),
    "shape": ("Dims", "tuple[int, ...]"),
    "sizes?": ("std::optional<Dims>", "_Sizes"),
    "each": ("Dims", ""),
    "each?": ("std::optional<Dims>", ""),
    "ends": ("Dims", ""),
    "activation": ("TransformerActivation", ""),
    "python": ("", ""),
}
# How many numbers there are of what is kept as one for each dimension, or for each end of each.
COUNTS = {"each": ("self._dims", "ndim"), "each?": ("self._dims", "ndim"), "ends": ("2 * self._dims", "2 * ndim")}


@dataclass(frozen=True)
class Option:
    name: str
    type: str
    default: str  # as Python writes it; "" where it has to be given
    only_cpp: bool = False
    note: str = ""

    @property
    def takes_after(self) -> str:
        """The option whose value this one has unless it is given."""
        return (
            self.default if self.type.endswith("?") and self.default.isidentifier() and self.default != "None" else ""
        )

    @property
    def python_default(self) -> str:
        return "None" if self.takes_after else self.default

    @property
    def cpp_type(self) -> str:
        return TYPES[self.type][0]

    @property
    def cpp_default(self) -> str:
        if self.type in ("activation", "text"):
            word = self.default.strip("'")
            return f'"{word}"' if word else "{}"
        return {"None": "{}", "True": "true", "False": "false"}.get(self.python_default, self.python_default)

    @property
    def cpp_parameter(self) -> str:
        by_reference = self.cpp_type in ("Dims", "std::optional<Dims>", "std::string")
        return f"const {self.cpp_type}& {self.name}" if by_reference else f"{self.cpp_type} {self.name}"

    @property
    def cpp_member(self) -> str:
        """The type under which a class keeps it."""
        if self.type in COUNTS:
            return "DimVector"
        return "Dims" if self.takes_after else self.cpp_type

    def cpp_kept(self, place: str) -> str:
        """What is kept, of an option that is found at `place`."""
        if self.takes_after:
            place = f"{place}.value_or({self.takes_after})"
        return f'{place}.expand({COUNTS[self.type][1]}, "{self.name}")' if self.type in COUNTS else place

    def cpp_text(self) -> str:
        if self.type in COUNTS:
            return f"tuple_text({self.name})"
        if self.type.endswith("?") and not self.takes_after:
            return f"or_none({self.name})"
        return f'"\'", {self.name}, "\'"' if self.type == "text" else self.name

    def cpp_element(self, index: int | None) -> str:  # for conditions
        return self.name

    def cpp_is_none(self, index: int | None) -> str:
        return f"!{self.name}"


@dataclass
class Entry:
    """The options of one class, or of several that take the same."""

    family: str
    name: str
    options: list[Option]
    keyword_only: str = ""  # the first option that has to be named
    includes: list[str] = field(default_factory=list)  # what its header needs
    python: str = "written"
    base: str = "Module"
    constants: list[str] | None = None
    repr: list[str] | None = None
    late: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    checks: list[list[str]] = field(default_factory=list)
    python_checks: list[list[str]] = field(default_factory=list)
    in_cpp: dict[str, str] = field(default_factory=dict)
    cpp_struct: str = ""
    cpp_class: str = ""

    @property
    def class_names(self) -> list[str]:
        """`Conv{1,2}d` names two."""
        m = re.fullmatch(r"(\w*)\{([\w,]+)\}(\w*)", self.name)
        return [m[1] + part + m[3] for part in m[2].split(",")] if m else [self.name]

    def python_options(self) -> list[Option]:
        return [o for o in self.options if not o.only_cpp]

    def cpp_options(self) -> list[Option]:
        changed = [
            replace(o, type=self.in_cpp[o.name], default="") if o.name in self.in_cpp else o for o in self.options
        ]
        return [o for o in changed if o.type != "python"]

    def attribute(self, option: Option) -> str:
        return self.attributes.get(option.name, option.name)


def read_option(text: str) -> Option:
    said, _, note = text.partition(" // ")
    m = re.fullmatch(r"(\w+): (cpp )?([\w?]+)(?: = (.+))?", said)
    if not m or m[3] not in TYPES:
        raise TableError(f"cannot read the option {text!r}; the types are {', '.join(TYPES)}")
    return Option(m[1], m[3], m[4] or "", bool(m[2]), note)


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def read_entry(family: str, entry: dict) -> Entry:
    options, keyword_only = [], ""
    lines = entry.pop("options")
    for i, text in enumerate(lines):
        if text == "*":
            keyword_only = read_option(lines[i + 1]).name
        else:
            options.append(read_option(text))
    for key in ("constants", "repr", "late", "parameters"):
        if key in entry:
            entry[key] = names(entry[key])
    known = {o.name for o in options}
    for name in [*(re.sub(r"\W", "", item) for item in entry.get("repr", [])), *entry.get("late", [])]:
        if name not in known:
            raise TableError(f"{entry['name']}: there is no option {name!r}")
    return Entry(family=family, options=options, keyword_only=keyword_only, **entry)


def load(folder: Path) -> list[Entry]:
    entries = []
    for path in sorted(folder.glob("nn/*.toml")):
        table = tomllib.loads(path.read_text())
        for entry in table["options"]:
            try:
                entries.append(read_entry(path.stem, entry | {"includes": table.get("includes", [])}))
            except (TableError, TypeError) as e:
                raise TableError(f"ops/nn/{path.name}: {e}") from None
    return entries


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
