"""Questions about compilation that programs ask here."""

from mica.compiler import is_compiling  # noqa: F401
