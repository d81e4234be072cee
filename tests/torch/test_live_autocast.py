"""Under autocast every operation of its lists, and some that are in none, gives torch's dtypes and values."""

import mica
import pytest

pytestmark = pytest.mark.torch

# name -> call(module, matrix, image): `matrix(dtype)` is 6 by 6 in (0, 1), `image(dims)` a batch of images.
CALLS = {
    "mm": lambda t, m, i: t.mm(m(), m()),
    "matmul": lambda t, m, i: m() @ m(),
    "bmm": lambda t, m, i: t.bmm(m().unsqueeze(0), m().unsqueeze(0)),
    "baddbmm": lambda t, m, i: t.baddbmm(m(), m().unsqueeze(0), m().unsqueeze(0)),
    "addmm": lambda t, m, i: t.addmm(m(), m(), m()),
    "addbmm": lambda t, m, i: t.addbmm(m(), m().unsqueeze(0), m().unsqueeze(0)),
    "addmv": lambda t, m, i: t.addmv(m()[0], m(), m()[1]),
    "mv": lambda t, m, i: t.mv(m(), m()[0]),
    "dot": lambda t, m, i: t.dot(m()[0], m()[1]),
    "einsum": lambda t, m, i: t.einsum("ij,kj->ik", m(), m()),
    "linear": lambda t, m, i: t.nn.functional.linear(m(), m(), m()[0]),
    "prelu": lambda t, m, i: t.prelu(m() - 0.5, m()[0, :1]),
    "conv1d": lambda t, m, i: t.conv1d(i(1), i(1)),
    "conv2d": lambda t, m, i: t.conv2d(i(2), i(2)),
    "conv3d": lambda t, m, i: t.conv3d(i(3), i(3)),
    "conv_transpose2d": lambda t, m, i: t.conv_transpose2d(i(2), i(2)),
    "sdpa": lambda t, m, i: t.nn.functional.scaled_dot_product_attention(i(2), i(2), i(2)),
    "mse_loss": lambda t, m, i: t.nn.functional.mse_loss(m("bfloat16"), m("bfloat16")),
    "l1_loss": lambda t, m, i: t.nn.functional.l1_loss(m("bfloat16"), m("bfloat16")),
    "smooth_l1_loss": lambda t, m, i: t.nn.functional.smooth_l1_loss(m("bfloat16"), m("bfloat16")),
    "huber_loss": lambda t, m, i: t.nn.functional.huber_loss(m("bfloat16"), m("bfloat16")),
    "bce_logits": lambda t, m, i: t.nn.functional.binary_cross_entropy_with_logits(m("bfloat16"), m("bfloat16")),
    "bce": lambda t, m, i: t.nn.functional.binary_cross_entropy(m("bfloat16"), m("bfloat16")),
    "kl_div": lambda t, m, i: t.nn.functional.kl_div(m("bfloat16"), m("bfloat16"), reduction="sum"),
    "nll_loss": lambda t, m, i: t.nn.functional.nll_loss(m("bfloat16"), t.arange(6)),
    "cross_entropy": lambda t, m, i: t.nn.functional.cross_entropy(m("bfloat16"), t.arange(6)),
    "cross_entropy_f32": lambda t, m, i: t.nn.functional.cross_entropy(m(), t.arange(6)),
    "cosine_embedding_loss": lambda t, m, i: t.nn.functional.cosine_embedding_loss(
        m("bfloat16"), m("bfloat16"), t.ones(6)
    ),
    "margin_ranking_loss": lambda t, m, i: t.nn.functional.margin_ranking_loss(
        m("bfloat16"), m("bfloat16"), t.ones(6, 6)
    ),
    "triplet_margin_loss": lambda t, m, i: t.nn.functional.triplet_margin_loss(
        m("bfloat16"), m("bfloat16") + 1, m("bfloat16")
    ),
    "multi_margin_loss": lambda t, m, i: t.nn.functional.multi_margin_loss(m("bfloat16"), t.arange(6)),
    "soft_margin_loss": lambda t, m, i: t.nn.functional.soft_margin_loss(m("bfloat16"), t.ones(6, 6)),
    "prod": lambda t, m, i: t.prod(m("bfloat16")),
    "trace": lambda t, m, i: t.trace(m("bfloat16")),
    "quantile": lambda t, m, i: t.quantile(m("bfloat16"), 0.5),
    "avg_pool3d": lambda t, m, i: t.nn.functional.avg_pool3d(i(3).bfloat16(), 2),
    "max_pool3d": lambda t, m, i: t.nn.functional.max_pool3d(i(3).bfloat16(), 2),
    "adaptive_avg_pool3d": lambda t, m, i: t.nn.functional.adaptive_avg_pool3d(i(3).bfloat16(), 2),
    "reflection_pad1d": lambda t, m, i: t.nn.functional.pad(i(1).bfloat16(), (1, 1), mode="reflect"),
    "replication_pad2d": lambda t, m, i: t.nn.functional.pad(i(2).bfloat16(), (1, 1, 1, 1), mode="replicate"),
    "grid_sample": lambda t, m, i: t.nn.functional.grid_sample(
        i(2).bfloat16(), t.zeros(6, 2, 2, 2).bfloat16(), align_corners=False
    ),
    "cat": lambda t, m, i: t.cat([m("bfloat16"), m()]),
    "stack": lambda t, m, i: t.stack([m("bfloat16"), m()]),
    "index_copy": lambda t, m, i: t.index_copy(m("bfloat16"), 0, t.tensor([1]), m()[:1]),
    # in no list
    "add": lambda t, m, i: m("bfloat16") + m(),
    "softmax": lambda t, m, i: t.softmax(m("bfloat16"), 0),
    "layer_norm": lambda t, m, i: t.nn.functional.layer_norm(m("bfloat16"), (6,)),
    "batch_norm": lambda t, m, i: t.nn.functional.batch_norm(i(2).bfloat16(), None, None, training=True),
    "avg_pool2d": lambda t, m, i: t.nn.functional.avg_pool2d(i(2).bfloat16(), 2),
    "sum": lambda t, m, i: m("bfloat16").sum(),
    "exp": lambda t, m, i: m("bfloat16").exp(),
    "gelu": lambda t, m, i: t.nn.functional.gelu(m("bfloat16")),
}


def run(module, call):
    module.manual_seed(0)

    def matrix(dtype="float32"):
        return module.rand(6, 6).to(getattr(module, dtype))

    def image(dims):
        return module.rand([6, 6, *([4] * dims)])

    with module.autocast("cpu", dtype=module.bfloat16):
        return call(module, matrix, image)


@pytest.mark.parametrize("name", CALLS)
def test_same_dtype_and_value(name):
    torch = pytest.importorskip("torch")
    theirs, ours = run(torch, CALLS[name]), run(mica, CALLS[name])
    assert str(ours.dtype) == str(theirs.dtype)
    assert ours.shape == tuple(theirs.shape)
    tolerance = 2e-2 if ours.dtype == mica.bfloat16 else 1e-5
    assert torch.allclose(torch.tensor(ours.tolist()), theirs.float(), rtol=tolerance, atol=tolerance)
