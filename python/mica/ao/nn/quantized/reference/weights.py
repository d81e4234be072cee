"""How a reference layer rounds a weight, and how it keeps the numbers for that."""

from mica import _C
from mica._functions import quantization_schemes as schemes
from mica.nn import Module

__all__ = ["ReferenceQuantizedModule", "check_keys", "keep_numbers", "rounded", "rounded_integers"]

_SCHEMES = (None, schemes.per_tensor_affine, schemes.per_channel_affine, schemes.per_channel_affine_float_qparams)
_INTEGERS = (_C.quint8, _C.qint8, _C.qint32)
_TABLES = (_C.quint8, _C.quint4x2)
_USUAL = {"qscheme": schemes.per_tensor_affine, "dtype": _C.quint8, "scale": 1.0, "zero_point": 0}
_NUMBERS = ("scale", "zero_point", "axis")
_WORDS = ("qscheme", "dtype")


def _as_tensor(value, dtype, device):
    if isinstance(value, _C.Tensor):
        return value.detach().clone() if device is None else value.detach().clone().to(device)
    return _C.tensor(value, dtype=dtype, device=device)


def keep_numbers(module, name, given, device=None):
    """Keep the numbers that quantize the weight `name` of a module: a scheme, a dtype, and buffers of scales and zero
    points."""
    given = _USUAL if given is None else given
    scheme, dtype = given["qscheme"], given["dtype"]
    if scheme not in _SCHEMES:
        raise AssertionError(f"qscheme: {scheme} is not supported in reference quantized {module._get_name()}")
    if given.get("is_decomposed"):
        raise NotImplementedError(
            "weight_qparams: is_decomposed=True asks for weights of torch.ops.quantized_decomposed; "
            "those of quantized tensors are there"
        )
    setattr(module, f"{name}_qscheme", scheme)
    setattr(module, f"{name}_dtype", dtype)
    has_scale = scheme is not None and dtype in (*_INTEGERS, *_TABLES)
    by_row = has_scale and scheme != schemes.per_tensor_affine
    numbers = {
        "scale": _as_tensor(given["scale"] if has_scale else 1.0, _C.float32, device),
        "zero_point": _as_tensor(given["zero_point"] if has_scale else 0, _C.int32, device),
        "axis": _as_tensor(given["axis"] if by_row else 0, _C.int32, device),
    }
    for key, value in numbers.items():
        module.register_buffer(f"{name}_{key}", value)
    setattr(module, f"{name}_axis_int", int(numbers["axis"]))


def rounded_integers(module, name):
    """The weight `name` of a module as the quantized tensor, or the float16 one, that its numbers say."""
    weight, scheme, dtype = (getattr(module, f"{name}{suffix}") for suffix in ("", "_qscheme", "_dtype"))
    scale, zero_point = getattr(module, f"{name}_scale"), getattr(module, f"{name}_zero_point")
    axis = getattr(module, f"{name}_axis_int")
    if dtype == _C.float16:
        return weight.to(dtype)
    if scheme == schemes.per_tensor_affine and dtype in _INTEGERS:
        return _C.quantize_per_tensor(weight.detach(), float(scale), int(zero_point), dtype)
    if scheme == schemes.per_channel_affine and dtype in _INTEGERS:
        return _C.quantize_per_channel(weight.detach(), scale, zero_point.to(_C.int32), axis, dtype)
    if scheme == schemes.per_channel_affine_float_qparams and dtype in _TABLES:
        return _C.quantize_per_channel(weight.detach(), scale, zero_point, axis, dtype)
    raise ValueError(f"Unsupported dtype and qscheme: {dtype}, {scheme}")


def rounded(module, name):
    """The weight rounded as quantization would round it, in float32. A weight without a scheme stays as it is."""
    scheme = getattr(module, f"{name}_qscheme")
    return getattr(module, name) if scheme is None else rounded_integers(module, name).dequantize()


def check_keys(module, given, wanted):
    """Refuse numbers for other weights than a recurrent layer has."""
    if given is not None and {*given} - {"is_decomposed"} != {*wanted}:
        raise AssertionError(
            f"weight_qparams_dict of {module._get_name()} has the keys {sorted(given)}, expected {sorted(wanted)}"
        )


class ReferenceQuantizedModule(Module):
    """A float layer with one weight, which it rounds in each call."""

    def _init_weight_qparams(self, weight_qparams, device):
        self.is_decomposed = False
        keep_numbers(self, "weight", weight_qparams, device)

    def get_weight(self):
        """The weight that the layer computes with: rounded, in float32."""
        return rounded(self, "weight")

    def get_quantized_weight(self):
        """The weight as a quantized tensor."""
        return rounded_integers(self, "weight")

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for word in _WORDS:
            destination[f"{prefix}weight_{word}"] = getattr(self, f"weight_{word}")

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for word in _WORDS:
            if f"{prefix}weight_{word}" in state_dict:
                setattr(self, f"weight_{word}", state_dict.pop(f"{prefix}weight_{word}"))
        for number in _NUMBERS:  # their shapes differ where the scheme differs
            found = state_dict.get(f"{prefix}weight_{number}")
            if found is not None:
                setattr(self, f"weight_{number}", _as_tensor(found, None, getattr(self, f"weight_{number}").device))
        self.weight_axis_int = int(self.weight_axis)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @classmethod
    def from_float(cls, mod, weight_qparams, use_precomputed_fake_quant=False):
        """The reference form of a float layer: its own parameters, with the numbers that quantize the weight."""
        made = cls.__new__(cls)
        Module.__init__(made)
        made.__dict__.update({k: v for k, v in vars(mod).items() if not k.startswith("_") and k != "qconfig"})
        for key in ("_reversed_padding_repeated_twice",):
            if key in vars(mod):
                setattr(made, key, vars(mod)[key])
        for name in ("weight", "bias"):
            kept = mod._parameters.get(name)
            if name in mod._parameters:
                made.register_parameter(name, kept)
        made._init_weight_qparams(weight_qparams, mod.weight.device)
        return made

    def _get_name(self):
        return f"Quantized{type(self).__name__}(Reference)"
