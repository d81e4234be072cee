"""Paths and addresses that torch's testing utilities, and the tests of packages, ask for."""

import functools
import os
import sys
import tempfile
import warnings

__all__ = [
    "TEST_MASTER_ADDR",
    "TEST_MASTER_PORT",
    "deprecated",
    "get_file_path",
    "get_file_path_2",
    "get_writable_path",
]

TEST_MASTER_ADDR = "127.0.0.1"
TEST_MASTER_PORT = 29500


def get_file_path(*path_components):
    """A path beside the package."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *path_components)


def get_file_path_2(*path_components):
    """The path of its parts."""
    return os.path.join(*path_components)


def get_writable_path(path):
    """The folder, or a new one where it cannot be written to."""
    return path if os.access(path, os.W_OK) else tempfile.mkdtemp(suffix=os.path.basename(path))


def deprecated():
    """Gives a private function, `_name`, the public name `name` too, which warns when it is called."""

    def decorator(function):
        if not function.__name__.startswith("_"):
            raise ValueError(
                f"deprecated() is for functions whose name begins with an underscore, not {function.__name__}"
            )
        name, module = function.__name__[1:], sys.modules[function.__module__]
        if hasattr(module, name):
            raise RuntimeError(f"Cannot create alias '{name}': {module.__name__} has that name already")

        @functools.wraps(function)
        def public(*args, **kwargs):
            message = f"{name} is DEPRECATED, please consider using an alternative API(s). "
            warnings.warn(message, UserWarning, stacklevel=2)
            return function(*args, **kwargs)

        public.__name__ = name
        public.__qualname__ = f"{function.__qualname__[: -len(name) - 1]}{name}"
        setattr(module, name, public)
        return function

    return decorator
