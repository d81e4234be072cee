"""Arithmetic of gradual types: what follows for sizes of which some are not known."""

from mica.fx.experimental.unification import Var
from mica.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise

__all__ = ["broadcast_types", "calculate_out_dimension", "expand_to_tensor_dim", "get_greatest_upper_bound"]


def expand_to_tensor_dim(t, n):
    """A type as one of n dimensions. One that has another number of them is a TypeError."""
    if t == Dyn:
        return TensorType((Dyn,) * n)
    if not isinstance(t, TensorType):
        raise TypeError(f"Cannot match the type {t}")
    if len(t.dims) != n:
        raise TypeError(f"Cannot extend tensor. Tensor {t} has rank {len(t.dims)}. It should have rank {n}")
    return t


def broadcast_types(t1, t2):
    """Two types as broadcasting makes them: of the same rank, where a size of one becomes the other's.

    Where one of them is not known at all, both stay as they are.
    """
    if any(each == Dyn or isinstance(each, Var) for each in (t1, t2)):
        return t1, t2
    if not (isinstance(t1, TensorType) and isinstance(t2, TensorType)):
        raise TypeError(f"Cannot broadcast types {t1} and {t2}")
    rank = max(len(t1.dims), len(t2.dims))
    first, second = ([1] * (rank - len(each.dims)) + list(each.dims) for each in (t1, t2))
    pairs = [(b if a == 1 else a, a if b == 1 and a != 1 else b) for a, b in zip(first, second, strict=True)]
    return tuple(TensorType(tuple(pair[side] for pair in pairs)) for side in (0, 1))


def get_greatest_upper_bound(type1, type2):
    """What two types say together. Types that contradict one another are a TypeError."""
    if type1 == Dyn:
        return type2
    if type2 == Dyn or type1 == type2:
        return type1
    if not (isinstance(type1, TensorType) and isinstance(type2, TensorType) and is_consistent(type1, type2)):
        raise TypeError(f"Inconsistent types {type1}, {type2}")
    return TensorType(tuple(a if is_more_precise(a, b) else b for a, b in zip(type1.dims, type2.dims, strict=True)))


def calculate_out_dimension(d_in, module_instance, index):
    """The size that a convolution or a pool makes of `d_in` along one of its two directions.

    It is computed from a number or from a symbol of sympy; of what is not known, nothing is known afterwards.
    """
    if d_in == Dyn or isinstance(d_in, Var):
        return Dyn
    if not isinstance(d_in, int) and not _is_expression(d_in):
        raise TypeError(f"{d_in} in {module_instance} must be a number or Dyn. Received {type(d_in)}")
    kernel, stride, dilation = (
        _along(getattr(module_instance, name), index) for name in ("kernel_size", "stride", "dilation")
    )
    padding = module_instance.padding
    if padding == "same":  # torch has it for a stride of one only
        return d_in
    both_sides = 0 if padding == "valid" else 2 * _along(padding, index)
    steps = d_in + both_sides - dilation * (kernel - 1) - 1
    if getattr(module_instance, "ceil_mode", False) and isinstance(d_in, int):
        # A last window that begins in the padding behind the input is left out.
        count = -(-steps // stride) + 1
        return count - 1 if (count - 1) * stride >= d_in + both_sides // 2 else count
    return steps // stride + 1


def _along(option, index):
    return option if isinstance(option, int) else option[index]


def _is_expression(size):
    """Whether a size is an expression of sympy. Where that was never imported, nothing is one."""
    import sys

    sympy = sys.modules.get("sympy")
    return sympy is not None and isinstance(size, sympy.Expr)
