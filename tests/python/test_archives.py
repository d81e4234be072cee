""".pt2 archives: programs that are written are read again, and a stranger's file runs no code."""

import io
import json
import zipfile
from pathlib import Path

import mica as torch
import pytest
from mica import nn
from mica.export import Dim, export, load, save


def written(program):
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    return file


def changed(file, edit):
    """The archive with another graph."""
    made = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("models/model.json"):
                document = json.loads(data)
                edit(document)
                data = json.dumps(document)
            new.writestr(name, data)
    made.seek(0)
    return made


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: self.linear(x), lambda x: x * 2, (x,))
        return torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, self.linear(y)), (torch.tensor(0), y))[1]


def test_branches_and_loops_travel():
    module = Branches()
    program = export(module, (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n")},))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert "cond" in targets and "while_loop" in targets
    for made in (program, load(written(program)), program.run_decompositions()):
        for x in (torch.ones(5, 4), -torch.ones(2, 4)):
            assert torch.allclose(made.module()(x), module(x), atol=1e-6)


def test_sizes_and_ranges_travel():
    class Halves(nn.Module):
        def forward(self, x):
            return x[: x.shape[0] // 2].reshape(-1), x.shape[0] * 2

    program = load(written(export(Halves(), (torch.randn(6, 4),), dynamic_shapes=({0: Dim("n", min=2, max=50)},))))
    out, size = program.module()(torch.ones(9, 4))
    assert out.shape == (16,) and size == 18 and str(program.range_constraints) == "{'s77': VR[2, 50]}"
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[0\] <= 50"):
        program.module()(torch.ones(51, 4))


def test_operators_of_the_program_travel():
    @torch.library.custom_op("test_archives::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)

    class Calls(nn.Module):
        def forward(self, x):
            return torch.ops.test_archives.twice(x) + 1

    program = export(Calls(), (torch.ones(3, 4),), dynamic_shapes=({0: Dim("n")},))
    assert "test_archives.twice.default" in [str(node.target) for node in program.graph.nodes]
    assert load(written(program)).module()(torch.ones(5, 4)).tolist() == [[3.0] * 4] * 5


def test_calls_without_an_operator_are_their_parts():
    class Loss(nn.Module):
        def forward(self, x):
            return nn.functional.instance_norm(x), torch.linalg.norm(x), torch.fft.rfft(x).abs(), x.min(2)

    module, x = Loss(), torch.randn(2, 3, 8)
    ours, theirs = load(written(export(module, (x,)))).module()(x), module(x)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours[:3], theirs[:3], strict=True))
    assert type(ours[3]) is type(theirs[3]) and torch.equal(ours[3].indices, theirs[3].indices)


def test_a_strangers_file_runs_nothing():
    file = written(export(nn.Linear(2, 2), (torch.ones(1, 2),)))

    def target(name):
        def edit(document):
            document["graph_module"]["graph"]["nodes"][0]["target"] = name

        return edit

    for name in (
        "os.system",
        "torch.ops.__class__.x",
        "_operator.attrgetter",
        "torch.load",
        "torch.ops.aten.absent.default",
    ):
        with pytest.raises((NotImplementedError, RuntimeError), match="the program calls"):
            load(changed(file, target(name)))

    def expression(document):
        values = document["graph_module"]["graph"]["tensor_values"]
        values["input"]["sizes"][0] = {"as_expr": {"expr_str": "__import__('os').getcwd()", "hint": None}}

    with pytest.raises((ValueError, RuntimeError)):
        load(changed(file, expression))

    def nothing(document):
        del document["graph_module"]["graph"]["nodes"][0]["inputs"]

    with pytest.raises(RuntimeError, match="damaged"):
        load(changed(file, nothing))
    with pytest.raises(RuntimeError, match="this file is not one"):
        load(io.BytesIO(b"nothing"))


def test_too_few_bytes_are_an_error():
    file, made = written(export(nn.Linear(2, 2), (torch.ones(1, 2),))), io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name)[:4] if name.endswith("weight_0") else old.read(name))
    with pytest.raises(RuntimeError, match="too few bytes"):
        load(made)


def test_packages_run(tmp_path):
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    program = export(module, (torch.randn(2, 4),), dynamic_shapes=({0: Dim("n")},))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    runner = torch._inductor.aoti_load_package(path)
    x = torch.randn(5, 4)
    assert torch.allclose(runner(x), module(x)) and not runner(x).requires_grad
    assert sorted(runner.get_constant_fqns()) == ["0.bias", "0.weight"]
    runner.load_constants({"0.bias": torch.ones(3)}, check_full_update=False)
    assert torch.allclose(runner(x), torch.relu(x @ module[0].weight.T + 1))
    mine = torch.ones(3)
    runner.load_constants({"0.bias": mine}, check_full_update=False, user_managed=True)
    mine.fill_(2)
    assert torch.allclose(runner(x), torch.relu(x @ module[0].weight.T + 2))
    with pytest.raises(RuntimeError, match="not given"):
        runner.load_constants({"0.bias": torch.ones(3)}, check_full_update=True)
    with pytest.raises(AssertionError, match="ending in .pt2"):
        torch._inductor.aoti_compile_and_package(program, package_path="model.zip")


@pytest.mark.parametrize("name", ["program", "program_decomposed"])
def test_archives_of_torchs(name):
    files = Path(__file__).parents[1] / "recorded" / "files"
    extra = {}
    program = load(files / f"{name}.pt2", extra_files=extra)
    assert extra == ({"note.txt": "hello"} if name == "program" else {})
    assert [tuple(ends) for ends in program.range_constraints.values()] == [(3, 64)]
    module = program.module()
    for x, wanted in torch.load(files / "program_values.pt", weights_only=True):
        made = module(x)
        assert made["rows"] == wanted["rows"]
        assert all(torch.allclose(made[key], wanted[key], atol=1e-5) for key in ("flat", "cat"))
    with pytest.raises(AssertionError, match="Guard failed"):
        module(torch.ones(2, 4))
    again = load(written(program)).module()
    assert torch.equal(again(x)["flat"], made["flat"])


class Scales(nn.Module):
    def forward(self, x, count, shift):
        return x * count + torch.arange(count).sum() + shift, x.shape[0] + count


def test_open_numbers_among_the_inputs_are_written():
    shapes = ({0: Dim.DYNAMIC}, Dim.DYNAMIC, None)
    again = load(written(export(Scales(), (torch.ones(3), 4, 2), dynamic_shapes=shapes)))
    assert again.graph_signature.user_inputs == ("x", "count", 2)
    for count in (2, 3, 7):
        ours, theirs = again.module()(torch.ones(5), count, 2), Scales()(torch.ones(5), count, 2)
        assert torch.equal(ours[0], theirs[0]) and ours[1] == theirs[1]
    with pytest.raises(AssertionError, match="Guard failed: shift == 2"):
        again.module()(torch.ones(5), 4, 3)


class Chosen(nn.Module):
    def forward(self, x):
        return x[torch.cond(x.sum() > 3, lambda: 0, lambda: 1)]


def test_numbers_that_branches_return_travel():
    x = torch.arange(9.0).view(3, 3)
    module = load(written(export(Chosen(), (x,)))).module()
    assert torch.equal(module(x), x[0]) and torch.equal(module(-x), -x[1])


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x, y):
        return x * self.weight + y[1:]


def test_ranges_and_gradients_of_inputs_travel():
    n = Dim("n", min=3, max=6)
    args = torch.randn(4, requires_grad=True), torch.randn(5)
    program = export(Shifted(), args, dynamic_shapes=({0: n}, {0: n + 1}))
    found = load(written(program))
    assert found.range_constraints == program.range_constraints and len(found.range_constraints) == 2
    weight, x, y = (node.meta["val"] for node in found.graph.nodes if node.op == "placeholder")
    assert (found.range_constraints[x.shape[0].node.expr].lower, y.requires_grad) == (3, False)
    assert weight.requires_grad and x.requires_grad
