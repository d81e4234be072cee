"""The functions of networks: activations, normalisations, dropout, embeddings."""

from mica import _C

globals().update({name: value for name, value in vars(_C._nn_functional).items() if not name.startswith("__")})

__all__ = [name for name in vars(_C._nn_functional) if not name.startswith("_")]
