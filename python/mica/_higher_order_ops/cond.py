"""torch.cond: one of two functions."""

import sys

__all__ = ["cond"]


def cond(pred, true_fn, false_fn, operands=()):
    """One of two functions of the operands. While a graph is made, both are part of it."""
    _check_cond(pred, true_fn, false_fn, operands)
    from mica._higher_order_ops.subgraphs import recorder

    around = recorder() if not isinstance(pred, bool) else None
    if around is not None:
        from mica._higher_order_ops.subgraphs import recorded_cond

        return recorded_cond(around, pred, true_fn, false_fn, operands)
    branches = sys.modules.get("mica.onnx.branches")
    if branches is not None and branches.writes_cond(pred):
        return branches.written_cond(pred, true_fn, false_fn, operands)
    return (true_fn if bool(pred) else false_fn)(*operands)


def _check_cond(pred, true_fn, false_fn, operands):
    import mica
    from mica.utils._pytree import tree_leaves

    if not isinstance(pred, (int, float, mica.Tensor, mica.SymBool)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, mica.Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    kinds = (mica.Tensor, int, mica.SymInt)
    if not isinstance(operands, (tuple, list)) or not all(isinstance(leaf, kinds) for leaf in tree_leaves(operands)):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got "
            f"{operands}."
        )
