"""Recurrent layers on torch and on Mica from one seed: the same weights, outputs, states, gradients and random draws."""

import itertools

import mica
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from both_libraries import close, on_both  # noqa: E402

OPTIONS = [
    dict(zip(("num_layers", "bias", "batch_first", "bidirectional", "dropout"), values, strict=True))
    for values in itertools.product((1, 2), (True, False), (True, False), (True, False), (0.0, 0.5))
    if values[0] == 2 or values[4] == 0.0
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU", "relu", "projected"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", ["padded", "packed", "unbatched"])
def test_layers(kind, options, dtype, form):
    if form == "unbatched" and options["batch_first"]:
        return
    extra = {"relu": {"nonlinearity": "relu"}, "projected": {"proj_size": 3}}.get(kind, {})
    name = {"relu": "RNN", "projected": "LSTM"}.get(kind, kind)

    def run(lib):
        layer = getattr(lib.nn, name)(4, 5, dtype=getattr(lib, dtype), **extra, **options)
        x = lib.randn(6, 4, 4, dtype=getattr(lib, dtype))
        x = (x[:, 0] if form == "unbatched" else x).clone().requires_grad_()
        given = x
        if form == "packed":
            rnn = lib.nn.utils.rnn
            lengths = [3, 1, 4, 2] if options["batch_first"] else [5, 6, 6, 2]
            batch_first = options["batch_first"]
            given = rnn.pack_padded_sequence(
                x, [*lengths, 1, 1][: x.shape[0 if batch_first else 1]], batch_first, False
            )
        out, state = layer(given)
        out = out.data if form == "packed" else out
        states = list(state) if name == "LSTM" else [state]
        loss = (out * out).sum() + sum((s * (i + 1)).sum() for i, s in enumerate(states))
        loss.backward()
        return [out, *states, x.grad, *layer.parameters(), *(p.grad for p in layer.parameters())]

    on_both(run, 2e-5 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind, bias):
    def run(lib):
        cell = getattr(lib.nn, kind)(4, 5, bias=bias)
        x, state = lib.randn(3, 2, 4), None
        for t in range(3):
            state = cell(x[t], state)
        states = list(state) if kind == "LSTMCell" else [state]
        sum((s * s).sum() for s in states).backward()
        return [*states, *cell.parameters(), *(p.grad for p in cell.parameters())]

    on_both(run, 1e-5)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_second_derivatives(kind):
    def run(lib):
        layer = getattr(lib.nn, kind)(3, 4, bidirectional=True, dtype=lib.float64)
        x = lib.randn(4, 2, 3, dtype=lib.float64, requires_grad=True)
        (g,) = lib.autograd.grad((layer(x)[0] ** 2).sum(), x, create_graph=True)
        (g**2).sum().backward()
        return [g, x.grad, *(p.grad for p in layer.parameters())]

    on_both(run, 1e-9)


def test_helpers():
    def run(lib):
        rnn = lib.nn.utils.rnn
        sequences = [lib.randn(n, 2) for n in (3, 5, 1)]
        packed = rnn.pack_sequence(sequences, enforce_sorted=False)
        padded, lengths = rnn.pad_packed_sequence(packed, True, -2.0, 7)
        return [
            packed.data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices, padded, lengths,
            rnn.pad_sequence(sequences, padding_value=3.0), rnn.pad_sequence(sequences, True, padding_side="left"),
            *rnn.unpack_sequence(packed),
        ]  # fmt: skip

    on_both(run, 0.0)


def test_a_language_model_trains_alike():
    def run(lib):
        nn = lib.nn

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(20, 16)
                self.lstm = nn.LSTM(16, 24, num_layers=2, dropout=0.1)
                self.head = nn.Linear(24, 20)

            def forward(self, i):
                return self.head(self.lstm(self.embed(i))[0])

        model = Model()
        optimizer = lib.optim.Adam(model.parameters(), lr=1e-2)
        i = lib.randint(0, 20, (13, 8))
        losses = []
        for _ in range(50):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(i[:-1]).reshape(-1, 20), i[1:].reshape(-1))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [lib.stack(losses)]

    on_both(run, 1e-4)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"])
def test_autocast_gives_the_same_dtypes(kind):
    def run(lib):
        layer = getattr(lib.nn, kind)(4, 5)
        x = lib.randn(3, 2, 4) if "Cell" not in kind else lib.randn(2, 4)
        with lib.autocast("cpu", dtype=lib.bfloat16):
            out = layer(x)
        flat = [out[0], *(out[1] if kind == "LSTM" else out[1:])] if isinstance(out, tuple) else [out]
        sum(t.float().sum() for t in flat).backward()
        return flat, [p.grad for p in layer.parameters()]

    results = []
    for lib in (mica, torch):
        lib.manual_seed(5)
        try:
            results.append(run(lib))
        except RuntimeError as error:
            if lib is mica or "could not create a primitive descriptor" not in str(error):
                raise
            pytest.skip("torch's oneDNN has no such layer for this processor")
    for ours, theirs in zip(*results, strict=True):
        assert [str(t.dtype).split(".")[1] for t in ours] == [str(t.dtype).split(".")[1] for t in theirs]
        for a, b in zip(ours, theirs, strict=True):
            close(a.float(), b.float(), 5e-2)
