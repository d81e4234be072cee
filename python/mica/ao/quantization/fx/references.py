"""Reference forms of layers, with the numbers that observers of weights find."""

from mica._functions import quantization_schemes as schemes
from mica.ao.nn import intrinsic as nni
from mica.ao.nn.quantized import reference as nnqr
from mica.ao.quantization.observer import PlaceholderObserver

__all__ = ["with_reference"]

# Symmetric schemes are affine ones whose zero point is in the middle.
_AFFINE = {
    schemes.per_tensor_symmetric: schemes.per_tensor_affine,
    schemes.per_channel_symmetric: schemes.per_channel_affine,
}


def _numbers(weight, observer):
    if isinstance(observer, PlaceholderObserver):  # names a dtype, and nothing more
        return {"qscheme": schemes.per_tensor_affine, "dtype": observer.dtype, "scale": 1.0, "zero_point": 0}
    observer(weight.detach())
    made = {"qscheme": _AFFINE.get(observer.qscheme, observer.qscheme), "dtype": observer.dtype}
    made["scale"], made["zero_point"] = observer.calculate_qparams()
    if made["qscheme"] == schemes.per_tensor_affine:
        made["scale"], made["zero_point"] = float(made["scale"]), int(made["zero_point"])
    else:
        made["axis"] = observer.ch_axis
    return made


def with_reference(module, qconfig, kind=None):
    """A module with its layer's reference form in the layer's place, or None where it has none. `kind` is the form's class."""
    observer = getattr(module, "weight_fake_quant", None)
    plain = module.to_float() if observer is not None else module
    layer = plain[0] if isinstance(plain, nni._FusedModule) else plain
    kind = getattr(nnqr, type(layer).__name__, None) if kind is None else kind
    if kind is None or "weight" not in layer._parameters:
        return None
    made = kind.from_float(layer, _numbers(layer.weight, qconfig.weight() if observer is None else observer))
    made.train(layer.training)
    if layer is plain:
        return made
    plain[0] = made
    return plain
