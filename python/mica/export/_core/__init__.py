"""Operators that are not among torch's core operators, in terms of these: activations, losses, attention, creation, indexing.

Each function takes the arguments of its operator. It returns NotImplemented where the operator is to be left whole.
"""

import mica
from mica.export._core import arithmetic, layers, losses, reductions, views  # noqa: F401  they add their rules
from mica.export._core.rules import RULES

__all__ = ["COMPOSITES", "DecompositionTable", "core_table"]

aten = mica.ops.aten


class DecompositionTable(dict):
    """A table from operators to the functions that take them apart. An operator that is removed from it stays whole."""

    def copy(self):
        return DecompositionTable(self)

    def materialize(self):
        """The table as a plain dict."""
        return dict(self)


# Composite operators may be in exported graphs, and are decomposed into their parts.
_NAMES = """
    linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d matmul einsum bilinear batch_norm layer_norm
    group_norm instance_norm rms_norm dropout feature_dropout alpha_dropout softmax log_softmax cross_entropy_loss nll_loss nll_loss2d
    nll_loss_nd scaled_dot_product_attention adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d max_pool1d
    max_pool2d max_pool3d lstm gru rnn_tanh rnn_relu lstm_cell gru_cell pad relu6 selu l1_loss log_sigmoid prelu cosine_similarity
    embedding_bag grid_sampler triplet_margin_loss margin_ranking_loss hinge_embedding_loss cosine_embedding_loss kl_div one_hot
    tensordot isclose argsort std std_mean var var_mean square trapezoid diff cdist outer
"""
COMPOSITES = frozenset(_NAMES.split())


def _whole(op):
    def composite(*args, **kwargs):
        """What the operator is made of."""
        return op(*args, **kwargs)

    return composite


def core_table():
    """A new table of all of them."""
    table = DecompositionTable(RULES)
    for name in sorted(COMPOSITES):
        packet = getattr(aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            if "out" not in overload and op not in table:
                table[op] = _COMPOSITE_MARKS.setdefault(op, _whole(op))
    return table


_COMPOSITE_MARKS = {}


def is_mark(function):
    """Whether a table's entry only says that a composite is taken apart."""
    return any(function is mark for mark in _COMPOSITE_MARKS.values())
