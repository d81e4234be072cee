"""Norms and products of linear algebra: `ops/layers/linalg.toml`. Decompositions and what needs them are not here yet."""

from mica import _C

globals().update({name: value for name, value in vars(_C._linalg).items() if not name.startswith("__")})

__all__ = ["LinAlgError", "cross", "diagonal", "matmul", "matrix_norm", "multi_dot", "norm", "vecdot", "vector_norm"]


class LinAlgError(RuntimeError):
    """What an operation raises that fails on the numbers of a matrix."""


LinAlgError.__module__ = "torch.linalg"
