"""torch.cond: one of two functions."""

import sys
import warnings

import mica

__all__ = ["cond"]


def cond(pred, true_fn, false_fn, operands=()):
    """One of two functions of the operands. While a graph is made, both are part of it."""
    _check_cond(pred, true_fn, false_fn, operands)
    from mica._higher_order_ops.recorders import recorder

    is_constant = isinstance(pred, (bool, int, float))
    around = None if is_constant else recorder()
    if is_constant and mica.compiler.is_compiling():
        warnings.warn(
            "Pred is a Python constant. When used with torch.cond, it specializes on one of the branches. If you want torch.cond "
            "to preserve two branches, please make the predicate a boolean tensor or a SymBool.",
            UserWarning,
            stacklevel=2,
        )
    if not is_constant and mica.is_grad_enabled():  # without gradients torch lets branches change and return operands
        from mica._higher_order_ops.watched import watched

        true_fn, false_fn = watched("torch.cond", true_fn), watched("torch.cond", false_fn)
    if around is not None:
        from mica._higher_order_ops.subgraphs import recorded_cond

        return recorded_cond(around, pred, true_fn, false_fn, operands)
    branches = sys.modules.get("mica.onnx.branches")
    if branches is not None and branches.writes_cond(pred):
        return branches.written_cond(pred, true_fn, false_fn, operands)
    return (true_fn if bool(pred) else false_fn)(*operands)


def _check_cond(pred, true_fn, false_fn, operands):
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
