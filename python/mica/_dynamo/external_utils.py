"""Questions about compilation that programs ask here."""

from mica.compiler import is_compiling  # noqa: F401
from mica.compiler._running import innermost_fn  # noqa: F401
