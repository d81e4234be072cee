"""backward() and grad() from Python: arguments, errors, in-place changes, views, threads."""

import threading
import warnings

import mica as torch
import pytest
from mica.autograd import grad


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


def test_grad_arguments():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    assert grad(x * y, (x, y), grad_outputs=torch.ones(2))[0].tolist() == [3, 4]
    with pytest.raises(RuntimeError, match="scalar outputs"):
        grad(x * y, x)
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        grad(x.sum(), y)
    assert grad(x.sum(), y, allow_unused=True) == (None,)
    assert grad(x.sum(), y, materialize_grads=True)[0].tolist() == [0, 0]
    with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed"):
        grad(x.sum(), y, materialize_grads=True, allow_unused=False)
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(torch.ones(1), x)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        grad(x * y, x, grad_outputs=torch.ones(3))
    with pytest.raises(ValueError, match="grad requires non-empty inputs"):
        grad(x.sum(), [])


def test_batched_grad_outputs():
    x = leaf(1.0, 2.0, 3.0)
    (rows,) = grad(x * x, x, grad_outputs=torch.eye(3), is_grads_batched=True)
    assert rows.tolist() == [[2, 0, 0], [0, 4, 0], [0, 0, 6]]
    with pytest.raises(RuntimeError, match="we interpret the first dimension of each grad_output as the batch"):
        grad(x * x, x, grad_outputs=torch.ones(3), is_grads_batched=True)


def test_backward_accumulates_into_inputs_alone():
    x, y = leaf(1.0), leaf(2.0)
    torch.autograd.backward(x * y, inputs=[x])
    assert x.grad.item() == 2
    assert y.grad is None
    torch.autograd.backward([x * y, x * 3], [torch.ones(1), torch.ones(1)])
    assert x.grad.item() == 7
    with pytest.raises(RuntimeError, match="cannot be empty"):
        torch.autograd.backward(x * y, inputs=[])


def test_double_backward():
    x = torch.tensor(2.0, requires_grad=True)
    (first,) = grad(x**4, x, create_graph=True)
    (second,) = grad(first, x, create_graph=True)
    (third,) = grad(second, x)
    assert (first.item(), second.item(), third.item()) == (32, 48, 48)


def test_graph_is_freed_once_used():
    x = leaf(1.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_changed_values_are_noticed():
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation.*is at version 1; expected version 0"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used in an in-place operation"):
        x.add_(1)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, other: x * other,
        lambda x, other: x @ other,
        lambda x, other: torch.mm(other, x),
        lambda x, other: torch.addcmul(other, x, other),
        lambda x, other: torch.lerp(x, other, 0.5 * torch.ones(2, 2)),
        lambda x, other: torch.addmm(other, x, other),
    ],
)
def test_what_no_gradient_needs_is_neither_kept_nor_guarded(call):
    leaf, other = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)
    kept = []
    x = leaf * 1
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        call(x, other)
    assert not any(t is x for t in kept)
    y = call(x, other)
    x.add_(1)
    y.sum().backward()
    assert leaf.grad is not None


def test_ties_of_a_median_share_its_gradient():
    for median in (torch.median, torch.nanmedian):
        x = leaf(1.0, 0.0, 1.0, 0.0)
        median(x).backward()
        assert x.grad.tolist() == [0, 0.5, 0, 0.5]
    x = leaf(1.0, torch.nan)
    torch.median(x).backward()
    assert x.grad.tolist() == [0, 1]


def test_the_extremum_of_a_nan_has_no_slope():
    x = leaf(1.0, torch.nan)
    torch.amax(x).backward()
    assert x.grad.isnan().all()


def test_sinc_is_flat_where_the_square_of_its_argument_is_zero():
    x = torch.tensor([0.0, 1e-200, 1.0], dtype=torch.float64, requires_grad=True)
    torch.sinc(x).sum().backward()
    assert x.grad.tolist() == [0, 0, pytest.approx(-1)]


def test_gradients_follow_a_leaf_that_is_set_anew():
    x = leaf(1.0, 2.0, 3.0)
    before = x * 2
    with torch.no_grad():
        x.set_(x[1:])
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        grad(before.sum(), x)
    y = torch.cat((x, x))
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_a_tensor_that_is_set_anew_has_no_derivative():
    given = ((), (torch.zeros(2),), (torch.zeros(2), 0, (2,)), (torch.zeros(2).untyped_storage(), 0, (2,), (1,)))
    for arguments in given:
        x = leaf(1.0, 2.0)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"):
            x.set_(*arguments)
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            x[:1].set_(*arguments)
        y = x * 3
        y.set_(*arguments)
        with pytest.raises(NotImplementedError, match="derivative .* of 'set_' is not implemented"):
            (y * 2).sum().backward()
        x.data.set_(*arguments)
        with torch.no_grad():
            assert x.set_(*arguments).is_leaf and x.tolist() == [0] * x.numel()
    plain = torch.zeros(2).set_(leaf(1.0, 2.0))
    assert plain.requires_grad and not plain.is_leaf
    assert torch.zeros(2).set_(leaf(1.0, 2.0).detach()).is_leaf


def test_the_node_of_a_custom_function_applies_its_backward():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    class Named(Double):
        vjp = staticmethod(lambda ctx, gradient: gradient * 4)

    for function, factor in ((Double, 2), (Named, 4)):
        node = function.apply(leaf(1.0)).grad_fn
        assert node.apply(torch.ones(1)).tolist() == [factor]


def test_negative_numbers_to_complex_powers():
    exponent = torch.tensor([0.5 - 1j, 2j], requires_grad=True, dtype=torch.complex128)
    for base in (torch.tensor([-1.0, -2.0], dtype=torch.float64), -2):
        assert torch.autograd.gradcheck(lambda e, base=base: torch.pow(base, e), (exponent,))


@pytest.mark.parametrize("reduce", [torch.scatter_reduce, torch.index_reduce])
def test_second_derivatives_of_a_product_with_two_zeros_are_refused(reduce):
    x, source = leaf(1.0), leaf(0.0, 0.0)
    y = reduce(x, 0, torch.tensor([0, 0]), source, "prod")
    assert [g.tolist() for g in torch.autograd.grad(y, (x, source), retain_graph=True)] == [[0], [0, 0]]
    with pytest.raises(RuntimeError, match="Double backward is unsupported for src when >1 zeros"):
        torch.autograd.grad(y, (x, source), create_graph=True)


def test_in_place_through_views():
    x = torch.zeros(4, requires_grad=True)
    y = x * 1
    y[1:3].mul_(torch.tensor([2.0, 3.0]))
    first = y.view(2, 2)[0]
    first.add_(1)
    (y * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [1, 4, 9, 4]
    assert "CopySlices" in y.grad_fn.name() or "AsStrided" in y.grad_fn.name()


def test_detach_shares_memory_but_no_history():
    x = leaf(1.0, 2.0)
    y = x * 2
    d = y.detach()
    assert not d.requires_grad
    assert not d._is_view()
    assert d.data_ptr() == y.data_ptr()
    d.zero_()
    assert y.tolist() == [0, 0]


def test_complex_gradients_are_conjugate():
    z = torch.tensor(1 + 2j, requires_grad=True)
    (z * z.conj()).real.backward()
    assert z.grad.item() == 2 + 4j


def test_threads_share_a_graph_and_leaves():
    x = torch.ones(1000, requires_grad=True)
    failures = []

    def work():
        try:
            for _ in range(20):
                (x * 2).sum().backward()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert x.grad.tolist() == [160.0] * 1000


def test_modes_belong_to_a_thread():
    seen = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_deep_graphs_neither_run_nor_die_recursively():
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1
    del y


def test_callbacks_run_when_the_pass_has_ended():
    seen = []
    x = leaf(1.0)
    queue = torch.autograd.Variable._execution_engine.queue_callback

    def hook(grad):
        queue(lambda: seen.append(("end", x.grad.item())))
        seen.append("hook")

    x.register_hook(hook)
    (x * 3).backward()
    assert seen == ["hook", ("end", 3)]
    with pytest.raises(RuntimeError, match="only be installed during backward"):
        queue(print)


def test_the_gradient_of_a_real_tensor_made_complex_is_its_real_part():
    x = torch.ones(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (x.to(torch.complex64) * (2 + 3j)).abs().sum().backward()
        torch.zeros(2, dtype=torch.complex64).copy_(x).sum().abs().backward()
    assert x.grad.tolist() == pytest.approx([13**0.5 + 1] * 2)


def test_transposes_are_named_as_in_torch():
    x = torch.ones(2, 3, requires_grad=True)
    assert x.T.grad_fn.name() == "PermuteBackward0" and x.mT.grad_fn.name() == "TransposeBackward0"
    assert torch.where(x > 0, x, 0.0).grad_fn.name() == "WhereBackward0"


@pytest.mark.parametrize("operation", [lambda x: x * 2, lambda x: x / 2, lambda x: x.clone().mul_(2)])
def test_products_with_a_number_are_freed_with_the_graph(operation):
    x = leaf(1.0, 2.0)
    y = operation(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()


@pytest.mark.parametrize(
    "function",
    [
        torch.unique,
        torch.unique_consecutive,
        lambda x: torch.unique(x, dim=0),
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    ],
)
def test_what_unique_returns_has_no_derivative(function):
    """It is refused, as torch refuses it, instead of lost."""
    result = function(torch.tensor([1.0, 2.0, 2.0], requires_grad=True))
    values, *others = result if isinstance(result, tuple) else (result,)
    assert values.requires_grad and not any(each.requires_grad for each in others)
    with pytest.raises(NotImplementedError, match="unique"):
        values.sum().backward()


@pytest.mark.parametrize("function", [lambda x: torch.histogram(x, 3), lambda x: torch.histogram(x, torch.arange(3.0))])
def test_histograms_have_no_derivative(function):
    counts, edges = function(torch.tensor([1.0, 2.0], requires_grad=True))
    assert counts.requires_grad and edges.requires_grad
    with pytest.raises(NotImplementedError, match="histogram"):
        counts.sum().backward()


def test_as_strided_in_place():
    """Gradients are torch's."""
    x = torch.arange(12.0).view(3, 4).requires_grad_()
    y = x * 2
    assert y.as_strided_((2, 3), (1, 2), 1) is y and y.tolist() == [[2.0, 6.0, 10.0], [4.0, 8.0, 12.0]]
    assert y.grad_fn.name() == "AsStridedBackward1" and y.as_strided((2,), (1,)).grad_fn.name() == "AsStridedBackward0"
    (y * torch.arange(6.0).view(2, 3)).sum().backward()
    assert x.grad.tolist() == [[0, 0, 6, 2], [8, 4, 10, 0], [0, 0, 0, 0]]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.as_strided_((1,), (1,))
    shared = torch.ones(4, requires_grad=True) * 1
    shared.as_strided_((2, 2), (1, 1))
    assert torch.autograd.grad(shared.sum(), shared)[0].shape == (2, 2)


WIDER = {
    "add_": 1, "sub_": 1, "mul_": 1, "div_": 1, "pow_": 1, "atan2_": 1, "fmod_": 1, "copysign_": 1, "hypot_": 1, "addcmul_": 2, "addcdiv_": 2,
    "xlogy_": 1, "clamp_min_": 1,
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", WIDER)
def test_a_view_changed_by_wider_numbers_passes_gradients_to_its_base(name, compiled):
    wide = torch.linspace(0.5, 1.5, 12, dtype=torch.float64).reshape(4, 3)
    weights = torch.linspace(0.1, 1, 12).reshape(3, 4)

    def changed(base, others, through_a_view):
        here = base * 1
        view = here.t() if through_a_view else here.t().clone()
        getattr(view, name)(*others)
        return here if through_a_view else view.t()

    run = torch.compile(changed) if compiled else changed
    gradients = []
    for through_a_view in (True, False):
        base = torch.linspace(0.6, 1.9, 12).reshape(3, 4).requires_grad_()
        others = [wide.clone().requires_grad_() for _ in range(WIDER[name])]
        (run(base, others, through_a_view) * weights).sum().backward()
        gradients.append([base.grad, *(other.grad for other in others)])
    for through_view, alone in zip(*gradients, strict=True):
        assert torch.allclose(through_view, alone)
    assert gradients[0][0].abs().sum() > 0


def test_a_bias_in_float32_is_added_to_a_view_in_bfloat16():
    weight, bias = torch.ones(3, 4, requires_grad=True), torch.ones(3, 1, requires_grad=True)
    with torch.autocast("cpu"):
        product = (torch.ones(2, 3) @ weight[:, :3]).t()
        product += bias
    product.sum().backward()
    assert weight.grad[:, :3].tolist() == [[2.0] * 3] * 3 and bias.grad.flatten().tolist() == [2.0] * 3
