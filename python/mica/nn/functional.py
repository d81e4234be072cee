"""The functions of networks: activations, normalisations, dropout, embeddings."""

from mica import _C

globals().update({name: value for name, value in vars(_C._nn_functional).items() if not name.startswith("__")})

from mica.nn.functional_pooling import *  # noqa: E402, F403 - after what it replaces

__all__ = [name for name, value in globals().items() if callable(value) and not name.startswith("_")]

from mica.nn.functional_attention import (  # noqa: E402 - replaces the operations of the same name
    _canonical_mask,  # noqa: F401
    _none_or_dtype,  # noqa: F401
    multi_head_attention_forward,  # noqa: F401
)

__all__ += ["multi_head_attention_forward"]
