"""Operators of well-known libraries, written over Mica's.

torchvision and torchaudio bring a part of themselves as a library that is built for libtorch. When a program loads it,
the operators that it would define are defined here instead, and the file is not opened.
"""

import importlib
import os
import re

# The file's name, and the folder that it lies in; the module that defines what it would.
_KNOWN = (
    (re.compile(r"_C\b.*\.(so|pyd|dylib)"), "torchvision", "torchvision_operators"),
    (re.compile(r"(lib)?_?torchaudio\b.*\.(so|pyd|dylib)"), "lib", "torchaudio_operators"),
)


def load(path):
    """Define the operators of a well-known library; returns False if the library is not known."""
    folder, name = os.path.split(path)
    for pattern, home, module in _KNOWN:
        if os.path.basename(folder) == home and pattern.fullmatch(name):
            importlib.import_module(f"mica._operators.libraries.{module}")
            return True
    return False
