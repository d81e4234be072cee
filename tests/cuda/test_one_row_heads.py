"""Heads in compiled functions that are replayed: what rotates their positions and writes them to a cache is part of the
kernel of the products, attention follows it early, and every bit is eager's."""

import mica
import pytest
from replayed_kernels import DTYPES, count, drawn, replayed_as_eagerly

F = mica.nn.functional

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]


def turned(x, cosine, sine, order=0):
    a, b = x.chunk(2, -1)
    other = mica.cat([-b, a], -1)
    return x * cosine + other * sine if order == 0 else sine * other + cosine * x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    ("width", "heads", "key_heads", "head"), [(1024, 8, 2, 64), (2048, 32, 4, 64), (1000, 6, 1, 80), (4096, 8, 8, 128)]
)
def test_positions_are_rotated_and_stored_by_the_kernel_of_the_products(dtype, order, width, heads, key_heads, head):
    x, scale = drawn(1, 1, width, seed=1, dtype=dtype), drawn(width, seed=2, dtype=dtype)
    q, k, v = (drawn(n * head, width, seed=n, dtype=dtype, scale=0.1) for n in (heads, key_heads, key_heads))
    cosine, sine = drawn(1, head, seed=5, dtype=dtype), drawn(1, head, seed=6, dtype=dtype)
    keys, values = (drawn(1, key_heads, 100, head, seed=n, dtype=dtype) for n in (7, 8))

    def run(x, at):
        h = F.rms_norm(x, (width,), scale, 1e-5)
        rotated = turned(F.linear(h, q).view(1, 1, heads, head).transpose(1, 2), cosine, sine, order)
        keys.index_copy_(2, at, turned(F.linear(h, k).view(1, 1, key_heads, head).transpose(1, 2), cosine, sine, order))
        values.index_copy_(2, at, F.linear(h, v).view(1, 1, key_heads, head).transpose(1, 2))
        return rotated

    for place in (0, 99):
        at = mica.tensor([place], device="cuda")
        kernels = replayed_as_eagerly(run, x, at, changed=[keys, values])
        assert count(kernels, "rows_kernel") == 1 and count(kernels, "fused") == 0
        assert len(kernels) <= 4  # copies of the arguments and of the result, too


def test_places_that_there_are_not():
    x, weight = drawn(1, 1, 1024, seed=1), drawn(128, 1024, seed=2, scale=0.1)
    cache = drawn(1, 2, 10, 64, seed=3)

    def run(x, at):
        cache.index_copy_(2, at, F.linear(x * 2, weight).view(1, 1, 2, 64).transpose(1, 2))
        return x + 1

    compiled = mica.compile(run, mode="reduce-overhead")
    with mica.no_grad():
        for _ in range(8):
            compiled(x, mica.tensor([3], device="cuda"))
        mica.cuda.synchronize()
        before = cache.clone()
        compiled(x, mica.tensor([10], device="cuda"))
        with pytest.raises(IndexError, match="10"):
            mica.cuda.synchronize()
        assert mica.equal(cache, before)


def test_a_product_that_two_loops_follow():
    x, weight = drawn(1, 1, 1024, seed=1), drawn(512, 1024, seed=2, scale=0.1)
    cosine, sine = drawn(1, 64, seed=5), drawn(1, 64, seed=6)
    one, other = drawn(1, 8, 10, 64, seed=3), drawn(1, 8, 12, 64, seed=4)

    def copied(x, at):
        y = F.linear(x * 2, weight).view(1, 1, 8, 64).transpose(1, 2)
        one.index_copy_(2, at, y)
        other.index_copy_(2, at, y)

    def rotated(x, at):
        y = F.linear(x * 2, weight).view(1, 1, 8, 64).transpose(1, 2)
        one.index_copy_(2, at, turned(y, cosine, sine))
        other.index_copy_(2, at, y)

    for run in (copied, rotated):
        replayed_as_eagerly(
            lambda x, at, f=run: (f(x, at), x + 1)[1], x, mica.tensor([4], device="cuda"), changed=[one, other]
        )


def test_loops_over_heads_that_the_kernel_does_not_compute():
    x, weight = drawn(1, 1, 1024, seed=1), drawn(512, 1024, seed=2, scale=0.1)
    cosine, sine = drawn(1, 64, seed=5), drawn(1, 64, seed=6)
    per_head = drawn(8, 1, 64, seed=7)
    cache = drawn(1, 8, 10, 64, seed=8)

    def heads(x):
        return F.linear(x * 2, weight).view(1, 1, 8, 64).transpose(1, 2)

    def swapped(x):  # the halves in another order, another sign, a part of a head, a table for each head
        a, b = heads(x).chunk(2, -1)
        y = heads(x)
        return (
            heads(x) * cosine + mica.cat([b, -a], -1) * sine,
            heads(x) * cosine - mica.cat([-b, a], -1) * sine,
            y[..., :32] * cosine[..., :32],
            turned(heads(x), per_head, sine),
            turned(heads(x), cosine, cosine) * 2,
        )

    def kept(x):  # the program asks for what the rotation is made of
        y = heads(x)
        return turned(y, cosine, sine), y * 1, y

    def stored_twice(x, at):
        y = turned(heads(x), cosine, sine)
        cache.index_copy_(2, at, y)
        return y + cache.sum()

    def over_itself(x):
        y = heads(x)
        y.copy_(turned(y, cosine, sine))
        return y

    replayed_as_eagerly(swapped, x)
    replayed_as_eagerly(kept, x)
    replayed_as_eagerly(over_itself, x)
    replayed_as_eagerly(stored_twice, x, mica.tensor([4], device="cuda"), changed=[cache])


def test_attention_between_products():
    # Products ask for their matrix while attention runs, and while the products before it may still run.
    width, heads, key_heads, head, length = 1024, 16, 4, 64, 300
    x, scale = drawn(1, 1, width, seed=1), drawn(width, seed=2)
    q, k, v = (drawn(n * head, width, seed=n, scale=0.1) for n in (heads, key_heads, key_heads))
    o, wide = drawn(width, heads * head, seed=9, scale=0.1), drawn(4 * width, width, seed=10, scale=0.1)
    cosine, sine = drawn(1, head, seed=5), drawn(1, head, seed=6)
    keys, values = (drawn(1, key_heads, length, head, seed=n) for n in (7, 8))
    seen = (mica.arange(length, device="cuda") < 200)[None, None, None]

    def run(x, at, mask):
        for _ in range(4):
            h = F.rms_norm(x, (width,), scale, 1e-5)
            rotated = turned(F.linear(h, q).view(1, 1, heads, head).transpose(1, 2), cosine, sine)
            keys.index_copy_(2, at, turned(F.linear(h, k).view(1, 1, key_heads, head).transpose(1, 2), cosine, sine))
            values.index_copy_(2, at, F.linear(h, v).view(1, 1, key_heads, head).transpose(1, 2))
            a = F.scaled_dot_product_attention(rotated, keys, values, attn_mask=mask, enable_gqa=True)
            x = x + F.linear(a.transpose(1, 2).reshape(1, 1, width), o)
            x = x + F.linear(F.silu(F.linear(F.rms_norm(x, (width,), scale, 1e-5), wide)), wide.view(width, 4 * width))
        return x

    kernels = replayed_as_eagerly(run, x, mica.tensor([150], device="cuda"), seen, changed=[keys, values])
    assert count(kernels, "rows_kernel") == 16 and count(kernels, "forward_kernel") == 4
    assert len(kernels) <= 20 + 5  # copies of the arguments and of the result

    def changes_the_matrix(x, at):
        a = F.scaled_dot_product_attention(x.view(1, 16, 1, 64), keys, values, enable_gqa=True)
        o.mul_(-1)
        y = F.linear(x * 2, wide)
        o.view(-1)[: 4 * width].copy_(y.view(-1))
        b = F.scaled_dot_product_attention(a, keys, values, enable_gqa=True)
        return F.linear(b.transpose(1, 2).reshape(1, 1, width), o)

    replayed_as_eagerly(changes_the_matrix, x, mica.tensor([150], device="cuda"), changed=[o])


def test_attention_alone():
    keys, values = drawn(1, 4, 300, 64, seed=1), drawn(1, 4, 300, 64, seed=2)
    for length in (1, 4):
        kernels = replayed_as_eagerly(
            lambda q: F.scaled_dot_product_attention(q, keys, values), drawn(1, 4, length, 64, seed=3)
        )
        assert count(kernels, "forward_kernel") == 1
