"""Names of dimensions: creation, renaming, alignment, what operations make of them, and the errors when they clash."""

import mica as torch
import pytest

N, C = ("N", "C"), ("C",)


def named(*sizes, names):
    return torch.arange(float(torch.Size(sizes).numel())).reshape(sizes).rename(*names)


def test_creation_with_names():
    assert torch.zeros(2, 3, names=("N", "C")).names == ("N", "C")
    assert torch.tensor([1.0, 2.0], names=["C"]).names == ("C",)
    assert torch.ones(2, 3, names=("N", None)).names == ("N", None)
    assert torch.randn(2, 3).names == (None, None)
    assert not torch.zeros(2).has_names()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("N",), "Number of names"),
        (("N", "N"), "duplicate names"),
        (("N", "a b"), "Invalid name"),
        (("N", "2d"), "Invalid name"),
    ],
)
def test_bad_names(names, message):
    x = torch.zeros(2, 3)
    with pytest.raises(RuntimeError, match=message):
        x.rename(*names)
    assert x.names == (None, None)


def test_rename():
    x = named(2, 3, names=("N", "C"))
    y = x.rename(C="channels")
    assert y.names == ("N", "channels") and x.names == ("N", "C")
    assert x.rename(None).names == (None, None)
    y[0, 0] = 7  # a view
    assert x.rename(None)[0, 0] == 7
    assert x.rename_("A", "B") is x and x.names == ("A", "B")
    x.names = None
    assert not x.has_names()
    with pytest.raises(RuntimeError, match="does not exist"):
        y.rename(H="h")


def test_refine_names():
    x = torch.zeros(2, 3, 5, 5)
    y = x.refine_names(..., "H", "W")
    assert y.names == (None, None, "H", "W")
    assert y.refine_names("N", ...).names == ("N", None, "H", "W")
    with pytest.raises(RuntimeError, match="is different from"):
        y.refine_names("N", "C", "W", "H")
    with pytest.raises(RuntimeError, match="more specific"):
        y.refine_names(None, None, None, "W")
    with pytest.raises(RuntimeError, match="different number of dims"):
        y.refine_names("N")


def test_alignment():
    x = named(2, 3, names=("N", "C"))
    y = x.align_to("C", "H", "N")
    assert y.shape == (3, 1, 2) and y.names == ("C", "H", "N")
    assert x.align_to("C", ...).names == ("C", "N")
    assert named(3, names=("C",)).align_as(x).shape == (1, 3)
    with pytest.raises(RuntimeError, match="Cannot find dim 'C'"):
        x.align_to("N")
    with pytest.raises(RuntimeError, match="must be named"):
        torch.zeros(2, 3).align_to("N", "C")


def test_names_through_pointwise_operations():
    x, y = named(2, 3, names=("N", "C")), named(3, names=("C",))
    assert (x + y).names == ("N", "C")
    assert (x * 2).exp().names == ("N", "C")
    assert (x + torch.ones(3)).names == ("N", "C")
    assert (x > y).names == ("N", "C")
    with pytest.raises(RuntimeError, match="'C' and dim 'H' are at the same position"):
        x + named(3, names=("H",))
    with pytest.raises(RuntimeError, match="appears in a different position"):
        x + named(2, 3, names=("C", None))


def test_in_place_and_out():
    x, y = named(2, 3, names=("N", "C")), named(3, names=("C",))
    before = x._version
    assert x.add_(y) is x and x.names == ("N", "C") and x._version > before
    out = torch.empty(2, 3)
    assert torch.add(x, y, out=out) is out and out.names == ("N", "C")
    plain = torch.zeros(2, 3)
    plain.add_(x)
    assert plain.names == ("N", "C")


def test_dimensions_by_name():
    x = named(2, 3, 4, names=("N", "C", "W"))
    plain = x.rename(None)
    assert x.sum("C").names == ("N", "W")
    assert torch.equal(x.sum("C").rename(None), plain.sum(1))
    assert x.sum(["N", "W"]).names == ("C",)
    assert x.mean("C", keepdim=True).names == ("N", "C", "W")
    values, indices = x.max("W")
    assert values.names == indices.names == ("N", "C")
    assert x.select("C", 1).names == ("N", "W")
    assert x.transpose("N", "W").names == ("W", "C", "N")
    assert x.softmax("C").names == ("N", "C", "W")
    assert x.size("W") == 4 and x.unbind("N")[0].names == ("C", "W")
    assert torch.sum(x, dim="N").names == ("C", "W")
    assert torch.cat([x, x], dim="C").shape == (2, 6, 4)
    with pytest.raises(RuntimeError, match="Name 'H' not found"):
        x.sum("H")


def test_indexing_keeps_names():
    x = named(2, 3, 4, names=("N", "C", "W"))
    assert x[0].names == ("C", "W")
    assert x[:, 1:].names == ("N", "C", "W")
    assert x[..., 0].names == ("N", "C")
    assert x[:, None].names == ("N", None, "C", "W")


def test_flatten_and_unflatten():
    x = named(2, 3, 4, names=("N", "C", "W"))
    y = x.flatten(["C", "W"], "features")
    assert y.shape == (2, 12) and y.names == ("N", "features")
    z = y.unflatten("features", (("C", 3), ("W", 4)))
    assert z.names == ("N", "C", "W") and torch.equal(z.rename(None), x.rename(None))
    with pytest.raises(RuntimeError, match="consecutive"):
        x.flatten(["N", "W"], "features")


def test_products():
    a, b = named(2, 3, names=("N", "C")), named(3, 4, names=("C", "D"))
    assert (a @ b).names == ("N", "D")
    assert torch.mv(a, named(3, names=("C",))).names == ("N",)
    batch = named(5, 2, 3, names=("B", "N", "C"))
    assert torch.matmul(batch, b).names == ("B", "N", "D")
    with pytest.raises(RuntimeError, match="duplicate names"):
        a @ named(3, 2, names=("C", "N"))


def test_gradients_flow_through_names():
    x = torch.ones(2, 3, requires_grad=True)
    (x.rename("N", "C") * torch.tensor([1.0, 2.0, 3.0], names=("C",))).sum("C").sum().backward()
    assert x.grad.tolist() == [[1, 2, 3], [1, 2, 3]]
    leaf = torch.ones(2, 3, names=("N", "C"), requires_grad=True)
    (leaf * 3).sum().backward()
    assert leaf.grad.rename(None).tolist() == [[3, 3, 3], [3, 3, 3]]
    y = leaf * 2
    y.mul_(5)
    y.sum().backward()
    assert leaf.grad.rename(None).tolist() == [[13, 13, 13], [13, 13, 13]]


def test_an_operation_without_a_rule_says_so():
    x = named(2, 3, names=("N", "C"))
    with pytest.raises(RuntimeError, match="not yet supported with named tensors"):
        torch.kron(x, x)


def test_repr_names_the_dimensions():
    assert repr(torch.zeros(2, names=("C",))) == "tensor([0., 0.], names=('C',))"
