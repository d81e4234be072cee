"""The public names of the Python package: where each is explained, and the sentence that it has.

A name is public if it can be reached without an underscore, in a module that torch has too or that is named in OWN, and is in that
module's `__all__` or, where there is none, defined in the package. What several modules export is explained where its
path is shortest.
"""

from __future__ import annotations

import contextlib
import fnmatch
import importlib
import inspect
import io
import pkgutil
import re
import sys
import tomllib
import types
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

OWN = {"inspect", "lab"}  # modules that torch does not have, and those of torch's names that the record leaves out
RECORD_LEAVES_OUT = {"utils.benchmark", "utils.bottleneck", "utils.cpp_extension"}
# Old names of modules that have another place, and files of other modules under torch's names, which no reader needs.
ELSEWHERE = ("quantization", "nn.quantized", "nn.qat", "nn.intrinsic", "nn.quantizable", "ao.nn.intrinsic.qat.modules")
PLACES = {"Tensor": "Tensor"}


@dataclass(frozen=True)
class Name:
    module: str  # below the package; "" for the package itself
    name: str
    value: object

    @property
    def path(self) -> str:
        return ".".join(filter(None, ("torch", self.module, self.name)))


def recorded_modules() -> set[str]:
    lines = (ROOT / "tests" / "recorded" / "torch_names.txt").read_text().splitlines()
    return {line.split("\t")[0].rstrip("/") for line in lines}


def is_public(module: str, torch_has: set[str]) -> bool:
    parts = module.split(".")
    if any(p.startswith("_") for p in parts if p) or any(module == e or module.startswith(e + ".") for e in ELSEWHERE):
        return False
    return module in torch_has or parts[0] in OWN or module in RECORD_LEAVES_OUT


@cache
def modules() -> dict[str, types.ModuleType]:
    """Public modules by their names below the package, the shortest first."""
    import mica

    torch_has = recorded_modules()
    found = {"": mica}
    waiting = [mica]
    while waiting:
        package = waiting.pop()
        for info in pkgutil.iter_modules(getattr(package, "__path__", [])):
            name = f"{package.__name__}.{info.name}"
            below = name.removeprefix("mica.")
            if not is_public(below, torch_has):
                continue
            with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                try:
                    found[below] = importlib.import_module(name)
                except ImportError:  # what needs a package that is not installed here (tensorboard)
                    continue
            waiting.append(found[below])
    return dict(sorted(found.items(), key=lambda item: (item[0].count(".") if item[0] else -1, item[0])))


def exported(module: types.ModuleType) -> dict[str, object]:
    listed = getattr(module, "__all__", None)
    names = listed if listed is not None else [n for n in dir(module) if not n.startswith("_")]
    found = {}
    for name in sorted(set(names)):
        if name.startswith("_"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = getattr(module, name)
        except (AttributeError, ImportError):
            continue
        if isinstance(value, types.ModuleType):
            continue
        home = getattr(value, "__module__", None)
        ours = isinstance(home, str) and home.split(".")[0] in ("mica", "torch")
        if listed is not None or (ours and callable(value)):
            found[name] = value
    return found


@cache
def public() -> tuple[Name, ...]:
    """Each public name once, where it is explained."""
    seen, found = {}, []  # the values are kept too: a freed one may leave its id to the next
    for below, module in modules().items():
        for name, value in exported(module).items():
            key = (name, id(value)) if callable(value) else (name, type(value).__name__, repr(value)[:80])
            if key in seen:
                continue
            seen[key] = value
            found.append(Name(below, name, value))
    return tuple(found)


@cache
def sentences() -> dict[str, str]:
    return tomllib.loads((ROOT / "site" / "sentences.toml").read_text())


def own_docstring(value) -> str:
    """The docstring that a thing was given, and not one of a class that it inherits from or is an instance of."""
    if inspect.isclass(value):
        text = value.__dict__.get("__doc__") or ""
        return "" if text.startswith(f"{value.__name__}(") and "->" not in text and "\n" not in text else text
    if not callable(value) and not isinstance(value, property):
        return ""
    text = getattr(value, "__doc__", None) or ""
    return "" if not isinstance(text, str) or text == type(value).__doc__ else text


@cache
def said_elsewhere(path: str) -> str:
    """What site/sentences.toml says of what cannot have a docstring; `*` stands for any part of a name without a dot."""
    given = sentences()
    if path in given:
        return given[path]
    for pattern, sentence in given.items():
        if not set("*[") & set(pattern):
            continue
        words = fnmatch.translate(pattern).replace(".*", "[^.]*")
        if re.fullmatch(words, path):
            return sentence
    return ""


def explanation(name: Name) -> str:
    """The text of a name: its docstring, or what site/sentences.toml says of it."""
    text = inspect.cleandoc(own_docstring(name.value)) if own_docstring(name.value) else ""
    return text or said_elsewhere(name.path)


def first_sentence(text: str) -> str:
    flat = " ".join(text.split("\n\n")[0].split())
    match = re.match(r".*?[.:](?=\s|$)", flat)
    return match[0] if match else flat


def tensor_names() -> list[str]:
    import mica

    return [n for n in dir(mica.Tensor) if not n.startswith("_")]


def tensor_explanation(name: str) -> str:
    import mica

    value = inspect.getattr_static(mica.Tensor, name)
    text = getattr(value, "__doc__", None) or getattr(getattr(mica.Tensor, name), "__doc__", None) or ""
    text = inspect.cleandoc(text) if isinstance(text, str) else ""
    return text or said_elsewhere(f"torch.Tensor.{name}")


def without_a_sentence() -> list[str]:
    missing = [name.path for name in public() if not explanation(name).strip()]
    return missing + [f"torch.Tensor.{n}" for n in tensor_names() if not tensor_explanation(n).strip()]


if __name__ == "__main__":
    print("\n".join(without_a_sentence()), file=sys.stdout)
