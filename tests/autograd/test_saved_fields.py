"""What nodes keep for their backward pass, by torch's names."""

import mica
import pytest


def test_fields_have_torchs_names_and_values():
    x = mica.randn(3, 4, requires_grad=True)
    product = (x * x).grad_fn
    assert product._saved_self is x and product._saved_other is x
    assert x.sum(0).grad_fn._saved_self_sym_sizes == (3, 4)
    y = x.exp()
    mica.testing.assert_close(y.grad_fn._saved_result, y)
    assert y.grad_fn._saved_result.grad_fn is y.grad_fn
    power = x.pow(2).grad_fn
    assert power._saved_exponent == 2 and mica.equal(power._saved_self, x)
    assert x.softmax(1).grad_fn._saved_dim == 1
    assert x.transpose(0, 1).grad_fn._saved_dim0 == 0
    assert "_saved_exponent" in dir(power)
    assert not hasattr(power, "_saved_nothing") and not hasattr(x, "_saved_self")


def test_fields_are_gone_with_the_graph():
    y = mica.randn(3, requires_grad=True).exp()
    y.sum().backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        _ = y.grad_fn._saved_result
    z = mica.ones(2, requires_grad=True)
    w = z * z
    with mica.no_grad():
        z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _ = w.grad_fn._saved_self
