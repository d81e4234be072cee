"""Linear maps with sparse qint8 weights that take float32 and quantize it as it comes."""

from mica import _C
from mica.ao.nn import intrinsic as nni
from mica.ao.nn.sparse.quantized.linear import SparseLinear
from mica.ao.nn.sparse.quantized.utils import LinearBlockSparsePattern

__all__ = ["Linear"]


class Linear(SparseLinear):
    """A linear map with a sparse qint8 weight; the input's scale is found at every call."""

    _op_type = "sparse_dynamic"
    _WORDS = "Sparse Quantized Linear Dynamic"

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The dynamically quantized form of an nn.Linear with a qconfig; LinearBlockSparsePattern says its blocks."""
        if type(mod) is not cls._FLOAT_MODULE and type(mod) is not nni.LinearReLU:
            raise AssertionError(f" nnq.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__}")
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined")
        observer = mod.qconfig.weight()
        mod = mod[0] if type(mod) is nni.LinearReLU else mod
        return cls._of_float(mod, observer, LinearBlockSparsePattern.block_size())

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
