"""What the transforms refuse, in torch's words."""

import mica as torch
import pytest
from mica.func import grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp

X = torch.ones(3)


@pytest.mark.parametrize("transform", [grad, jacrev, jacfwd, hessian])
@pytest.mark.parametrize(
    "argnums, words",
    [
        (0.0, "argnums must be int or Tuple"),
        ("0", "argnums must be int or Tuple"),
        ((0.0,), "argnum must be int"),
        ((0, 0), "argnums elements must be unique"),
        ((0, -1), "argnums elements must be unique"),
        ((), "argnums must be non-empty"),
        (1, "but only 1 positional inputs"),
    ],
)
def test_argnums(transform, argnums, words):
    with pytest.raises(RuntimeError, match=words):
        transform(lambda x: x.sin().sum(), argnums=argnums)(X)


@pytest.mark.parametrize(
    "call",
    [
        lambda f: grad(f, has_aux=True)(X),
        lambda f: vjp(f, X, has_aux=True),
        lambda f: jvp(f, (X,), (X,), has_aux=True),
        lambda f: jacrev(f, has_aux=True)(X),
    ],
)
def test_aux(call):
    for wrong in (lambda x: x.sum(), lambda x: [x.sum(), x], lambda x: (x.sum(), x, x)):
        with pytest.raises(RuntimeError, match=r"output of function f should be a tuple: \(output, aux\)"):
            call(wrong)
    with pytest.raises(RuntimeError, match="Expected tensors, got unsupported type <class 'int'>"):
        call(lambda x: (x.sum(), 1))


def test_outputs():
    for wrong, words in ((lambda x: 1.0, "return only tensors"), (lambda x: (), "non-empty output")):
        for call in (lambda f: vjp(f, X), lambda f: jvp(f, (X,), (X,)), lambda f: jacrev(f)(X), lambda f: jacfwd(f)(X)):
            with pytest.raises(RuntimeError, match=words):
                call(wrong)
    with pytest.raises(RuntimeError, match="at least one Tensor"):
        jvp(torch.sin, (), ())


def test_complex_jacobians():
    for transform in (jacrev, jacfwd):
        with pytest.raises(RuntimeError, match="Expected all inputs to be real"):
            transform(torch.sin)(X.to(torch.complex64))
        with pytest.raises(RuntimeError, match="Expected all outputs to be real"):
            transform(lambda x: x * 1j)(X)


def test_aux_of_jvp_has_no_history():
    assert not jvp(lambda x: (x.sum(), x * 2), (X,), (X,), has_aux=True)[2].requires_grad


def test_modules_in_different_modes():
    with pytest.raises(RuntimeError, match="same training/eval mode"):
        stack_module_state([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).eval()])


class _Sine(torch.autograd.Function):
    """One that sets its context up in forward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()


@pytest.mark.parametrize("name", ["vmap", "grad", "jacrev", "jacfwd", "grad_and_value", "hessian", "functionalize"])
def test_a_function_without_setup_context(name):
    with pytest.raises(RuntimeError, match="must override the setup_context staticmethod"):
        getattr(torch.func, name)(_Sine.apply)(torch.ones(3))
    x = torch.ones(3, requires_grad=True)
    _Sine.apply(x).sum().backward()  # the refusal ends with the transform
    assert not torch._C._are_functorch_transforms_active()


@pytest.mark.parametrize("name", ["grad", "jacrev", "grad_and_value", "hessian"])
def test_hooks_of_saved_tensors(name):
    def hooked(x):
        with torch.autograd.graph.save_on_cpu():
            return x.sin().sum()

    transform = getattr(torch.func, name)
    with pytest.raises(RuntimeError, match="don't yet support saved tensor hooks"):
        transform(hooked)(torch.ones(3))
    with pytest.raises(RuntimeError, match="saved tensor hooks"), torch.autograd.graph.save_on_cpu():
        transform(lambda x: x.sin().sum())(torch.ones(3))
    torch.func.jvp(hooked, (torch.ones(3),), (torch.ones(3),))  # which torch takes
    with torch.autograd.graph.save_on_cpu():
        pass


def test_autograd_functional_within_a_transform():
    for call in (
        lambda x: torch.autograd.functional.jacobian(lambda y: y.sin().sum(), x),
        lambda x: torch.autograd.functional.vjp(lambda y: y.sin().sum(), x),
    ):
        with pytest.raises(RuntimeError, match="torch.autograd.functional"):
            torch.func.vmap(call)(torch.ones(2, 3))


def test_states_that_do_not_stack():
    models = [torch.nn.Linear(2, 2) for _ in range(2)]
    models[0].weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match="weight from each model to have the same .requires_grad"):
        torch.func.stack_module_state(models)


@pytest.mark.parametrize(
    "name", ["det", "inv", "cholesky", "qr", "svd", "eigh", "eig", "pinv", "matrix_exp", "slogdet"]
)
def test_examples_that_are_no_matrices(name):
    with pytest.raises(RuntimeError, match="2 dimensions|2 or more dimensions"):
        torch.func.vmap(getattr(torch.linalg, name))(torch.eye(3))


def test_operations_without_a_rule_can_be_refused():
    from mica.func._batched import _is_vmap_fallback_enabled, _set_vmap_fallback_enabled

    x = torch.arange(6.0).reshape(2, 3)
    _set_vmap_fallback_enabled(False)
    try:
        assert torch.func.vmap(torch.sin)(x).shape == (2, 3)
        with pytest.raises(RuntimeError, match="aten::histc hit the vmap fallback which is currently disabled"):
            torch.func.vmap(torch.histc)(x)
    finally:
        _set_vmap_fallback_enabled(True)
    assert _is_vmap_fallback_enabled() and torch.func.vmap(torch.histc)(x).shape == (2, 100)


def test_one_place_for_one_output():
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(torch.func.vmap(torch.clone, out_dims=(1,))(x), x.t())


@pytest.mark.parametrize("value", [True, False])
def test_requires_grad_of_an_argument(value):
    def asks(x):
        x.requires_grad_(value)
        return x.sin().sum()

    func = torch.func
    x = torch.randn(2, 3)
    for call in (func.vmap(asks), func.grad(asks), func.vmap(func.grad(asks)), lambda x: func.jvp(asks, (x,), (x,))):
        with pytest.raises(RuntimeError, match=r"You are attempting to call Tensor.requires_grad_\(\)"):
            call(x)
    assert func.vmap(lambda x: torch.ones(3, requires_grad=True) * x)(x).shape == (2, 3)


@pytest.mark.parametrize(
    "name", ["cond", "ldl_factor", "ldl_factor_ex", "solve", "solve_ex", "householder_product", "inv"]
)
def test_vectors_are_no_matrices(name):
    """With the batch they would pass for one, and its factors for those of the examples."""
    function, rows = getattr(torch.linalg, name), torch.eye(5) + 1
    others = 1 if name in ("solve", "solve_ex", "householder_product") else 0
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        torch.func.vmap(lambda row: function(row, *[row] * others))(rows)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        torch.func.vmap(lambda row: torch.geqrf(row))(rows)
