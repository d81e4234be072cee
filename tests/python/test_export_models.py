"""Parts of models with open sizes: places of tokens, windows of images, masks. Each is exported from one example, as in torch, and
gives what the function gives on others, decomposed, too."""

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export
from mica.nn import functional as F


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y=None):
        return self.function(x) if y is None else self.function(x, y)


class Places(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(64, 8))
        self.weight, self.embedding = nn.Parameter(torch.randn(64, 8)), nn.Embedding(64, 8)

    def forward(self, x, y=None):
        n = x.shape[1]
        return x + self.table[:n] + self.weight[None, : x.size(1), :] + self.embedding(torch.arange(n))


def windows(x, side=4):
    """Attention within shifted windows: padded to whole ones, cut, and put together again."""
    rows, height, width, channels = x.shape
    x = F.pad(x, (0, 0, 0, (side - width % side) % side, 0, (side - height % side) % side))
    high, wide = x.shape[1:3]
    y = torch.roll(x, (-2, -2), (1, 2)).view(rows, high // side, side, wide // side, side, channels)
    y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, channels)
    y = (y + y.mean(1, keepdim=True)).view(rows, high // side, wide // side, side, side, channels)
    y = y.permute(0, 1, 3, 2, 4, 5).reshape(rows, high, wide, channels)
    return torch.roll(y, (2, 2), (1, 2))[:, :height, :width]


def patches(x):
    return x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(x.shape[0], -1, 48)


def attended(x, mask):
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


X = torch.randn

# name: (function, example, others, open axes)
PARTS = {
    "places": (Places(), (X(2, 5, 8),), [(X(3, 64, 8),)], [(0, 1)]),
    "places of this call": (lambda x: x + torch.arange(64.0)[: x.shape[1]][None, :, None], (X(2, 5, 8),), [(X(3, 9, 8),)], [(0, 1)]),
    "the first of another": (lambda x, y: x + y[: x.shape[0]], (X(4), X(9)), [(X(6), X(6)), (X(2), X(3))], [(0,), (0,)]),
    "the last places": (lambda x: torch.arange(64.0)[-x.shape[0] :] + x, (X(4),), [(X(7),)], [(0,)]),
    "places behind others": (lambda x, y: torch.arange(64.0)[y.shape[0] : y.shape[0] + x.shape[0]] + x, (X(4), X(3)), [(X(6), X(7))],
                             [(0,), (0,)]),
    "a square of a mask": (lambda x: x + torch.ones(64, 64).tril()[: x.shape[1], : x.shape[1]], (X(2, 5, 5),), [(X(3, 7, 7),)],
                           [(0, 1, 2)]),
    "windows": (windows, (X(2, 10, 13, 3),), [(X(3, 9, 14, 3),), (X(2, 16, 8, 3),)], [(0, 1, 2)]),
    "whole windows": (windows, (X(2, 8, 12, 3),), [(X(3, 16, 20, 3),)], [(0, 1, 2)]),
    "patches": (patches, (X(2, 3, 16, 20),), [(X(3, 3, 32, 24),)], [(0, 2, 3)]),
    "smaller pixels": (lambda x: F.pixel_unshuffle(x, 2), (X(2, 3, 6, 8),), [(X(3, 3, 8, 4),)], [(0, 2, 3)]),
    "attention": (attended, (X(2, 4, 5, 8), X(2, 1, 5, 5)), [(X(3, 4, 9, 8), X(3, 1, 9, 9))], [(0, 2), (0, 2, 3)]),
    "rows as often as is said": (lambda x, y: x.repeat_interleave(y, 0), (X(3, 2), torch.tensor([1, 2, 3])),
                                 [(X(2, 2), torch.tensor([0, 4]))], [(0,), (0,)]),
    "a spectrum": (lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]), (X(2, 6),), [(X(3, 9),)], [(0, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_models(name):
    function, example, others, axes = PARTS[name]
    module = function if isinstance(function, nn.Module) else Calls(function)
    shapes = tuple(dict.fromkeys(each, Dim.DYNAMIC) for each in (*axes, *[()] * (2 - len(axes))))
    program = export(module, example, dynamic_shapes=shapes[: len(example)])
    for each in (program.module(), program.run_decompositions().module()):
        for args in (example, *others):
            assert torch.allclose(each(*args), module(*args), atol=1e-5)


def test_there_are_only_so_many_places():
    module = export(Places(), (X(2, 5, 8),), dynamic_shapes=({1: Dim("n", max=64)},)).module()
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[1\] <= 64"):
        module(X(2, 65, 8))


def test_a_size_is_fixed_and_others_are_equal():
    function = lambda x, y: x + torch.ones(3) + y  # noqa: E731
    shapes = dict.fromkeys((0, 1), Dim.AUTO)
    module = export(Calls(function), (X(5, 3), X(5, 3)), dynamic_shapes=(shapes, shapes)).module()
    x, y = X(7, 3), X(7, 3)
    assert torch.equal(module(x, y), function(x, y))
    with pytest.raises(
        AssertionError, match=r"Guard failed: x.size\(\)\[0\] == y.size\(\)\[0\]|y.size\(\)\[0\] == x.size\(\)\[0\]"
    ):
        module(x, y[:6])


def test_a_mask_has_to_fit():
    shapes = ({0: Dim("n"), 2: Dim("m")}, {0: Dim("k"), 2: Dim("m"), 3: Dim("m")})
    with pytest.raises(torch._dynamo.exc.UserError, match=r"The values of k = .* and n = .* must always be equal"):
        export(Calls(attended), (X(2, 4, 5, 8), X(2, 1, 5, 5)), dynamic_shapes=shapes)
