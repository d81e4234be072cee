"""Rules of a program's own, for operators that have none or for other ways."""

from mica.distributed.tensor._rules import registered

__all__ = ["register_sharding"]


def register_sharding(op):
    """A decorator for the rule of an operator of torch.ops, or of several.

    The function is called with the operator's arguments, tensors as specs. It returns a list of (placements of the
    results, placements of the arguments, None for what is no tensor), each along one dimension of the grid.
    """

    def keep(function):
        for each in op if isinstance(op, list) else [op]:
            registered[each] = function
        return function

    return keep
