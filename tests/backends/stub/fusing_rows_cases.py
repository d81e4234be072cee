"""What test_stub_backend.py runs in a process of its own: products of one row and attention of one query in compiled
functions, as a graph that is captured records them. In tests/backends/stub/fusing_rows.cpp a kernel that begins early
sees nothing of what the kernels before it write, but for the places of keys and values that it was told."""

import ctypes
import random
import sys
from pathlib import Path

import mica as torch
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fusing_cases import LIBRARIES, counted, fusing, ramp  # noqa: F401 (the fixture opens the backend)

F = torch.nn.functional
WIDTH, HEADS, KEY_HEADS, HEAD, LENGTH = 32, 4, 2, 8, 12


def begun_early():
    library = ctypes.CDLL(str(LIBRARIES / "libmica_fusing.so"))
    return library.fusing_early_products(), library.fusing_early_attention()


def agree(function, *arguments, changed=()):
    """Runs the function eagerly and compiled and compares all bits: of the results, and of what it changes. Returns how
    many loops and kernels alone there were, and how many products and attentions began early."""
    before = [t.clone() for t in changed]

    def run(f):
        for t, b in zip(changed, before, strict=True):
            t.copy_(b)
        found = f(*arguments)
        return [found] if isinstance(found, torch.Tensor) else list(found)

    with torch.no_grad():
        expected = [t.clone() for t in run(function)] + [t.clone() for t in changed]
        least = torch._C._set_least_fused_elements(1)
        try:
            early = begun_early()
            found, ran = counted(run, torch.compile(function))
        finally:
            torch._C._set_least_fused_elements(least)
        early = tuple(now - then for now, then in zip(begun_early(), early, strict=True))
    for i, (here, there) in enumerate(zip(found + list(changed), expected, strict=True)):
        assert torch.equal(here.contiguous().view(torch.uint8), there.contiguous().view(torch.uint8)), i
    return ran, early


def weight(*shape, seed, dtype=torch.float32):
    torch.manual_seed(seed)
    return (torch.randn(shape) / shape[-1] ** 0.5).to(dtype).to("fusing")


def place(at):
    return torch.tensor([at]).to("fusing")


def heads(x, matrix, count):
    return F.linear(x, matrix).view(1, 1, count, HEAD).transpose(1, 2)


def turned(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return x * cosine + torch.cat([-b, a], -1) * sine


class Attention:
    """A layer of attention with a cache, whose new keys and values write(cache, at, new) stores."""

    def __init__(self, seed=0, dtype=torch.float32):
        self.q, self.o = (weight(WIDTH, WIDTH, seed=seed + i, dtype=dtype) for i in (1, 2))
        self.k, self.v = (weight(KEY_HEADS * HEAD, WIDTH, seed=seed + i, dtype=dtype) for i in (3, 4))
        self.keys, self.values = (weight(1, KEY_HEADS, LENGTH, HEAD, seed=seed + i, dtype=dtype) for i in (5, 6))
        self.cosine, self.sine = (weight(1, HEAD, seed=seed + i, dtype=dtype) for i in (7, 8))

    def __call__(self, x, at, write=lambda cache, at, new: cache.index_copy_(2, at, new), mask=None):
        q = turned(heads(x, self.q, HEADS), self.cosine, self.sine)
        write(self.keys, at, turned(heads(x, self.k, KEY_HEADS), self.cosine, self.sine))
        write(self.values, at, heads(x, self.v, KEY_HEADS))
        return x + F.linear(self.attend(q, mask).transpose(1, 2).reshape(1, 1, WIDTH), self.o)

    def attend(self, q, mask):
        return F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask, enable_gqa=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("at", [0, 7, LENGTH - 1, -1, -LENGTH])
def test_layers_of_attention(dtype, at):
    layers = [Attention(10 * i, dtype) for i in range(3)]
    gate, up, down = (weight(WIDTH, WIDTH, seed=70 + i, dtype=dtype) for i in range(3))
    seen = (torch.arange(LENGTH) < 9)[None, None, None].to("fusing")

    def run(x, at):
        for layer in layers:
            x = layer(x, at, mask=seen)
            x = x + F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
        return x

    changed = [t for layer in layers for t in (layer.keys, layer.values)]
    ran, early = agree(run, ramp(1, 1, WIDTH, dtype=dtype), place(at), changed=changed)
    assert early == (11, 3)  # all but the first product
    assert ran["calls"] - ran["dead"] > 40 and ran["flushes"] == 1


def repeated(t, times=HEADS // KEY_HEADS):
    batch, count, length, width = t.shape
    return t[:, :, None].expand(batch, count, times, length, width).reshape(batch, count * times, length, width)


class Repeating(Attention):
    """Repeats the heads of keys and values, as transformers does where there is a mask."""

    def attend(self, q, mask):
        return F.scaled_dot_product_attention(q, repeated(self.keys), repeated(self.values), attn_mask=mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_that_are_repeated_are_read_where_they_lie(dtype):
    layers = [Repeating(10 * i, dtype) for i in range(3)]
    seen = (torch.arange(LENGTH) < 9)[None, None, None].to("fusing")

    def run(x, at):
        for layer in layers:
            x = layer(x, at, mask=seen)
        return x

    changed = [t for layer in layers for t in (layer.keys, layer.values)]
    ran, early = agree(run, ramp(1, 1, WIDTH, dtype=dtype), place(7), changed=changed)
    assert ran["loops"] == 9 and early == (5, 3)


def attend(q, keys, values):
    return F.scaled_dot_product_attention(q, keys, values)


def test_heads_in_a_batch_and_with_rows_side_by_side():
    for batch, key_heads in ((1, 1), (3, 1), (3, 2), (2, HEADS)):
        for by_rows in (False, True):
            shape = (batch, LENGTH, key_heads, HEAD) if by_rows else (batch, key_heads, LENGTH, HEAD)
            keys, values = (weight(*shape, seed=i) for i in (1, 2))
            if by_rows:
                keys, values = keys.transpose(1, 2), values.transpose(1, 2)
            q = weight(batch, HEADS, 1, HEAD, seed=3)
            times = HEADS // key_heads
            ran, _ = agree(lambda q, k=keys, v=values, t=times: attend(q, repeated(k, t), repeated(v, t)), q)
            assert ran["loops"] == 1


def test_heads_that_cannot_be_read_where_they_lie():
    keys, values = (weight(1, KEY_HEADS, LENGTH, HEAD, seed=i) for i in (1, 2))
    q, more = weight(1, HEADS, 1, HEAD, seed=3), weight(1, HEADS, LENGTH, HEAD, seed=4)

    def asked_for(q):
        k = repeated(keys)
        return attend(q, k, repeated(values)), k

    def changed_in_between(q):
        k, v = repeated(keys), repeated(values)
        keys.mul_(2)
        values.index_copy_(2, place(4), q[:, :KEY_HEADS])
        return attend(q, k, v)

    def used_twice(q):
        k, v = repeated(keys), repeated(values)
        return attend(attend(q, k, v), k, v)

    def changed_afterwards(q):
        k, v = repeated(keys), repeated(values)
        k.mul_(2)
        return attend(q, k, v)

    def by_turns(q):  # heads 0, 1, 0, 1
        return attend(q, *(t.repeat(1, HEADS // KEY_HEADS, 1, 1) for t in (keys, values)))

    def one_of_the_two(q):
        return attend(q, repeated(keys), more), attend(q, more, repeated(values))

    def other_numbers(q):
        return attend(q, repeated(keys[:, :1], HEADS), repeated(values))

    def rounded(q):
        return attend(q, repeated(keys.double()).float(), repeated(values.double()).float())

    def of_one_cache(q):
        return attend(q, repeated(keys), repeated(keys))

    def a_view_of_it(q):
        return attend(q, repeated(keys)[:, :, 1:], repeated(values)[:, :, 1:])

    for run in (
        asked_for, changed_in_between, used_twice, changed_afterwards, by_turns, one_of_the_two, other_numbers,
        rounded, of_one_cache, a_view_of_it,
    ):  # fmt: skip
        agree(run, q, changed=[keys, values])


def elsewhere(cache, at, new):
    cache[:, :, 3:4] = new


def one_of_two(cache, at, new):
    cache.index_copy_(2, at, new)
    cache[:, :, 3:4].mul_(2)


def other_dimension(cache, at, new):
    cache[:, :, :, :1].index_copy_(1, at * 0, new[:, :1, :, :1].expand(1, 1, LENGTH, 1))


def next_to_it(cache, at, new):
    cache[:, :, 1:].index_copy_(2, at, new)


def twice(cache, at, new):
    cache.index_copy_(2, at, new)
    cache.index_copy_(2, at - 1, new)


def by_a_number_that_is_new(cache, at, new):
    cache.index_copy_(2, at + (new.sum() * 0).long(), new)


@pytest.mark.parametrize("write", [elsewhere, one_of_two, other_dimension, next_to_it, twice, by_a_number_that_is_new])
def test_keys_that_are_written_otherwise(write):
    layer = Attention()
    for at in (0, 2, 10):
        agree(lambda x, at: layer(x, at, write), ramp(1, 1, WIDTH), place(at), changed=[layer.keys, layer.values])


def test_keys_that_are_written_at_two_places():
    layer, other = Attention(), place(8)

    def twice(cache, at, new):
        cache.index_copy_(2, at, new)
        cache.index_copy_(2, other, new)

    agree(lambda x, at: layer(x, at, twice), ramp(1, 1, WIDTH), place(3), changed=[layer.keys, layer.values])


def test_keys_and_values_in_one_storage():
    layer, both = Attention(), weight(2, 1, KEY_HEADS, LENGTH, HEAD, seed=9)
    layer.keys, layer.values = both
    agree(layer, ramp(1, 1, WIDTH), place(3), changed=[both])


def test_keys_whose_heads_lie_side_by_side():
    layer = Attention()
    layer.keys, layer.values = (weight(1, LENGTH, KEY_HEADS, HEAD, seed=i).transpose(1, 2) for i in (5, 6))
    _, early = agree(layer, ramp(1, 1, WIDTH), place(3), changed=[layer.keys, layer.values])
    assert early[1] == 0  # rows of other heads lie between


def test_an_index_that_the_products_write():
    layer, at, index = Attention(), place(3), weight(1, WIDTH, seed=11)

    def run(x):
        at.copy_(F.linear(x, index).view(1) * 0 + 5)
        return layer(x, at)

    agree(run, ramp(1, 1, WIDTH), changed=[at, layer.keys, layer.values])


def test_matrices_that_change_before_their_products():
    layer, other = Attention(), weight(WIDTH, WIDTH, seed=12)

    def by_a_loop(x, at):
        y = layer(x, at)
        layer.o.mul_(2)
        return layer(y, at)

    def by_the_loop_behind_products(x, at):
        layer.o.view(-1)[:WIDTH].copy_((F.linear(x, other) * 2).view(-1))
        return layer(x, at)

    def by_attention(x, at):
        y = F.linear(x, other)
        q = y.view(1, HEADS, 1, HEAD)
        other.view(-1)[:WIDTH].copy_(
            F.scaled_dot_product_attention(q, layer.keys, layer.values, enable_gqa=True).view(-1)
        )
        return F.linear(y, other)

    for run in (by_a_loop, by_the_loop_behind_products, by_attention):
        agree(run, ramp(1, 1, WIDTH), place(3), changed=[layer.o, other, layer.keys, layer.values])


class Program:
    """A random program of rows: products, loops over them and their heads, writes to a cache, attention."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.steps = [(draw.choice(self.KINDS), draw.random(), draw.random(), draw.randrange(3)) for _ in range(24)]
        self.matrices = [weight(WIDTH, WIDTH, seed=seed + i) for i in range(3)]
        self.caches = [weight(1, HEADS, LENGTH, HEAD, seed=seed + 3 + i) for i in range(3)]
        self.places = [place(draw.randrange(-LENGTH, LENGTH)) for _ in range(3)]
        self.cosine, self.sine = weight(1, HEAD, seed=seed + 6), weight(1, HEAD, seed=seed + 7)

    KINDS = (
        ["product"] * 6
        + ["turned"] * 2
        + ["write"] * 3
        + ["attention"] * 2
        + ["sum", "silu", "number", "change", "gate"]
    )

    def run(self, x):
        rows = [x]
        for kind, first, second, which in self.steps:
            a, b = (rows[int(r * len(rows))] for r in (first, second))
            if kind == "product":
                rows.append(F.linear(rows[-1] if first < 0.5 else a, self.matrices[which]))
            elif kind == "turned":
                y = turned(a.view(1, 1, HEADS, HEAD).transpose(1, 2), self.cosine, self.sine)
                rows.append(y.transpose(1, 2).reshape(1, 1, WIDTH))
            elif kind == "write":
                new = a.view(1, 1, HEADS, HEAD).transpose(1, 2)
                new = turned(new, self.cosine, self.sine) if second < 0.5 else new
                self.caches[which].index_copy_(2, self.places[which], new)
            elif kind == "attention":
                keys, values = self.caches[which], self.caches[int(second * 3)]
                if first < 0.5:
                    keys, values = repeated(keys[:, :KEY_HEADS]), repeated(values[:, 1 : 1 + KEY_HEADS])
                found = F.scaled_dot_product_attention(a.view(1, 1, HEADS, HEAD).transpose(1, 2), keys, values)
                rows.append(found.transpose(1, 2).reshape(1, 1, WIDTH))
            elif kind == "sum":
                rows.append(a + b)
            elif kind == "silu":
                rows.append(F.silu(a))
            elif kind == "gate":
                rows.append(F.silu(F.linear(a, self.matrices[which])) * F.linear(a, self.matrices[0]))
            elif kind == "number":
                rows.append(a * 0.5)
            else:
                self.matrices[which].view(-1)[:WIDTH].copy_(a.view(-1) * 0.1)
        return rows[int(second * len(rows)) :]


def test_random_programs_of_rows():
    total = [0, 0]
    for seed in range(150):
        program = Program(100 * seed)
        _, early = agree(program.run, ramp(1, 1, WIDTH), changed=program.matrices + program.caches)
        total = [t + e for t, e in zip(total, early, strict=True)]
    assert min(total) > 20


def test_a_recording_of_many_calls():
    # Of a graph that is captured, 1,024 calls are put off; elsewhere 256.
    matrix = weight(WIDTH, WIDTH, seed=13)

    def run(x, count):
        for _ in range(count):
            x = F.linear(x, matrix) * 0.5 + 1
        return x

    for count, flushes in ((85, 1), (86, 1), (341, 1), (342, 2), (700, 3)):
        ran, _ = agree(run, ramp(1, 1, WIDTH), count)
        assert ran["calls"] == 3 * count and ran["flushes"] == flushes


def test_attention_alone():
    keys, values = (weight(1, HEADS, LENGTH, HEAD, seed=i) for i in (14, 15))
    for length in (1, 4, 5):  # of more queries it runs at once
        ran, _ = agree(
            lambda q: F.scaled_dot_product_attention(q, keys, values), weight(1, HEADS, length, HEAD, seed=16)
        )
        assert ran["calls"] == (length < 5)
    q = weight(1, HEADS, 1, HEAD, seed=16)
    ran, _ = agree(lambda q: (F.scaled_dot_product_attention(q, keys, values), q * 2)[1], q)
    assert ran["dead"] == 1
    agree(lambda q: F.scaled_dot_product_attention(F.scaled_dot_product_attention(q, keys, values), keys, values), q)
