"""Steps on tensors of every layout and dtype: fused or not, the same numbers."""

import mica
import numpy as np
import pytest

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("RAdam", {"betas": (0.8, 0.9)}),
    ("RMSprop", {"centered": True, "momentum": 0.9}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("Rprop", {}),
    ("ASGD", {"t0": 2}),
    ("Adafactor", {}),
]
every_optimizer = pytest.mark.parametrize("name, options", OPTIMIZERS, ids=[n + str(len(o)) for n, o in OPTIMIZERS])


def run(p, grads, name, options):
    p = p.detach().requires_grad_()
    optimizer = getattr(mica.optim, name)([p], **options)
    for g in grads:
        p.grad = g
        optimizer.step()
    return p.detach()


def arrays(*shape):
    draw = np.random.RandomState(5)
    return draw.standard_normal(shape), [draw.standard_normal(shape) for _ in range(5)]


@every_optimizer
def test_strides_do_not_matter(name, options):
    start, grads = arrays(6, 5)
    plain = run(mica.tensor(start), [mica.tensor(g) for g in grads], name, options)
    transposed = mica.tensor(start.T.copy()).t()
    sliced = mica.tensor(np.repeat(start, 2, 1))[:, ::2]
    for p in (transposed, sliced):
        mixed = run(p.clone(memory_format=mica.preserve_format), [mica.tensor(g) for g in grads], name, options)
        mica.testing.assert_close(mixed, plain, rtol=1e-12, atol=1e-12)
    same = run(transposed, [mica.tensor(g.T.copy()).t() for g in grads], name, options)
    mica.testing.assert_close(same, plain, rtol=1e-12, atol=1e-12)
    view = mica.zeros(6, 10, dtype=mica.float64)[:, ::2]
    view.copy_(mica.tensor(start))
    mica.testing.assert_close(run(view, [mica.tensor(g) for g in grads], name, options), plain, rtol=1e-12, atol=1e-12)


@every_optimizer
def test_complex_is_two_reals(name, options):
    if name == "Adafactor":
        with pytest.raises(RuntimeError, match="Adafactor does not support complex parameters"):
            run(mica.ones(2, dtype=mica.complex64), [mica.ones(2, dtype=mica.complex64)], name, options)
        return
    start, grads = arrays(7, 2)
    real = run(mica.tensor(start), [mica.tensor(g) for g in grads], name, options)
    as_complex = [mica.view_as_complex(mica.tensor(a)) for a in (start, *grads)]
    result = run(as_complex[0], as_complex[1:], name, options)
    mica.testing.assert_close(mica.view_as_real(result), real, rtol=1e-12, atol=1e-12)
    lazily = [g.conj().clone().conj() for g in as_complex[1:]]
    result = run(mica.view_as_complex(mica.tensor(start)), lazily, name, options)
    mica.testing.assert_close(mica.view_as_real(result), real, rtol=1e-12, atol=1e-12)


@every_optimizer
@pytest.mark.parametrize("dtype", [mica.bfloat16, mica.float16])
def test_short_floats_are_computed_in_float(name, options, dtype):
    start, grads = arrays(50)
    short = run(mica.tensor(start, dtype=dtype), [mica.tensor(g, dtype=dtype) for g in grads], name, options)
    assert short.dtype == dtype
    whole = run(
        mica.tensor(start, dtype=dtype).float(), [mica.tensor(g, dtype=dtype).float() for g in grads], name, options
    )
    few = 2**-5 if dtype == mica.bfloat16 else 2**-8
    assert (short.float() - whole).abs().max().item() <= few * 4


@every_optimizer
def test_threads_and_sizes_do_not_matter(name, options):
    """Every element is computed alike, wherever it stands: in a vector, in a tail, on another thread."""
    start, grads = arrays(70001)
    whole = run(
        mica.tensor(start, dtype=mica.float32), [mica.tensor(g, dtype=mica.float32) for g in grads], name, options
    )
    if name == "Adafactor":
        return  # its step depends on all elements
    for part in (slice(0, 1), slice(5, 22), slice(69990, 70001)):
        piece = run(
            mica.tensor(start[part], dtype=mica.float32),
            [mica.tensor(g[part], dtype=mica.float32) for g in grads],
            name,
            options,
        )
        assert mica.equal(piece, whole[part])


def test_many_parameters_at_once_are_as_each_alone():
    draw = np.random.RandomState(2)
    sizes = [1, 3, 64, 65, 1000, 40000, 7, 33000, 0]
    values = [draw.standard_normal(n) for n in sizes]
    together = [mica.tensor(v, dtype=mica.float32, requires_grad=True) for v in values]
    alone = [mica.tensor(v, dtype=mica.float32, requires_grad=True) for v in values]
    one = mica.optim.AdamW(together)
    each = [mica.optim.AdamW([p]) for p in alone]
    for _ in range(3):
        for p, q in zip(together, alone, strict=True):
            p.grad = mica.tensor(draw.standard_normal(p.shape), dtype=mica.float32)
            q.grad = p.grad.clone()
        one.step()
        for optimizer in each:
            optimizer.step()
    for p, q in zip(together, alone, strict=True):
        assert mica.equal(p, q)


def test_parameters_that_share_memory_are_changed_one_after_the_other():
    base = mica.zeros(50000)
    p, q = base[:40000].requires_grad_(), base[10000:].requires_grad_()
    optimizer = mica.optim.SGD([p, q], lr=1.0)
    p.grad, q.grad = mica.ones(40000), mica.ones(40000)
    optimizer.step()
    assert base[0] == -1 and base[-1] == -1 and (base[10000:40000] == -2).all()


def test_step_counts_as_a_change_in_place():
    p = mica.ones(3, requires_grad=True)
    product = (p * p).sum()
    p.grad = mica.ones(3)
    before = p._version
    mica.optim.SGD([p], lr=0.1).step()
    assert p._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_meta_and_empty_tensors():
    p = mica.empty(3, 2, device="meta", requires_grad=True)
    p.grad = mica.empty(3, 2, device="meta")
    optimizer = mica.optim.SGD([p], momentum=0.9)
    optimizer.step()
    assert optimizer.state[p]["momentum_buffer"].device.type == "meta"
    empty = mica.empty(0, 4, requires_grad=True)
    empty.grad = mica.empty(0, 4)
    mica.optim.Adam([empty]).step()
