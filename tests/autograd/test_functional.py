"""Jacobians, Hessians and products with vectors."""

import mica as torch
import pytest
from mica.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp
from mica.testing import assert_close

A = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
X = torch.tensor([1.0, 2.0])
V = torch.tensor([0.5, -1.0])


def cubes(x):
    return (x**3).sum()


def test_jacobian_of_a_linear_map_is_its_matrix():
    assert_close(jacobian(lambda x: A @ x, X), A)
    assert jacobian(lambda x: x.exp(), torch.ones(2, 3)).shape == (2, 3, 2, 3)
    first, second = jacobian(lambda x, y: x * y, (X, V))
    assert_close(first, torch.diag(V))
    assert_close(second, torch.diag(X))
    of_sum, of_product = jacobian(lambda x: (x.sum(), x.prod()), X)
    assert of_sum.tolist() == [1, 1]
    assert of_product.tolist() == [2, 1]


def test_products():
    value, product = vjp(lambda x: A @ x, X, V)
    assert_close(value, A @ X)
    assert_close(product, A.t() @ V)
    value, product = jvp(lambda x: A @ x, X, V)
    assert_close(value, A @ X)
    assert_close(product, A @ V)
    assert not product.requires_grad


def test_second_derivatives():
    assert_close(hessian(cubes, X), torch.diag(6 * X))
    assert_close(vhp(cubes, X, V)[1], 6 * X * V)
    assert_close(hvp(cubes, X, V)[1], 6 * X * V)
    (xx, xy), (yx, yy) = hessian(lambda x, y: (x * x * y).sum(), (X, V))
    assert_close(xx, torch.diag(2 * V))
    assert_close(xy, torch.diag(2 * X))
    assert_close(yx, torch.diag(2 * X))
    assert_close(yy, torch.zeros(2, 2))


def test_results_can_be_differentiated():
    x = X.clone().requires_grad_()
    jacobian(lambda v: v**2, x, create_graph=True).sum().backward()
    assert_close(x.grad, torch.tensor([2.0, 2.0]))
    assert jvp(lambda v: v**2, x, V, create_graph=True)[1].requires_grad


def test_strict_mode_names_what_is_independent():
    with pytest.raises(RuntimeError, match="Output 0 of the user-provided function does not require gradients"):
        jacobian(lambda x: torch.ones(1), X, strict=True)
    with pytest.raises(RuntimeError, match="Output 0 of the user-provided function is independent of input 1"):
        jacobian(lambda x, y: x * 2, (X, V), strict=True)
    assert jacobian(lambda x, y: x * 2, (X, V))[1].tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("function", [hessian, vhp, hvp])
def test_strict_second_derivatives_need_slopes_that_vary(function):
    v = () if function is hessian else (V,)
    with pytest.raises(RuntimeError, match="jacobian of the user-provided function with respect to input 0 is"):
        function(lambda x: (3 * x).sum(), X, *v, strict=True)
    with pytest.raises(RuntimeError, match="Output 0 of the user-provided function does not require gradients"):
        function(lambda x: x.detach().sum(), X, *v, strict=True)
    result = function(lambda x: (3 * x).sum(), X, *v)
    assert not (result if function is hessian else result[1]).any()


@pytest.mark.parametrize("function", [jacobian, jvp, vjp])
def test_strict_with_create_graph_needs_a_jacobian_that_varies(function):
    x, v = X.clone().requires_grad_(), () if function is jacobian else (V,)
    with pytest.raises(RuntimeError, match="The jacobian of the user-provided function is independent of input 0"):
        function(torch.clone, x, *v, create_graph=True, strict=True)
    function(torch.clone, x, *v, create_graph=True)
    function(torch.exp, x, *v, create_graph=True, strict=True)


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="must be either a Tensor or a tuple of Tensors"):
        jacobian(lambda x: x, 3)
    with pytest.raises(RuntimeError, match="The given v should contain a single Tensor"):
        vjp(lambda x: x, X, (V, V))
    with pytest.raises(RuntimeError, match="v is a tuple of invalid length: should be 2 but got 1"):
        jvp(lambda x, y: x, (X, X), V)
    with pytest.raises(RuntimeError, match="^v has invalid size"):
        vjp(lambda x: x, X, torch.ones(3))
    with pytest.raises(RuntimeError, match="^Entry 1 in v has invalid size"):
        jvp(lambda x, y: x, (X, X), (V, torch.ones(3)))
    with pytest.raises(RuntimeError, match="v can only be None if the input to the user-provided function is a single"):
        jvp(lambda x: x, X)
    for function in (jacobian, hessian):
        with pytest.raises(RuntimeError, match="not supported together"):
            function(cubes, X, strict=True, vectorize=True)
    with pytest.raises(RuntimeError, match="single element"):
        hessian(lambda x: x, X)
