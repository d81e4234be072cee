"""Saved-tensor hooks, gradient edges, versions."""

import mica as torch
import pytest
from mica.autograd import graph


def test_saved_tensors_go_through_the_hooks():
    packed, unpacked = [], []

    def pack(tensor):
        assert not torch.is_grad_enabled()
        packed.append(tensor.tolist())
        return tensor.tolist()

    def unpack(values):
        unpacked.append(values)
        return torch.tensor(values)

    x = torch.tensor([2.0, 3.0], requires_grad=True)
    with graph.saved_tensors_hooks(pack, unpack):
        y = x * x
    z = y.exp()  # outside of the block: kept unchanged
    assert packed == [[2, 3], [2, 3]]
    z.sum().backward()
    assert unpacked == packed
    assert x.grad.tolist() == (2 * x * z).tolist()


def test_hooks_nest_and_second_derivatives_work():
    x = torch.tensor(2.0, requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            y = x * x
        z = y * x
    (g,) = torch.autograd.grad(z, x, create_graph=True)
    assert g.item() == 12
    assert torch.autograd.grad(g, x)[0].item() == 12


def test_hooks_errors():
    x = torch.ones(1, requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 5):
        y = x * x
    with pytest.raises(TypeError, match="expected to be a Tensor but got result of type int"):
        y.backward()
    changing = graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t)
    with pytest.raises(RuntimeError, match="modifying its input in place"), changing:
        (x.detach() * 1) * x
    with graph.disable_saved_tensors_hooks("not now"), pytest.raises(RuntimeError, match="not now"):
        graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        pass


def test_save_on_cpu():
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    with graph.save_on_cpu():
        y = x * x
    y.sum().backward()
    assert x.grad.tolist() == [4, 6]


def test_gradient_edges_stand_for_tensors():
    x = torch.tensor(3.0, requires_grad=True)
    y = x * x
    edge, leaf_edge = graph.get_gradient_edge(y), graph.get_gradient_edge(x)
    assert edge.node is y.grad_fn
    assert leaf_edge.node.name() == "torch::autograd::AccumulateGrad"
    z = y * 2
    assert torch.autograd.grad(z, edge, retain_graph=True)[0].item() == 2
    assert torch.autograd.grad(edge, [leaf_edge], retain_graph=True)[0].item() == 6
    assert torch.autograd.grad(edge, x, grad_outputs=torch.tensor(2.0), retain_graph=True)[0].item() == 12
    torch.autograd.backward(edge)
    assert x.grad.item() == 6
    with pytest.raises(RuntimeError, match="does not require gradients"):
        graph.get_gradient_edge(torch.ones(1))
    unused = graph.get_gradient_edge(torch.ones(1, requires_grad=True))
    assert torch.autograd.grad(x * 2, leaf_edge, materialize_grads=True)[0].item() == 2
    with pytest.raises(RuntimeError, match="materialize_grads cannot be used when the given input is a GradientEdge"):
        torch.autograd.grad(x * 2, unused, materialize_grads=True)


def test_increment_version():
    x = torch.ones(2)
    version = x._version
    graph.increment_version(x)
    graph.increment_version([x, x])
    assert x._version == version + 3
    with torch.inference_mode():
        graph.increment_version(torch.ones(2))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.zeros(2),
        lambda x: torch.full((2,), 3.0),
        lambda x: torch.ones_like(x),
        lambda x: torch.eye(2),
        lambda x: torch.rand(2),
        lambda x: torch.randint_like(x, 5),
        lambda x: x.clone(),
        lambda x: x.to(torch.float64),
        lambda x: torch.cat([x, x]),
    ],
)
def test_new_tensors_have_not_been_changed(make):
    made = make(torch.tensor([1.0, 2.0]))
    assert made._version == 0
    made.view(-1).zero_()
    assert made._version == 1


def test_views_find_their_base_through_views_and_data():
    base = torch.zeros(2, 3)
    row = base[0].view(3, 1)
    assert row._base is base and not row.requires_grad and row.is_leaf and row.grad_fn is None
    other = torch.zeros(3)
    part = other[1:]
    other.data = torch.ones(3)
    assert part._base is other and part.tolist() == [0, 0]
    row.mul_(torch.ones(3, 1, requires_grad=True))
    assert base.requires_grad and row.grad_fn is not None and row.output_nr == 0 and base[1].requires_grad


def square():
    leaf = torch.ones(2, 2, requires_grad=True)
    base = leaf * 2
    return leaf, base, base[:]


WEIGHTS = torch.arange(4.0).reshape(2, 2)


def gradient(leaf, result):
    return torch.autograd.grad((result * WEIGHTS.reshape(result.shape)).sum(), leaf)[0].flatten().tolist()


def test_a_view_that_is_transposed_in_place_leaves_its_base_as_it_is():
    leaf, base, view = square()
    view.t_()
    assert gradient(leaf, base) == [0, 2, 4, 6]
    leaf, base, view = square()
    assert gradient(leaf, view.t_()) == [0, 4, 2, 6]
    leaf, base, view = square()
    view.transpose_(0, 1)
    view[0].mul_(3)  # the first column of the base
    assert gradient(leaf, view) == [0, 4, 6, 6]
    assert base.tolist() == [[6, 2], [6, 2]]
    leaf, base, view = square()
    view.mul_(5).t_()
    base.mul_(3)
    assert gradient(leaf, view) == [0, 60, 30, 90]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.unsqueeze_(1),
        lambda x: x.unsqueeze_(0).squeeze_(0),
        lambda x: x.unsqueeze_(0).squeeze_(),
        lambda x: x.as_strided_((4,), (1,)),
        lambda x: x.unsqueeze_(2).transpose_(1, 2),
    ],
)
def test_views_take_other_sizes_in_place(change):
    leaf, base, view = square()
    assert gradient(leaf, change(view)) == [0, 2, 4, 6]
    leaf, base, view = square()
    change(view).mul_(3)
    assert gradient(leaf, base) == [0, 6, 12, 18]
    leaf, base, view = square()
    expanded = base.expand(2, 2, 2)
    assert gradient(leaf, expanded.transpose_(1, 2)[0]) == [0, 4, 2, 6]


def test_a_conjugated_view_is_transposed_in_place():
    leaf = torch.ones(2, 2, dtype=torch.complex64, requires_grad=True)
    weights = torch.complex(WEIGHTS, WEIGHTS + 1)
    view = (leaf * 2).conj()
    view.t_().mul_(3)
    (view * weights).sum().backward(torch.ones((), dtype=torch.complex64))
    assert leaf.grad.tolist() == (weights.t() * 6).tolist()
