"""Exports where many sizes are open at once: several tensors of the same sizes, attention, windows of images."""

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export
from mica.fx.experimental.proxy_tensor import make_fx
from mica.nn import functional as F


class Program(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def rotated(q, k):
    d = q.shape[-1]
    turns = 1.0 / (10000 ** (torch.arange(0, d, 2).float() / d))
    angles = torch.outer(torch.arange(q.shape[-2]).float(), turns)
    angles = torch.cat([angles, angles], -1)
    a, b = q.chunk(2, -1)
    return (q * angles.cos() + torch.cat([-b, a], -1) * angles.sin()) @ k.transpose(-1, -2)


def windows(x):
    b, h, w, c = x.shape
    x = F.pad(x, (0, 0, 0, -w % 4, 0, -h % 4))
    high, wide = x.shape[1:3]
    x = torch.roll(x, (-2, -2), (1, 2))
    parts = x.view(b, high // 4, 4, wide // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c).softmax(1)
    x = parts.view(b, high // 4, wide // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, high, wide, c)
    return torch.roll(x, (2, 2), (1, 2))[:, :h, :w]


# name: (function, sizes of the example's tensors, sizes of others)
PROGRAMS = {
    "sum of four sizes": (lambda x, y: x + y, [(2, 2, 5, 8)] * 2, [(3, 4, 6, 7)] * 2),
    "sum of five tensors": (lambda *xs: torch.stack(xs).sum(0), [(2, 2, 5)] * 5, [(3, 4, 6)] * 5),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k), [(2, 2, 5, 8)] * 2, [(3, 4, 6, 10)] * 2),
    "attention of itself": (lambda q, k: F.scaled_dot_product_attention(q, k, q, is_causal=True), [(2, 2, 5, 8)] * 2,
                            [(3, 4, 6, 10)] * 2),
    "rotated": (rotated, [(2, 2, 5, 8)] * 2, [(3, 4, 6, 10)] * 2),
    "windows": (windows, [(2, 6, 9, 3)], [(3, 10, 7, 5)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_stay_open(name):
    function, sizes, others = PROGRAMS[name]
    module = Program(function)
    torch.manual_seed(0)
    given = tuple(torch.randn(*shape) for shape in sizes)
    program = export(module, given, dynamic_shapes=(tuple([Dim.DYNAMIC] * len(shape) for shape in sizes),))
    for made in (program, program.run_decompositions()):
        for shapes in (sizes, others):
            tensors = [torch.randn(*shape) for shape in shapes]
            torch.testing.assert_close(made.module()(*tensors), function(*tensors))


def test_meta_tensors_of_more_bytes_than_there_are_addresses():
    x = torch.empty(2**31, 2**31, dtype=torch.float32, device="meta")
    assert x.shape == (2**31, 2**31) and (x + 1).shape == x.shape
    with pytest.raises(RuntimeError, match="overflow"):
        torch.empty(2**32, 2**32, device="meta")
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
        torch.empty(2**31, 2**31)


def volumes():
    """A network for volumes: halves, doubles, normalizes and attends."""
    torch.manual_seed(0)
    enters, halves, doubles = nn.Conv3d(3, 8, 3, padding=1), nn.Conv3d(8, 16, 3, 2, 1), nn.ConvTranspose3d(16, 8, 2, 2)
    leaves, norm = nn.Conv3d(16, 2, 1), nn.GroupNorm(4, 16)

    def function(x):
        fine = F.relu(enters(x))
        coarse = norm(halves(fine))
        rough = doubles(coarse)[:, :, : x.shape[2], : x.shape[3], : x.shape[4]]
        tokens = x.permute(0, 2, 3, 4, 1).flatten(1, 3)
        seen = F.scaled_dot_product_attention(tokens, tokens, tokens)
        return leaves(torch.cat([fine, rough], 1)), F.interpolate(coarse, x.shape[2:], mode="trilinear"), seen

    return Program(function)


def test_five_sizes_of_a_tensor_are_open():
    module = volumes().eval()
    program = export(
        module,
        (torch.randn(2, 3, 6, 8, 10),),
        dynamic_shapes=(({0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC, 4: Dim.DYNAMIC, 1: Dim.AUTO},),),
    )
    for sizes in ((3, 3, 8, 6, 4), (4, 3, 7, 9, 5)):
        x = torch.randn(*sizes)
        torch.testing.assert_close(program.module()(x), module(x))


def test_padded_volumes_are_flattened():
    module = Program(lambda x: F.pad(x, (1, 1, 2, 2, 0, 1)).flatten(2).sum(-1))
    program = export(module, (torch.randn(2, 3, 6, 8, 10),), dynamic_shapes=(([Dim.DYNAMIC] * 5,),))
    x = torch.randn(3, 4, 7, 5, 9)
    torch.testing.assert_close(program.module()(x), module(x))


def test_six_open_sizes_of_a_tensor_are_refused():
    with pytest.raises(NotImplementedError, match="the open sizes of one tensor are too many"):
        export(Program(torch.sin), (torch.randn(2, 3, 2, 3, 2, 3),), dynamic_shapes=(([Dim.DYNAMIC] * 6,),))


# name: (function of images, sizes of others)
MULTIPLES = {
    "blocks of pixels": (lambda x: F.pixel_unshuffle(x, 4), (3, 16, 8, 20)),
    "pixels of channels": (lambda x: F.pixel_shuffle(x, 2), (3, 16, 7, 9)),
    "enlarged": (lambda x: F.interpolate(x, scale_factor=4.0) + 1, (3, 5, 7, 9)),
}


@pytest.mark.parametrize("name", MULTIPLES)
def test_multiples_of_four_open_sizes(name):
    function, sizes = MULTIPLES[name]
    x, y = torch.randn(2, 24, 12, 16), torch.randn(*sizes)
    program = export(Program(function), (x,), dynamic_shapes=(([Dim.DYNAMIC] * 4,),))
    graph = make_fx(function, tracing_mode="symbolic")(x)
    for made in (program.module(), graph):
        torch.testing.assert_close(made(y), function(y))
