"""Linear maps with sparse qint8 weights that take float32 and quantize it as it comes."""

from mica import _C, nn
from mica.ao.nn import intrinsic as nni
from mica.ao.nn.sparse.quantized.linear import LinearPackedParams, rounded_weight, without_values
from mica.ao.nn.sparse.quantized.utils import LinearBlockSparsePattern
from mica.nn import Module

__all__ = ["Linear"]


class Linear(Module):
    """A linear map with a sparse qint8 weight; the input's scale is found at every call."""

    _version = 1
    _op_type = "sparse_dynamic"
    _FLOAT_MODULE = nn.Linear

    def __init__(self, in_features, out_features, row_block_size, col_block_size, bias=True, dtype=None):
        super().__init__()
        if dtype not in (None, _C.qint8):
            raise NotImplementedError("Only QINT8 is supported for Sparse Quantized Linear Dynamic")
        self.in_features, self.out_features = in_features, out_features
        self._packed_params = LinearPackedParams(row_block_size, col_block_size)
        self.set_weight_bias(
            without_values(in_features, out_features), _C.zeros(out_features) if bias else None, row_block_size,
            col_block_size,
        )  # fmt: skip

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The dynamically quantized form of an nn.Linear with a qconfig; LinearBlockSparsePattern says its blocks."""
        if type(mod) is not cls._FLOAT_MODULE and type(mod) is not nni.LinearReLU:
            raise AssertionError(f" nnq.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__}")
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined")
        observer = mod.qconfig.weight()
        mod = mod[0] if type(mod) is nni.LinearReLU else mod
        blocks = LinearBlockSparsePattern.block_size()
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

    def forward(self, x):
        return self._packed_params.products(_C.quantize_per_tensor_dynamic(x, _C.quint8, False))

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "op_type"] = self._op_type

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        found = state_dict.pop(prefix + "op_type")
        if found != self._op_type:
            raise AssertionError(f"Cannot load from op_type [{found}], expecting [{self._op_type}]")
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _get_name(self):
        return "SparseQuantizedDynamicLinear"

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, qscheme={self.weight().qscheme()}"

    def __repr__(self):
        return f"{self._get_name()}({self.extra_repr()})"
