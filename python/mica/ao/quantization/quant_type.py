"""How a module is quantized."""

import enum

from mica import _C

__all__ = ["QuantType", "quant_type_to_str"]


class QuantType(enum.IntEnum):
    """What is quantized and when: activations at every call, activations by observed ranges, during training, or the
    weight alone."""

    DYNAMIC = 0
    STATIC = 1
    QAT = 2
    WEIGHT_ONLY = 3


_TEXTS = {kind: kind.name.lower() for kind in QuantType}


def quant_type_to_str(quant_type):
    """The name of a kind in dictionaries."""
    return _TEXTS[quant_type]


def _quant_type_from_str(name):
    for kind, text in _TEXTS.items():
        if text == name:
            return kind
    raise ValueError(f"Unknown QuantType name '{name}'")


def quant_type_of(qconfig):
    """The kind that a qconfig asks for: by whether it knows the scales of activations before a call, or has none."""
    activation, weight = qconfig.activation(), qconfig.weight()
    if getattr(activation, "is_dynamic", False):
        return QuantType.DYNAMIC
    if activation.dtype != _C.float32:
        return QuantType.STATIC
    if weight.dtype == _C.float32:
        raise ValueError("a qconfig of float32 activations and weights quantizes nothing")
    return QuantType.WEIGHT_ONLY


def mappings_from(kinds):
    """{kind: {class: class}} of the older form, whose kinds are names."""
    return {_quant_type_from_str(name): dict(classes) for name, classes in kinds.items()}


def mappings_as_names(mappings):
    """The older form of {kind: {class: class}}."""
    return {quant_type_to_str(kind): dict(classes) for kind, classes in mappings.items()}
