"""Linear algebra: `ops/layers/linalg.toml` (norms and products), `decompositions.toml`, `linear_systems.toml`."""

from mica import _C
from mica._functions.families import publish as _publish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mica._linalg import *  # noqa: F403

globals().update(_publish("linalg"))


class LinAlgError(RuntimeError):
    """What an operation raises that fails on the numbers of a matrix."""


# As torch's tracebacks call it.
LinAlgError.__module__, LinAlgError.__name__, LinAlgError.__qualname__ = "torch._C", "_LinAlgError", "_LinAlgError"
_C._LinAlgError = LinAlgError


def _lapack_path():
    """The library of the package scipy-openblas32, if that is installed: asked for when one is first needed."""
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("scipy_openblas32")
    if spec is None or not spec.submodule_search_locations:
        return ""
    found = sorted((Path(spec.submodule_search_locations[0]) / "lib").glob("libscipy_openblas*.so*"))
    return str(found[0]) if found else ""


__all__ = ["LinAlgError", *(name for name in vars(_C._linalg) if not name.startswith("_"))]
