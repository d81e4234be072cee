"""LSTM layers made of linear layers, sums, products and activations."""

import numbers
import warnings

from mica import _C, nn
from mica.ao.nn.quantized.functional_modules import FloatFunctional
from mica.nn import Linear, Module, ModuleDict, ModuleList, Parameter

__all__ = ["LSTM", "LSTMCell"]

_GATES = ("input", "forget", "cell", "output")


class LSTMCell(Module):
    """One step of an LSTM. `split_gates` computes the four gates apart, each with a scale of its own."""

    _FLOAT_MODULE = nn.LSTMCell

    def __init__(self, input_dim, hidden_dim, bias=True, device=None, dtype=None, *, split_gates=False):
        super().__init__()
        self.input_size, self.hidden_size = input_dim, hidden_dim
        self.bias, self.split_gates = bias, split_gates
        like = {"bias": bias, "device": device, "dtype": dtype}
        if split_gates:
            self.igates, self.hgates, self.gates = ModuleDict(), ModuleDict(), ModuleDict()
            for gate in _GATES:
                self.igates[gate] = Linear(input_dim, hidden_dim, **like)
                self.hgates[gate] = Linear(hidden_dim, hidden_dim, **like)
                self.gates[gate] = FloatFunctional()
        else:
            self.igates = Linear(input_dim, 4 * hidden_dim, **like)
            self.hgates = Linear(hidden_dim, 4 * hidden_dim, **like)
            self.gates = FloatFunctional()
        self.input_gate, self.forget_gate = nn.Sigmoid(), nn.Sigmoid()
        self.cell_gate, self.output_gate = nn.Tanh(), nn.Sigmoid()
        self.fgate_cx, self.igate_cgate = FloatFunctional(), FloatFunctional()
        self.fgate_cx_igate_cgate, self.ogate_cy = FloatFunctional(), FloatFunctional()
        self.initial_hidden_state_qparams = self.initial_cell_state_qparams = (1.0, 0)
        self.hidden_state_dtype = self.cell_state_dtype = _C.quint8

    def _sums(self, x, hx):
        """What goes into the activations of the four gates."""
        if not self.split_gates:
            return self.gates.add(self.igates(x), self.hgates(hx)).chunk(4, 1)
        return [self.gates[gate].add(self.igates[gate](x), self.hgates[gate](hx)) for gate in _GATES]

    def forward(self, x, hidden=None):
        if hidden is None or hidden[0] is None or hidden[1] is None:
            hidden = self.initialize_hidden(x.shape[0], x.is_quantized)
        hx, cx = hidden
        activations = (self.input_gate, self.forget_gate, self.cell_gate, self.output_gate)
        taken, kept, new, shown = (f(s) for f, s in zip(activations, self._sums(x, hx), strict=True))
        cy = self.fgate_cx_igate_cgate.add(self.fgate_cx.mul(kept, cx), self.igate_cgate.mul(taken, new))
        return self.ogate_cy.mul(shown, cy.tanh()), cy

    def initialize_hidden(self, batch_size, is_quantized=False):
        """(hidden state, cell state) to start with."""
        zeros = _C.zeros(batch_size, self.hidden_size)
        if not is_quantized:
            return zeros, zeros.clone()
        return (
            _C.quantize_per_tensor(zeros, *self.initial_hidden_state_qparams, self.hidden_state_dtype),
            _C.quantize_per_tensor(zeros, *self.initial_cell_state_qparams, self.cell_state_dtype),
        )

    def _get_name(self):
        return "QuantizableLSTMCell"

    @classmethod
    def from_params(cls, wi, wh, bi=None, bh=None, split_gates=False):
        """A cell of given weights and biases, of the input and of the hidden state."""
        if (bi is None) != (bh is None):
            raise AssertionError("bi and bh must both be None or both have values")
        cell = cls(wi.shape[1], wh.shape[1], bi is not None, split_gates=split_gates)
        for linear, weight, bias in ((cell.igates, wi, bi), (cell.hgates, wh, bh)):
            layers = [linear[gate] for gate in _GATES] if split_gates else [linear]
            for name, value in (("weight", weight), ("bias", bias)):
                if value is not None:
                    for layer, part in zip(layers, value.chunk(len(layers), 0), strict=True):
                        setattr(layer, name, Parameter(part))
        return cell

    @classmethod
    def from_float(cls, other, use_precomputed_fake_quant=False, split_gates=False):
        """What an nn.LSTMCell with a qconfig becomes."""
        if type(other) is not cls._FLOAT_MODULE:
            raise AssertionError(f"Expected module type {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig"):
            raise AssertionError("The float module must have 'qconfig'")
        cell = cls.from_params(other.weight_ih, other.weight_hh, other.bias_ih, other.bias_hh, split_gates)
        cell.qconfig = other.qconfig
        for linear in (cell.igates, cell.hgates):
            for part in linear.modules():
                part.qconfig = other.qconfig
        return cell


class _LSTMSingleLayer(Module):
    """A cell over a sequence."""

    def __init__(self, input_dim, hidden_dim, bias=True, device=None, dtype=None, *, split_gates=False):
        super().__init__()
        self.cell = LSTMCell(input_dim, hidden_dim, bias, device, dtype, split_gates=split_gates)

    def forward(self, x, hidden=None):
        shown = []
        for i in range(x.shape[0]):
            hidden = self.cell(x[i], hidden)
            shown.append(hidden[0])
        return _C.stack(shown, 0), hidden

    @classmethod
    def from_params(cls, *args, **kwargs):
        """A layer whose cell has given weights."""
        cell = LSTMCell.from_params(*args, **kwargs)
        layer = cls(cell.input_size, cell.hidden_size, cell.bias, split_gates=cell.split_gates)
        layer.cell = cell
        return layer


class _LSTMLayer(Module):
    """A sequence forwards and, in a bidirectional layer, backwards."""

    def __init__(
        self, input_dim, hidden_dim, bias=True, batch_first=False, bidirectional=False, device=None, dtype=None,
        *, split_gates=False,
    ):  # fmt: skip
        super().__init__()
        self.batch_first, self.bidirectional = batch_first, bidirectional
        self.layer_fw = _LSTMSingleLayer(input_dim, hidden_dim, bias, device, dtype, split_gates=split_gates)
        if bidirectional:
            self.layer_bw = _LSTMSingleLayer(input_dim, hidden_dim, bias, device, dtype, split_gates=split_gates)

    def forward(self, x, hidden=None):
        x = x.transpose(0, 1) if self.batch_first else x
        hx, cx = (None, None) if hidden is None else hidden
        if self.bidirectional:
            first, second = ([None if t is None else t[i] for t in (hx, cx)] for i in (0, 1))
            there, state = self.layer_fw(x, first)
            back, last = self.layer_bw(x.flip(0), second)
            result = _C.cat([there, back.flip(0)], there.dim() - 1)
            state = tuple(_C.stack([a, b], 0) for a, b in zip(state, last, strict=True))
        else:
            result, state = self.layer_fw(x, (hx, cx))
        return result.transpose(0, 1) if self.batch_first else result, state

    @classmethod
    def from_float(cls, other, layer_idx=0, qconfig=None, **kwargs):
        """Layer `layer_idx` of an nn.LSTM."""
        if not hasattr(other, "qconfig") and qconfig is None:
            raise AssertionError("other must have qconfig or qconfig must be provided")
        options = {
            name: kwargs.get(name, getattr(other, name))
            for name in ("input_size", "hidden_size", "bias", "batch_first", "bidirectional")
        }
        split_gates = kwargs.get("split_gates", False)
        layer = cls(*options.values(), split_gates=split_gates)
        layer.qconfig = getattr(other, "qconfig", qconfig)
        for name, suffix in (("layer_fw", ""), ("layer_bw", "_reverse"))[: 2 if other.bidirectional else 1]:
            params = (
                getattr(other, f"{kind}_l{layer_idx}{suffix}", None)
                for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            setattr(layer, name, _LSTMSingleLayer.from_params(*params, split_gates=split_gates))
        return layer


class LSTM(Module):
    """nn.LSTM of such layers. The weights are those of `layers[i].layer_fw.cell` and `layer_bw.cell`."""

    _FLOAT_MODULE = nn.LSTM

    def __init__(
        self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False,
        device=None, dtype=None, *, split_gates=False,
    ):  # fmt: skip
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        self.dropout = float(dropout)
        self.training = False  # unless the program asks for it
        if dropout > 0:
            warnings.warn(
                "dropout option for quantizable LSTM is ignored. If you are training, please, use nn.LSTM version "
                "followed by `prepare` step.",
                stacklevel=2,
            )
        made = (bias, False, bidirectional, device, dtype)
        wide = hidden_size * (2 if bidirectional else 1)
        self.layers = ModuleList(
            _LSTMLayer(wide if i else input_size, hidden_size, *made, split_gates=split_gates)
            for i in range(num_layers)
        )

    def _states(self, x, hidden):
        """(hidden state, cell state) of each layer, with a dimension for the directions of a bidirectional one."""
        directions, batch = 2 if self.bidirectional else 1, x.size(1)
        if hidden is None:
            zeros = _C.zeros(directions, batch, self.hidden_size, dtype=_C.float32, device=x.device).squeeze(0)
            if x.is_quantized:
                zeros = _C.quantize_per_tensor(zeros, 1.0, 0, x.dtype)
            return [(zeros, zeros)] * self.num_layers
        if not isinstance(hidden[0], _C.Tensor):
            return hidden
        shape = (self.num_layers, directions, batch, self.hidden_size)
        hx, cx = (t.reshape(shape) for t in hidden)
        return [(hx[i].squeeze(0), cx[i].squeeze(0)) for i in range(self.num_layers)]

    def forward(self, x, hidden=None):
        x = x.transpose(0, 1) if self.batch_first else x
        states = self._states(x, hidden)
        ends = []
        for layer, state in zip(self.layers, states, strict=True):
            x, end = layer(x, state)
            ends.append(end)
        last = (_C.stack(list(parts)) for parts in zip(*ends, strict=True))
        last = tuple(t.reshape(-1, t.shape[-2], t.shape[-1]) for t in last)  # the directions of all layers in a row
        return x.transpose(0, 1) if self.batch_first else x, last

    def _get_name(self):
        return "QuantizableLSTM"

    @classmethod
    def from_float(cls, other, qconfig=None, split_gates=False):
        """What an nn.LSTM with a qconfig becomes: its parts have observers."""
        if not isinstance(other, cls._FLOAT_MODULE):
            raise AssertionError(f"Expected module type {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig") and not qconfig:
            raise AssertionError("other must have qconfig or qconfig must be provided")
        if other.proj_size:
            raise NotImplementedError(
                f"quantizable.LSTM has no projection of the hidden state (proj_size={other.proj_size})"
            )
        with warnings.catch_warnings():  # the program has seen nn.LSTM's warning about dropout
            warnings.simplefilter("ignore")
            observed = cls(
                other.input_size, other.hidden_size, other.num_layers, other.bias, other.batch_first, other.dropout,
                other.bidirectional, split_gates=split_gates,
            )  # fmt: skip
        observed.qconfig = getattr(other, "qconfig", qconfig)
        for i in range(other.num_layers):
            observed.layers[i] = _LSTMLayer.from_float(other, i, qconfig, batch_first=False, split_gates=split_gates)
        import mica  # the flow of quantization imports the modules that it makes

        flow = mica.ao.quantization
        return (flow.prepare_qat if other.training else flow.prepare)(observed.train(other.training), inplace=True)

    @classmethod
    def from_observed(cls, other):
        raise NotImplementedError(
            "It looks like you are trying to convert a non-quantizable LSTM module. Please, see the examples on "
            "quantizable LSTMs."
        )
