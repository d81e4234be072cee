"""An operator whose result has a wider dtype than its operands."""

__all__ = ["out_dtype"]


def out_dtype(op, output_dtype, *args):
    """The operator on the arguments, computed in and returned with a dtype: products of int8 in int32, for one."""
    from mica.utils._pytree import tree_map_only

    if type(output_dtype).__name__ != "dtype":
        raise ValueError(f"out_dtype's second argument must be a dtype, but got {type(output_dtype)}")
    from mica import Tensor

    return op(*tree_map_only(Tensor, lambda tensor: tensor.to(output_dtype), args))
