"""What a node of a graph does, as quantization sees it."""

import operator

from mica import _C, nn
from mica.ao.nn import intrinsic as nni
from mica.ao.nn import qat
from mica.ao.nn.intrinsic import qat as nniqat
from mica.ao.nn.intrinsic.quantized import dynamic as nniqd
from mica.ao.quantization.quantize import _DYNAMIC, _OBSERVED
from mica.nn import functional as F

__all__ = [
    "ADD",
    "CAT",
    "DYNAMIC",
    "MATMUL",
    "MUL",
    "OWN_SCALE",
    "RELU",
    "SAME_SCALE",
    "kind_of",
    "module_kind",
    "node_kinds",
]

ADD, MUL, CAT, MATMUL = "add", "mul", "cat", "matmul"
LAYER = "layer"  # has a quantized form of its own, with a scale
SAME_SCALE = "same scale"  # moves or chooses numbers: the result has the scale of the input
OWN_SCALE = "own scale"  # computed in float32 between two roundings
RELU = (_C.relu, F.relu, "relu", "relu_", nn.ReLU)

_ARITHMETIC = {
    operator.add: ADD, operator.iadd: ADD, _C.add: ADD, "add": ADD, "add_": ADD,
    operator.mul: MUL, operator.imul: MUL, _C.mul: MUL, "mul": MUL, "mul_": MUL,
    _C.cat: CAT, getattr(_C, "concat", _C.cat): CAT,
    operator.matmul: MATMUL, _C.matmul: MATMUL, "matmul": MATMUL,
}  # fmt: skip
_SAME = {
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.Dropout, nn.Flatten, nn.Hardtanh, nn.Identity, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.PixelShuffle, nn.ReLU,
    nn.ReLU6, nn.Unflatten, nn.Upsample,
    F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d,
    F.dropout, F.hardtanh, F.interpolate, F.max_pool1d, F.max_pool2d, F.max_pool3d, F.relu, F.relu6,
    _C.flatten, _C.relu, _C.reshape, _C.squeeze, _C.transpose, _C.unsqueeze, _C.mean, _C.permute, _C.clamp,
    "clamp", "contiguous", "detach", "flatten", "mean", "permute", "relu", "relu_", "repeat", "reshape", "squeeze",
    "transpose", "t", "unsqueeze", "view",
}  # fmt: skip
_OWN = {
    nn.Hardsigmoid, nn.Sigmoid, nn.Softmax, nn.Tanh, F.elu, F.hardsigmoid, F.hardswish, F.leaky_relu, F.layer_norm,
    F.group_norm, F.instance_norm, F.sigmoid, F.softmax, F.tanh, _C.sigmoid, _C.softmax, _C.tanh, "sigmoid",
    "sigmoid_", "softmax", "tanh", "tanh_", "hardsigmoid",
}  # fmt: skip
# Layers that quantize their input as it comes. Convolutions stay float32 under such qconfigs, as with torch.
DYNAMIC = {kind: made for kind, made in _DYNAMIC.items() if "Conv" not in kind.__name__}
DYNAMIC[nni.LinearReLU] = nniqd.LinearReLU
_TRAINED = {getattr(qat, name): getattr(nn, name) for name in qat.__all__}


def module_kind(module):
    """A module's class, that of its float form where it is being trained."""
    return _TRAINED.get(type(module), type(module))


def node_kinds(node, modules):
    """The names a qconfig can call a node by: its class or function, and for joined modules the class of the first."""
    if node.op != "call_module":
        return (node.target,)
    module = modules[node.target]
    if isinstance(module, nni._FusedModule):
        return type(module), module_kind(module[0])
    return (module_kind(module),)


def kind_of(node, modules):
    """How a node is quantized: one of the words above, or None where it is not."""
    if node.op in ("call_function", "call_method"):
        target = node.target
        kind = _ARITHMETIC.get(target)
        return kind or (SAME_SCALE if target in _SAME else OWN_SCALE if target in _OWN else None)
    if node.op != "call_module":
        return None
    kind = module_kind(modules[node.target])
    if kind in _SAME:
        return SAME_SCALE
    if kind in _OWN:
        return OWN_SCALE
    return LAYER if kind in _OBSERVED or kind in nniqat.TRAINED else None
