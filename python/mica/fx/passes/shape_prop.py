"""The shapes and dtypes of a graph's values, found by running it."""

import traceback
from typing import Any, NamedTuple

from mica import _C
from mica.fx.interpreter import Interpreter
from mica.fx.node import map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What a tensor of a graph is like."""

    shape: tuple
    dtype: Any
    requires_grad: bool
    stride: tuple
    memory_format: Any
    is_quantized: bool
    qparams: dict


def _extract_tensor_metadata(result, include_contiguity=True):
    strided = result.layout is _C.strided
    formats = (_C.contiguous_format, _C.channels_last, _C.channels_last_3d) if strided and include_contiguity else ()
    fitting = (each for each in formats if result.is_contiguous(memory_format=each))
    qparams = {}
    if result.is_quantized:
        qparams["qscheme"] = result.qscheme()
        if result._is_quantized_per_channel():
            # Lists: a node's meta data is compared and copied.
            qparams["scale"] = result.q_per_channel_scales().tolist()
            qparams["zero_point"] = result.q_per_channel_zero_points().tolist()
            qparams["axis"] = result.q_per_channel_axis()
        else:
            qparams["scale"], qparams["zero_point"] = result.q_scale(), result.q_zero_point()
    return TensorMetadata(
        result.shape,
        result.dtype,
        result.requires_grad,
        result.stride() if strided else (),
        next(fitting, None),
        result.is_quantized,
        qparams,
    )


class ShapeProp(Interpreter):
    """Runs a graph on examples and notes of each node the type, and what its tensors are like (`node.meta`)."""

    def __init__(self, gm, fake_mode=None):
        super().__init__(gm)
        self.fake_mode = fake_mode

    def run_node(self, n):
        try:
            result = super().run_node(n)
        except Exception as error:
            traceback.print_exc()
            raise RuntimeError(f"ShapeProp error for: node={n.format_node()} with meta={n.meta}") from error
        found = []

        def described(value):
            if not isinstance(value, _C.Tensor):
                return value
            found.append(value)
            return _extract_tensor_metadata(value)

        described_result = map_aggregate(result, described)
        if found:
            n.meta["tensor_meta"] = described_result
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args):
        """Run the graph on these inputs; its output."""
        if self.fake_mode is None:
            return super().run(*args)
        with self.fake_mode:
            return super().run(*(self.fake_mode.from_tensor(a) if isinstance(a, _C.Tensor) else a for a in args))
