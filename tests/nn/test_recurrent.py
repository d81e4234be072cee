"""Recurrent layers: against the same cell written in operations, gradients of both orders, packing, errors."""

import copy
import pickle

import mica
import pytest
from mica import nn
from mica.autograd import gradcheck, gradgradcheck
from mica.nn.utils.rnn import (
    PackedSequence,
    invert_permutation,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)

KINDS = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}


def one_step(kind, x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr=None, nonlinearity="tanh"):
    a, b = x @ w_ih.t() + b_ih, h @ w_hh.t() + b_hh
    if kind == "GRU":
        (ar, az, an), (br, bz, bn) = a.chunk(3, 1), b.chunk(3, 1)
        z, n = (az + bz).sigmoid(), (an + (ar + br).sigmoid() * bn).tanh()
        return (1 - z) * n + z * h, c
    if kind == "RNN":
        return getattr(a + b, nonlinearity)(), c
    i, f, g, o = (a + b).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return (h if w_hr is None else h @ w_hr.t()), c


def reference(kind, layer, x, lengths=None):
    """A layer run row by row of the batch, in plain operations."""
    steps, batch, _ = x.shape
    lengths = lengths or [steps] * batch
    state, cell = layer.proj_size or layer.hidden_size, layer.hidden_size
    rows = [x[: lengths[i], i] for i in range(batch)]
    last_h, last_c = [], []
    weights = layer.all_weights
    directions = 2 if layer.bidirectional else 1
    for index in range(layer.num_layers):
        made = []
        for direction in range(directions):
            w = list(weights[index * directions + direction])
            hr = w.pop() if layer.proj_size else None
            if not layer.bias:
                w += [mica.zeros(w[0].shape[0], dtype=x.dtype)] * 2
            outputs, hs, cs = [], [], []
            for row in rows:
                h, c = mica.zeros(1, state, dtype=x.dtype), mica.zeros(1, cell, dtype=x.dtype)
                order = range(len(row))[::-1] if direction else range(len(row))
                out = [None] * len(row)
                for t in order:
                    nonlinearity = getattr(layer, "nonlinearity", "tanh")
                    h, c = one_step(kind, row[t : t + 1], h, c, *w, w_hr=hr, nonlinearity=nonlinearity)
                    out[t] = h
                outputs.append(mica.cat(out))
                hs.append(h)
                cs.append(c)
            made.append(outputs)
            last_h.append(mica.cat(hs))
            last_c.append(mica.cat(cs))
        rows = [mica.cat(parts, 1) for parts in zip(*made, strict=True)]
    return rows, mica.stack(last_h), mica.stack(last_c)


CASES = [
    (kind, options)
    for kind in KINDS
    for options in (
        {},
        {"bias": False},
        {"num_layers": 2, "bidirectional": True},
        {"batch_first": True},
        {"bidirectional": True, "batch_first": True},
    )
] + [
    ("RNN", {"nonlinearity": "relu"}),
    ("LSTM", {"proj_size": 3}),
    ("LSTM", {"proj_size": 2, "num_layers": 2, "bidirectional": True}),
]
IDS = [f"{kind}-{'-'.join(f'{k}={v}' for k, v in o.items())}" for kind, o in CASES]


@pytest.mark.parametrize("kind,options", CASES, ids=IDS)
@pytest.mark.parametrize("sizes", [(5, 3, 4, 6), (1, 2, 3, 5), (7, 1, 3, 40)])
def test_same_as_the_cell_in_operations(kind, options, sizes):
    steps, batch, features, hidden = sizes
    layer = KINDS[kind](features, hidden, dtype=mica.float64, **options)
    x = mica.randn(steps, batch, features, dtype=mica.float64)
    rows, h, c = reference(kind, layer, x)
    expected = mica.stack(rows, 1)
    out, state = layer(x.transpose(0, 1) if layer.batch_first else x)
    out = out.transpose(0, 1) if layer.batch_first else out
    mica.testing.assert_close(out, expected)
    if kind == "LSTM":
        mica.testing.assert_close(state[0], h)
        mica.testing.assert_close(state[1], c)
    else:
        mica.testing.assert_close(state, h)
    # The gradients, too, with the states taking part in the loss.
    seed = mica.randn(out.shape, dtype=mica.float64)
    states = state if kind == "LSTM" else (state,)
    parameters = list(layer.parameters())
    ours = mica.autograd.grad((out * seed).sum() + sum((s * s).sum() for s in states), parameters)
    theirs = (h, c)[: len(states)]
    wanted = mica.autograd.grad((expected * seed).sum() + sum((s * s).sum() for s in theirs), parameters)
    for a, b in zip(ours, wanted, strict=True):
        mica.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences_stop_where_they_end(kind, bidirectional):
    lengths = [6, 4, 4, 1]
    layer = KINDS[kind](3, 5, num_layers=2, bidirectional=bidirectional, dtype=mica.float64)
    x = mica.randn(6, 4, 3, dtype=mica.float64, requires_grad=True)
    rows, h, _ = reference(kind, layer, x, lengths)
    out, state = layer(pack_padded_sequence(x, lengths))
    padded, found = pad_packed_sequence(out)
    assert found.tolist() == lengths
    for i, row in enumerate(rows):
        mica.testing.assert_close(padded[: lengths[i], i], row)
        assert not padded[lengths[i] :, i].any()
    mica.testing.assert_close(state[0] if kind == "LSTM" else state, h)
    parameters = [x, *layer.parameters()]
    ours = mica.autograd.grad(padded.square().sum(), parameters)
    theirs = mica.autograd.grad(sum(row.square().sum() for row in rows), parameters)
    for a, b in zip(ours, theirs, strict=True):
        mica.testing.assert_close(a, b)


@pytest.mark.parametrize("kind,options", CASES[::2], ids=IDS[::2])
def test_gradients_of_both_orders(kind, options):
    options = {k: v for k, v in options.items() if k != "batch_first"}
    layer = KINDS[kind](2, 4, dtype=mica.float64, **options)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    x = mica.randn(3, 2, 2, dtype=mica.float64, requires_grad=True)
    widths = [layer.proj_size or 4, 4][: 2 if kind == "LSTM" else 1]
    states = [mica.randn(count, 2, w, dtype=mica.float64, requires_grad=True) for w in widths]
    weights = [w.detach().requires_grad_() for w in layer.parameters()]
    function = {"LSTM": mica.lstm, "GRU": mica.gru}.get(
        kind, mica.rnn_relu if options.get("nonlinearity") == "relu" else mica.rnn_tanh
    )

    def run(x, *rest):
        hx = list(rest[: len(states)]) if kind == "LSTM" else rest[0]
        return function(
            x, hx, rest[len(states) :], layer.bias, layer.num_layers, 0.0, False, layer.bidirectional, False
        )

    inputs = (x, *states, *weights)
    assert gradcheck(run, inputs)
    if layer.num_layers == 1:
        assert gradgradcheck(run, inputs)


def test_a_tensor_given_as_both_states_gets_the_sum_of_gradients_when_differentiated_twice():
    cell = nn.LSTMCell(2, 3, dtype=mica.float64)
    s = mica.randn(2, 3, dtype=mica.float64, requires_grad=True)
    x = mica.randn(2, 2, dtype=mica.float64)
    plain = mica.autograd.grad(cell(x, (s, s))[0].sum(), s)[0]
    graph = mica.autograd.grad(cell(x, (s, s))[0].sum(), s, create_graph=True)[0]
    mica.testing.assert_close(plain, graph)


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_step_like_layers(kind, bias):
    cell = getattr(nn, kind)(3, 4, bias=bias, dtype=mica.float64)
    layer = KINDS[kind[:-4]](3, 4, bias=bias, dtype=mica.float64)
    for name, p in cell.named_parameters():
        getattr(layer, f"{name}_l0").data.copy_(p.data)
    x = mica.randn(5, 2, 3, dtype=mica.float64)
    out, _ = layer(x)
    state, seen = None, []
    for t in range(5):
        state = cell(x[t], state)
        seen.append(state[0] if kind == "LSTMCell" else state)
    mica.testing.assert_close(mica.stack(seen), out)
    single = cell(x[0, 0])
    mica.testing.assert_close(single[0] if kind == "LSTMCell" else single, seen[0][0])
    assert gradcheck(lambda x: cell(x), (x[0].clone().requires_grad_(),))


@pytest.mark.parametrize("dtype,tolerance", [(mica.float32, 1e-5), (mica.bfloat16, 2e-2), (mica.float16, 3e-3)])
@pytest.mark.parametrize("kind", KINDS)
def test_narrow_dtypes_are_summed_in_float(kind, dtype, tolerance):
    layer = KINDS[kind](8, 16).double()
    x = mica.randn(9, 3, 8, dtype=mica.float64).to(dtype)
    narrow = copy.deepcopy(layer).to(dtype)
    wide = copy.deepcopy(narrow).double()
    out = narrow(x)[0]
    assert out.dtype == dtype
    mica.testing.assert_close(out.double(), wide(x.double())[0], rtol=tolerance, atol=tolerance)
    out.float().sum().backward()
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in narrow.parameters())


def test_batches_of_none_and_unbatched_sequences():
    layer = nn.LSTM(3, 4, 2)
    out, (h, c) = layer(mica.randn(5, 0, 3))
    assert out.shape == (5, 0, 4) and h.shape == c.shape == (2, 0, 4)
    out.sum().backward()
    assert all(not p.grad.any() for p in layer.parameters())
    x = mica.randn(5, 3)
    out, (h, c) = layer(x)
    batched, (hb, _) = layer(x.unsqueeze(1))
    assert out.shape == (5, 4) and h.shape == (2, 4)
    assert mica.equal(out, batched.squeeze(1)) and mica.equal(h, hb.squeeze(1))
    with pytest.raises(RuntimeError, match="Expected sequence length to be larger than 0 in RNN"):
        layer(mica.randn(0, 2, 3))


def test_dropout_lies_between_layers_only_while_training():
    layer = nn.GRU(3, 4, num_layers=2, dropout=0.5)
    x = mica.randn(5, 2, 3)
    first, second = layer(x)[0], layer(x)[0]
    assert not mica.equal(first, second)
    layer.eval()
    assert mica.equal(layer(x)[0], layer(x)[0])
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
        nn.GRU(3, 4, dropout=0.5)


def test_names_representations_and_copies():
    layer = nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2)
    assert list(layer.state_dict())[:10] == [
        "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0",
        "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse",
        "weight_hr_l0_reverse",
    ]  # fmt: skip
    assert repr(layer) == "LSTM(3, 4, proj_size=2, num_layers=2, bidirectional=True)"
    assert repr(nn.RNN(3, 4, bias=False, batch_first=True)) == "RNN(3, 4, bias=False, batch_first=True)"
    assert repr(nn.RNNCell(3, 4, nonlinearity="relu")) == "RNNCell(3, 4, nonlinearity=relu)"
    x = mica.randn(4, 2, 3)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert mica.equal(twin(x)[0], layer(x)[0])
        assert all(a is b for a, b in zip(twin._flat_weights, twin.parameters(), strict=True))
    layer.double()
    assert layer(x.double())[0].dtype == mica.float64
    layer.weight_ih_l0 = nn.Parameter(mica.zeros_like(layer.weight_ih_l0))
    assert layer._flat_weights[0] is layer.weight_ih_l0


@pytest.mark.parametrize(
    "make,error,words",
    [
        (lambda: nn.LSTM(3, 4, dropout=2), ValueError, "dropout should be a number in range"),
        (lambda: nn.LSTM(3, 4, proj_size=4), ValueError, "proj_size has to be smaller than hidden_size"),
        (lambda: nn.GRU(3, 4, proj_size=2), ValueError, "proj_size argument is only supported for LSTM"),
        (lambda: nn.LSTM(3, 0), ValueError, "hidden_size must be greater than zero"),
        (lambda: nn.LSTM(3.0, 4), TypeError, "input_size should be of type int, got: float"),
        (lambda: nn.LSTM(3, 4, bias=1), TypeError, "bias should be of type bool, got: int"),
        (lambda: nn.RNN(3, 4, nonlinearity="gelu"), ValueError, "Unknown nonlinearity 'gelu'"),
        (lambda: nn.RNNBase("X", 3, 4), ValueError, "Unrecognized RNN mode: X"),
        (lambda: nn.LSTM(3, 4)(mica.randn(3)), ValueError, "LSTM: Expected input to be 2D or 3D, got 1D instead"),
        (lambda: nn.RNN(3, 4)(mica.randn(3)), ValueError, "RNN: Expected input to be 2D or 3D, got 1D tensor"),
        (lambda: nn.LSTM(3, 4)(mica.randn(5, 2, 4)), RuntimeError, r"input.size\(-1\) must be equal to input_size"),
        (lambda: nn.LSTM(3, 4)(mica.randn(5, 2, 3).double()), ValueError, "RNN input dtype .* does not match weight"),
        (
            lambda: nn.GRU(3, 4)(mica.randn(5, 2, 3), mica.randn(1, 3, 4)),
            RuntimeError,
            r"Expected hidden size \(1, 2, 4\), got \[1, 3, 4\]",
        ),
        (
            lambda: nn.LSTM(3, 4)(mica.randn(5, 2, 3), (mica.randn(1, 2, 4), mica.randn(1, 2, 5))),
            RuntimeError,
            r"Expected hidden\[1\] size \(1, 2, 4\), got \[1, 2, 5\]",
        ),
        (
            lambda: nn.GRU(3, 4)(mica.randn(5, 3), mica.randn(1, 2, 4)),
            RuntimeError,
            "For unbatched 2-D input, hx should also be 2-D but got 3-D tensor",
        ),
        (lambda: nn.LSTMCell(3, 4)(mica.randn(2, 2)), RuntimeError, "input has inconsistent input_size: got 2"),
        (
            lambda: nn.GRUCell(3, 4)(mica.randn(2, 3), mica.randn(3, 4)),
            RuntimeError,
            "Input batch size 2 doesn't match hidden0 batch size 3",
        ),
        (
            lambda: nn.GRUCell(3, 4)(mica.randn(2, 3), mica.randn(2, 5)),
            RuntimeError,
            "hidden0 has inconsistent hidden_size: got 5, expected 4",
        ),
        (
            lambda: mica.gru(mica.randn(5, 2, 3), mica.randn(1, 2, 4), [mica.randn(12, 3)], True, 1, 0.0, False, False, False),
            RuntimeError,
            "got an incorrect number of RNN parameters",
        ),
        (
            lambda: mica.lstm(mica.randn(5, 2, 3), [mica.randn(1, 2, 4)], [], True, 1, 0.0, False, False, False),
            RuntimeError,
            "lstm expects two hidden states",
        ),
        (lambda: pack_padded_sequence(mica.randn(5, 2, 3), [3, 5]), RuntimeError, "`lengths` array must be sorted"),
        (lambda: pack_padded_sequence(mica.randn(5, 2, 3), [3, 0]), RuntimeError, "Length of all samples has to be"),
        (lambda: pack_padded_sequence(mica.randn(5, 2, 3), [3]), RuntimeError, "Expected `len"),
        (lambda: pack_padded_sequence(mica.randn(5, 2, 3), [9, 3]), RuntimeError, "Expected lengths of at most"),
        (lambda: pack_padded_sequence(mica.randn(5, 0, 3), []), RuntimeError, "Cannot pack empty tensors"),
        (lambda: pad_sequence([]), RuntimeError, "received an empty list of sequences"),
        (lambda: pad_sequence(3), RuntimeError, "pad_sequence: Expected iterable"),
        (
            lambda: pad_sequence([mica.ones(2)], padding_side="up"),
            RuntimeError,
            "Expected padding_side to be one of left or right",
        ),
        (
            lambda: pad_packed_sequence(pack_sequence([mica.ones(3, 2)]), total_length=2),
            ValueError,
            "Expected total_length to be at least",
        ),
    ],
)  # fmt: skip
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_packing_round_trips():
    sequences = [mica.randn(n, 3) for n in (2, 5, 3, 5)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [4, 4, 3, 2, 2]
    for a, b in zip(unpack_sequence(packed), sequences, strict=True):
        assert mica.equal(a, b)
    padded, lengths = pad_packed_sequence(packed, batch_first=True, padding_value=-1.0, total_length=7)
    assert padded.shape == (4, 7, 3) and lengths.tolist() == [2, 5, 3, 5]
    assert (padded[0, 2:] == -1).all()
    again = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    assert mica.equal(again.data, packed.data)
    left = pad_sequence(sequences, batch_first=True, padding_side="left")
    assert mica.equal(left[0, 3:], sequences[0]) and not left[0, :3].any()
    for a, b in zip(unpad_sequence(pad_sequence(sequences), lengths), sequences, strict=True):
        assert mica.equal(a, b)
    permutation = mica.tensor([2, 0, 1])
    assert mica.equal(invert_permutation(permutation)[permutation], mica.arange(3))


def test_packed_sequences_are_tuples_with_conversions():
    packed = pack_sequence([mica.ones(3, 2), mica.ones(2, 2)])
    data, batch_sizes, sorted_indices, unsorted_indices = packed
    assert isinstance(packed, tuple) and data is packed.data and sorted_indices is unsorted_indices is None
    assert packed.to(mica.float32) is packed and packed.double().data.dtype == mica.float64
    assert packed.double().batch_sizes is batch_sizes and not packed.is_cuda
    assert type(packed.cpu()) is PackedSequence


def test_gradients_through_packing():
    x = mica.randn(4, 3, 2, dtype=mica.float64, requires_grad=True)
    assert gradcheck(lambda x: pack_padded_sequence(x, [4, 2, 1]).data, (x,))
    assert gradcheck(lambda x: pad_packed_sequence(pack_padded_sequence(x, [4, 2, 1]))[0], (x,))
    parts = [mica.randn(n, 2, dtype=mica.float64, requires_grad=True) for n in (3, 1)]
    assert gradcheck(lambda *p: pad_sequence(p), parts)


def test_unpadded_sequences_have_memory_of_their_own():
    padded = mica.arange(6.0).view(3, 2)
    first, second = nn.utils.rnn.unpad_sequence(padded, mica.tensor([2, 3]))
    assert first.is_contiguous() and second.is_contiguous()
    first.zero_()
    assert padded.equal(mica.arange(6.0).view(3, 2)) and second.tolist() == [1, 3, 5]
