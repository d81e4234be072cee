"""Attention and transformers on torch and on Mica from one seed: the same weights, outputs, gradients and draws."""

import itertools

import mica
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:enable_nested_tensor")]
torch = pytest.importorskip("torch")

from both_libraries import on_both  # noqa: E402

TOLERANCE = {"float32": 2e-5, "bfloat16": 3e-2, "float16": 4e-3, "float64": 2e-6}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("mask", [None, "bool", "added", "keys", "learned"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 4, 33, 16), (3, 33, 16), (33, 16), (1, 2, 300, 64)], ids=str)
def test_scaled_dot_product_attention(dtype, mask, is_causal, shape):
    if mask and is_causal:
        return

    def run(lib):
        d = getattr(lib, dtype)
        q, k, v = (lib.randn(shape).to(d).requires_grad_() for _ in range(3))
        length = shape[-2]
        m = {
            None: lambda: None,
            "bool": lambda: lib.rand(length, length) > 0.5,
            "added": lambda: lib.randn(length, length).to(d),
            "keys": lambda: (lib.rand(1, length) > 0.5).expand(length, length),
            "learned": lambda: lib.randn(length, length).to(d).requires_grad_(),
        }[mask]()
        out = lib.nn.functional.scaled_dot_product_attention(q, k, v, m, is_causal=is_causal)
        (out * out).sum().backward()
        return [out, q.grad, k.grad, v.grad] + ([m.grad] if mask == "learned" else [])

    on_both(run, TOLERANCE[dtype])


def test_options_of_scaled_dot_product_attention():
    def run(lib):
        sdpa = lib.nn.functional.scaled_dot_product_attention
        q, k, v = lib.randn(2, 4, 9, 8), lib.randn(2, 2, 7, 8), lib.randn(2, 2, 7, 8)
        wide = lib.randn(2, 4, 7, 8)
        return [
            sdpa(q, k, v, enable_gqa=True),
            sdpa(q, wide, wide, scale=0.1),
            sdpa(q, wide, wide, scale=-0.5),
            sdpa(q, wide, wide, dropout_p=0.3),
            sdpa(q, wide, wide, lib.rand(9, 7) > 0.9),
            sdpa(q, wide, wide, is_causal=True),
        ]

    on_both(run, 2e-5)


OPTIONS = [
    {"bias": bias, "add_bias_kv": kv, "add_zero_attn": zero, "batch_first": first, **dims}
    for bias, kv, zero, first, dims in itertools.product(
        (True, False), (True, False), (True, False), (True, False), ({}, {"kdim": 5, "vdim": 6})
    )
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("need_weights", ["averaged", "all", "none"])
@pytest.mark.parametrize("masks", ["none", "padding", "pairs", "both", "causal"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_multi_head_attention(options, need_weights, masks, dropout):
    def run(lib):
        m = lib.nn.MultiheadAttention(8, 2, dropout=dropout, **options)
        sizes = [(5, 3, 8), (6, 3, m.kdim), (6, 3, m.vdim)]
        tensors = [lib.randn(s).requires_grad_() for s in sizes]
        given = [x.transpose(0, 1) if m.batch_first else x for x in tensors]
        padding = lib.zeros(3, 6, dtype=lib.bool)
        padding[1, 4:] = True
        pairs = lib.zeros(5, 6, dtype=lib.bool)
        pairs[1, 2:] = True
        arguments = {
            "none": {},
            "padding": {"key_padding_mask": padding},
            "pairs": {"attn_mask": pairs},
            "both": {"key_padding_mask": padding, "attn_mask": pairs},
            "causal": {"attn_mask": lib.ones(5, 6, dtype=lib.bool).triu(1), "is_causal": True},
        }[masks]
        out, weights = m(
            *given, need_weights=need_weights != "none", average_attn_weights=need_weights == "averaged", **arguments
        )
        (out * out).sum().backward()
        return [out, weights, *(t.grad for t in tensors), *m.parameters(), *(p.grad for p in m.parameters())]

    on_both(run, 2e-5)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [False, True])
def test_transformer(norm_first, batch_first, activation, bias):
    def run(lib):
        model = lib.nn.Transformer(
            8, 2, 2, 2, 16, activation=activation, norm_first=norm_first, batch_first=batch_first, bias=bias
        )
        src, tgt = lib.randn(5, 5, 8), lib.randn(5, 5, 8)
        out = model(src, tgt, tgt_mask=model.generate_square_subsequent_mask(5))
        (out * out).sum().backward()
        model.eval()
        padding = lib.zeros(5, 5, dtype=lib.bool)
        padding[2, 3:] = True
        still = model(src, tgt, src_key_padding_mask=padding, memory_key_padding_mask=padding)
        parameters = dict(model.named_parameters())
        return [out, still, *parameters.values(), *(p.grad for p in parameters.values())]

    on_both(run, 5e-5)
    assert list(mica.nn.Transformer(8, 2, 1, 1, 16).state_dict()) == list(
        torch.nn.Transformer(8, 2, 1, 1, 16).state_dict()
    )


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", ["bool", "added"])
def test_encoders_leave_zeros_where_torch_does(side, kind):
    def run(lib):
        layer = lib.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        encoder = lib.nn.TransformerEncoder(layer, 2, norm=lib.nn.LayerNorm(8)).eval()
        padding = lib.zeros(3, 5, dtype=lib.bool)
        padding[1, 3:] = True
        padding[2, slice(4, 5) if side == "right" else slice(0, 1)] = True
        if kind == "added":
            padding = lib.zeros(3, 5).masked_fill(padding, float("-inf"))
        x = lib.randn(3, 5, 8)
        with lib.no_grad():
            still = encoder(x, src_key_padding_mask=padding)
        return [still, encoder(x, src_key_padding_mask=padding)]

    on_both(run, 2e-5)


def test_representations():
    for make in (
        lambda nn: nn.MultiheadAttention(8, 2),
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16),
        lambda nn: nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
    ):
        assert repr(make(mica.nn)) == repr(make(torch.nn))


def test_a_small_gpt_trains_alike():
    def run(lib):
        nn, F = lib.nn, lib.nn.functional

        class Block(nn.Module):
            def __init__(self, d, h):
                super().__init__()
                self.h = h
                self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
                self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
                self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

            def forward(self, x):
                b, t, d = x.shape
                q, k, v = self.qkv(self.ln1(x)).split(d, dim=2)
                q, k, v = (z.view(b, t, self.h, d // self.h).transpose(1, 2) for z in (q, k, v))
                a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.proj(a.transpose(1, 2).contiguous().view(b, t, d))
                return x + self.down(F.gelu(self.up(self.ln2(x))))

        class GPT(nn.Module):
            def __init__(self):
                super().__init__()
                self.tok, self.pos = nn.Embedding(50, 32), nn.Embedding(24, 32)
                self.blocks = nn.Sequential(Block(32, 4), Block(32, 4))
                self.ln, self.head = nn.LayerNorm(32), nn.Linear(32, 50, bias=False)

            def forward(self, i):
                x = self.tok(i) + self.pos(lib.arange(i.shape[1]))
                return self.head(self.ln(self.blocks(x)))

        model = GPT()
        optimizer = lib.optim.AdamW(model.parameters(), lr=1e-3)
        i = lib.randint(0, 50, (4, 25))
        losses = []
        for _ in range(50):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(i[:, :-1]).reshape(-1, 50), i[:, 1:].reshape(-1))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [lib.stack(losses)]

    on_both(run, 1e-4)
