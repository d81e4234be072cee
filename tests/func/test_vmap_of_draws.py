"""vmap of random numbers, and of functions with a vmap of their own. What is expected was recorded from torch 2.13."""

import mica
import pytest
from mica.func import vmap

X, Y = mica.linspace(0.1, 0.9, 24).view(4, 6), mica.linspace(0.1, 0.9, 6)

# Of seed 3: the first row of what each draws.
FIRST_ROWS = {
    "normal, mean": (lambda a: mica.normal(a, Y), [0.092336, 0.228352, -0.158882, 0.245834, 0.731112, 0.015811]),
    "normal, std": (lambda a: mica.normal(Y, a), [0.092336, 0.308506, 0.287397, 0.594617, 0.898983, 0.821447]),
    "binomial": (lambda a: mica.binomial((Y * 10).round(), a), [0, 0, 1, 2, 1, 3]),
    "binomial, count": (lambda a: mica.binomial((a * 10).round(), Y), [0, 0, 1, 0, 2, 3]),
    "gamma": (lambda a: mica._standard_gamma(a), [0.332796, 0.0000997, 0.06529, 0.479754, 0.00913, 3.298712]),
    "dirichlet": (lambda a: mica._sample_dirichlet(a), [0.079506, 0.0000238, 0.015598, 0.114615, 0.002181, 0.788076]),
    "multinomial": (lambda a: mica.multinomial(a, 3), [0, 3, 1]),
    "bernoulli_": (lambda a: a.clone().bernoulli_(Y), [1, 1, 1, 1, 1, 1]),
    "bernoulli_ of examples": (lambda a: a.clone().bernoulli_(a), [1, 1, 0, 1, 0, 1]),
}


@pytest.mark.parametrize("name", FIRST_ROWS)
def test_different_numbers_are_those_of_the_batch(name):
    draw, expected = FIRST_ROWS[name]
    mica.manual_seed(3)
    row = vmap(draw, randomness="different")(X)[0]
    mica.testing.assert_close(row.to(mica.float32), mica.tensor(expected, dtype=mica.float32), atol=1e-5, rtol=1e-4)


def test_what_draws_is_told_how():
    below = -mica.ones(4, 6)
    drawn = {
        mode: vmap(lambda a: mica.rrelu(a, training=True), randomness=mode)(below) for mode in ("same", "different")
    }
    assert all(mica.equal(row, drawn["same"][0]) for row in drawn["same"])
    assert not mica.equal(*drawn["different"][:2])
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda a: mica.rrelu(a, training=True))(below)
    assert mica.equal(vmap(mica.rrelu)(below), mica.rrelu(below))
    for one in (
        lambda a: mica.binomial((a * 10).round(), mica.tensor(0.5)),
        lambda a: mica.binomial(mica.tensor(3.0), a),
    ):
        assert vmap(one, randomness="different")(X).shape == X.shape
    out = mica.zeros(3)
    for one in (lambda a: mica.randn(3, out=out), lambda a: mica.normal(0.0, mica.ones(3), out=out)):
        with pytest.raises(RuntimeError, match="do not support calling out variants of random operations"):
            vmap(one, randomness="different")(X)


def test_products_of_examples_of_other_ranks_are_refused():
    for call, a, b in (
        (mica.mv, mica.ones(7, 2, 2, 2), mica.ones(7, 2)),
        (mica.mv, mica.ones(7, 2, 2), mica.ones(7, 2, 2)),
        (mica.mm, mica.ones(7, 2, 2, 2), mica.ones(7, 2, 2)),
        (mica.bmm, mica.ones(7, 2, 2), mica.ones(7, 2, 2)),
        (lambda a, b: mica.addmm(a, a, b), mica.ones(7, 1, 2, 2), mica.ones(7, 2, 2)),
    ):
        with pytest.raises(RuntimeError, match="Shape mismatch: Got incorrect dims for"):
            vmap(call)(a, b)


def test_channels_are_shuffled_for_all_examples_at_once():
    x = mica.arange(7 * 2 * 4 * 3.0).view(7, 2, 4, 3)
    mica._C._functorch._set_vmap_fallback_enabled(False)
    try:
        for shuffle in (mica.channel_shuffle, mica.native_channel_shuffle, mica.nn.functional.channel_shuffle):
            got = vmap(lambda a, shuffle=shuffle: shuffle(a, 2))(x)
            assert mica.equal(got, mica.stack([shuffle(a, 2) for a in x]))
    finally:
        mica._C._functorch._set_vmap_fallback_enabled(True)


def test_take_of_numbers():
    table, places = mica.arange(28.0).view(7, 4), mica.arange(7) % 4
    assert vmap(mica.take)(table, places).tolist() == [0, 5, 10, 15, 16, 21, 26]
    assert vmap(mica.take)(places.float(), mica.zeros(7, dtype=mica.int64)).tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert vmap(mica.take, in_dims=(None, 0))(table[0], places).tolist() == [0, 1, 2, 3, 0, 1, 2]


CALLS = []


class Sum(mica.autograd.Function):
    @staticmethod
    def forward(x, others):
        return x + others[0] + others[1]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad, None

    @staticmethod
    def vmap(info, in_dims, x, others):
        CALLS.append((info.batch_size, in_dims, x.shape, [other.shape for other in others]))
        return x + others[0] + others[1], 0


taken_before = Sum.apply


@pytest.mark.parametrize("apply", [taken_before, lambda *args: Sum.apply(*args)])
def test_a_functions_own_rule_sees_the_tensors_of_lists(apply):
    CALLS.clear()
    one, rows = mica.ones(2), mica.ones(3, 2)
    got = vmap(apply, in_dims=(0, [0, None]))(rows, [rows, one])
    assert got.tolist() == [[3, 3]] * 3
    assert CALLS == [(3, (0, [0, None]), (3, 2), [(3, 2), (2,)])]


def test_two_rules_are_one_too_many():
    class Both(Sum):
        generate_vmap_rule = True

    with pytest.raises(RuntimeError, match="You tried to vmap over Both, but it has both generate_vmap_rule=True and"):
        vmap(Both.apply, in_dims=(0, None))(mica.ones(2, 2), [mica.ones(2), mica.ones(2)])


def test_a_rule_says_where_its_examples_are():
    class Forgets(Sum):
        @staticmethod
        def vmap(info, in_dims, x, others):
            return x

    with pytest.raises(RuntimeError, match="Expected the vmap staticmethod to have two returns"):
        vmap(Forgets.apply, in_dims=(0, None))(mica.ones(2, 2), [mica.ones(2), mica.ones(2)])

    class Miscounts(Sum):
        @staticmethod
        def vmap(info, in_dims, x, others):
            return x, (0,)

    with pytest.raises(RuntimeError, match="returned an incompatible"):
        vmap(Miscounts.apply, in_dims=(0, None))(mica.ones(2, 2), [mica.ones(2), mica.ones(2)])


@pytest.mark.parametrize("out_dims", ["text", ("text",), 1.5, (0, "text")])
def test_places_of_results_are_numbers(out_dims):
    with pytest.raises(ValueError, match="`out_dims` must be an int, None or a python collection of ints"):
        vmap(lambda x: x, out_dims=out_dims)(X)
