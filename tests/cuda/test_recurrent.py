"""Recurrent layers on CUDA against the CPU: outputs, states and all gradients."""

import mica
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]


@pytest.fixture(autouse=True)
def exact_products():
    mica.backends.cudnn.allow_tf32 = False
    yield
    mica.backends.cudnn.allow_tf32 = True


LAYERS = {
    "lstm": lambda **k: mica.nn.LSTM(5, 7, **k),
    "projected": lambda **k: mica.nn.LSTM(5, 7, proj_size=3, **k),
    "gru": lambda **k: mica.nn.GRU(5, 7, **k),
    "tanh": lambda **k: mica.nn.RNN(5, 7, **k),
    "relu": lambda **k: mica.nn.RNN(5, 7, nonlinearity="relu", **k),
}
FORMS = [
    {},
    {"bidirectional": True},
    {"num_layers": 2, "batch_first": True},
    {"bias": False},
    {"num_layers": 2, "bidirectional": True},
]
TOLERANCE = {mica.float64: 1e-12, mica.float32: 2e-5, mica.bfloat16: 3e-2}


def run(layer, x, device, lengths=None):
    layer = layer.to(device)
    x = x.detach().to(device).requires_grad_()
    given = x
    if lengths is not None:
        given = mica.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    output, states = layer(given)
    output = output.data if lengths is not None else output
    states = states if isinstance(states, tuple) else (states,)
    loss = output.square().sum() + sum((s * s).sum() * (2 + i) for i, s in enumerate(states))
    grads = mica.autograd.grad(loss, [x, *layer.parameters()])
    return [t.detach().cpu() for t in (output, *states, *grads)]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("name", list(LAYERS))
def test_layers(name, form, dtype):
    mica.manual_seed(0)
    layer = LAYERS[name](**form).to(dtype)
    x = mica.randn(6, 4, 5).to(dtype)
    for there, here in zip(run(layer, x, "cuda"), run(layer, x, "cpu"), strict=True):
        mica.testing.assert_close(there, here, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", list(LAYERS))
def test_packed_sequences(name, bidirectional):
    mica.manual_seed(0)
    layer = LAYERS[name](bidirectional=bidirectional, num_layers=2).double()
    x, lengths = mica.randn(9, 5, 5, dtype=mica.float64), mica.tensor([3, 9, 1, 9, 6])
    for there, here in zip(run(layer, x, "cuda", lengths), run(layer, x, "cpu", lengths), strict=True):
        mica.testing.assert_close(there, here, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_wide_layers(name):
    mica.manual_seed(0)
    layer = (mica.nn.LSTM if name == "lstm" else mica.nn.GRU)(40, 300, batch_first=True)
    x = mica.randn(33, 20, 40)
    for there, here in zip(run(layer, x, "cuda"), run(layer, x, "cpu"), strict=True):
        mica.testing.assert_close(there, here, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("lengths", [None, [3, 9, 1, 9, 6]], ids=["one length", "several lengths"])
@pytest.mark.parametrize("dtype", [mica.bfloat16, mica.float16], ids=str)
@pytest.mark.parametrize("name", ["lstm", "gru", "tanh", "relu"])
def test_products_of_16_bit_floats(name, dtype, lengths):
    """Widths of whole vectors, by the own kernels: a step's product takes the states as they are kept."""
    mica.manual_seed(0)
    kind = {"lstm": mica.nn.LSTM, "gru": mica.nn.GRU}.get(name, mica.nn.RNN)
    options = {"nonlinearity": name} if kind is mica.nn.RNN else {}
    layer = kind(16, 24, num_layers=2, bidirectional=True, **options).to(dtype)
    x = mica.randn(9, 5, 16).to(dtype)
    lengths = None if lengths is None else mica.tensor(lengths)
    with mica.backends.cudnn.flags(enabled=False):
        found = run(layer, x, "cuda", lengths)
    for there, here in zip(found, run(layer, x, "cpu", lengths), strict=True):
        error = (there.double() - here.double()).norm() / here.double().norm()
        assert error < (2.0**-7 if dtype == mica.bfloat16 else 2.0**-9)
