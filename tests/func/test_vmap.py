"""vmap runs a function once for all examples: what it allows, refuses and composes with."""

import mica
import mica.nn.functional as F
import pytest
from mica.func import grad, jacrev, vmap


def one_by_one(f, *args):
    return mica.stack([f(*(a[i] for a in args)) for i in range(args[0].shape[0])])


def calls_of(f, *args):
    """How often vmap calls a function."""
    count = 0

    def counted(*examples):
        nonlocal count
        count += 1
        return f(*examples)

    return vmap(counted)(*args), count


def test_a_function_runs_once_for_all():
    a, b = mica.randn(7, 3, 4), mica.randn(7, 4)
    result, count = calls_of(lambda x, y: (x @ y).tanh().sum() + x.mean(), a, b)
    assert count == 1
    mica.testing.assert_close(result, one_by_one(lambda x, y: (x @ y).tanh().sum() + x.mean(), a, b))


def test_a_function_that_asks_for_values_runs_one_by_one():
    def step(x):
        return x * 2 if x.sum().item() > 0 else -x

    a = mica.randn(5, 3)
    result, count = calls_of(step, a)
    assert count == 6
    mica.testing.assert_close(result, one_by_one(step, a))
    branch = lambda x: x if x.sum() > 0 else -x  # noqa: E731
    mica.testing.assert_close(vmap(branch)(a), one_by_one(branch, a))


def test_what_was_changed_in_place_cannot_be_run_again():
    def change(x):
        x.add_(1)
        return x * x.sum().item()

    a = mica.zeros(3, 2)
    with pytest.raises(RuntimeError, match=r"you're calling .item\(\) on a Tensor"):
        vmap(change)(a)
    assert a.sum() == 6


def test_an_example_shows_its_own_shape():
    seen = {}

    def look(x):
        seen.update(shape=x.shape, dim=x.dim(), ndim=x.ndim, size=x.size(-1), numel=x.numel(), length=len(x))
        seen.update(dtype=x.dtype, device=x.device, turned=x.T.shape, text=repr(x), stride=x.stride())
        return x

    vmap(look)(mica.zeros(5, 3, 4))
    assert seen["shape"] == (3, 4) and seen["dim"] == seen["ndim"] == 2 and seen["size"] == 4
    assert seen["numel"] == 12 and seen["length"] == 3 and seen["turned"] == (4, 3) and seen["stride"] == (4, 1)
    assert seen["dtype"] is mica.float32 and seen["text"].startswith("BatchedTensor(lvl=1, bdim=0, value=\n    tensor(")


def test_in_and_out_dims():
    a, b = mica.randn(3, 4, 5), mica.randn(5, 4)
    result = vmap(lambda x, y: x @ y, in_dims=(2, 0), out_dims=1)(a, b)
    mica.testing.assert_close(result, mica.stack([a[..., i] @ b[i] for i in range(5)], 1))
    shared = vmap(lambda x, y: y.sum(), in_dims=(0, None))(a, b)
    assert shared.shape == (3,)
    with pytest.raises(ValueError, match="can not return a BatchedTensor when out_dim is None"):
        vmap(lambda x: x, out_dims=None)(a)


def test_nested_maps():
    a, b = mica.randn(3, 5), mica.randn(4, 5)
    table = vmap(lambda x: vmap(lambda y: (x * y).sum())(b))(a)
    mica.testing.assert_close(table, a @ b.T)
    mica.testing.assert_close(vmap(vmap(vmap(lambda x: x.exp())))(mica.ones(2, 3, 4)), mica.ones(2, 3, 4).exp())
    mica.testing.assert_close(vmap(vmap(mica.dot, (None, 0)), (0, None))(a, b), a @ b.T)


def test_numbers_without_dimensions_promote_as_numbers():
    ints, numbers = mica.arange(6).view(2, 3), mica.tensor([0.5, 1.5], dtype=mica.float64)
    halves = mica.ones(2, 3, dtype=mica.float16)
    assert vmap(lambda x, y: x * y)(halves, numbers).dtype is mica.float16
    assert vmap(lambda x, y: x + y)(ints, numbers).dtype is mica.float64
    assert vmap(lambda x, y: mica.where(x > 0, x, y))(halves, numbers).dtype is mica.float16


@pytest.mark.parametrize(
    "index",
    [
        0, -1, slice(1, 3), (slice(None), 1), None, (..., 2), [0, 2], (slice(None), [1, 0]), ([0, 1], slice(None), [1, 2]),
        (None, ..., 0), mica.tensor([1, 0, 1]), (mica.tensor([[0, 1], [1, 0]]), 1), (1, slice(None), mica.tensor([2, 0])),
    ],
    ids=str,
)  # fmt: skip
def test_indexing(index):
    a = mica.randn(4, 3, 2, 5)
    mica.testing.assert_close(vmap(lambda x: x[index])(a), one_by_one(lambda x: x[index], a))

    def put(x):
        x = x.clone()
        x[index] = 7.0
        return x

    mica.testing.assert_close(vmap(put)(a), one_by_one(put, a))


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_lists_that_stand_for_tuples():
    a, one = mica.randn(2, 4, 5, 6), mica.tensor([1])
    for index in ([slice(None), [1, 0]], [one, one], [[0, 1], [1, 2]], [None, ..., 2], [1, one]):
        mica.testing.assert_close(vmap(lambda x, i=index: x[i])(a), one_by_one(lambda x, i=index: x[i], a))


def test_indices_of_their_own():
    a, i, j = mica.randn(4, 3, 5), mica.randint(3, (4, 2)), mica.randint(5, (4,))
    for f in (
        lambda x, i, j: x[i],
        lambda x, i, j: x[j % 3],
        lambda x, i, j: x[:, j],
        lambda x, i, j: x[:, i],
        lambda x, i, j: x.index_select(0, i),
        lambda x, i, j: x.gather(0, i.unsqueeze(1).expand(2, 5)),
        lambda x, i, j: F.one_hot(i, 3),
        lambda x, i, j: F.embedding(i, x),
    ):
        mica.testing.assert_close(vmap(f)(a, i, j), one_by_one(f, a, i, j))


def test_changes_in_place_reach_the_input():
    a = mica.zeros(3, 4)
    vmap(lambda x, y: x.add_(y))(a, mica.arange(3.0))
    assert mica.equal(a, mica.arange(3.0).view(3, 1).expand(3, 4))
    shared = mica.zeros(4)
    with pytest.raises(RuntimeError, match="vmap: add_\\(self, \\*extra_args\\) is not possible"):
        vmap(lambda y: shared.add_(y))(mica.ones(3, 4))
    assert shared.sum() == 0


def test_chunks():
    a = mica.randn(10, 4)
    sizes = []

    def f(x):
        sizes.append(1)
        return x.sum(), x * 2

    whole, parts = vmap(f)(a), vmap(f, chunk_size=4)(a)
    assert len(sizes) == 1 + 3
    mica.testing.assert_close(whole, parts)
    mica.testing.assert_close(vmap(lambda x: x * 2, out_dims=1, chunk_size=3)(a), (a * 2).T)


def test_random_numbers():
    a = mica.zeros(4, 3)
    for draw in (
        lambda x: x + mica.rand(3), lambda x: mica.rand_like(x), lambda x: F.dropout(x + 1, 0.5),
        lambda x: mica.bernoulli(x + 0.5), lambda x: x + mica.randint(0, 1000, (3,)), lambda x: x.clone().normal_(),
        lambda x: x + mica.randperm(3), lambda x: mica.normal(x, 1.0),
    ):  # fmt: skip
        mica.manual_seed(1)
        with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
            vmap(draw)(a)
        same = vmap(draw, randomness="same")(a)
        assert all(mica.equal(same[0], s) for s in same)
        different = vmap(draw, randomness="different")(mica.zeros(64, 3))
        assert not all(mica.equal(different[0], d) for d in different)


def test_functions_of_ones_own():
    class Cube(mica.autograd.Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    class Known(Cube):
        seen = 0

        @staticmethod
        def vmap(info, in_dims, x):
            Known.seen = info.batch_size, in_dims
            return Known.apply(x), 0

    x = mica.randn(4, 3)
    for function in (Cube, Known):
        mica.testing.assert_close(vmap(function.apply)(x), x**3)
        mica.testing.assert_close(vmap(grad(lambda v, f=function: f.apply(v).sum()))(x), 3 * x * x)
    assert Known.seen == (4, (0,))


def test_nobody():
    assert vmap(lambda x: (x @ x.mT).sum(0))(mica.ones(0, 3, 2)).shape == (0, 3)
    assert vmap(lambda x: x.view(-1)[:2])(mica.ones(0, 3, 2)).shape == (0, 2)


def test_vectors_of_their_own_for_a_graph_that_all_share():
    from mica.func import jvp, vjp

    x, w = mica.randn(4), mica.randn(3, 4)
    f = lambda v: (w @ v).tanh()  # noqa: E731
    jacobian = jacrev(f)(x)
    _, product = vjp(f, x)
    mica.testing.assert_close(vmap(lambda v: product(v)[0])(mica.eye(3)), jacobian)
    kernel = vmap(lambda v: jvp(f, (x,), (product(v)[0],))[1])(mica.eye(3))
    mica.testing.assert_close(kernel, jacobian @ jacobian.T)
    shared = x.clone().requires_grad_()
    inside = vmap(lambda row: mica.autograd.grad((row * shared).sin().sum(), shared)[0])(w)
    mica.testing.assert_close(inside, (w * x).cos() * w)
    both = vmap(lambda row: mica.autograd.grad((row * shared).sum(), (row, shared)))(w.clone().requires_grad_())
    mica.testing.assert_close(both[1], w)
    mica.testing.assert_close(both[0], x.expand(3, 4))


def test_refused_random_numbers_are_not_drawn():
    before = mica.get_rng_state()
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda x: x + mica.rand(1))(mica.ones(2))
    assert mica.equal(before, mica.get_rng_state())


def test_a_function_is_told_the_batch():
    told = []

    class Doubled(mica.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            told.append((repr(info), info.batch_size, info.randomness, in_dims))
            return x * 2, in_dims[0]

    assert vmap(Doubled.apply)(mica.ones(3)).tolist() == [2, 2, 2]
    assert told == [("VmapInfo(batch_size=3, randomness='error')", 3, "error", (0,))]


def test_tensors_without_a_batch_get_numbers_for_each_example():
    mica.manual_seed(7)
    expected = mica.nn.functional.dropout(mica.ones(3, 40), 0.5)
    mica.manual_seed(7)
    drop = mica.func.vmap(lambda _: mica.nn.functional.dropout(mica.ones(40), 0.5), randomness="different")
    assert mica.equal(drop(mica.zeros(3)), expected)
    mica.manual_seed(7)
    drawn = mica.func.vmap(lambda _: mica.bernoulli(mica.full((40,), 0.5)), randomness="different")(mica.zeros(3))
    assert drawn.shape == (3, 40) and not mica.equal(drawn[0], drawn[1])


def test_the_same_numbers_for_a_batch_of_chances_are_refused():
    with pytest.raises(RuntimeError, match="does not currently support same randomness with a batched tensor input"):
        mica.func.vmap(lambda t, p: t.bernoulli_(p), randomness="same")(mica.zeros(3, 4), mica.ones(3, 4))


def test_shapes_changed_in_place_within_grad():
    """What stands for an example changes its shape without a change of the memory that the batch is a view of."""

    def loss(weight, x, t):
        y = x.mm(weight)
        return (y.squeeze_(0) - t).sum()

    weight, x, t = mica.randn(4, 2), mica.randn(3, 1, 4), mica.randn(3, 2)
    got = vmap(mica.func.grad(loss), (None, 0, 0))(weight, x, t)
    mica.testing.assert_close(got, mica.stack([mica.func.grad(loss)(weight, x[i], t[i]) for i in range(3)]))


def test_what_vmap_was_given():
    seen = []

    def look(x):
        seen.append(mica.func.debug_unwrap(x))
        x = x.clone()
        seen.append(mica.func.debug_unwrap(x))
        return x

    x = mica.randn(2, 3)
    vmap(vmap(look))(x)
    assert seen[0] is x and seen[1] is not x and mica.equal(seen[1], x)


def test_a_rule_of_ones_own_is_told_where_examples_lie():
    told = []

    class Same(mica.autograd.Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            told.append((in_dims, tuple(x.shape)))
            return x, in_dims[0]

    x = mica.arange(6.0).view(3, 2)
    assert mica.equal(vmap(Same.apply, in_dims=1, out_dims=1)(x), x)
    assert mica.equal(vmap(lambda y: Same.apply(y * 1), in_dims=-1, out_dims=-1)(x), x)
    assert told == [((1,), (3, 2)), ((0,), (2, 3))]

    def replaced(y):
        y.data = mica.zeros(3)
        return Same.apply(y)

    assert mica.equal(vmap(replaced, in_dims=1)(x.clone()), mica.zeros(2, 3))


@pytest.mark.parametrize("space", [mica, mica.ops.aten])
def test_whether_all_examples_are_true(space):
    """The answer is one for all examples, as in torch: a program branches on it."""
    seen = []

    def look(x):
        seen.append((space._is_all_true(x > 0).item(), space._is_any_true(x > 1).item()))
        return x

    vmap(look)(mica.tensor([[1.0, -1.0], [1.0, 1.0]]))
    vmap(vmap(look))(mica.tensor([[1.0, 1.0], [1.0, 2.0]]))
    assert seen == [(False, False), (True, True)]
