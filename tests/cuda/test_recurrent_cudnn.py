"""Recurrent layers by cuDNN: against the CPU in float64, against the own kernels, and that cuDNN did run them."""

import json

import mica
import pytest
from mica import _C, nn
from mica.nn.utils.rnn import pack_padded_sequence

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        not mica.cuda.is_available() or not mica.backends.cudnn.is_available(), reason="there is no GPU or no cuDNN"
    ),
]

KINDS = {
    "lstm": lambda *sizes, **k: nn.LSTM(*sizes, **k),
    "projected": lambda *sizes, **k: nn.LSTM(*sizes, proj_size=3, **k),
    "gru": lambda *sizes, **k: nn.GRU(*sizes, **k),
    "tanh": lambda *sizes, **k: nn.RNN(*sizes, **k),
    "relu": lambda *sizes, **k: nn.RNN(*sizes, nonlinearity="relu", **k),
}
FORMS = [
    {},
    {"bias": False},
    {"batch_first": True},
    {"bidirectional": True},
    {"num_layers": 3},
    {"num_layers": 2, "bidirectional": True, "bias": False, "batch_first": True},
]
ROUNDING = {mica.float32: 2.0**-22, mica.float16: 2.0**-10, mica.bfloat16: 2.0**-7}


@pytest.fixture(autouse=True)
def cudnn_for_every_shape():
    mica.backends.cudnn.allow_tf32 = False
    _C._set_backend_flag("cuda", "cudnn_recurrent_always", True)
    yield
    _C._set_backend_flag("cuda", "cudnn_recurrent_always", False)
    mica.backends.cudnn.allow_tf32 = True
    mica.backends.cudnn.enabled = True


def facts():
    return json.loads(_C._backend_query("cuda", "recurrent_library", ""))


def counted(run):
    """What `run` returns, and how often cuDNN ran a stack forwards and backwards meanwhile."""
    before = facts()
    result = run()
    after = facts()
    return result, (after["forward"] - before["forward"], after["backward"] - before["backward"])


def states_of(layer, batch, dtype, device):
    runs = layer.num_layers * (2 if layer.bidirectional else 1)
    h = mica.randn(runs, batch, layer.proj_size or layer.hidden_size, dtype=mica.float64)
    c = mica.randn(runs, batch, layer.hidden_size, dtype=mica.float64)
    given = [h, c] if layer.mode == "LSTM" else [h]
    return [s.to(dtype).to(device).requires_grad_() for s in given]


def run(layer, x, states, lengths=None):
    """Output, states and the gradients of everything."""
    x = x.detach().requires_grad_()
    given = x
    if lengths is not None:
        given = pack_padded_sequence(x, lengths, batch_first=layer.batch_first, enforce_sorted=False)
    output, last = layer(given, tuple(states) if layer.mode == "LSTM" else states[0])
    output = output.data if lengths is not None else output
    last = last if isinstance(last, tuple) else (last,)
    loss = output.square().sum() + sum((s * s).sum() * (2 + i) for i, s in enumerate(last))
    grads = mica.autograd.grad(loss, [x, *states, *layer.parameters()])
    return [t.detach() for t in (output, *last, *grads)]


def made(name, dtype, form, sizes=(5, 7)):
    """A layer whose numbers are those of the dtype, in float64 on the CPU and in the dtype on the GPU."""
    mica.manual_seed(0)
    layer = KINDS[name](*sizes, **form).to(dtype)
    exact = KINDS[name](*sizes, **form).double()
    exact.load_state_dict({k: v.double() for k, v in layer.state_dict().items()})
    return layer.cuda(), exact


def relative_error(found, expected):
    found, expected = found.double().cpu(), expected.double()
    assert found.shape == expected.shape
    return ((found - expected).norm() / expected.norm().clamp_min(1e-30)).item()


def check_against_float64(name, dtype, form, sizes=(5, 7), steps=6, batch=4, lengths=None):
    layer, exact = made(name, dtype, form, sizes)
    shape = (batch, steps, sizes[0]) if form.get("batch_first") else (steps, batch, sizes[0])
    x = mica.randn(*shape).to(dtype)
    states = states_of(layer, batch, dtype, "cuda")
    exact_states = [s.detach().cpu().double().requires_grad_() for s in states]
    expected = run(exact, x.double(), exact_states, lengths)
    found, calls = counted(lambda: run(layer, x.cuda(), states, lengths))
    assert calls == (1, 1), (calls, facts()["refused"])
    mica.backends.cudnn.enabled = False
    own, calls = counted(lambda: run(layer, x.cuda(), states, lengths))
    mica.backends.cudnn.enabled = True
    assert calls == (0, 0)
    names = ["output", *["h", "c"][: len(states)], "dx", *["dh", "dc"][: len(states)]]
    names += ["d" + n for n, _ in layer.named_parameters()]
    for what, by_cudnn, by_own, right in zip(names, found, own, expected, strict=True):
        assert by_cudnn.dtype == dtype
        if name == "relu" and dtype != mica.float32 and what.startswith("d"):
            continue  # a small state that is rounded to zero loses its gradient altogether
        error, of_own = relative_error(by_cudnn, right), relative_error(by_own, right)
        # The own kernels keep gates and sums of 16-bit layers in float32.
        assert error < 4 * ROUNDING[dtype] + 4 * of_own, (what, error, of_own)


@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("name", list(KINDS))
def test_values_and_gradients(name, form, dtype):
    check_against_float64(name, dtype, form)


@pytest.mark.parametrize("dtype", [mica.float32, mica.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("width", [64, 128, 256])
def test_wide_layers(name, width, dtype):
    check_against_float64(name, dtype, {"batch_first": True}, (width, width), steps=20, batch=16)


@pytest.mark.parametrize("dtype", [mica.float32, mica.bfloat16], ids=str)
@pytest.mark.parametrize("form", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
@pytest.mark.parametrize("name", list(KINDS))
def test_sequences_of_several_lengths(name, form, dtype):
    check_against_float64(name, dtype, form, steps=9, batch=5, lengths=mica.tensor([3, 9, 1, 9, 6]))


@pytest.mark.parametrize("name", ["lstm", "gru", "tanh", "relu"])
def test_small_layers_go_to_cudnn_where_tf32_is_allowed(name):
    """The algorithm for few units, by default."""
    _C._set_backend_flag("cuda", "cudnn_recurrent_always", False)
    layer, exact = made(name, mica.float32, {"num_layers": 2, "bidirectional": True}, (24, 64))
    x = mica.randn(12, 6, 24)
    states = states_of(layer, 6, mica.float32, "cuda")
    assert counted(lambda: run(layer, x.cuda(), states))[1] == (0, 0)
    mica.backends.cudnn.allow_tf32 = True
    found, calls = counted(lambda: run(layer, x.cuda(), states))
    assert calls == (1, 1), facts()["refused"]
    expected = run(exact, x.double(), [s.detach().cpu().double().requires_grad_() for s in states])
    # A relu state that rounding moves across zero gains or loses its whole gradient, so only values are compared there.
    values = 1 + len(states) if name == "relu" else len(found)
    for a, b in zip(found[:values], expected[:values], strict=True):
        assert relative_error(a, b) < 2e-3
    with mica.no_grad():
        plain, calls = counted(lambda: layer(x.cuda())[0])
    assert calls == (1, 0) and relative_error(plain, exact(x.double())[0].detach()) < 2e-3


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_without_gradients(name):
    layer, _ = made(name, mica.float32, {"num_layers": 2})
    x = mica.randn(6, 4, 5, device="cuda")
    trained = layer(x)[0]
    with mica.no_grad():
        plain, calls = counted(lambda: layer(x)[0])
    assert calls == (1, 0) and not plain.requires_grad
    mica.testing.assert_close(plain, trained.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("used", ["output", "h", "c"])
def test_some_gradients_only(used):
    layer, exact = made("lstm", mica.float32, {})
    x = mica.randn(6, 4, 5)

    def gradient(module, device):
        output, (h, c) = module(x.to(device).to(module.weight_ih_l0.dtype))
        for parameter in module.parameters():
            parameter.grad = None
        {"output": output, "h": h, "c": c}[used].sum().backward()
        return module.weight_ih_l0.grad, module.bias_hh_l0.grad

    layer.weight_hh_l0.requires_grad_(False)
    exact.weight_hh_l0.requires_grad_(False)
    (found, calls), expected = counted(lambda: gradient(layer, "cuda")), gradient(exact, "cpu")
    assert calls == (1, 1)
    for a, b in zip(found, expected, strict=True):
        assert relative_error(a, b) < 1e-5


@pytest.mark.parametrize("name", list(KINDS))
@pytest.mark.parametrize("sizes", [(5, 7), (64, 64), (256, 256)], ids=str)
def test_backward_twice(name, sizes):
    layer, _ = made(name, mica.float32, {"num_layers": 2 if sizes[0] == 5 else 1}, sizes)
    x = mica.randn(6, 4, sizes[0], device="cuda", requires_grad=True)
    loss = layer(x)[0].square().sum()
    once = mica.autograd.grad(loss, [x, *layer.parameters()], retain_graph=True)
    again = mica.autograd.grad(loss, [x, *layer.parameters()])
    for a, b in zip(once, again, strict=True):
        mica.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(KINDS))
def test_second_derivatives(name):
    layer, exact = made(name, mica.float32, {"num_layers": 2, "bidirectional": True})
    x = mica.randn(4, 3, 5)

    def second(module, x):
        x = x.clone().requires_grad_()
        output = module(x)[0]
        (first,) = mica.autograd.grad(output.square().sum(), x, create_graph=True)
        return mica.autograd.grad(first.square().sum(), [x, *module.parameters()])

    for a, b in zip(second(layer, x.cuda()), second(exact, x.double()), strict=True):
        assert relative_error(a, b) < 1e-4


def test_dropout_draws_the_same_numbers_as_the_own_kernels():
    layer, _ = made("lstm", mica.float32, {"num_layers": 3, "dropout": 0.5})
    x = mica.randn(6, 4, 5, device="cuda")

    def step():
        mica.manual_seed(1)
        layer.zero_grad()
        output = layer(x)[0]
        output.square().sum().backward()
        return [output.detach(), *(p.grad.clone() for p in layer.parameters())]

    found, calls = counted(step)
    assert calls == (3, 3)
    mica.backends.cudnn.enabled = False
    for a, b in zip(found, step(), strict=True):
        mica.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list(KINDS))
def test_autocast(name):
    layer, _ = made(name, mica.float32, {})
    x = mica.randn(6, 4, 5, device="cuda")
    with mica.autocast("cuda", dtype=mica.bfloat16):
        output, calls = counted(lambda: layer(x)[0])
    assert calls == (1, 0) and output.dtype == mica.bfloat16
    output.float().sum().backward()
    assert all(p.grad.dtype == mica.float32 for p in layer.parameters())
    assert relative_error(output.detach(), layer(x)[0].detach().cpu()) < 2e-2


@pytest.mark.parametrize("name", ["lstm", "gru", "tanh"])
def test_a_captured_step(name):
    layer, _ = made(name, mica.float32, {"num_layers": 2}, (16, 24))
    x = mica.randn(6, 4, 16, device="cuda")

    def step():
        for p in layer.parameters():
            p.grad = None
        output = layer(x)[0]
        output.square().sum().backward()
        return output.detach()

    stream = mica.cuda.Stream()
    with mica.cuda.stream(stream):
        for _ in range(3):
            step()
    mica.cuda.synchronize()
    graph = mica.cuda.CUDAGraph()
    with mica.cuda.graph(graph):
        output = step()
    captured = [output, *(p.grad for p in layer.parameters())]
    x.copy_(mica.randn(6, 4, 16))
    graph.replay()
    mica.cuda.synchronize()
    captured = [t.clone() for t in captured]
    expected = [step(), *(p.grad for p in layer.parameters())]
    for a, b in zip(captured, expected, strict=True):
        mica.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_any_strides():
    layer, exact = made("lstm", mica.float32, {})
    with mica.no_grad():
        layer.weight_ih_l0.set_(layer.weight_ih_l0.t().contiguous().t())
    x = mica.randn(4, 5, 7)[:, :, 1:6].permute(1, 0, 2)
    h, c = mica.randn(1, 1, 7).expand(1, 4, 7), mica.randn(29)[1:].view(1, 4, 7)
    expected = exact(x.double(), (h.double(), c.double()))[0]
    odd = mica.randn(101, device="cuda")[1:].view(5, 4, 5).copy_(x)
    for given in (x.cuda(), odd):
        found, calls = counted(lambda given=given: layer(given, (h.cuda(), c.cuda()))[0])
        assert calls == (1, 0)
        assert relative_error(found.detach(), expected.detach()) < 1e-5


@pytest.mark.parametrize(("kind", "dtype", "batch"), [("lstm", mica.float16, 64), ("gru", mica.bfloat16, 128)])
def test_large_layers_go_to_cudnn(kind, dtype, batch):
    _C._set_backend_flag("cuda", "cudnn_recurrent_always", False)
    check_against_float64(kind, dtype, {}, (1024, 1024), steps=3, batch=batch)


def test_what_goes_to_the_own_kernels():
    layer, _ = made("gru", mica.float32, {})
    for run_own in (
        lambda: layer(mica.randn(6, 0, 5, device="cuda")),
        lambda: nn.GRU(5, 7, device="cuda", dtype=mica.float64)(mica.randn(6, 4, 5, device="cuda", dtype=mica.float64)),
    ):
        result, calls = counted(run_own)
        assert calls == (0, 0) and result[0].device.type == "cuda"
    mica.use_deterministic_algorithms(True)
    try:
        assert counted(lambda: layer(mica.randn(6, 4, 5, device="cuda")))[1] == (0, 0)
    finally:
        mica.use_deterministic_algorithms(False)


def test_errors_are_those_of_the_own_kernels():
    layer, _ = made("lstm", mica.float32, {})
    with pytest.raises(RuntimeError, match="input.size"):
        layer(mica.randn(6, 4, 6, device="cuda"))
    with pytest.raises(RuntimeError, match="same dtype"):
        mica.rnn_tanh(mica.randn(6, 4, 5, device="cuda", dtype=mica.bfloat16), mica.zeros(1, 4, 7, device="cuda"),
                      [mica.randn(7, 5, device="cuda"), mica.randn(7, 7, device="cuda")], False, 1, 0.0, False, False,
                      False)  # fmt: skip
    x = mica.randn(6, 4, 5, device="cuda")
    output = layer(x)[0]
    with mica.no_grad():
        layer.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_tf32_rounds():
    layer, exact = made("lstm", mica.float32, {}, (64, 256))
    x = mica.randn(20, 16, 64)
    expected = exact(x.double())[0].detach()
    exactly = relative_error(layer(x.cuda())[0].detach(), expected)
    mica.backends.cudnn.allow_tf32 = True
    rounded = relative_error(layer(x.cuda())[0].detach(), expected)
    assert exactly < 1e-6 < rounded < 1e-2


def test_training_goes_on_like_the_own_kernels():
    def losses(enabled):
        mica.backends.cudnn.enabled = enabled
        layer, _ = made("lstm", mica.float32, {"num_layers": 2}, (8, 16))
        optimizer = mica.optim.Adam(layer.parameters(), lr=1e-2)
        mica.manual_seed(3)
        x, target = mica.randn(10, 6, 8, device="cuda"), mica.randn(10, 6, 16, device="cuda").tanh()
        values = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = (layer(x)[0] - target).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
            optimizer.step()
            values.append(loss.item())
        return mica.tensor(values)

    by_cudnn, own = losses(True), losses(False)
    assert own[-1] < 0.95 * own[0]
    mica.testing.assert_close(by_cudnn, own, rtol=5e-3, atol=1e-4)
