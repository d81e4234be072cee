"""A linear map of quantized tensors with a sparse weight, and what both forms share."""

from mica import _C, nn
from mica.ao.nn.quantized import functional
from mica.ao.nn.quantized.layers import observed_weight
from mica.nn import Module

__all__ = ["Linear", "LinearPackedParams", "rounded_weight"]

_EXACT = 1 << 24  # float32 holds all integers up to here


class LinearPackedParams(Module):
    """A qint8 weight, a bias, and the size of the blocks that are zero or not as a whole.

    Products are taken with the weight's integers that are not zero (CSR), as floats that hold their sums exactly.
    """

    _version = 1

    def __init__(self, row_block_size=1, col_block_size=4, dtype=None):
        super().__init__()
        if dtype not in (None, _C.qint8):
            raise NotImplementedError("Linear prepacking only supports QINT8")
        self.dtype = _C.qint8
        zero = _C.quantize_per_tensor(_C.zeros(1, 1), 1.0, 0, self.dtype)
        self.set_weight_bias(zero, _C.zeros(1), row_block_size, col_block_size)

    def _get_name(self):
        return "SparseQuantizedLinearPackedParams"

    def set_weight_bias(self, weight, bias, row_block_size, col_block_size):
        """Another quantized weight, another bias or None, and the size of blocks."""
        if not weight.is_quantized or weight.dtype != _C.qint8:
            raise TypeError(f"a sparse linear map: the weight is a qint8 tensor, got {weight.dtype}")
        rows, scales, zeros = functional._weight_parts(weight)
        if zeros.any():
            raise ValueError("a sparse linear map: the zero point of the weight must be 0, for zeros are left out")
        bias = None if bias is None else bias.detach()
        self._packed_params = (weight, bias, row_block_size, col_block_size)
        is_exact = weight.shape[1] * 128 * 255 <= _EXACT
        self._rows = rows.to(_C.float32 if is_exact else _C.float64).to_sparse_csr()
        self._scales = scales

    def _weight_bias(self):
        return self._packed_params

    def forward(self, x):
        return x

    def products(self, x):
        """x @ weight^T + bias in float32, of a quantized x."""
        weight, bias, _, _ = self._packed_params
        if x.shape[-1] != weight.shape[1]:
            raise RuntimeError(
                "quantized_sparse_linear: Input tensor's last and weight tensor's second dimension must match."
            )
        integers = x.int_repr().reshape(-1, x.shape[-1]).to(self._rows.dtype) - x.q_zero_point()
        sums = (self._rows @ integers.t()).t()
        values = sums.float() * (self._scales * x.q_scale())
        values = values if bias is None else values + bias
        return values.reshape(*x.shape[:-1], weight.shape[0])

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"], destination[prefix + "_packed_params"] = self.dtype, self._packed_params

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        self.dtype = state_dict.pop(prefix + "dtype")
        self.set_weight_bias(*state_dict.pop(prefix + "_packed_params"))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __getstate__(self):
        return {"packed": self._packed_params, "training": self.training}

    def __setstate__(self, state):
        Module.__init__(self)
        self.dtype, self.training = _C.qint8, state["training"]
        self.set_weight_bias(*state["packed"])

    def __repr__(self):
        return repr(self._packed_params)


def rounded_weight(mod, observer):
    """A layer's weight with the scale, or the scales of its rows, that an observer finds; zero stands for zero."""
    weight = observed_weight(mod.weight.detach(), observer)
    if functional._weight_parts(weight)[2].any():
        raise AssertionError("Weight zero point must map to 0: choose a symmetric observer for the weight")
    return weight


class SparseLinear(Module):
    """What the static and the dynamic linear map share: the weight, its blocks and the bias."""

    _version = 1
    _FLOAT_MODULE = nn.Linear
    _WORDS = ""  # the name of the class in an error about another dtype

    def __init__(self, in_features, out_features, row_block_size, col_block_size, bias=True, dtype=None):
        super().__init__()
        if dtype not in (None, _C.qint8):
            raise NotImplementedError(f"Only QINT8 is supported for {self._WORDS}")
        self.in_features, self.out_features = in_features, out_features
        self._packed_params = LinearPackedParams(row_block_size, col_block_size)
        zeros = _C.quantize_per_tensor(_C.zeros(out_features, in_features), 1.0, 0, _C.qint8)
        self.set_weight_bias(zeros, _C.zeros(out_features) if bias else None, row_block_size, col_block_size)

    @classmethod
    def _of_float(cls, mod, observer, blocks):
        """A layer with the weight of an nn.Linear, rounded as the observer says, and its bias."""
        made = cls(mod.in_features, mod.out_features, *blocks, bias=mod.bias is not None)
        made.set_weight_bias(rounded_weight(mod, observer), mod.bias, *blocks)
        return made

    def set_weight_bias(self, w, b, row_block_size, col_block_size):
        """Another quantized weight, another bias or None, and the size of blocks."""
        self._packed_params.set_weight_bias(w, b, row_block_size, col_block_size)

    def _weight_bias(self):
        return self._packed_params._weight_bias()

    def weight(self):
        """The quantized weight, zeros and all."""
        return self._weight_bias()[0]

    def bias(self):
        """The bias, in float32."""
        return self._weight_bias()[1]

    def __repr__(self):
        return f"{self._get_name()}({self.extra_repr()})"


class Linear(SparseLinear):
    """A linear map of quantized tensors with a sparse qint8 weight."""

    _WORDS = "Sparse Quantized Linear"

    def __init__(self, in_features, out_features, row_block_size, col_block_size, bias=True, dtype=None):
        super().__init__(in_features, out_features, row_block_size, col_block_size, bias, dtype)
        self.scale, self.zero_point = 1.0, 0

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The quantized form of an observed nn.Linear that a sparsifier has squashed, and that has kept its blocks."""
        if type(mod) is not cls._FLOAT_MODULE:
            raise AssertionError(f"{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__}")
        if not hasattr(mod, "sparse_params"):
            raise AssertionError(
                "Expecting the Linear to have `sparse_params`. Make sure you have provided arguments in the "
                '`sparsifier.squash_mask(params_to_save=("sparse_block_shape",))` method.'
            )
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined")
        blocks = mod.sparse_params["sparse_block_shape"]
        scale, zero_point = mod.activation_post_process.calculate_qparams()
        made = cls._of_float(mod, mod.qconfig.weight(), blocks)
        made.scale, made.zero_point = float(scale), int(zero_point)
        return made

    def forward(self, x):
        values = self._packed_params.products(x)
        return functional._requantized(values, self.scale, self.zero_point, x.dtype)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = _C.tensor(self.scale)
        destination[prefix + "zero_point"] = _C.tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _get_name(self):
        return "SparseQuantizedLinear"

    def extra_repr(self):
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale}, "
            f"zero_point={self.zero_point}, qscheme={self.weight().qscheme()}"
        )
