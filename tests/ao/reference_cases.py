"""Reference layers as functions of a library that speaks torch; what they compute is recorded."""

import importlib
import math


def _filled(module, seed):
    """A module whose parameters are small fractions in a fixed order."""
    t = importlib.import_module(type(module).__module__.split(".")[0])
    for place, parameter in enumerate(module.parameters()):
        steps = t.arange(parameter.numel()) * 37 + seed * 11 + place * 5
        with t.no_grad():
            parameter.copy_((steps % 23 - 11).reshape(parameter.shape) / 17)
    return module


def _input(t, *sizes):
    return (t.arange(math.prod(sizes)) * 29 % 19 - 9).reshape(sizes) / 7


def _numbers(t, way):
    return {
        "tensor": {"qscheme": t.per_tensor_affine, "dtype": t.qint8, "scale": 0.1, "zero_point": 3},
        "rows": {
            "qscheme": t.per_channel_affine, "dtype": t.qint8, "scale": t.arange(1, 5) / 20, "zero_point": t.arange(4),
            "axis": 0,
        },
        "float16": {"qscheme": t.per_tensor_affine, "dtype": t.float16},
        "usual": None,
    }[way]  # fmt: skip


# name -> (the layer's arguments, the sizes of its input)
LAYERS = {
    "Linear": ((3, 4), (2, 3)),
    "Conv1d": ((3, 4, 2), (1, 3, 4)),
    "Conv2d": ((3, 4, 2), (1, 3, 3, 3)),
    "Conv3d": ((2, 4, 2), (1, 2, 3, 3, 2)),
    "ConvTranspose1d": ((4, 3, 2), (1, 4, 3)),
    "ConvTranspose2d": ((4, 3, 2, 2), (1, 4, 2, 2)),
    "ConvTranspose3d": ((4, 2, 2), (1, 4, 1, 2, 2)),
    "Embedding": ((4, 3), None),
    "EmbeddingBag": ((4, 3), None),
}
WAYS = ("tensor", "rows", "float16", "usual")
# name -> (the layer's arguments, its options, the sizes of its input)
RECURRENT = {
    "LSTM": ((3, 2, 2), {"bidirectional": True}, (3, 2, 3)),
    "GRU": ((3, 2), {}, (3, 2, 3)),
    "LSTMCell": ((3, 2), {}, (2, 3)),
    "GRUCell": ((3, 2), {}, (2, 3)),
    "RNNCell": ((3, 2), {"nonlinearity": "relu"}, (2, 3)),
}


def _reference(t):
    return importlib.import_module(f"{t.__name__}.ao.nn.quantized.reference")


def _described(module, result):
    result = result[0] if isinstance(result, tuple) else result
    return {"text": repr(module), "keys": list(module.state_dict()), "values": result.detach().reshape(-1).tolist()}


def layer(t, name, way):
    """A reference layer and its input."""
    arguments, sizes = LAYERS[name]
    x = t.tensor([[1, 2], [3, 0]]) if sizes is None else _input(t, *sizes)
    return getattr(_reference(t), name).from_float(_filled(getattr(t.nn, name)(*arguments), 1), _numbers(t, way)), x


def layer_result(t, name, way):
    made, x = layer(t, name, way)
    return _described(made, made(x))


def recurrent_result(t, name):
    arguments, options, sizes = RECURRENT[name]
    plain = _filled(getattr(t.nn, name)(*arguments, **options), 3)
    numbers = {n: _numbers(t, "tensor") for n, _ in plain.named_parameters() if n.startswith("weight")}
    made = getattr(_reference(t), name).from_float(plain, {**numbers, "is_decomposed": False})
    return _described(made, made(_input(t, *sizes)))
