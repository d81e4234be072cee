"""Lists of integers as indices, and tensors as bounds of slices, are constants of an exported graph."""

import mica
import pytest


def reads(x):
    return x[..., [-2], :] + x[:, [0], [1], None].sum(), x[[1, 0]], x[..., [[0], [1]], 1:], x[[]]


def writes(x):
    x = x.clone()
    x[[0, 1], 1:] = 3.0
    x[..., [0, -1], :] = x[..., [1, 2], :] * 2
    return (x,)


class Indexed(mica.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("function", [reads, writes])
def test_lists_in_an_index(function, tmp_path):
    x = mica.randn(2, 3, 4, 5)
    program = mica.export.export(Indexed(function), (x,))
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert not any("item" in name for name in names) and any("lift_fresh_copy" in name for name in names)
    mica.export.save(program, tmp_path / "indexed.pt2")
    package = mica._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "package.pt2"))
    runs = [
        program.module(),
        mica.export.load(tmp_path / "indexed.pt2").module(),
        mica._inductor.aoti_load_package(package),
    ]
    for run in runs:
        for found, wanted in zip(run(x), function(x), strict=True):
            assert mica.equal(found, wanted)


def test_bounds_that_are_tensors():
    def sliced(x):
        k = mica.tensor([2], dtype=mica.int32)[0]
        return (mica.tanh(x[:, :k]) + x[:, k : 2 * k],)

    x = mica.randn(2, 4, 3)
    program = mica.export.export(Indexed(sliced), (x,))
    slices = [node.args[1:] for node in program.graph.nodes if "slice" in str(node.target)]
    assert slices == [(1, 0, 2), (1, 2, 4)]
    assert mica.equal(program.module()(x)[0], sliced(x)[0])
