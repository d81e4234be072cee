"""Classes of convolutions: what they call, print, keep and refuse."""

import pickle

import mica
import mica.nn.functional as F
import pytest
from mica import nn


def test_classes_call_functions():
    x = mica.rand(2, 4, 7, 6)
    for mode in ("reflect", "replicate", "circular"):
        layer = nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode=mode)
        mica.testing.assert_close(
            layer(x), F.conv2d(F.pad(x, (2, 2, 1, 1), mode=mode), layer.weight, layer.bias), rtol=0, atol=0
        )
    layer = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1)
    assert layer(x).shape == (2, 6, 13, 11) and layer(x, output_size=[14, 11]).shape == (2, 6, 14, 11)
    with pytest.raises(ValueError, match="requested an output size of"):
        layer(x, output_size=[20, 11])
    mica.testing.assert_close(nn.Fold(6, 2)(nn.Unfold(2)(mica.ones(1, 1, 6, 6))).max(), mica.tensor(4.0))


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: nn.Conv2d(4, 6, 3), "Conv2d(4, 6, kernel_size=(3, 3), stride=(1, 1))"),
        (
            lambda: nn.Conv1d(4, 6, 3, 2, 1, 2, 2, False, "reflect"),
            "Conv1d(4, 6, kernel_size=(3,), stride=(2,), padding=(1,), dilation=(2,), groups=2, bias=False, "
            "padding_mode=reflect)",
        ),
        (
            lambda: nn.Conv3d(2, 2, 3, padding="same"),
            "Conv3d(2, 2, kernel_size=(3, 3, 3), stride=(1, 1, 1), padding=same)",
        ),
        (
            lambda: nn.ConvTranspose2d(4, 6, 3, 2, output_padding=1),
            "ConvTranspose2d(4, 6, kernel_size=(3, 3), stride=(2, 2), output_padding=(1, 1))",
        ),
        (lambda: nn.Fold(5, (2, 2)), "Fold(output_size=5, kernel_size=(2, 2), dilation=1, padding=0, stride=1)"),
        (lambda: nn.Unfold(3, 2), "Unfold(kernel_size=3, dilation=2, padding=0, stride=1)"),
    ],
)
def test_representations(make, text):
    assert repr(make()) == text


def test_state_and_pickles():
    layer = nn.Conv2d(4, 6, 3)
    assert list(layer.state_dict()) == ["weight", "bias"]
    other = pickle.loads(pickle.dumps(layer))
    x = mica.rand(1, 4, 5, 5)
    assert mica.equal(layer(x), other(x))


@pytest.mark.parametrize("name", ["LazyConv1d", "LazyConv2d", "LazyConv3d"])
@pytest.mark.parametrize("transposed", [False, True])
def test_lazy_classes(name, transposed):
    name = name.replace("Conv", "ConvTranspose") if transposed else name
    layer = getattr(nn, name)(6, 2, groups=2)
    dims = int(name[-2])
    y = layer(mica.rand(2, 4, *[5] * dims))
    assert type(layer) is getattr(nn, name.removeprefix("Lazy")) and layer.in_channels == 4
    assert y.shape == (2, 6, *[6 if transposed else 4] * dims)


def test_wrong_arguments_of_classes():
    for make, words in (
        (lambda: nn.Conv2d(4, 6, 3, groups=0), "groups must be a positive integer"),
        (lambda: nn.Conv2d(4, 6, 3, groups=3), "in_channels must be divisible by groups"),
        (lambda: nn.Conv2d(6, 4, 3, groups=3), "out_channels must be divisible by groups"),
        (lambda: nn.Conv2d(4, 6, 3, padding="other"), "Invalid padding string 'other'"),
        (lambda: nn.Conv2d(4, 6, 3, 2, padding="same"), "padding='same' is not supported for strided convolutions"),
        (lambda: nn.Conv2d(4, 6, 3, padding_mode="other"), "padding_mode must be one of"),
        (lambda: nn.ConvTranspose2d(4, 6, 3, padding_mode="reflect"), 'Only "zeros" padding mode is supported'),
    ):
        with pytest.raises(ValueError, match=words):
            make()
