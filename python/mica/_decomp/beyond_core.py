"""Decompositions of operators that are among torch's core operators: exports keep them, and programs ask for them by name."""

import math

import mica
from mica.export._core.rules import in_float32

__all__ = ["RULES"]

aten = mica.ops.aten


@in_float32
def _gelu(x, approximate="none"):
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + mica.tanh(inner))
    return x * 0.5 * (1 + mica.erf(x * math.sqrt(0.5)))


def _addmm(self, mat1, mat2, beta=1, alpha=1):
    product = mica.mm(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (self if beta == 1 else self * beta)


def _native_layer_norm(input, normalized_shape, weight, bias, eps):
    x = input.float() if input.dtype in (mica.float16, mica.bfloat16) else input
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    var, mean = mica.var_mean(x, dims, correction=0, keepdim=True)
    scale = mica.rsqrt(var + eps)
    made = (x - mean) * scale
    made = made if weight is None else made * weight
    made = made if bias is None else made + bias
    return made.to(input.dtype), mean, scale


def _softmax(x, dim, half_to_float):
    inner = x.float() if x.dtype in (mica.float16, mica.bfloat16) else x
    raised = mica.exp(inner - mica.amax(inner, [dim], True)) if x.numel() else mica.exp(inner)
    made = raised / mica.sum(raised, [dim], True)
    return made if half_to_float else made.to(x.dtype)


def _log_softmax(x, dim, half_to_float):
    inner = x.float() if x.dtype in (mica.float16, mica.bfloat16) else x
    shifted = inner - mica.amax(inner, [dim], True) if x.numel() else inner
    made = shifted - mica.log(mica.sum(mica.exp(shifted), [dim], True))
    return made if half_to_float else made.to(x.dtype)


@in_float32
def _leaky_relu(self, negative_slope=0.01):
    return mica.where(self > 0, self, self * negative_slope)


RULES = {
    aten.gelu.default: _gelu, aten.addmm.default: _addmm, aten.native_layer_norm.default: _native_layer_norm,
    aten._softmax.default: _softmax, aten._log_softmax.default: _log_softmax, aten.leaky_relu.default: _leaky_relu,
}  # fmt: skip
