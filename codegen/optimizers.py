"""The optimizers of ops/optim/*.toml: their options, states and checks in C++ and in Python, written once.

What a step computes is in src/optim/; everything that names an option or a state follows from the table.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from conditions import cpp_condition, cpp_message, python_message
from schema import TableError

CPP_TYPES = {
    "number": "Number",
    "real": "double",
    "integer": "int64_t",
    "flag": "bool",
    "flag?": "bool",
    "text?": "std::string",
    "real?": "std::optional<double>",
}


@dataclass(frozen=True)
class Option:
    """An option by its name in Python; `parts` are its members in C++ where those are several."""

    name: str
    type: str
    default: str
    parts: tuple[tuple[str, str], ...] = ()

    @property
    def count(self) -> int:
        """How many numbers the option consists of; 0 where it is a single value."""
        m = re.search(r"\[(\d)\]", self.type)
        return int(m[1]) if m else len(self.parts)

    @property
    def python_default(self) -> str:
        return "None" if self.type == "text?" else self.default

    def cpp_members(self) -> list[str]:
        """The declarations; none for an option that only Python has."""
        if self.type == "hint?":
            return []
        if self.parts:
            values = [v.strip() for v in self.default.strip("()").split(",")]
            return [f"{CPP_TYPES[t]} {n} = {cpp_value(v)};" for (n, t), v in zip(self.parts, values, strict=True)]
        if self.count:
            element = CPP_TYPES[self.type.partition("[")[0]]
            return [f"std::array<{element}, {self.count}> {self.name} = {{{self.default.strip('()')}}};"]
        default = f'"{self.default}"' if self.type == "text?" else cpp_value(self.default)
        default = "false" if self.type == "flag?" and self.default == "None" else default
        return [f"{CPP_TYPES[self.type]} {self.name} = {default};"]

    def cpp_visit(self) -> str:
        """The statement that shows this option to a visitor of the options."""
        if self.type == "hint?":
            return f'f.none("{self.name}");'
        if self.type == "flag?":
            return f'f.flag_or_none("{self.name}", o.{self.name});'
        if self.type == "text?":
            return f'f.text_or_none("{self.name}", o.{self.name});'
        members = ", ".join(f"o.{n}" for n, _ in self.parts) or f"o.{self.name}"
        return f'f("{self.name}", {members});'

    def cpp_element(self, index: int | None) -> str:
        """The option, or one of its numbers, as a plain C++ value."""
        if self.parts:
            name, kind = self.parts[index]
            return f"*o.{name}" if kind == "real?" else f"o.{name}"
        place = f"o.{self.name}" if index is None else f"o.{self.name}[{index}]"
        return place + ".value()" if self.type.startswith("number") else place

    def cpp_is_none(self, index: int | None) -> str:
        if self.parts and self.parts[index][1] == "real?":
            return f"!o.{self.parts[index][0]}"
        return "false"


def cpp_value(text: str) -> str:
    return {"True": "true", "False": "false", "None": "std::nullopt"}.get(text, text)


def read_option(text: str) -> Option:
    m = re.fullmatch(r"(\w+): (\(.*?\)|[\w?\[\]]+) = (.+)", text)
    if not m:
        raise TableError(f"cannot read the option {text!r}")
    name, kind, default = m.groups()
    parts = tuple(re.findall(r"(\w+): ([\w?]+)", kind)) if kind.startswith("(") else ()
    for base in [t for _, t in parts] or [kind.partition("[")[0]]:
        if base not in CPP_TYPES and base != "hint?":
            raise TableError(f"option {name!r}: {base!r} is no type; there are {sorted([*CPP_TYPES, 'hint?'])}")
    return Option(name, kind, default, parts)


@dataclass
class Optimizer:
    """One file of ops/optim/."""

    name: str
    options: list[Option]
    signature: list[str]
    rule: str = ""  # another optimizer whose rule and states these options use, if there is one
    states: list[str] = field(default_factory=list)
    counters: list[str] | None = None
    checks: list[tuple[str, str]] = field(default_factory=list)
    constants: dict[str, bool] = field(default_factory=dict)
    function: str = ""
    lists: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    kernel: bool = True
    stateless: str = ""

    @cached_property
    def by_name(self) -> dict[str, Option]:
        return {o.name: o for o in self.options}

    @property
    def lower(self) -> str:
        return self.name.lower()

    def expanded_checks(self) -> list[tuple[str, str]]:
        """A condition over `betas[i]` is one for each index."""
        result = []
        for condition, words in self.checks:
            m = re.search(r"(\w+)\[i\]", condition)
            for i in range(self.by_name[m[1]].count) if m else (None,):
                at = f"[{i}]"
                result.append((condition.replace("[i]", at), words.replace("[i]", at).replace("{i}", str(i))))
        return result


def load(folder: Path) -> list[Optimizer]:
    """The optimizers, those that others refer to first."""
    found: dict[str, Optimizer] = {}
    for path in sorted(folder.glob("optim/*.toml")):
        entry = tomllib.loads(path.read_text())
        try:
            options = [read_option(text) for text in entry.pop("options")]
            signature = [name.strip() for name in entry.pop("signature").split(",")]
            optimizer = Optimizer(options=options, signature=signature, **entry)
        except (TableError, TypeError) as e:
            raise TableError(f"ops/optim/{path.name}: {e}") from None
        if sorted(set(signature) - {"*"}) != sorted(o.name for o in options):
            raise TableError(f"ops/optim/{path.name}: the signature names other options than `options`")
        if optimizer.counters is None:
            optimizer.counters = [s for s in optimizer.states if s == "step"]
        found[optimizer.name] = optimizer
    for optimizer in found.values():
        if optimizer.rule:
            optimizer.checks = optimizer.checks or found[optimizer.rule].checks
    return sorted(found.values(), key=lambda o: (bool(o.rule), o.name))


def kernel_slots(folder: Path) -> list[dict]:
    return [
        {
            "name": f"{o.lower}_step",
            "arguments": "const struct FusedStep& step",
            "contract": f"One step of {o.name} on every parameter of the batch, in place: see mica/optim/fused_step.h. "
            "May be empty: operations then do it.",
        }
        for o in load(folder)
        if o.kernel and not o.rule
    ]


# ------------------------------------------------------------------------------------------------------ C++
def cpp_struct(o: Optimizer) -> list[str]:
    members = [m for name in o.signature if name != "*" for m in o.by_name[name].cpp_members()]
    lines = [f"struct {o.name}Options {{", *(f"  {m}" for m in members), "};"]
    if not o.rule:
        lines += [f"struct {o.name}Item {{", f"  Tensor {', '.join(['param', 'grad', *o.states])};", "};"]
    item = f"{o.rule or o.name}Item"
    return [
        *lines,
        f"void {o.lower}_step(std::span<{item}> items, const {o.name}Options& options);",
        f"void check_options(const {o.name}Options& o);  // throws torch's errors for options that make no sense",
        "",
    ]


def cpp_visit(o: Optimizer) -> list[str]:
    constants = [f'f.constant("{n}", {str(v).lower()});' for n, v in o.constants.items()]
    return [
        "template <class F>",
        f"void visit_options({o.name}Options& o, F& f) {{",
        *(f"  {option.cpp_visit()}" for option in o.options),
        *(f"  {line}" for line in constants),
        "}",
    ]


def cpp_states(o: Optimizer) -> list[str]:
    fields = ", ".join(f'{{"{s}", &{o.name}Item::{s}}}' for s in o.states)
    return [
        "template <>",
        f"inline std::span<const StateField<{o.name}Item>> state_fields() {{",
        f"  static constexpr StateField<{o.name}Item> fields[] = {{{fields}}};",
        "  return fields;",
        "}",
    ]


def header(optimizers: list[Optimizer]) -> str:
    rules = [o for o in optimizers if not o.rule]
    lines = [
        "// Generated from ops/optim/*.toml: the options and states of every optimizer, and the functions of one step.",
        "#pragma once",
        "",
        "#include <array>",
        "#include <optional>",
        "#include <span>",
        "#include <string>",
        "",
        '#include "mica/optim/number.h"',
        "",
        "namespace mica::optim {",
        "",
    ]
    for o in optimizers:
        lines += cpp_struct(o)
    lines += [
        "// Shows every option to f, by its name and in torch's order: f(name, member).",
        *(line for o in optimizers for line in cpp_visit(o)),
        "",
        "// The states of a parameter by torch's names, in the order in which torch makes them.",
        "template <class Item>",
        "struct StateField {",
        "  const char* name;",
        "  Tensor Item::*member;",
        "};",
        "template <class Item>",
        "std::span<const StateField<Item>> state_fields();",
        *(line for o in rules for line in cpp_states(o)),
        "",
        "// Whether parameters have a state at all.",
        "template <class Options>",
        "bool has_state(const Options&) {",
        "  return true;",
        "}",
    ]
    for o in rules:
        if o.stateless:
            condition = cpp_condition(o.stateless, o.by_name)
            lines.append(f"inline bool has_state(const {o.name}Options& o) {{ return !({condition}); }}")
    lines += ["", "// M(class, name, item) for every optimizer, and for those that have a rule of their own."]
    for name, chosen in (("OPTIMIZER", optimizers), ("RULE", rules)):
        entries = " ".join(f"M({o.name}, {o.lower}, {o.rule or o.name}Item)" for o in chosen)
        lines.append(f"#define MICA_FOR_EACH_{name}(M) {entries}")
    return "\n".join([*lines, "", "}  // namespace mica::optim", ""])


def source(optimizers: list[Optimizer]) -> str:
    lines = [
        "// Generated from ops/optim/*.toml: which options are refused.",
        '#include "mica/error.h"',
        '#include "mica/generated/optim/options.h"',
        "",
        "namespace mica::optim {",
        "",
    ]
    for o in optimizers:
        lines.append(f"void check_options(const {o.name}Options& o) {{")
        for condition, words in o.expanded_checks():
            test, message = cpp_condition(condition, o.by_name), cpp_message(words, o.by_name)
            lines.append(f"  MICA_CHECK_KIND({test}, Value, {message});")
        lines += ["}", ""]
    return "\n".join([*lines, "}  // namespace mica::optim", ""])


# --------------------------------------------------------------------------------------------------- Python
def python_parameters(o: Optimizer) -> list[str]:
    values = (name if name == "*" else f"{name}={o.by_name[name].python_default}" for name in o.signature)
    return ["self", "params", *values]


def python_class(o: Optimizer) -> list[str]:
    dictionary = ", ".join(f'"{option.name}": {option.name}' for option in o.options)
    fused = "fused" in o.by_name
    lines = [
        f"class {o.name}(Optimizer):",
        f'    """The options of {o.name}: how they are given, checked, kept and read from files."""',
        "",
        f"    def __init__({', '.join(python_parameters(o))}):",
        f"        options = {{{dictionary}}}",
        "        self._check_options(options)",
        "        super().__init__(params, options)",
    ]
    if fused:
        lines.append("        _check_fused(self, foreach, differentiable, fused)")
    lines += [
        "        self._made()",
        "",
        "    def _made(self):",
        '        """For a subclass that does more with the parameters of a new optimizer."""',
        "",
        "    @staticmethod",
        "    def _check_options(options):",
        '        """Refuse options that make no sense; a subclass may refuse more, or change them."""',
        f"        {', '.join(option.name for option in o.options)} = options.values()",
        "        _check_tensor_lr(lr)",
    ]
    for condition, words in o.expanded_checks():
        lines += [f"        if not ({condition}):", f"            raise ValueError({python_message(words)})"]
    lines += [
        "",
        "    def __setstate__(self, state):",
        "        super().__setstate__(state)",
        "        for group in self.param_groups:  # files of older versions lack what came later",
    ]
    for option in o.options:
        lines.append(f'            group.setdefault("{option.name}", {option.python_default})')
    if o.counters:
        names = ", ".join(f'"{counter}"' for counter in o.counters)
        lines.append(f"        _numbers_to_tensors(self, {names})")
    scaled = ', self.__dict__.get("grad_scale"), self.__dict__.get("found_inf")' if fused else ""
    lines += [
        "",
        "    def step(self, closure=None):",
        '        """Change the parameters once by their gradients; a closure is called for the loss first."""',
        "        loss = None if closure is None else _loss_of(closure)",
        f"        self._change(_C._{o.lower}_step{scaled})",
        "        return loss",
        "",
    ]
    return lines


def python_defaults(o: Optimizer) -> list[str]:
    """The options of an optimizer that is another one's rule with other defaults: a class to mix in before that one."""
    given = ", ".join(f"{option.name}={option.name}" for option in o.options)
    constants = ", ".join(f"{name}={value}" for name, value in o.constants.items())
    return [
        f"class {o.name}:",
        f'    """The options of {o.name}, for the rule of {o.rule}."""',
        "",
        f"    def __init__({', '.join(python_parameters(o))}):",
        f"        super().__init__(params, {given}, {constants})",
        "",
        "    def __setstate__(self, state):",
        "        super().__setstate__(state)",
        "        for group in self.param_groups:",
        *(f'            group["{name}"] = {value}' for name, value in o.constants.items()),
        "",
    ]


def python_function(o: Optimizer) -> list[str]:
    given = set(re.findall(r"\w+", o.function.partition("(")[2]))
    values = []
    for option in o.options:
        if option.type == "hint?":
            continue
        value = o.arguments.get(option.name) or (option.name if option.name in given else option.python_default)
        values.append(f'"{option.name}": {value}')
    lists = [o.lists[state] for state in o.states]
    scaled = ["grad_scale", "found_inf"] if "grad_scale" in given else []
    call = ", ".join(["options", "params", o.lists.get("grad", "grads"), *lists, *scaled])
    return [
        f"def {o.function}:",
        f'    """One step of {o.name} over lists; states that are None are made."""',
        f"    options = {{{', '.join(values)}}}",
        f"    _C._{o.lower}_lists({call})",
        "",
    ]


def python_module(optimizers: list[Optimizer]) -> str:
    lines = [
        '"""Generated from ops/optim/*.toml: the options of optimizers as Python classes, and the functions over lists."""',
        "",
        "from mica import _C",
        "from mica.optim.optimizer import Optimizer, _check_fused, _check_tensor_lr, _loss_of, _numbers_to_tensors",
        "",
    ]
    for o in optimizers:
        lines += ["", *(python_defaults(o) if o.rule else python_class(o))]
        if o.function:
            lines += ["", *python_function(o)]
    return "\n".join(lines)


def generate(folder: Path) -> dict[str, str]:
    optimizers = load(folder)
    return {
        "include/mica/generated/optim/options.h": header(optimizers),
        "src/optim_checks.cpp": source(optimizers),
        "package/_generated/optimizers.py": python_module(optimizers),
    }
