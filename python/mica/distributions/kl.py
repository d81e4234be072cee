"""Kullback-Leibler divergences in closed form.

The functions stand in `_kl_same.py` (within a family) and `_kl_pairs.py` (between families).
"""

from mica.distributions import _kl_pairs, _kl_same  # noqa: F401 - they fill the table
from mica.distributions._kl_table import _KL_MEMOIZE, _KL_REGISTRY, _dispatch_kl, kl_divergence, register_kl  # noqa: F401

__all__ = ["kl_divergence", "register_kl"]
