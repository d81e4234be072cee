"""Recurrent layers with quantized weights. The input and the state are quantized as they come, by their own range."""

from mica import _C
from mica import nn as float_nn
from mica.ao.nn.quantized import functional
from mica.ao.nn.quantized.layers import observed_weight
from mica.nn import Module
from mica.nn import functional as F
from mica.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "RNNCell"]

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def weight_observer(module):
    """The function that makes the observer of a module's weights: that of its qconfig, or else one with a single scale."""
    from mica.ao.quantization.defaults import default_weight_observer

    given = getattr(getattr(module, "qconfig", None), "weight", None)
    return default_weight_observer if given is None else given


def dtype_of_weights(module, dtype=None):
    """The dtype that the weights of a module's dynamic form are to have: the one that is asked for, or the qconfig's."""
    return weight_observer(module)().dtype if dtype is None else dtype


def quantized_rows(weight, dtype, module=None):
    """A weight of float32 in the form that is kept: float16, or qint8 with the scales that the module's observer finds."""
    if dtype == _C.float16:
        return weight.detach().half()
    if not weight.numel():
        return _C.quantize_per_tensor(weight.detach().float(), 1.0, 0, _C.qint8)
    return observed_weight(weight.detach().float(), weight_observer(module)())


def product(x, weight, bias, reduce_range=False):
    """x @ weight^T + bias, of integers where the weight is quantized; of 7 bits if the input's range is reduced."""
    if not weight.is_quantized:
        return F.linear(x, weight.float(), bias)
    if x.numel() == 0:
        return x.new_zeros(*x.shape[:-1], weight.shape[0]) + (0 if bias is None else bias)
    return functional.linear(_C.quantize_per_tensor_dynamic(x, _C.quint8, reduce_range), weight, bias)


def step(mode, gates, state, weight, bias):
    """The next state, (h,) or (h, c), from the input's part of the gates."""
    own = product(state[0], weight, bias)
    if mode == "LSTM":
        i, f, g, o = (gates + own).chunk(4, -1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    if mode == "GRU":
        (r, z, n), (own_r, own_z, own_n) = gates.chunk(3, -1), own.chunk(3, -1)
        r, z = (r + own_r).sigmoid(), (z + own_z).sigmoid()
        n = (n + r * own_n).tanh()
        return ((1 - z) * n + z * state[0],)
    return ((gates + own).tanh() if mode == "RNN_TANH" else (gates + own).relu(),)


class _WithWeights(Module):
    """Weights and biases by the names of the float layer's parameters."""

    def _take(self, names, shapes, dtype):
        if dtype not in (_C.qint8, _C.float16):
            raise RuntimeError(f"Unsupported dtype: {dtype}; qint8 and float16 are there")
        self.dtype = dtype
        self._kept = {
            name: quantized_rows(_C.zeros(shape), dtype) if name.startswith("weight") else _C.zeros(shape)
            for name, shape in zip(names, shapes, strict=True)
        }

    def _take_from(self, module):
        for name in self._kept:
            given = getattr(module, name).detach()
            is_weight = name.startswith("weight")
            self._kept[name] = quantized_rows(given, self.dtype, module) if is_weight else given.clone()
        return self

    def get_weight(self):
        """The quantized weights, by name."""
        return {name: value for name, value in self._kept.items() if name.startswith("weight")}

    def get_bias(self):
        """The biases, by name."""
        return {name: value for name, value in self._kept.items() if name.startswith("bias")}

    def set_weight_bias(self, weight_bias_dict):
        """Other weights and biases: a dict by the same names."""
        for name, value in weight_bias_dict.items():
            if name not in self._kept or value.shape != self._kept[name].shape:
                raise RuntimeError(f"{type(self).__name__} has no {name} of shape {tuple(value.shape)}")
            if name.startswith("weight") and self.dtype == _C.qint8 and not value.is_quantized:
                raise TypeError(f"{name} is a quantized tensor, got {value.dtype}")
        self._kept.update(weight_bias_dict)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.update({prefix + name: value for name, value in self._kept.items()})

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        found = {name: state_dict.pop(prefix + name) for name in self._kept if prefix + name in state_dict}
        missing.extend(prefix + name for name in self._kept if name not in found)
        self.set_weight_bias(found)
        super()._load_from_state_dict(state_dict, prefix, metadata, False, missing, unexpected, errors)

    def _get_name(self):
        return f"DynamicQuantized{type(self).__name__}"


class _Layers(_WithWeights):
    """The base of LSTM and GRU."""

    _mode = ""

    def __init__(
        self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False,
        dtype=None,
    ):  # fmt: skip
        super().__init__()
        float_nn.modules.rnn.RNNBase(  # its checks of the options
            self._mode, 1, 1, num_layers, bias, batch_first, dropout, bidirectional
        )
        self.mode, self.input_size, self.hidden_size, self.num_layers = self._mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        names, shapes, rows = [], [], GATES[self._mode] * hidden_size
        for layer in range(num_layers):
            features = input_size if layer == 0 else hidden_size * (2 if bidirectional else 1)
            for suffix in self._suffixes(layer):
                names += [f"weight_ih{suffix}", f"weight_hh{suffix}"]
                shapes += [(rows, features), (rows, hidden_size)]
                if bias:
                    names += [f"bias_ih{suffix}", f"bias_hh{suffix}"]
                    shapes += [(rows,), (rows,)]
        self._take(names, shapes, _C.qint8 if dtype is None else dtype)

    def _suffixes(self, layer):
        return [f"_l{layer}", f"_l{layer}_reverse"][: 2 if self.bidirectional else 1]

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False, dtype=None):
        """The quantized form of a float layer."""
        if getattr(mod, "proj_size", 0):
            raise NotImplementedError(f"quantized {cls.__name__}: proj_size is not there")
        made = cls(
            mod.input_size, mod.hidden_size, mod.num_layers, mod.bias, mod.batch_first, mod.dropout, mod.bidirectional,
            dtype_of_weights(mod, dtype),
        )  # fmt: skip
        return made._take_from(mod).train(mod.training)

    def _direction(self, x, sizes, suffix, state):
        """One layer in one direction over steps of so many rows: its outputs, and the last state of each row."""
        get = self._kept.get
        gates = product(x, get(f"weight_ih{suffix}"), get(f"bias_ih{suffix}")).split(sizes)
        outputs = [None] * len(sizes)
        order = range(len(sizes))
        for t in reversed(order) if suffix.endswith("reverse") else order:
            n = sizes[t]
            rows = tuple(s[:n] for s in state)
            new = step(self._mode, gates[t], rows, get(f"weight_hh{suffix}"), get(f"bias_hh{suffix}"))
            state = new if n == len(state[0]) else tuple(_C.cat([a, s[n:]]) for a, s in zip(new, state, strict=True))
            outputs[t] = new[0]
        return _C.cat(outputs), state

    def _run(self, x, sizes, states):
        """All layers. `states` is (h,) or (h, c), each (layers * directions, rows, features)."""
        last, number = [], 0
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = F.dropout(x, self.dropout)
            made = []
            for suffix in self._suffixes(layer):
                output, state = self._direction(x, sizes, suffix, tuple(s[number] for s in states))
                made.append(output)
                last.append(state)
                number += 1
            x = _C.cat(made, -1)
        return x, tuple(_C.stack(parts) for parts in zip(*last, strict=True))

    def _states(self, hx, rows, like):
        count = 2 if self._mode == "LSTM" else 1
        shape = (self.num_layers * (2 if self.bidirectional else 1), rows, self.hidden_size)
        if hx is None:
            return (_C.zeros(shape, dtype=like.dtype),) * count
        given = tuple(hx) if self._mode == "LSTM" else (hx,)
        for state in given:
            if tuple(state.shape) != shape:
                raise RuntimeError(f"Expected hidden size {shape}, got {tuple(state.shape)}")
        return given

    def forward(self, input, hx=None):
        if isinstance(input, PackedSequence):
            data, batch_sizes, order, back = input
            sizes = batch_sizes.tolist()
            states = self._states(hx, sizes[0], data)
            if order is not None:
                states = tuple(s.index_select(1, order) for s in states)
            output, last = self._run(data, sizes, states)
            if back is not None:
                last = tuple(s.index_select(1, back) for s in last)
            return PackedSequence(output, batch_sizes, order, back), self._hidden(last)
        if input.dim() not in (2, 3):
            raise ValueError(f"{self._mode}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}"
            )
        single = input.dim() == 2
        x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
        steps, rows = x.shape[:2]
        if steps == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        if single and hx is not None:
            hx = tuple(h.unsqueeze(1) for h in hx) if self._mode == "LSTM" else hx.unsqueeze(1)
        output, last = self._run(x.reshape(steps * rows, -1), [rows] * steps, self._states(hx, rows, x))
        output = output.reshape(steps, rows, -1)
        if single:
            return output.squeeze(1), self._hidden(tuple(s.squeeze(1) for s in last))
        return output.transpose(0, 1) if self.batch_first else output, self._hidden(last)

    def _hidden(self, last):
        return last if self._mode == "LSTM" else last[0]

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (
            ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0), ("bidirectional", False),
        ):  # fmt: skip
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        return text


class LSTM(_Layers):
    """nn.LSTM with qint8 (or float16) weights."""

    _mode = "LSTM"


class GRU(_Layers):
    """nn.GRU with qint8 (or float16) weights."""

    _mode = "GRU"


class _Cell(_WithWeights):
    """One step of a recurrent layer."""

    _mode = ""

    def __init__(self, input_size, hidden_size, bias=True, dtype=None):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = GATES[self._mode or "RNN_TANH"] * hidden_size
        names, shapes = ["weight_ih", "weight_hh"], [(rows, input_size), (rows, hidden_size)]
        self._take(
            names + ["bias_ih", "bias_hh"] * bias,
            shapes + [(rows,), (rows,)] * bias,
            _C.qint8 if dtype is None else dtype,
        )

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False, dtype=None):
        """The quantized form of a float cell."""
        more = {"nonlinearity": mod.nonlinearity} if hasattr(mod, "nonlinearity") else {}
        return cls(mod.input_size, mod.hidden_size, mod.bias, dtype=dtype_of_weights(mod, dtype), **more)._take_from(
            mod
        )

    def _step(self, input, states):
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]}, expected {self.input_size}")
        zeros = _C.zeros(*input.shape[:-1], self.hidden_size, dtype=input.dtype)
        states = tuple(zeros if s is None else s for s in states)
        get = self._kept.get
        gates = product(input, get("weight_ih"), get("bias_ih"))
        return step(self._mode, gates, states, get("weight_hh"), get("bias_hh"))

    def forward(self, input, hx=None):
        return self._step(input, (hx,))[0]

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class LSTMCell(_Cell):
    """nn.LSTMCell with qint8 (or float16) weights."""

    _mode = "LSTM"

    def forward(self, input, hx=None):
        return self._step(input, (None, None) if hx is None else hx)


class GRUCell(_Cell):
    """nn.GRUCell with qint8 (or float16) weights."""

    _mode = "GRU"


class RNNCell(_Cell):
    """nn.RNNCell with qint8 (or float16) weights."""

    _mode = "RNN_TANH"

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", dtype=None):
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        super().__init__(input_size, hidden_size, bias, dtype)
        self.nonlinearity, self._mode = nonlinearity, f"RNN_{nonlinearity.upper()}"
