"""Norms and products of linear algebra: `ops/layers/linalg.toml`. Decompositions and what needs them are not here yet."""

from mica import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mica._linalg import *  # noqa: F403

globals().update({name: value for name, value in vars(_C._linalg).items() if not name.startswith("__")})


class LinAlgError(RuntimeError):
    """What an operation raises that fails on the numbers of a matrix."""


LinAlgError.__module__ = "torch.linalg"
__all__ = ["LinAlgError", *(name for name in vars(_C._linalg) if not name.startswith("_"))]
