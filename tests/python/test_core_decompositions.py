"""run_decompositions: which core operators a call becomes (torch 2.13's, where they are listed), and that values stay."""

import mica as torch
import mica.nn.functional as F
import pytest
from mica import nn
from mica.export import default_decompositions, export

aten = torch.ops.aten


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def _x(*shape, dtype=torch.float32):
    return torch.arange(float(torch.tensor(shape).prod())).mul(0.71).sub(3).sin().mul(2).reshape(shape).to(dtype)


def _targets(program):
    return [
        str(n.target).removeprefix("aten.").removesuffix(".default")
        for n in program.graph.nodes
        if n.op == "call_function"
    ]


LISTED = {
    "silu": (F.silu, "sigmoid mul.Tensor"),
    "hardswish": (F.hardswish, "add.Tensor clamp clamp mul.Tensor div.Tensor"),
    "hardsigmoid": (F.hardsigmoid, "add.Tensor clamp clamp div.Tensor"),
    "celu": (F.celu, "expm1 gt.Scalar where.self"),
    "softplus": (F.softplus, "mul.Tensor exp log1p div.Tensor gt.Scalar where.self"),
    "log_sigmoid": (F.logsigmoid, "full minimum abs neg exp log1p sub.Tensor"),
    "glu": (F.glu, "slice.Tensor slice.Tensor sigmoid mul.Tensor"),
    "softshrink": (F.softshrink, "abs gt.Scalar sign mul.Tensor sub.Tensor mul.Tensor where.self"),
    "hardshrink": (F.hardshrink, "abs le.Scalar scalar_tensor where.self"),
    "threshold": (lambda x: F.threshold(x, 0.1, 2.0), "le.Scalar scalar_tensor where.self"),
    "mse": (lambda x: F.mse_loss(x, x.cos()), "cos sub.Tensor pow.Tensor_Scalar mean"),
    "sum": (lambda x: x.sum(), "sum.dim_IntList"),
    "std": (lambda x: x.std(), "var.correction sqrt"),
    "all": (lambda x: (x > 0).all(), "gt.Scalar logical_not any.dims logical_not"),
    "chunk": (lambda x: x.chunk(2, 1)[0], "split_with_sizes <built-in function getitem>"),
    "stack": (lambda x: torch.stack([x, x]), "cat view"),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1.0), "gt.Scalar scalar_tensor where.self"),
    "where": (lambda x: torch.where(x > 0, x, 0.0), "gt.Scalar scalar_tensor where.self"),
    "tril": (lambda x: x.tril(), "arange.start_step unsqueeze arange.start_step unsqueeze sub.Tensor le.Scalar scalar_tensor where.self"),
    "argsort": (lambda x: x.argsort(), "sort <built-in function getitem>"),
    "addcmul": (lambda x: torch.addcmul(x, x, x, value=2.0), "mul.Tensor mul.Tensor add.Tensor"),
    "rsub": (lambda x: 1 - x, "sub.Tensor"),
    "frac": (lambda x: x.frac(), "trunc sub.Tensor"),
    "isfinite": (lambda x: x.isfinite(), "eq.Tensor abs ne.Scalar mul.Tensor"),
    "zeros": (lambda x: torch.zeros(3, 4) + x, "full add.Tensor"),
    "pad": (lambda x: F.pad(x, (1, 1)), "constant_pad_nd"),
    "reflect": (lambda x: F.pad(x, (1, 2), mode="reflect"), "arange.start_step abs sub.Tensor abs sub.Tensor index.Tensor"),
    "clamp_min": (lambda x: x.clamp_min(0.5), "clamp"),
    "count_nonzero": (lambda x: x.count_nonzero(), "ne.Scalar sum.dim_IntList"),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), "unsqueeze max_pool2d_with_indices <built-in function getitem> squeeze.dims"),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTED)
def test_the_operators_are_torchs(name):
    function, wanted = LISTED[name]
    x = _x(3, 4)
    program = export(Call(function), (x,)).run_decompositions()
    if name == "tril":  # the order of the two counts differs
        assert sorted(_targets(program)) == sorted(wanted.split())
    else:
        assert " ".join(_targets(program)) == wanted
    assert torch.allclose(program.module()(x).float(), function(x).float(), 1e-5, 1e-6)


VALUES = {
    "rms_norm": lambda x: F.rms_norm(x, (4,), torch.ones(4) * 2),
    "selu": F.selu,
    "mish": F.mish,
    "prelu": lambda x: F.prelu(x, torch.tensor([0.2])),
    "huber": lambda x: F.huber_loss(x, x.cos(), delta=0.7),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x.cos(), beta=0.3),
    "bce": lambda x: F.binary_cross_entropy(x.sigmoid(), x.cos().abs(), weight=x.sin().abs()),
    "bce_logits": lambda x: F.binary_cross_entropy_with_logits(x, x.cos().abs(), pos_weight=torch.tensor([1.0, 2, 3, 4])),
    "nll": lambda x: F.nll_loss(x, torch.tensor([0, -100, 2]), weight=torch.tensor([1.0, 2, 3, 4])),
    "nll_sum": lambda x: F.nll_loss(x, torch.tensor([0, 1, 2]), reduction="sum"),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 3, -100]), label_smoothing=0.1),
    "cross_entropy_each": lambda x: F.cross_entropy(x, torch.tensor([0, 3, -100]), label_smoothing=0.1, reduction="none"),
    "kl_div": lambda x: F.kl_div(x, x.cos().abs(), reduction="sum"),
    "cosine": lambda x: F.cosine_similarity(x, x.cos()),
    "lerp": lambda x: torch.lerp(x, x.cos(), 0.7),
    "lerp_by_tensor": lambda x: torch.lerp(x, x.cos(), x.sin()),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.cos() + 2, value=3),
    "floor_divide": lambda x: x // 0.3,
    "logaddexp": lambda x: torch.logaddexp(x, torch.full_like(x, float("-inf"))),
    "nan_to_num": lambda x: (x / 0).nan_to_num(posinf=3.0),
    "logsumexp": lambda x: x.logsumexp((0, 1)),
    "norm": lambda x: x.norm(dim=1),
    "normalize": lambda x: F.normalize(x),
    "std_mean": lambda x: torch.stack(torch.std_mean(x)),
    "aminmax": lambda x: torch.stack(x.aminmax()),
    "isclose": lambda x: torch.isclose(x, x + 1e-9),
    "nansum": lambda x: x.log().nansum(1),
    "rot90": lambda x: x.rot90(3),
    "unbind": lambda x: x.unbind(1)[2],
    "stack_of_numbers": lambda x: torch.stack([x[0, 0], x[1, 1]]),
    "stack_last": lambda x: torch.stack([x, x.cos()], -1),
    "eye": lambda x: torch.eye(3) @ x,
    "new_full": lambda x: x.new_full((3, 4), 2.0) + x,
    "triu": lambda x: x.triu(1),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([2, 0]), x[:2]),
    "index_copy_in_place": lambda x: (x + 0).index_copy_(1, torch.tensor([2, 0]), x[:, :2]),
    "index_add": lambda x: x.index_add(0, torch.tensor([0, 0]), x[:2], alpha=2),
    "index_fill": lambda x: x.index_fill(1, torch.tensor([0, 2]), 5.0),
    "take": lambda x: x.take(torch.tensor([0, 5])),
    "circular": lambda x: F.pad(x[None], (2, 1), mode="circular"),
    "replicate": lambda x: F.pad(x[None], (2, 1), mode="replicate"),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x.cos()[None], x[None]),
    "attention_causal": lambda x: F.scaled_dot_product_attention(x[None], x.cos()[None], x[None], is_causal=True),
    "attention_masked": lambda x: F.scaled_dot_product_attention(x, x.cos(), x, attn_mask=torch.tensor([[True, False, True], [False] * 3, [True] * 3])),
    "attention_scaled": lambda x: F.scaled_dot_product_attention(x, x.cos(), x, attn_mask=x[:, :3], scale=0.3),
    "attention_gqa": lambda x: F.scaled_dot_product_attention(x.expand(4, 3, 4), x.cos().expand(2, 3, 4), x.expand(2, 3, 4), enable_gqa=True),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 12, 1, 1), 2),
    "adaptive": lambda x: F.adaptive_avg_pool1d(x, 2),
    "squeeze": lambda x: x[None].squeeze(),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", VALUES)
def test_values_stay(name, dtype):
    x = _x(3, 4, dtype=dtype)
    try:
        wanted = VALUES[name](x)
    except RuntimeError:
        assert dtype is torch.bfloat16  # some of these mix dtypes
        return
    made = export(Call(VALUES[name]), (x,)).run_decompositions().module()(x)
    assert made.dtype == wanted.dtype
    near = 1e-5 if dtype is torch.float32 else 3e-2
    assert torch.allclose(made.float(), wanted.float(), near, near, equal_nan=True)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_cells(cell):
    module = cell(4, 5)
    program = export(module, (_x(3, 4),)).run_decompositions()
    assert "addmm" in _targets(program)
    made, wanted = program.module()(_x(3, 4)), module(_x(3, 4))
    for a, b in zip(*((each if isinstance(each, tuple) else (each,)) for each in (made, wanted)), strict=True):
        assert torch.allclose(a, b, 1e-5, 1e-6)


def test_open_sizes_stay_open():
    function = lambda x: F.scaled_dot_product_attention(x, x.cos(), x, is_causal=True) + torch.ones_like(x).tril()  # noqa: E731
    program = export(
        Call(function), (_x(2, 3, 4),), dynamic_shapes=((({1: torch.export.Dim("n")}),),)
    ).run_decompositions()
    for n in (3, 5):
        assert torch.allclose(program.module()(_x(2, n, 4)), function(_x(2, n, 4)), 1e-5, 1e-6)


def test_a_composite_that_is_removed_from_the_table_stays_whole():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.linear = nn.Conv2d(1, 2, 1), nn.Linear(2, 3)

        def forward(self, x):
            return self.linear(self.conv(x).mean((2, 3)))

    program, x = export(Model(), (_x(1, 1, 2, 2),)), _x(1, 1, 2, 2)
    table = default_decompositions()
    assert aten.linear.default in table and aten.silu.default in table
    assert aten.linear.default in table.copy().materialize()
    del table[aten.linear.default]
    assert _targets(program.run_decompositions(table)) == ["convolution", "mean.dim", "linear"]
    assert _targets(program.run_decompositions({})) == ["conv2d", "mean.dim", "linear"]
    assert _targets(program.run_decompositions()) == ["convolution", "mean.dim", "permute", "addmm"]
    for given in (table, {}, None):
        assert torch.allclose(program.run_decompositions(given).module()(x), program.module()(x), 1e-5, 1e-6)
    assert aten.linear.default in default_decompositions()


def test_a_table_of_ones_own():
    program = export(Call(F.silu), (_x(3),))
    table = default_decompositions()
    table[aten.silu.default] = lambda x: aten.tanh.default(x)
    assert _targets(program.run_decompositions(table)) == ["tanh"]
    assert _targets(program.run_decompositions({aten.silu.default: lambda x: aten.tanh.default(x)})) == ["tanh"]
    assert _targets(program.run_decompositions({})) == ["silu"]


@pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True)])
@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_alpha_dropout"])
def test_dropout_in_place_that_drops_nothing_is_no_operator(name, p, training):
    class Net(torch.nn.Module):
        def forward(self, x):
            return getattr(torch.nn.functional, name)(x.relu(), p, training, inplace=True) + 1

    program = torch.export.export(Net(), (torch.ones(2, 3),)).run_decompositions()
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets == ["aten.relu.default", "aten.add.Tensor"]
