"""Exports where many sizes are open at once: several tensors of the same sizes, attention, windows of images."""

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export
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
