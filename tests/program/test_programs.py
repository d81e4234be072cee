"""Programs that torch.export wrote, run in C++ without Python: they compute what the modules do."""

import json
import math
import subprocess
import zipfile
from pathlib import Path

import mica as torch
import pytest
from mica import nn
from mica._higher_order_ops.map import map as mapped
from mica._higher_order_ops.scan import scan
from mica.export import Dim, export, save
from mica.nn import functional as F

RUNNER = Path(torch._C.__file__).resolve().parents[2] / "examples" / "cpp" / "run_program"
pytestmark = pytest.mark.skipif(not RUNNER.exists(), reason="the C++ examples are not built (MICA_EXAMPLES)")
RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "files"


def run_cpp(folder, *arguments, inputs=(), program="model.pt2"):
    torch.save(list(inputs), folder / "inputs.pt")
    command = [str(RUNNER), "--program", str(folder / program), "--inputs", str(folder / "inputs.pt"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def results(folder, inputs, *arguments, program="model.pt2"):
    done = run_cpp(folder, "--save", str(folder / "results.pt"), *arguments, inputs=inputs, program=program)
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "results.pt")


def flat(value):
    """The tensors and numbers of a result, in order, as C++ returns them."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [each for item in value.values() for each in flat(item)]
    if isinstance(value, list | tuple):
        return [each for item in value for each in flat(item)]
    return [] if value is None else [torch.tensor(value)]


def module_of(function, **members):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            for name, member in members.items():
                setattr(self, name, member)

        def forward(self, *args):
            return function(self, *args)

    return Module().eval()


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.batch, self.group, self.layer = nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(6)
        self.instance, self.rms = nn.InstanceNorm2d(4, affine=True), nn.RMSNorm(6)

    def forward(self, x):
        return self.rms(self.layer(self.instance(self.group(self.batch(x)))))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8, padding_idx=0), nn.Embedding(7, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        mask = torch.triu(torch.full((tokens.shape[1], tokens.shape[1]), float("-inf")), 1)
        return F.log_softmax(self.head(self.block(x, src_mask=mask)), -1)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 24, bias=False)

    def forward(self, x):
        q, k, v = self.project(x).view(x.shape[0], x.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(x.shape[0], x.shape[1], 8)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("seen", torch.tensor(0), persistent=False)

    def forward(self, x):
        self.count.add_(x)
        self.seen += 1
        return self.count * 2, self.seen


class Two(nn.Module):
    def forward(self, x, y):
        return x.sum() + y.sum()


def shapes(self, x):
    n, m = x.shape
    y = x.reshape(m, n).t().expand(2, n, m)
    return y.flatten(0, 1), torch.zeros(n, 2 * m), n * m + 1, y[:, : n // 2, None]


def joins(self, x):
    a, b = x.chunk(2, 1)
    values, places = x.topk(2)
    return {"cat": torch.cat([a, b, a]), "stack": torch.stack([a, b]), "top": values, "where": places, "none": None}


def indices(self, x):
    rows = torch.tensor([0, 2])
    return x[rows], x[:, 1], x[x > 0].sum(), x.index_select(1, rows), x.gather(1, rows.expand(3, 2)), x[..., -1:]


def reductions(self, x):
    return (x.mean(0), x.var(1, keepdim=True), x.amax(), x.argmax(1), x.std(), x.cumsum(0), x.norm(), x.logsumexp(1),
            x.sort(1).values, x.all(), torch.linalg.vector_norm(x, 1.0))  # fmt: skip


def pointwise(self, x):
    y = (x * 2 + 1) / 3 - x**2 + 1.5 * x.abs().sqrt()
    z = torch.where(x > 0, x.exp(), x.sigmoid()).clamp(-1, 1).masked_fill(x < -1, float("inf"))
    return (
        y,
        z,
        (x // 2, x % 2, 1 - x, x.to(torch.int64) & 3),
        x.maximum(y).round().double(),
        torch.atan2(x, y),
        ~(x > 1),
    )


def pools(self, x):
    return (F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 1, 1), F.adaptive_avg_pool2d(x, 2), F.pad(x, (1, 2, 0, 1)),
            F.pad(x, (1, 1, 1, 1), "reflect"), F.interpolate(x, scale_factor=2), F.max_pool2d(x, 2, return_indices=True)[1],
            F.interpolate(x, size=(5, 7), mode="bilinear", align_corners=False), F.pixel_shuffle(x, 2),
            F.interpolate(x, scale_factor=1.5, mode="bicubic", align_corners=True), F.unfold(x, 2))  # fmt: skip


def makers(self, x):
    return (torch.arange(5), torch.arange(1, 4, dtype=torch.float32), torch.ones_like(x), x.new_full((2,), 3),
            torch.eye(3), torch.linspace(0, 1, 4), torch.zeros(2, dtype=torch.bool), torch.full((2, 2), 7.5))  # fmt: skip


def products(self, x):
    return (x @ x.T, torch.einsum("ij,kj->ik", x, x), torch.bmm(x[None], x.T[None]), torch.addmm(x @ x.T, x, x.T),
            torch.outer(x[0], x[1]), torch.baddbmm(torch.ones(1, 3, 3), x[None], x.T[None], alpha=2))  # fmt: skip


def changes(self, x):
    y = x.clone()
    y[0] = 7.0
    y[:, 1].mul_(3)
    y.relu_().add_(1)
    return y, y.view(-1)


def branches(self, x):
    y = torch.cond(x.sum() > 0, lambda x: self.linear(x), lambda x: x * 2, (x,))
    return torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, self.linear(y)), (torch.tensor(0), y))[1]


def loops(self, x):
    rows = mapped(lambda row, shift: self.linear(row) * shift, x, x[0] + 1)
    return rows, scan(lambda carry, row: (carry + row, (carry * row, row.sum())), x[0] + 1, x)


def moves(self, x):
    image = x.view(1, 1, 3, 4)
    return (x.movedim(0, 1), torch.meshgrid([x[0], x[1]], indexing="ij"), torch.vmap(lambda row: row.sum() * row, 1)(x),
            F.interpolate(image, size=(2, 2), mode="bilinear", antialias=True),
            F.interpolate(image, scale_factor=0.5, mode="bicubic", antialias=True))  # fmt: skip


ACTIVATIONS = ("relu", "gelu", "silu", "elu", "leaky_relu", "hardswish", "hardsigmoid", "relu6", "mish", "selu", "celu",
               "softplus", "logsigmoid", "tanh", "softsign", "hardtanh", "glu")  # fmt: skip
LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits")
image, square = (2, 4, 6, 6), (3, 4)
MODULES = {
    "linear": (lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), [square]),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(4, 6, 3, padding=1, stride=2), nn.ReLU(inplace=True),
                                           nn.Conv2d(6, 6, 3, groups=3, padding="same"), nn.ConvTranspose2d(6, 2, 2, 2)), [image]),
    "convolution_1d": (lambda: nn.Sequential(nn.Conv1d(4, 6, 3, dilation=2), nn.BatchNorm1d(6), nn.MaxPool1d(2)), [(2, 4, 12)]),
    "norms": (Norms, [image]),
    "dropout": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2), nn.Softmax(-1)), [square]),
    "heads": (Heads, [(2, 5, 8)]),
    "lstm": (lambda: nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True), [(2, 5, 4)]),
    "gru": (lambda: nn.GRU(4, 3), [(5, 2, 4)]),
    "attention": (lambda: module_of(lambda self, x: self.inner(x, x, x)[0], inner=nn.MultiheadAttention(8, 2)), [(5, 2, 8)]),
    "bilinear": (lambda: nn.Bilinear(4, 4, 2), [square, square]),
    "activations": (lambda: module_of(lambda self, x: [getattr(F, name)(x) for name in ACTIVATIONS]), [square]),
    "losses": (lambda: module_of(lambda self, x, y: [getattr(F, name)(x, y) for name in LOSSES]), [square, square]),
    **{name: (lambda function=function: module_of(function, linear=nn.Linear(4, 4)), [shape])
       for name, function, shape in (("shapes", shapes, square), ("joins", joins, square), ("indices", indices, square),
                                     ("reductions", reductions, square), ("pointwise", pointwise, square),
                                     ("pools", pools, image), ("makers", makers, square), ("products", products, square),
                                     ("changes", changes, square), ("branches", branches, square),
                                     ("loops", loops, square), ("moves", moves, square))},
}  # fmt: skip


def same(made, meant):
    made, meant = flat(made), flat(meant)
    assert len(made) == len(meant)
    for a, b in zip(made, meant, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5, equal_nan=True)


# The size of x[x > 0] depends on values, which run_decompositions does not have.
DECOMPOSED = [name for name in MODULES if name != "indices"]


@pytest.mark.parametrize(("name", "decomposed"), [*((n, False) for n in MODULES), *((n, True) for n in DECOMPOSED)])
def test_modules_compute_the_same(name, decomposed, tmp_path):
    torch.manual_seed(0)
    make, sizes = MODULES[name]
    module, inputs = make().eval(), [torch.randn(size) for size in sizes]
    program = export(module, tuple(inputs))
    save(program.run_decompositions() if decomposed else program, tmp_path / "model.pt2")
    same(results(tmp_path, inputs, "--threads", "2"), module(*inputs))


@pytest.mark.parametrize("way", ["as exported", "decomposed"])
def test_open_sizes(way, tmp_path):
    torch.manual_seed(0)
    batch, length = Dim("batch"), Dim("length", max=7)
    module, tokens = Text().eval(), torch.randint(0, 11, (3, 5))
    program = export(module, (tokens,), dynamic_shapes=({0: batch, 1: length},))
    save(program if way == "as exported" else program.run_decompositions(), tmp_path / "model.pt2")
    for size in ((3, 5), (2, 7), (6, 3)):
        tokens = torch.randint(0, 11, size)
        same(results(tmp_path, [tokens]), module(tokens))
    refused = run_cpp(tmp_path, inputs=[torch.zeros(2, 8, dtype=torch.int64)])
    assert refused.returncode == 1 and "to 7 at dimension 1, and this has 8" in refused.stderr


def test_arithmetic_of_sizes(tmp_path):
    n = Dim("n", min=4)
    module = module_of(shapes)
    program = export(module, (torch.randn(6, 4),), dynamic_shapes=(({0: n, 1: Dim("m", min=4)},),))
    save(program, tmp_path / "model.pt2")
    x = torch.randn(9, 7)
    same(results(tmp_path, [x]), module(x))
    made = export(Two(), (torch.ones(6), torch.ones(13)), dynamic_shapes=({0: n}, {0: 2 * n + 1}))
    save(made, tmp_path / "model.pt2")
    assert results(tmp_path, [torch.ones(4), torch.ones(9)])[0] == 13
    refused = run_cpp(tmp_path, inputs=[torch.ones(4), torch.ones(10)])
    assert refused.returncode == 1 and "of size 9 at dimension 0 beside its other sizes" in refused.stderr


def test_sizes_that_are_rounded(tmp_path):
    def shares(self, x):
        n = x.shape[0]
        return x[: math.ceil(n * 0.3)], x[: round(n * 0.75)], x[: math.floor(n * 0.3)], round(n * 0.25)

    module = module_of(shares)
    save(export(module, (torch.randn(14),), dynamic_shapes=(({0: Dim("n", min=4)},),)), tmp_path / "model.pt2")
    for n in (14, 10, 6, 21):
        same(results(tmp_path, [torch.arange(float(n))]), module(torch.arange(float(n))))


@pytest.mark.parametrize("way", ["as exported", "decomposed"])
def test_buffers_change_from_run_to_run(way, tmp_path):
    program = export(Counter(), (torch.ones(3),))
    save(program if way == "as exported" else program.run_decompositions(), tmp_path / "model.pt2")
    count, seen = results(tmp_path, [torch.tensor([1.0, 2.0, 3.0])], "--runs", "4")
    assert count.tolist() == [8.0, 16.0, 24.0] and seen == 4


def test_programs_of_torchs_own(tmp_path):
    for name in ("program.pt2", "program_decomposed.pt2"):
        (tmp_path / name).write_bytes((RECORDED / name).read_bytes())
        for x, meant in torch.load(RECORDED / "program_values.pt"):
            same(results(tmp_path, [x], program=name), meant)


def test_inputs_are_those_of_the_export(tmp_path):
    save(export(nn.Linear(2, 2), (torch.ones(1, 2),)), tmp_path / "model.pt2")
    for inputs, words in (
        ([], "takes 1 inputs, and is given 0"),
        ([torch.ones(1, 2, dtype=torch.float64)], "of float32, and this is float64"),
        ([torch.ones(2)], "of 2 dimensions, and this has 1"),
        ([torch.ones(1, 3)], "of size 2 at dimension 1, and this has 3"),
    ):
        refused = run_cpp(tmp_path, inputs=inputs)
        assert refused.returncode == 1 and words in refused.stderr


def edited(path, edit):
    """Changes the graph of an archive."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in records.items():
            if name.endswith("models/model.json"):
                document = json.loads(data)
                edit(document["graph_module"]["graph"])
                data = json.dumps(document)
            archive.writestr(name, data)


def set_target(name):
    def edit(graph):
        graph["nodes"][0]["target"] = name

    return edit


def drop(key):
    def edit(graph):
        del graph["nodes"][0][key]

    return edit


def swap_weight(graph):
    graph["nodes"][0]["inputs"][1]["arg"] = {"as_ints": [1, 2]}


def absent_name(graph):
    graph["nodes"][0]["inputs"][1]["arg"]["as_tensor"]["name"] = "nowhere"


def too_many_results(graph):
    graph["nodes"][0]["outputs"].append({"as_tensor": {"name": "more"}})


@pytest.mark.parametrize(("edit", "words"), [
    (set_target("torch.ops.aten.absent.default"), "calls torch.ops.aten.absent.default, which Mica does not run"),
    (set_target("torch.ops.mine.op.default"), "calls torch.ops.mine.op.default"),
    (set_target("os.system"), "calls os.system"),
    (set_target("_operator.attrgetter"), "calls _operator.attrgetter"),
    (set_target("torch.ops.aten.add.Tensor"), "with arguments that it does not take"),
    (drop("inputs"), "damaged: there is no valid inputs"),
    (drop("outputs"), "damaged: there is no valid outputs"),
    (swap_weight, "the argument weight of linear"),
    (absent_name, "nothing before its use is called nowhere"),
    (too_many_results, "returned 1 values, and the program names 2"),
])  # fmt: skip
def test_strange_files_are_refused(edit, words, tmp_path):
    save(export(nn.Linear(2, 2), (torch.ones(1, 2),)), tmp_path / "model.pt2")
    edited(tmp_path / "model.pt2", edit)
    refused = run_cpp(tmp_path, inputs=[torch.ones(1, 2)])
    assert refused.returncode == 1 and words in refused.stderr


@pytest.mark.parametrize(("function", "target"), [
    (lambda self, x: x.sigmoid(), "special_expit.default"),
    (lambda self, x: x.softmax(1), "special_softmax.default"),
    (lambda self, x: torch.xlogy(x, x), "special_xlogy.default"),
    (lambda self, x: x[torch.arange(2)], "_unsafe_index.Tensor"),
])  # fmt: skip
def test_second_names_of_operators(function, target, tmp_path):
    def edit(graph):
        graph["nodes"][-1]["target"] = f"torch.ops.aten.{target}"

    module, x = module_of(function), torch.rand(3, 4)
    save(export(module, (x,)), tmp_path / "model.pt2")
    edited(tmp_path / "model.pt2", edit)
    same(results(tmp_path, [x]), module(x))


@pytest.mark.parametrize(("mode", "name"), [("reflect", "reflection_pad1d"), ("replicate", "replication_pad1d")])
def test_borders_by_their_own_names(mode, name, tmp_path):
    def edit(graph):
        node = graph["nodes"][0]
        node["target"], node["inputs"] = f"torch.ops.aten.{name}.default", node["inputs"][:2]
        node["inputs"][1]["name"] = "padding"

    module, x = module_of(lambda self, x: F.pad(x, (1, 2), mode)), torch.rand(3, 4)
    save(export(module, (x,)), tmp_path / "model.pt2")
    edited(tmp_path / "model.pt2", edit)
    same(results(tmp_path, [x]), module(x))


def test_a_map_along_an_open_size(tmp_path):
    module = module_of(loops, linear=nn.Linear(4, 4))
    save(export(module, (torch.randn(3, 4),), dynamic_shapes=(({0: Dim("n")},),)), tmp_path / "model.pt2")
    x = torch.randn(6, 4)
    same(results(tmp_path, [x]), module(x))


@pytest.mark.parametrize(("edit", "words"), [
    (lambda given, call: None, ""),
    (lambda given, call: given["_self_base_index"].update(as_int=7), "_self_base_index is no copy's"),
    (lambda given, call: given["_self_base_index"].update(as_int=-1), "_self_base_index is no copy's"),
    (lambda given, call: call["inputs"].pop(), "there is no valid _all_bases"),
    (lambda given, call: call["outputs"].clear(), "has too few results"),
    (lambda given, call: given["_self_size"].update(as_ints=[10**6]), "out of bounds"),
    (lambda given, call: given.pop("_self_stride") and call["inputs"].pop(4), "there is no valid _self_stride"),
    (lambda given, call: call["inputs"].append({"name": "more", "arg": {"as_int": 1}, "kind": 2}), "no argument more"),
    (lambda given, call: call["inputs"][0]["arg"].update(as_operator=7), "of what is no operator"),
])  # fmt: skip
def test_strange_copies_are_refused(edit, words, tmp_path):
    class Model(nn.Module):
        def forward(self, x):
            return x.relu()

    def rewrite(graph):
        names = {"value": {"as_float": 2.5}, "_self_base_index": {"as_int": 0}, "_self_size": {"as_ints": [2]},
                 "_self_stride": {"as_ints": [1]}, "_self_storage_offset": {"as_int": 1}, "_all_bases": {"as_tensors": [{"name": "x"}]}}  # fmt: skip
        call = graph["nodes"][0]
        call["target"] = "torch.ops.higher_order.auto_functionalized_v2"
        operator = {"name": "", "arg": {"as_operator": "torch.ops.aten.fill_.Scalar"}, "kind": 1}
        call["inputs"] = [operator, *({"name": key, "arg": value, "kind": 2} for key, value in names.items())]
        call["outputs"].insert(0, {"as_tensor": {"name": "unused"}})
        edit(names, call)

    save(export(Model(), (torch.ones(4),)), tmp_path / "model.pt2")
    edited(tmp_path / "model.pt2", rewrite)
    if not words:
        assert results(tmp_path, [torch.ones(4)])[0].tolist() == [1, 2.5, 2.5, 1]
        return
    refused = run_cpp(tmp_path, inputs=[torch.ones(4)])
    assert refused.returncode == 1 and words in refused.stderr


def test_parts_under_autocast_keep_their_casts_and_gradients(tmp_path):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                hidden = F.relu(self.first(x))
                with torch.autocast("cpu", enabled=False):
                    hidden = hidden.float().exp()
                return self.second(hidden).float() + self.first(x).sum()

    torch.manual_seed(0)
    module, x = Mixed(), torch.randn(3, 4)
    program = export(module, (x,))
    save(program, tmp_path / "model.pt2")
    assert torch.equal(program.module()(x), module(x)) and not torch.equal(module(x), module.second(module.first(x)))
    assert torch.equal(results(tmp_path, [x])[0], module(x))
    module(x).sum().backward()
    trained = program.module()
    trained(x).sum().backward()
    for name, parameter in trained.named_parameters():
        torch.testing.assert_close(parameter.grad, module.get_parameter(name).grad)

    class Recurrent(nn.LSTM):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x)

    with pytest.raises(NotImplementedError, match="lstm under autocast"):
        export(Recurrent(4, 4), (torch.randn(2, 3, 4),))
