"""Sums and products as modules, which can be observed and quantized; and where numbers become quantized or float32."""

from mica import _C
from mica.nn import Identity, Module

__all__ = ["DeQuantize", "FXFloatFunctional", "FloatFunctional", "QFunctional", "Quantize"]


class FloatFunctional(Module):
    """Sums and products that are to be observed."""

    def __init__(self):
        super().__init__()
        self.activation_post_process = Identity()  # an observer takes its place

    def forward(self, x):
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x, y):
        """x + y"""
        return self._observed(_C.add(x, y))

    def add_scalar(self, x, y):
        """x + y with a number y"""
        return _C.add(x, y)

    def mul(self, x, y):
        """x * y"""
        return self._observed(_C.mul(x, y))

    def mul_scalar(self, x, y):
        """x * y with a number y"""
        return _C.mul(x, y)

    def cat(self, x, dim=0):
        """The tensors joined."""
        return self._observed(_C.cat(x, dim))

    def add_relu(self, x, y):
        """relu(x + y)"""
        return self._observed(_C.add(x, y).relu())

    def matmul(self, x, y):
        """x @ y"""
        return self._observed(_C.matmul(x, y))

    def _observed(self, x):
        observer = getattr(self, "activation_post_process", None)
        return x if observer is None else observer(x)


class FXFloatFunctional(FloatFunctional):
    """FloatFunctional without observers."""

    def __init__(self):
        Module.__init__(self)

    def _observed(self, x):
        return x


class QFunctional(Module):
    """Sums and products of quantized tensors, quantized again."""

    def __init__(self, scale=1.0, zero_point=0):
        super().__init__()
        self.scale, self.zero_point = float(scale), int(zero_point)
        self.activation_post_process = Identity()

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """What an observed FloatFunctional becomes."""
        return cls(*mod.activation_post_process.calculate_qparams())

    def forward(self, x):
        raise RuntimeError("Functional is not intended to use the 'forward'. Please use the underlying operation")

    def _again(self, x, like):
        return _C.quantize_per_tensor(x, self.scale, self.zero_point, like.dtype)

    def add(self, x, y):
        """x + y"""
        return self._again(x.dequantize() + y.dequantize(), x)

    def add_scalar(self, x, y):
        """x + y with a number y, in the scale of x"""
        return _alike(x.dequantize() + y, x)

    def add_relu(self, x, y):
        """relu(x + y)"""
        return self._again((x.dequantize() + y.dequantize()).relu(), x)

    def mul(self, x, y):
        """x * y"""
        return self._again(x.dequantize() * y.dequantize(), x)

    def mul_scalar(self, x, y):
        """x * y with a number y: the scale is multiplied"""
        if y == 0:
            return _alike(x.dequantize() * 0.0, x)
        if y > 0:
            return _C._make_per_tensor_quantized_tensor(x.int_repr(), x.q_scale() * y, x.q_zero_point())
        low, high = (0, 255) if x.dtype == _C.quint8 else (-128, 127)
        return _C.quantize_per_tensor(x.dequantize() * y, x.q_scale() * -y, high + low - x.q_zero_point(), x.dtype)

    def matmul(self, x, y):
        """x @ y"""
        return self._again(x.dequantize() @ y.dequantize(), x)

    def cat(self, x, dim=0):
        """The tensors joined."""
        return self._again(_C.cat([t.dequantize() for t in x], dim), x[0])

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = _C.tensor(self.scale)
        destination[prefix + "zero_point"] = _C.tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, metadata, False, missing, unexpected, errors)

    def extra_repr(self):
        return f"scale={self.scale}, zero_point={self.zero_point}"


def _alike(values, x):
    return _C.quantize_per_tensor(values, x.q_scale(), x.q_zero_point(), x.dtype)


class Quantize(Module):
    """float32 to a quantized tensor, with fixed parameters."""

    def __init__(self, scale, zero_point, dtype):
        super().__init__()
        self.register_buffer("scale", _C.tensor([float(scale)], dtype=_C.float32))
        self.register_buffer("zero_point", _C.tensor([int(zero_point)], dtype=_C.int64))
        self.dtype = dtype

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """What an observed QuantStub becomes."""
        observer = mod.activation_post_process
        return cls(*observer.calculate_qparams(), observer.dtype)

    def forward(self, x):
        return _C.quantize_per_tensor(x, float(self.scale), int(self.zero_point), self.dtype)

    def extra_repr(self):
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(Module):
    """A quantized tensor to float32."""

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """What a DeQuantStub becomes."""
        return cls()

    def forward(self, x):
        return x.dequantize()
