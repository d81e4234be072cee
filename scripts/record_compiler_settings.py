"""Writes python/mica/_dynamo/settings.txt: the settings of torch's compiler, with the values that they have at first.

usage: PYTHON-WITH-TORCH scripts/record_compiler_settings.py

One line per setting: its module below torch, its name, and its value. A value that cannot be written as one of Python's
literals, or that names a folder of the machine, is None.
"""

import ast
import importlib
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "python" / "mica" / "_dynamo" / "settings.txt"
MODULES = ("_dynamo.config", "compiler.config", "_inductor.config", "_functorch.config")


def literal(value):
    text = f"{{{', '.join(map(repr, sorted(value)))}}}" if isinstance(value, set) and value else repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return "None"
    return "None" if isinstance(value, str) and value.startswith("/") else text


def lines():
    for module in MODULES:
        config = importlib.import_module(f"torch.{module}")
        values = config.shallow_copy_dict()
        for name in sorted(config._config):
            if name.startswith("_"):
                continue
            value = (
                values[name] if name in values else getattr(config, name, None)
            )  # an older name has no value of its own
            yield f"{module}\t{name}\t{literal(value)}\n"


if __name__ == "__main__":
    TARGET.write_text("".join(lines()))
