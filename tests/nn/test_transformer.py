"""Transformers: layers in terms of their parts, masks, options, names."""

import copy
import math

import mica
import mica.nn.functional as F
import pytest
from mica import nn
from mica.autograd import gradcheck

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", F.silu])
def test_encoder_layer_is_its_parts(norm_first, batch_first, activation):
    options = {"norm_first": norm_first, "batch_first": batch_first, "activation": activation, "dropout": 0.0}
    layer = nn.TransformerEncoderLayer(8, 2, 16, dtype=mica.float64, **options)
    x = mica.randn(5, 3, 8, dtype=mica.float64)

    def attend(x):
        return layer.self_attn(x, x, x)[0]

    def feed(x):
        return layer.linear2(layer.activation(layer.linear1(x)))

    if norm_first:
        y = x + attend(layer.norm1(x))
        expected = y + feed(layer.norm2(y))
    else:
        y = layer.norm1(x + attend(x))
        expected = layer.norm2(y + feed(y))
    mica.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer_is_its_parts(norm_first):
    layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, norm_first=norm_first, dtype=mica.float64)
    x, memory = mica.randn(5, 3, 8, dtype=mica.float64), mica.randn(6, 3, 8, dtype=mica.float64)

    def own(x):
        return layer.self_attn(x, x, x)[0]

    def other(x):
        return layer.multihead_attn(x, memory, memory)[0]

    def feed(x):
        return layer.linear2(layer.activation(layer.linear1(x)))

    if norm_first:
        y = x + own(layer.norm1(x))
        y = y + other(layer.norm2(y))
        expected = y + feed(layer.norm3(y))
    else:
        y = layer.norm1(x + own(x))
        y = layer.norm2(y + other(y))
        expected = layer.norm3(y + feed(y))
    mica.testing.assert_close(layer(x, memory), expected)


def test_stacks_are_copies_and_masks_reach_every_layer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(8))
    assert len(encoder.layers) == 3 and mica.equal(encoder.layers[0].linear1.weight, encoder.layers[2].linear1.weight)
    assert encoder.layers[0].linear1.weight is not encoder.layers[2].linear1.weight
    x = mica.randn(2, 6, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(6)
    out = encoder(x, mask=causal)
    changed = x.clone()
    changed[:, 4:] += 1
    mica.testing.assert_close(encoder(changed, mask=causal, is_causal=True)[:, :4], out[:, :4])
    padding = mica.zeros(2, 6, dtype=mica.bool)
    padding[:, 4:] = True
    mica.testing.assert_close(
        encoder(changed, src_key_padding_mask=padding)[:, :4], encoder(x, src_key_padding_mask=padding)[:, :4]
    )


def test_whole_transformer():
    model = nn.Transformer(8, 2, 1, 2, 16, dropout=0.0, dtype=mica.float64)
    src = mica.randn(5, 3, 8, dtype=mica.float64, requires_grad=True)
    tgt = mica.randn(4, 3, 8, dtype=mica.float64, requires_grad=True)
    mask = model.generate_square_subsequent_mask(4, dtype=mica.float64)
    assert mask[0].tolist() == [0, -math.inf, -math.inf, -math.inf] and not mask[3].any()
    out = model(src, tgt, tgt_mask=mask)
    assert out.shape == (4, 3, 8)
    mica.testing.assert_close(copy.deepcopy(model)(src, tgt, tgt_mask=mask, tgt_is_causal=True), out)
    assert gradcheck(
        lambda s, t: model(s, t, tgt_mask=mask),
        (src[:, :1].detach().requires_grad_(), tgt[:, :1].detach().requires_grad_()),
    )
    assert [n for n, _ in model.named_children()] == ["encoder", "decoder"]
    assert "decoder.layers.1.multihead_attn.in_proj_weight" in model.state_dict()
    with pytest.raises(RuntimeError, match="the batch number of src and tgt must be equal"):
        model(src, tgt[:, :2])
    with pytest.raises(RuntimeError, match="the feature number of src and tgt must be equal to d_model"):
        model(src[..., :4], tgt[..., :4])


def test_dropout_is_left_out_in_evaluation():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    x = mica.randn(5, 3, 8)
    assert not mica.equal(layer(x), layer(x))
    layer.eval()
    assert mica.equal(layer(x), layer(x))


def test_warnings_and_errors():
    with pytest.warns(UserWarning, match="self.use_nested_tensor is False because encoder_layer.self_attn.batch_first"):
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 1)
    with pytest.raises(RuntimeError, match="activation should be relu/gelu, not tanh"):
        nn.TransformerEncoderLayer(8, 2, activation="tanh")
