"""Causal masks for queries and keys of different lengths."""

import enum

import mica
from mica.nn import functional as F

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Whether the diagonal begins in the upper left corner or ends in the lower right one."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(mica.Tensor):
    """A causal mask that scaled_dot_product_attention takes; the matrix is made when it is needed."""

    _values_are_plain = True  # for Tensor's methods that return a value

    def __new__(cls, variant, seq_len_q, seq_len_kv):
        return mica.empty(0).as_subclass(cls)

    def __init__(self, variant, seq_len_q, seq_len_kv):
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be CausalVariant, got {type(variant)}")
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            import warnings

            warnings.warn(
                "Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!", stacklevel=2
            )

    def _materialize(self, device=None):
        shift = self.seq_len_kv - self.seq_len_q if self.variant == CausalVariant.LOWER_RIGHT else 0
        ones = mica.ones(self.seq_len_q, self.seq_len_kv, dtype=mica.bool, device=device)
        return mica.tril(ones, diagonal=shift)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") != "scaled_dot_product_attention":
            with mica._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if given.get("is_causal"):
            raise ValueError("CausalBias should not be used with causal=True")
        given["attn_mask"] = given["attn_mask"]._materialize(given["query"].device)
        return F.scaled_dot_product_attention(**given)

    def __repr__(self):
        return repr(self._materialize())


def causal_upper_left(*size):
    """The mask of queries that see keys up to their own place."""
    if len(size) != 2:
        raise AssertionError("causal_upper_left only supports 2D tensors")
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size):
    """The mask of queries that come last: the last one sees every key."""
    if len(size) != 2:
        raise AssertionError("causal_lower_right only supports 2D tensors")
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)
