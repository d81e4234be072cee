"""Sizes that take the kernels' other ways: long rows, many rows, columns, parts of rows, more than one block."""

import mica
import numpy as np
import pytest

F = mica.nn.functional

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

SHAPES = [(3, 40000), (40000, 3), (129, 1030), (1030, 129), (2, 3, 70000), (1, 300001), (5000, 17), (64, 33, 65)]


def numbers(*shape, seed=0, dtype=mica.float32):
    mica.manual_seed(seed)
    return mica.randn(shape).to(dtype)


def compare(there, here, rtol=1e-5, atol=1e-5):
    assert there.is_cuda and there.dtype == here.dtype and there.shape == here.shape
    mica.testing.assert_close(there.cpu(), here, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "name", ["sum", "mean", "amax", "amin", "var", "logsumexp", "norm", "prod", "argmax", "argmin"]
)
def test_reductions(name, shape):
    x = numbers(*shape)
    x = x * 0.1 + 1 if name == "prod" else x
    x = x if name != "prod" else x.double().clamp(0.99, 1.01)
    for dim in range(x.dim()):
        if name == "var" and 1 in (x.shape[dim], x.transpose(0, -1).shape[dim]):
            continue
        here = getattr(mica, name)(x, dim=dim)
        compare(getattr(mica, name)(x.cuda(), dim=dim), here, rtol=2e-4, atol=1e-3)
        compare(getattr(mica, name)(x.cuda().transpose(0, -1), dim=dim), getattr(mica, name)(x.transpose(0, -1), dim=dim), rtol=2e-4, atol=1e-3)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_rows(shape):
    x, g = numbers(*shape), numbers(*shape, seed=1)
    for dim in range(x.dim()):
        for f in (mica.softmax, mica.log_softmax):
            here, there = x.clone().requires_grad_(), x.cuda().requires_grad_()
            a, b = f(here, dim), f(there, dim)
            compare(b.detach(), a.detach())
            a.backward(g)
            b.backward(g.cuda())
            compare(there.grad, here.grad, rtol=1e-4, atol=2e-5)
    n = shape[-1]
    for layer in (mica.nn.LayerNorm(n), mica.nn.RMSNorm(n)):
        here, there = x.clone().requires_grad_(), x.cuda().requires_grad_()
        a = layer(here)
        a.backward(g)
        kept = {k: p.grad.clone() for k, p in layer.named_parameters()}
        layer.zero_grad()
        layer.cuda()
        b = layer(there)
        b.backward(g.cuda())
        compare(b.detach(), a.detach(), rtol=1e-4, atol=1e-4)
        compare(there.grad, here.grad, rtol=1e-3, atol=1e-4)
        for k, p in layer.named_parameters():
            compare(p.grad, kept[k], rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["cumsum", "cummax", "cummin", "cumprod", "logcumsumexp"])
def test_scans(name, shape):
    x = numbers(*shape, dtype=mica.float64)
    x = x if name != "cumprod" else (x * 0.01 + 1)
    for dim in range(x.dim()):
        here, there = getattr(mica, name)(x, dim), getattr(mica, name)(x.cuda(), dim)
        if name in ("cummax", "cummin"):
            assert there[1].tolist() == here[1].tolist()
            here, there = here[0], there[0]
        compare(there, here, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(3, 40000), (2000, 5), (300, 900), (70, 4096), (1, 200000), (40, 130)])
def test_sorting(shape, dtype):
    x = (numbers(*shape) * 50).to(getattr(mica, dtype))
    for descending in (False, True):
        here, there = (t.sort(dim=-1, descending=descending, stable=True) for t in (x, x.cuda()))
        assert there.values.tolist() == here.values.tolist() and there.indices.tolist() == here.indices.tolist()
    here, there = (t.t().sort(dim=0, stable=True) for t in (x, x.cuda()))
    assert there.indices.tolist() == here.indices.tolist()
    for largest in (True, False) if dtype != "bool" else ():
        k = min(50, shape[-1])
        here, there = x.topk(k, largest=largest), x.cuda().topk(k, largest=largest)
        assert there.values.tolist() == here.values.tolist()
        assert x.cuda().gather(-1, there.indices).tolist() == here.values.tolist()
    if dtype == "bool":
        with pytest.raises(RuntimeError, match="topk does not support bool dtypes on cuda"):
            x.cuda().topk(1)
    else:
        assert x.cuda().median(-1).values.tolist() == x.median(-1).values.tolist()
        assert x.cuda().kthvalue(3, -1).values.tolist() == x.kthvalue(3, -1).values.tolist()
        assert x.cuda().mode(-1).values.tolist() == x.mode(-1).values.tolist()
    here, there = (
        x.unique(return_inverse=True, return_counts=True),
        x.cuda().unique(return_inverse=True, return_counts=True),
    )
    for a, b in zip(there, here, strict=True):
        assert a.tolist() == b.tolist()


def test_masks_and_indices():
    x = numbers(1000, 700)
    mask = x > 0.3
    assert x.cuda()[mask.cuda()].tolist() == x[mask].tolist()
    assert mica.nonzero(mask.cuda()).tolist() == mica.nonzero(mask).tolist()
    assert mask.cuda().t().nonzero().tolist() == mask.t().nonzero().tolist()
    y, z = x.clone(), x.cuda()
    source = numbers(700000, seed=2)
    y.masked_scatter_(mask, source)
    z.masked_scatter_(mask.cuda(), source.cuda())
    assert z.tolist() == y.tolist()
    index = mica.from_numpy(np.random.default_rng(0).integers(0, 1000, 5000))
    compare(x.cuda()[index.cuda()], x[index])
    compare(x.cuda().t()[:, index.cuda()], x.t()[:, index])
    compare(x.cuda()[index.cuda(), (index % 700).cuda()], x[index, index % 700])
    rows = numbers(5000, 700, seed=3)
    compare(mica.zeros(1000, 700).cuda().index_add_(0, index.cuda(), rows.cuda()), mica.zeros(1000, 700).index_add_(0, index, rows), atol=1e-4)  # fmt: skip
    weight = mica.nn.Parameter(numbers(1000, 96))
    there = mica.nn.Parameter(weight.detach().cuda())
    F.embedding(index, weight).sin().sum().backward()
    F.embedding(index.cuda(), there).sin().sum().backward()
    compare(there.grad, weight.grad, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "length", "keys", "width", "causal"),
    [
        (2, 3, 3, 128, 128, 64, True), (1, 2, 2, 200, 200, 64, True), (2, 4, 2, 96, 160, 64, False),
        (1, 2, 2, 333, 77, 40, False), (1, 2, 1, 130, 130, 128, True), (1, 1, 1, 64, 300, 128, True),
        (3, 2, 2, 1, 65, 64, False), (1, 2, 2, 257, 257, 72, True),
    ],
)  # fmt: skip
def test_attention(batch, heads, kv_heads, length, keys, width, causal, dtype):
    dtype = getattr(mica, dtype)
    q, k, v = (
        numbers(batch, h, n, width, seed=i).to(dtype)
        for i, (h, n) in enumerate(((heads, length), (kv_heads, keys), (kv_heads, keys)))
    )
    g = numbers(batch, heads, length, width, seed=9).to(dtype)
    exact = [t.double().requires_grad_() for t in (q, k, v)]
    there = [t.cuda().requires_grad_() for t in (q, k, v)]
    grouped = {"enable_gqa": True} if heads != kv_heads else {}
    a = F.scaled_dot_product_attention(*exact, is_causal=causal, **grouped)
    b = F.scaled_dot_product_attention(*there, is_causal=causal, **grouped)
    a.backward(g.double())
    b.backward(g.cuda())
    # Half a unit of the dtype in each of the two roundings, relative to the largest value.
    unit = 2.0**-8 if dtype == mica.bfloat16 else 2.0**-11
    for x, y in [(b, a), *((t.grad, e.grad) for t, e in zip(there, exact, strict=True))]:
        error = (x.detach().cpu().double() - y.detach()).norm() / y.detach().norm().clamp_min(1e-9)
        assert error.item() < 2 * unit


CONVOLUTIONS = [
    ((2, 3, 20, 22), (8, 3, 3, 3), {"padding": 1}), ((2, 8, 15, 15), (12, 4, 3, 3), {"groups": 2, "stride": 2}),
    ((1, 6, 12, 12), (6, 1, 5, 5), {"groups": 6, "padding": 2}), ((2, 4, 9, 10), (5, 4, 1, 1), {}),
    ((2, 4, 30), (6, 4, 5), {"padding": 2, "dilation": 2}), ((1, 3, 6, 8, 7), (4, 3, 3, 2, 3), {"padding": 1}),
]  # fmt: skip


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("size", "weight", "options"), CONVOLUTIONS)
def test_convolutions(size, weight, options, last):
    mica.backends.cudnn.allow_tf32 = False
    try:
        x, w, b = numbers(*size), numbers(*weight, seed=1), numbers(weight[0], seed=2)
        if last:
            if len(size) != 4:
                pytest.skip("channels last are images here")
            x, w = x.to(memory_format=mica.channels_last), w.to(memory_format=mica.channels_last)
        f = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(size)]
        here = [t.clone().requires_grad_() for t in (x, w, b)]
        there = [t.cuda().requires_grad_() for t in (x, w, b)]
        a, c = f(*here, **options), f(*there, **options)
        compare(c.detach(), a.detach(), rtol=1e-4, atol=1e-4)
        assert c.stride() == a.stride()
        a.sin().sum().backward()
        c.sin().sum().backward()
        for t, e in zip(there, here, strict=True):
            compare(t.grad, e.grad, rtol=1e-3, atol=1e-3)
        t = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}[len(size)]
        y = numbers(*a.shape, seed=4)
        plain = dict(options)
        compare(t(y.cuda(), w.cuda(), **plain), t(y, w, **plain), rtol=1e-4, atol=1e-3)
    finally:
        mica.backends.cudnn.allow_tf32 = True


@pytest.mark.parametrize("classes", [10, 1000, 5001, 50257])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cross_entropy(classes, dtype):
    x = numbers(33, classes).to(getattr(mica, dtype))
    target = mica.arange(33) * 7 % classes
    target[3] = -100
    for options in (
        {},
        {"label_smoothing": 0.1},
        {"weight": mica.rand(classes).to(x.dtype)},
        {"reduction": "sum"},
        {"reduction": "none"},
    ):
        here, there = x.clone().requires_grad_(), x.cuda().requires_grad_()
        moved = {k: v.cuda() if isinstance(v, mica.Tensor) else v for k, v in options.items()}
        a, b = F.cross_entropy(here, target, **options), F.cross_entropy(there, target.cuda(), **moved)
        rtol = 1e-4 if dtype == "float32" else 2e-2
        compare(b.detach(), a.detach(), rtol=rtol, atol=rtol)
        a.sum().backward()
        b.sum().backward()
        compare(there.grad, here.grad, rtol=rtol, atol=1e-4)


def test_norms_of_channels():
    for shape in ((8, 6, 40, 41), (5, 12, 7), (64, 20), (2, 8, 300, 301)):
        for last in (False, True):
            x = numbers(*shape)
            if last:
                if len(shape) != 4:
                    continue
                x = x.to(memory_format=mica.channels_last)
            layers = [mica.nn.GroupNorm(2, shape[1])]
            if len(shape) > 1:
                layers.append(
                    {2: mica.nn.BatchNorm1d, 3: mica.nn.BatchNorm1d, 4: mica.nn.BatchNorm2d}[len(shape)](shape[1])
                )
            for layer in layers:
                twin = type(layer)(*((2, shape[1]) if isinstance(layer, mica.nn.GroupNorm) else (shape[1],))).cuda()
                here, there = x.clone().requires_grad_(), x.cuda().requires_grad_()
                a, b = layer(here), twin(there)
                compare(b.detach(), a.detach(), rtol=1e-4, atol=1e-4)
                a.sin().sum().backward()
                b.sin().sum().backward()
                compare(there.grad, here.grad, rtol=1e-3, atol=1e-4)
                for p, q in zip(twin.parameters(), layer.parameters(), strict=True):
                    compare(p.grad, q.grad, rtol=1e-3, atol=1e-2)
                for p, q in zip(twin.buffers(), layer.buffers(), strict=True):
                    compare(p, q, rtol=1e-4, atol=1e-5)


OPTIMIZERS = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), ("SGD", {"lr": 0.1}), ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("AdamW", {}), ("AdamW", {"capturable": True}), ("AdamW", {"fused": True}),
    ("Adamax", {}), ("NAdam", {}), ("RAdam", {}), ("RMSprop", {"centered": True, "momentum": 0.5}), ("Adagrad", {}),
    ("Adadelta", {}), ("Rprop", {}), ("ASGD", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_optimizers(name, options, dtype):
    def train(device):
        own = {k: v for k, v in options.items() if device == "cuda" or k not in ("capturable", "fused")}
        shapes = [(300, 70), (5,), (8193,), (1,), ()] * 6
        params = [
            mica.nn.Parameter(numbers(*s, seed=i).to(getattr(mica, dtype)).to(device)) for i, s in enumerate(shapes)
        ]
        optimizer = getattr(mica.optim, name)(params, **own)
        for step in range(4):
            for i, p in enumerate(params):
                p.grad = numbers(*p.shape, seed=100 * step + i).to(p.dtype).to(device)
            optimizer.step()
        return params

    tolerance = {"float32": 2e-5, "float64": 1e-10, "bfloat16": 2e-2}[dtype]
    for a, b in zip(train("cuda"), train("cpu"), strict=True):
        compare(a.detach(), b.detach(), rtol=tolerance, atol=tolerance)


def test_grad_scaler_needs_nothing_read_back():
    model = mica.nn.Linear(8, 4).cuda()
    optimizer = mica.optim.AdamW(model.parameters(), fused=True)
    scaler = mica.amp.GradScaler("cuda", init_scale=2.0**10, growth_interval=2)
    for value in (1.0, float("inf"), 1.0, 1.0):
        optimizer.zero_grad()
        with mica.autocast("cuda", dtype=mica.float16):
            loss = model(mica.full((3, 8), value, device="cuda")).float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0**10
    assert all(mica.isfinite(p).all().item() for p in model.parameters())


@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
def test_sums_of_float32_and_narrower_floats(narrow):
    narrow = getattr(mica, narrow)
    x, y = numbers(33, 257), numbers(33, 257, seed=1).to(narrow)
    other = mica.float16 if narrow == mica.bfloat16 else mica.bfloat16
    z = numbers(257, seed=2).to(other)
    for f in (lambda a, b, c: a + b, lambda a, b, c: b - a, lambda a, b, c: mica.add(b, a, alpha=0.5), lambda a, b, c: b + c,
              lambda a, b, c: a.t() + b.t(), lambda a, b, c: a + b[:, :1], lambda a, b, c: a.clone().add_(b)):  # fmt: skip
        compare(f(x.cuda(), y.cuda(), z.cuda()), f(x, y, z), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gelu_of_narrow_floats(dtype):
    dtype = getattr(mica, dtype)
    x = mica.linspace(-9, 9, 40001).to(dtype)
    g = numbers(40001)
    exact, there = x.double().requires_grad_(), x.cuda().requires_grad_()
    F.gelu(exact).backward(g.double())
    found = F.gelu(there)
    found.backward(g.to(dtype).cuda())
    unit = 2.0**-8 if dtype == mica.bfloat16 else 2.0**-11
    # Half a unit of the rounding, and what the approximation is off by.
    compare(found.detach().double(), F.gelu(exact).detach(), rtol=unit + 5e-5, atol=1e-7)
    compare(there.grad.double(), exact.grad, rtol=3 * unit, atol=2e-4)
