"""torch.func on torch and on Mica: per-sample gradients, Jacobians and products of a small network."""

import mica
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")


def close(ours, theirs):
    theirs = mica.tensor(theirs.detach().tolist(), dtype=ours.dtype).reshape(tuple(theirs.shape))
    mica.testing.assert_close(ours.detach(), theirs, rtol=1e-4, atol=1e-5)


def network(t):
    t.manual_seed(3)
    model = t.nn.Sequential(t.nn.Conv2d(1, 3, 3), t.nn.ReLU(), t.nn.Flatten(), t.nn.Linear(3 * 16, 4))
    return model, {k: v.detach() for k, v in model.named_parameters()}, t.randn(5, 1, 6, 6)


def per_sample(t):
    model, parameters, x = network(t)
    y = t.arange(5) % 4

    def loss(p, x, y):
        return t.nn.functional.cross_entropy(t.func.functional_call(model, p, (x.unsqueeze(0),)), y.unsqueeze(0))

    found = t.func.vmap(t.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    return [found[k] for k in sorted(found)]


def transforms(t):
    model, parameters, x = network(t)

    def out(p, x):
        return t.func.functional_call(model, p, (x.unsqueeze(0),)).squeeze(0)

    directions = {k: t.cos(v * 7) for k, v in parameters.items()}
    value, tangent = t.func.jvp(lambda p: out(p, x[0]), (parameters,), (directions,))
    rows = t.func.jacrev(out)(parameters, x[0])
    columns = t.func.jacfwd(lambda v: out(parameters, v))(x[0])
    batch = t.func.vmap(t.func.jacrev(lambda v: out(parameters, v)))(x)
    small = t.randn(4)
    second = t.func.hessian(lambda v: (v.sin() * v.sum()).prod())(small)
    linear = t.func.linearize(lambda v: out(parameters, v), x[0])
    return [value, tangent, *(rows[k] for k in sorted(rows)), columns, batch, second, linear[0], linear[1](x[1])]


def maps(t):
    t.manual_seed(4)
    a, b, m = t.randn(4, 3), t.randn(5, 3), t.randn(4, 3, 3)
    vmap = t.func.vmap
    return [
        vmap(vmap(t.dot, (None, 0)), (0, None))(a, b),
        vmap(lambda x, y: x @ y, in_dims=(0, 0), out_dims=1)(m, a),
        vmap(lambda x: t.cat([x, x * 2]).softmax(0))(a),
        vmap(lambda x: x.max(-1).values + x.std())(m),
        vmap(lambda x: t.einsum("ij,kj->ik", x, b))(m),
        vmap(lambda x: x[1:].flip(0).cumsum(0))(m),
        vmap(lambda x, y: t.where(x > 0, x, y), in_dims=(0, None))(a, b[0]),
        vmap(lambda x: x.sum(), chunk_size=3)(a),
        vmap(lambda x: t.func.vjp(t.sin, x)[1](x)[0])(a),
    ]


@pytest.mark.parametrize("case", [per_sample, transforms, maps])
def test_case(case):
    ours, theirs = case(mica), case(torch)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        close(a, b)


def test_forward_ad():
    results = []
    for t in (mica, torch):
        t.manual_seed(5)
        x, v = t.randn(3, 4), t.randn(3, 4)
        fwd = __import__(f"{t.__name__}.autograd.forward_ad", fromlist=["x"])
        with fwd.dual_level():
            d = fwd.make_dual(x, v)
            results.append([fwd.unpack_dual(f(d)).tangent for f in (
                t.sin, lambda y: y @ y.T, lambda y: y.softmax(1), lambda y: y.view(-1)[2:].cumsum(0), lambda y: y.norm(),
                lambda y, t=t: t.nn.functional.layer_norm(y, (4,)), lambda y, t=t: t.cat([y, y * 2]).mean(0),
            )])  # fmt: skip
    for a, b in zip(*results, strict=True):
        close(a, b)
