"""The tables of ops/nn/*.toml as objects: an Entry for each set of options, an Option for each of them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

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
# How many numbers an option has that is kept as one number for each dimension, or for both ends of each dimension.
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
        """The value to keep of an option that is found at `place`."""
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
    keyword_only: str = ""  # the first option that has to be given by name
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
