"""gradcheck agrees with right gradients and catches wrong ones."""

import mica as torch
import pytest
from mica.autograd import Function, gradcheck, gradgradcheck
from mica.autograd.gradcheck import GradcheckError, get_analytical_jacobian, get_numerical_jacobian


class WrongSine(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() * 1.01


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_right_gradients(fast_mode):
    assert gradcheck(lambda x: x.sin() * x, double(2, 3), fast_mode=fast_mode)
    assert gradcheck(lambda x, y: (x * y, x - y), (double(3), double(3)), fast_mode=fast_mode)
    assert gradcheck(lambda x, n: x * n, (double(3), 4), fast_mode=fast_mode)
    assert gradcheck(lambda x: x.t() @ x, double(3, 2), fast_mode=fast_mode)
    assert gradcheck(lambda x: x.sum(), double(0), fast_mode=fast_mode)
    # The function runs as it does outside: it may differentiate, and choose its outputs by requires_grad.
    assert gradcheck(lambda x: torch.autograd.grad(x.sin().sum(), x, create_graph=True), double(2), fast_mode=fast_mode)
    noisy = torch.nn.RReLU()

    def with_noise_of_now(x):
        state = torch.get_rng_state()
        result = noisy(x)
        torch.set_rng_state(state)
        return result

    assert gradcheck(with_noise_of_now, double(4, 4), fast_mode=fast_mode)
    assert gradcheck(lambda x: [y for y in (x * 2, x * 3) if y.requires_grad], double(2), fast_mode=fast_mode)


def test_the_tolerance_of_fast_mode_grows_with_the_size():
    x = torch.linspace(-2, 2, 4000).requires_grad_()  # of single precision: differences are coarse
    with pytest.warns(UserWarning, match="not a double precision"):
        assert gradcheck(torch.sin, x, eps=1e-4, rtol=0, fast_mode=True)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_a_wrong_gradient_is_caught(fast_mode):
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradcheck(WrongSine.apply, double(3), fast_mode=fast_mode)
    assert not gradcheck(WrongSine.apply, double(3), fast_mode=fast_mode, raise_exception=False)


def test_a_forgotten_path_is_caught():
    with pytest.raises(GradcheckError, match="numerical:tensor"):
        gradcheck(lambda x: x * x.detach(), double(2))


@pytest.mark.parametrize("fast_mode", [False, True])
def test_complex_functions(fast_mode):
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    assert gradcheck(lambda z: z * z, z, fast_mode=fast_mode)
    assert gradcheck(lambda z: z.abs(), z, fast_mode=fast_mode)
    assert gradcheck(lambda z: z.conj() * 2j, z, fast_mode=fast_mode)
    assert gradcheck(lambda x: torch.complex(x, x * x), double(3), fast_mode=fast_mode)
    assert gradgradcheck(lambda z: z * z, z, fast_mode=fast_mode)


def test_second_derivatives():
    class WrongTwice(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            return grad * 3 * ctx.saved_tensors[0].detach() ** 2

    assert gradgradcheck(lambda x: x**3, double(3))
    assert gradgradcheck(lambda x, y: x.exp() * y, (double(2), double(2)), gen_non_contig_grad_outputs=True)
    assert gradcheck(WrongTwice.apply, double(3))
    with pytest.raises(GradcheckError):
        gradgradcheck(WrongTwice.apply, double(3))


def test_undefined_gradients_must_be_handled():
    class Careless(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            return first * 2 + second * 3

    with (
        pytest.warns(UserWarning, match="New undefined gradient support checking"),
        pytest.raises(GradcheckError, match="Expected backward function to handle undefined output grads"),
    ):
        gradcheck(lambda x: sum(Careless.apply(x)), double(2))


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda x: x, torch.ones(2))
    with pytest.warns(UserWarning, match="not a double precision"):
        gradcheck(lambda x: x * 2, torch.ones(2, requires_grad=True), eps=1e-2, atol=1e-2)
    with pytest.raises(RuntimeError, match="dimension with stride 0"):
        gradcheck(lambda x: x * 2, torch.ones(1, dtype=torch.float64).expand(3).requires_grad_())


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_sparse_inputs(layout):
    block = (1, 1) if layout in ("bsr", "bsc") else None
    values = torch.tensor([[0, 1.5, 0], [2, 0, 0]], dtype=torch.float64)
    x = values.to_sparse(layout=getattr(torch, f"sparse_{layout}"), blocksize=block).requires_grad_()
    y = double(3, 2)
    for check in (gradcheck, gradgradcheck):
        for masked in (False, True):
            assert check(lambda a, b, masked=masked: a.to_dense(masked_grad=masked) @ b.sin(), (x, y), masked=masked)
    # The gradient of sparse.mm has the elements that its operand holds, and no others.
    assert gradcheck(torch.sparse.mm, (x, y), masked=True)
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradcheck(torch.sparse.mm, (x, y))
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradcheck(lambda a, b: a.to_dense(masked_grad=False) @ b, (x, y), masked=True)
    with pytest.raises(ValueError, match="Sparse output is not supported at gradcheck yet"):
        gradcheck(lambda a: a * 2, x)


def test_functions_whose_outputs_change_their_form():
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    for fast in (True, False):
        with pytest.raises(AssertionError, match="outputs with the same shape when inputs are perturbed"):
            gradcheck(lambda v: torch.cat([v, v]) if v.item() >= 1 else v, (x,), fast_mode=fast)
        with pytest.raises(AssertionError, match="outputs with the same dtype when inputs are perturbed"):
            gradcheck(lambda v: v.float() if v.item() >= 1 else v, (x,), fast_mode=fast)
        with pytest.raises(RuntimeError, match="Numerical gradient for function expected to be zero"):
            gradcheck(lambda v: v.detach() * 2, (x,), fast_mode=fast)


def test_the_part_of_a_complex_output_that_differs_is_named():
    x = torch.ones(2, dtype=torch.complex128, requires_grad=True)

    def wrong(v):
        y = v.clone()
        y.register_hook(lambda grad: grad + 1e-2)
        return y

    with pytest.raises(RuntimeError, match="While considering the imaginary part of complex outputs only, Jacobian"):
        gradcheck(wrong, (x,))


def test_both_parts_of_a_complex_input_are_one_derivative():
    """torch's own case: its error is the distance of complex numbers, where one part alone is beyond the tolerance."""
    torch.manual_seed(97)
    z = 10e-3 * torch.rand(2, dtype=torch.complex128, requires_grad=True)
    for fast_mode in (True, False):
        assert gradcheck(lambda z: 1.0 / torch.norm(z), (z,), fast_mode=fast_mode, atol=8.3e-6, rtol=1e-9)


def test_jacobians_by_their_old_names():
    """Values are torch's."""
    z = torch.tensor([1 + 2j, 0.5 - 1j], dtype=torch.complex128, requires_grad=True)
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)

    def function(given):
        return (given[0] * given[0] * (1 + 2j)).real * given[1][0], given[1]

    expected = [[[-6 - 8j, 0], [0, 5]], [[-11.0, 1.25], [0.0, 0.0]]]
    with pytest.warns(FutureWarning, match="`get_numerical_jacobian` was part of PyTorch's private API"):
        numerical = get_numerical_jacobian(function, (z, x), eps=1e-6)
    with pytest.warns(FutureWarning, match="`get_analytical_jacobian` was part of PyTorch's private API"):
        analytical, *agree = get_analytical_jacobian((z, x), function((z, x))[0])
    assert agree == [True, True, True]
    for found, exact, table, like in zip(numerical, analytical, expected, (z, x), strict=True):
        assert exact.tolist() == table and found.dtype == exact.dtype == like.dtype
        torch.testing.assert_close(found, exact)


def test_jacobians_by_their_old_names_refuse():
    x = double(2)
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="Expected grad_out to be 1.0"):
        get_numerical_jacobian(lambda given: given[0], (x,), grad_out=2.0)
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="Expected output to be non-complex"):
        get_analytical_jacobian((x,), x * 1j)
