"""Recurrent layers over whole sequences; their cells for one step at a time are in _rnn_cells.py."""

import math
import numbers
import warnings
import weakref

import mica

from .. import init
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from ._rnn_cells import GRUCell, LSTMCell, RNNCell, RNNCellBase
from .module import Module

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

for _class in (RNNCellBase, RNNCell, LSTMCell, GRUCell):
    _class.__module__ = __name__  # as pickles know it

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _apply_permutation(tensor, permutation, dim=1):
    return tensor.index_select(dim, permutation)


def apply_permutation(tensor, permutation, dim=1):
    """The rows of a state in another order. Deprecated: use index_select."""
    warnings.warn(
        "`apply_permutation` is deprecated, please use `tensor.index_select(dim, permutation)` instead",
        FutureWarning,
        stacklevel=2,
    )
    return _apply_permutation(tensor, permutation, dim)


def _check_arguments(input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size):
    if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )
    for name, value in (("bias", bias), ("batch_first", batch_first)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size)):
        if not isinstance(value, int):
            raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero, but got {value}")
    if num_layers <= 0:
        raise ValueError(f"num_layers must be greater than zero, but got {num_layers}")
    if proj_size < 0:
        raise ValueError(f"proj_size should be a positive integer or zero to disable projections, but got {proj_size}")
    if proj_size >= hidden_size:
        raise ValueError(f"proj_size has to be smaller than hidden_size, but {proj_size} is not below {hidden_size}")


class RNNBase(Module):
    """What RNN, LSTM and GRU share: the parameters of all layers and directions, and checks of inputs and states."""

    __constants__ = [
        "mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
        "proj_size",
    ]  # fmt: skip
    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int

    def __init__(
        self,
        mode,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        _check_arguments(input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._flat_weight_refs = []
        self._flat_weights_names = []
        self._all_weights = []
        rows, state = _GATES[mode] * hidden_size, proj_size or hidden_size
        directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            features = input_size if layer == 0 else state * directions
            shapes = {"weight_ih": (rows, features), "weight_hh": (rows, state)}
            if bias:
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
            if proj_size > 0:
                shapes["weight_hr"] = (proj_size, hidden_size)
            for suffix in ("", "_reverse")[:directions]:
                names = [f"{name}_l{layer}{suffix}" for name in shapes]
                for name, shape in zip(names, shapes.values(), strict=True):
                    setattr(self, name, Parameter(mica.empty(shape, device=device, dtype=dtype)))
                self._flat_weights_names.extend(names)
                self._all_weights.append(names)
        self._init_flat_weights()
        self.reset_parameters()

    def _init_flat_weights(self):
        self._flat_weights = [getattr(self, name, None) for name in self._flat_weights_names]
        self._flat_weight_refs = [None if w is None else weakref.ref(w) for w in self._flat_weights]
        self.flatten_parameters()

    def __setattr__(self, attr, value):
        names = self.__dict__.get("_flat_weights_names")
        if names is not None and attr in names and "_flat_weights" in self.__dict__:
            self._flat_weights[names.index(attr)] = value
        super().__setattr__(attr, value)

    def flatten_parameters(self):
        """Does nothing: the kernels take the parameters wherever they lie."""

    def _apply(self, fn, recurse=True):
        self._flat_weight_refs = []
        result = super()._apply(fn, recurse)
        self._init_flat_weights()
        return result

    def reset_parameters(self):
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def check_input(self, input, batch_sizes):
        weight = self._flat_weights[0]
        if input.dtype != weight.dtype and not mica.is_autocast_enabled(input.device.type):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        expected = 3 if batch_sizes is None else 2
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if input.size(-1) != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}. The last "
                "dimension holds the features; where the batch comes first, say batch_first=True."
            )

    def _expected_state_size(self, input, batch_sizes, width):
        batch = input.size(0 if self.batch_first else 1) if batch_sizes is None else int(batch_sizes[0])
        return (self.num_layers * (2 if self.bidirectional else 1), batch, width)

    def get_expected_hidden_size(self, input, batch_sizes):
        return self._expected_state_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def check_hidden_size(self, hx, expected_hidden_size, msg="Expected hidden size {}, got {}"):
        if hx.size() != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input, hidden, batch_sizes):
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx, permutation):
        return hx if permutation is None else _apply_permutation(hx, permutation)

    def _zero_state(self, input, batch_sizes, width):
        # A mini-batch whose size is a tensor is a packed one.
        sizes = self._expected_state_size(input, batch_sizes, width)
        return mica.zeros(sizes, dtype=input.dtype, device=input.device)

    def _weights_have_changed(self):
        for ref, name in zip(self._flat_weight_refs, self._flat_weights_names, strict=True):
            weight = getattr(self, name, None)
            if weight is not None and ref is not None and ref() is not weight:
                return True
        return False

    def _update_flat_weights(self):
        if self._weights_have_changed():
            self._init_flat_weights()

    def _weights(self):
        """The weights and biases that a call computes with."""
        return self._flat_weights

    def _run(self, function, input, hx, batch_sizes):
        sizes = () if batch_sizes is None else (batch_sizes,)
        order = () if batch_sizes is not None else (self.batch_first,)
        return function(
            input, *sizes, hx, self._weights(), self.bias, self.num_layers, self.dropout, self.training,
            self.bidirectional, *order,
        )  # fmt: skip

    def _forward_one_state(self, function, input, hx, wrong_dim):
        self._update_flat_weights()
        packed = input if isinstance(input, PackedSequence) else None
        batch_sizes = sorted_indices = unsorted_indices = None
        is_batched, batch_dim = True, 0 if self.batch_first else 1
        if packed is not None:
            input, batch_sizes, sorted_indices, unsorted_indices = packed
        else:
            if input.dim() not in (2, 3):
                raise ValueError(wrong_dim.format(input.dim()))
            is_batched = input.dim() == 3
            if hx is not None and hx.dim() != input.dim():
                kind = "batched 3-D" if is_batched else "unbatched 2-D"
                raise RuntimeError(f"For {kind} input, hx should also be {input.dim()}-D but got {hx.dim()}-D tensor")
            if not is_batched:
                input = input.unsqueeze(batch_dim)
                hx = None if hx is None else hx.unsqueeze(1)
        if hx is None:
            hx = self._zero_state(input, batch_sizes, self.hidden_size)
        else:
            hx = self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(input, hx, batch_sizes)
        output, hidden = self._run(function, input, hx, batch_sizes)
        if packed is not None:
            output = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        elif not is_batched:
            output, hidden = output.squeeze(batch_dim), hidden.squeeze(1)
        return output, self.permute_hidden(hidden, unsorted_indices)

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False,
        }  # fmt: skip
        for name, value in usual.items():
            if getattr(self, name) != value:
                text += f", {name}={getattr(self, name)}"
        return text

    def __getstate__(self):
        self._update_flat_weights()
        state = self.__dict__.copy()
        del state["_flat_weight_refs"]
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        if "proj_size" not in state:  # written before projections existed
            self.proj_size = 0
        self._flat_weight_refs = [None if w is None else weakref.ref(w) for w in self._flat_weights]

    @property
    def all_weights(self):
        return [[getattr(self, name) for name in names] for names in self._all_weights]


class RNN(RNNBase):
    """Elman layers: the next state is tanh or relu of a linear function of the input and the state before.

    `nonlinearity` is "tanh" or "relu"; the other arguments are those of LSTM without `proj_size`. A call takes the input
    and, if wanted, the first state, and returns the output of all steps and the last state.
    """

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_" + nonlinearity.upper(), *args, **kwargs)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        function = mica.rnn_tanh if self.mode == "RNN_TANH" else mica.rnn_relu
        return self._forward_one_state(
            function, input, hx, "RNN: Expected input to be 2D or 3D, got {}D tensor instead"
        )


class GRU(RNNBase):
    """Gated recurrent units: a reset and an update gate decide what is kept of the state before.

    The arguments are those of LSTM without `proj_size`. A call takes the input and, if wanted, the first state, and
    returns the output of all steps and the last state.
    """

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input, hx=None):
        return self._forward_one_state(mica.gru, input, hx, "GRU: Expected input to be 2D or 3D, got {}D instead")


class LSTM(RNNBase):
    """Long short-term memory: a cell state beside the hidden one, changed through input, forget and output gates.

    Args:
        input_size: the number of features of the input
        hidden_size: the number of features of the state
        num_layers: how many layers run one after the other
        bias: whether the layers have biases
        batch_first: whether input and output are (batch, time, features) and not (time, batch, features)
        dropout: the probability of a zero between two layers, in training
        bidirectional: whether a second layer of each runs from the end, so that the output has twice as many features
        proj_size: the size that the hidden state is projected to; 0 leaves it as it is
        device, dtype: of the parameters

    A call takes the input and, if wanted, the first states (h, c), each (layers * directions, batch, features). It
    returns the output of all steps, and the last states (h, c).

    Example::

        lstm = nn.LSTM(10, 20, num_layers=2, batch_first=True)
        output, (h, c) = lstm(torch.randn(3, 5, 10))
        output.shape, h.shape  # (3, 5, 20), (2, 3, 20)
    """

    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input, batch_sizes):
        return self._expected_state_size(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input, hidden, batch_sizes):
        self.check_input(input, batch_sizes)
        self.check_hidden_size(
            hidden[0], self.get_expected_hidden_size(input, batch_sizes), "Expected hidden[0] size {}, got {}"
        )
        self.check_hidden_size(
            hidden[1], self.get_expected_cell_size(input, batch_sizes), "Expected hidden[1] size {}, got {}"
        )

    def permute_hidden(self, hx, permutation):
        return hx if permutation is None else tuple(_apply_permutation(x, permutation) for x in hx)

    def forward(self, input, hx=None):
        self._update_flat_weights()
        packed = input if isinstance(input, PackedSequence) else None
        batch_sizes = sorted_indices = unsorted_indices = None
        is_batched, batch_dim = True, 0 if self.batch_first else 1
        if packed is not None:
            input, batch_sizes, sorted_indices, unsorted_indices = packed
        else:
            if input.dim() not in (2, 3):
                raise ValueError(f"LSTM: Expected input to be 2D or 3D, got {input.dim()}D instead")
            is_batched = input.dim() == 3
            if hx is not None and (hx[0].dim() != input.dim() or hx[1].dim() != input.dim()):
                kind = "batched 3-D" if is_batched else "unbatched 2-D"
                raise RuntimeError(
                    f"For {kind} input, hx and cx should also be {input.dim()}-D but got "
                    f"({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
                )
            if not is_batched:
                input = input.unsqueeze(batch_dim)
                hx = None if hx is None else tuple(x.unsqueeze(1) for x in hx)
        if hx is None:
            widths = (self.proj_size or self.hidden_size, self.hidden_size)
            hx = tuple(self._zero_state(input, batch_sizes, width) for width in widths)
        else:
            hx = self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(input, hx, batch_sizes)
        output, *hidden = self._run(mica.lstm, input, hx, batch_sizes)
        if packed is not None:
            output = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        elif not is_batched:
            output, hidden = output.squeeze(batch_dim), [x.squeeze(1) for x in hidden]
        return output, self.permute_hidden(tuple(hidden), unsorted_indices)
