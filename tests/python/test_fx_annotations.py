"""Annotations of what is traced stand in the code of its graph, as torch 2.13 writes them."""

import dataclasses
import typing

import mica as torch
import mica.fx
import pytest
from mica.fx.passes.infra.pass_manager import PassManager


class Annotated(torch.nn.Module):
    def forward(
        self,
        x: torch.Tensor,
        y: typing.List[str],  # noqa: UP006
        z: typing.Optional[int] = 3,  # noqa: UP045
        v: float | None = None,
    ) -> tuple[torch.Tensor, list[str]]:
        return x + 1, y


def test_code():
    traced = mica.fx.symbolic_trace(Annotated())
    assert (
        "def forward(self, x : torch.Tensor, y : typing_List[str], z : typing_Union[int,NoneType] = 3, "
        "v : float|NoneType = None) -> tuple[torch.Tensor,list[str]]:" in traced.code
    )
    assert traced(torch.ones(1), ["a"])[1] == ["a"]
    assert [str(node.type) for node in traced.graph.nodes][:1] == ["<class 'torch.Tensor'>"]


def test_listing():
    graph = mica.fx.Graph()
    x = graph.create_node("placeholder", "x")
    graph.output(graph.create_node("call_function", torch.relu, (x,), type_expr=float | torch.Tensor | None))
    assert "%relu : float | torch.Tensor | None [num_users=1]" in str(graph)
    assert "relu : float|torch.Tensor|NoneType = torch.relu(x)" in graph.python_code("self").src


def test_starred_parameters_have_none():
    def function(x: torch.device, *args: int, **options: str) -> None:
        return x

    assert "x : device, *args, **options):" in mica.fx.symbolic_trace(function).code


@dataclasses.dataclass
class Output:
    foo: torch.Tensor
    bar: torch.Tensor


def test_dataclasses_are_returned():
    traced = mica.fx.symbolic_trace(lambda d: Output(foo=d + d, bar=d * 3))
    assert traced(torch.tensor(2.0)) == Output(torch.tensor(4.0), torch.tensor(6.0))


def test_checks_of_a_pass_manager():
    manager, seen = PassManager(), []
    with pytest.raises(TypeError, match="should only take in one variable"):
        manager.add_checks(lambda module, other: None)
    manager.add_checks(seen.append)
    manager(mica.fx.symbolic_trace(torch.nn.ReLU()))
    assert len(seen) == 1


def test_operators_are_named_by_their_schemas():
    assert mica.typename(mica.ops.aten.relu.default) == "torch._ops.aten.aten::relu"
    assert mica.ops.aten.add.Tensor.__qualname__ == "aten::add.Tensor"
    assert mica.ops.aten.add.Tensor.__name__ == "add.Tensor"
