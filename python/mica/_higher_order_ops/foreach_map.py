"""A function of tensors, called for the tensors of lists."""

import itertools

__all__ = ["foreach_map"]


def foreach_map(op, *operands, **kwargs):
    """The results of a function for the first items of all lists, for the second ones, and so on, as a list.

    Operands that are no lists or tuples are the same in each call. The shortest list says how many calls there are, and
    without a list there is one call, whose result is returned. Keyword arguments are handed to each call.
    """
    lists = [isinstance(operand, (list, tuple)) for operand in operands]
    if not any(lists):
        return op(*operands, **kwargs)
    rows = zip(*(o if is_list else itertools.repeat(o) for o, is_list in zip(operands, lists, strict=True)))  # noqa: B905
    return [op(*row, **kwargs) for row in rows]
