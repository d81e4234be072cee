"""How Mica was built and how many threads it uses, as text."""

import sys

from mica import _C
from mica.version import __version__


def show():
    """The versions of Mica and of Python, and the extension's file."""
    return f"Mica {__version__}\n  - Python {sys.version.split()[0]}\n  - extension {_C.__file__}\n"


def parallel_info():
    """The threads of the pool."""
    return f"threads: {_C.get_num_threads()}\n"
