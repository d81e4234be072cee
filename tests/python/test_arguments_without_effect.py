"""Arguments that once were taken and did nothing: each does what torch's does, or is refused."""

import mica
import pytest
from mica import nn
from mica.fx import symbolic_trace


def test_sparse_constructors_pin_their_parts():
    makers = [
        lambda **given: mica.sparse_coo_tensor([[0]], [1.0], (2,), **given),
        lambda **given: mica.sparse_csr_tensor([0, 1], [0], [1.0], (1, 2), **given),
        lambda **given: mica.sparse_compressed_tensor([0, 1], [0], [1.0], (1, 2), layout=mica.sparse_csr, **given),
    ]
    for make in makers:
        assert not make(pin_memory=False).is_pinned()
        if mica.accelerator.is_available():
            assert make(pin_memory=True).is_pinned()
        else:
            with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is available."):
                make(pin_memory=True)


@pytest.mark.parametrize("name", ["pin_memory", "layout"])
def test_new_tensor_has_no_such_argument(name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        mica.zeros(2).new_tensor([1.0], **{name: None})


def test_from_file_says_what_a_mapped_file_cannot_be(tmp_path):
    path = tmp_path / "two"
    path.write_bytes(bytes(8))
    assert mica.from_file(str(path), size=2, layout=mica.strided, device="cpu").tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="tensors constructed from a file cannot be pinned"):
        mica.from_file(str(path), size=2, pin_memory=True)
    with pytest.raises(NotImplementedError, match="not on meta"):
        mica.from_file(str(path), size=2, device="meta")
    with pytest.raises(NotImplementedError, match="not one of torch.sparse_coo"):
        mica.from_file(str(path), size=2, layout=mica.sparse_coo)


def test_random_numbers_in_jacfwd():
    x = mica.ones(400)

    def draws_one(x):
        return x * mica.rand(())

    for refused in (mica.func.jacfwd(draws_one), mica.func.hessian(lambda x: nn.functional.dropout(x).sum())):
        state = mica.get_rng_state()
        with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
            refused(x)
        assert mica.get_rng_state().equal(state)
    with pytest.raises(RuntimeError, match="Only allowed values for randomness are"):
        mica.func.jacfwd(draws_one, randomness="none")
    same = mica.func.jacfwd(draws_one, randomness="same")(x)
    assert same.diagonal().unique().numel() == 1 and same.count_nonzero() == 400
    different = mica.func.jacfwd(draws_one, randomness="different")(x)
    assert different.diagonal().unique().numel() > 390 and different.count_nonzero() <= 400


def test_columns_drawn_apart_are_those_of_the_jacobian():
    a, b = mica.arange(3.0) + 1, mica.arange(6.0).reshape(3, 2)

    def f(a, b):
        return {"y": (a[:, None] * b).sum(0)}, a * 2

    expected, _ = mica.func.jacfwd(f, argnums=(0, 1), has_aux=True)(a, b)
    found, aux = mica.func.jacfwd(f, argnums=(0, 1), has_aux=True, randomness="different")(a, b)
    for one, other in zip(found["y"], expected["y"], strict=True):
        mica.testing.assert_close(one, other)
    assert aux.tolist() == [2, 4, 6] and not aux.requires_grad


def test_reduced_range_of_a_dynamic_product():
    x = mica.tensor([[-1.0, 0.3, 2.0]])
    weight = mica.quantize_per_tensor(mica.tensor([[0.5, -0.25, 1.0]]), 0.25, 0, mica.qint8)
    packed = mica.ops.quantized.linear_prepack(weight, None)
    for reduce_range in (False, True):
        rounded = mica.quantize_per_tensor_dynamic(x, mica.quint8, reduce_range).dequantize()
        expected = rounded @ weight.dequantize().t()
        mica.testing.assert_close(mica.ops.quantized.linear_dynamic(x, packed, reduce_range), expected)
    assert mica.ops.quantized.linear_dynamic(x, packed, True) != mica.ops.quantized.linear_dynamic(x, packed, False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x):
        return mica.relu(self.layer(x)) + 1


# The texts are torch 2.13's for the same graphs, but for the device of values, which torch's fake tensors have.
def test_a_readable_graph():
    assert symbolic_trace(Net()).print_readable(False) == (
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        # No stacktrace found for following nodes\n"
        "        layer = self.layer(x);  x = None\n"
        "        relu = torch.relu(layer);  layer = None\n"
        "        add = relu + 1;  relu = None\n"
        "        return add\n"
    )


def test_a_readable_graph_with_types(capsys):
    traced = symbolic_trace(Net())
    values = {"x": mica.ones(2, 3), "layer": mica.ones(4, 2, dtype=mica.int64).t(), "relu": mica.ones(2) > 0}
    for node in traced.graph.nodes:
        if node.name in values:
            node.meta["val"] = values[node.name]
        if node.name == "add":
            node.stack_trace = '  File "net.py", line 7, in forward\n    return y + 1\n'
            node.meta["why"] = "asked"
    text = traced.print_readable(include_stride=True, include_device=True, expanded_def=True, additional_meta=["why"])
    assert capsys.readouterr().out == text + "\n"
    assert text == (
        "class Net(torch.nn.Module):\n"
        "    def forward(\n"
        "        self,\n"
        '        x: "f32[2, 3][3, 1]cpu",\n'
        "    ):\n"
        "        # No stacktrace found for following nodes\n"
        '        layer: "i64[2, 4][1, 2]cpu" = self.layer(x);  x = None\n'
        '        relu: "b8[2][1]cpu" = torch.relu(layer);  layer = None\n'
        "\n"
        "        # why: asked # File: net.py:7 in forward, code: return y + 1\n"
        "        add = relu + 1;  relu = None\n"
        "        return add\n"
    )
    painted = traced.print_readable(False, colored=True)
    assert 'x: "\033[31mf32\033[0m\033[34m[2, 3]\033[0m"' in painted
    assert "relu + \033[34m1\033[0m;  \033[2mrelu = None\033[0m" in painted


def test_graphs_inside_are_printed_too():
    outer = nn.Module()
    outer.inner = symbolic_trace(nn.ReLU())
    graph = mica.fx.Graph()
    graph.output(graph.call_module("inner", (graph.placeholder("x"),)))
    text = mica.fx.GraphModule(outer, graph, "Outer").print_readable(False)
    assert text.startswith("class Outer(torch.nn.Module):\n    def forward(self, x):\n")
    assert (
        "\n    class inner(torch.nn.Module):\n        def forward(self, input : torch.Tensor) -> torch.Tensor:\n"
        in text
    )
