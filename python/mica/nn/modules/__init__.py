# ruff: noqa: F401, F403
"""The classes of networks, one file per family."""

from .module import Module  # isort: skip - the base of all others
from .container import *

__all__ = [name for name, value in globals().items() if isinstance(value, type)]
