"""Tensor.grad_dtype: the dtype of a leaf's gradients. What is asserted was seen with torch."""

import copy
import pickle

import mica as torch
import pytest


class Doubled(torch.autograd.Function):
    """Its gradient has another dtype than its argument."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad.double()


def leaf(dtype=torch.float32):
    return torch.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)


def test_it_is_the_tensors_dtype_at_first():
    assert leaf().grad_dtype is torch.float32 and torch.ones(2, dtype=torch.int64).grad_dtype is torch.int64
    x = leaf()
    x.data = x.data.double()
    assert x.grad_dtype is torch.float64
    y = torch.ones(2)
    y.grad_dtype = torch.float64
    assert y.requires_grad_().grad_dtype is torch.float64
    y.data = y.data.half()
    assert y.grad_dtype is torch.float64


@pytest.mark.parametrize("early", [False, True])
def test_gradients_are_cast(early):
    x = leaf()
    kept = (x * 3).sum() if early else None  # a graph that was made before
    x.grad_dtype = torch.float16
    (kept if early else (x * 3).sum()).backward()
    assert x.grad.dtype is torch.float16 and x.grad.tolist() == [3.0, 3.0]
    (x * 3).sum().backward()
    assert x.grad.dtype is torch.float16 and x.grad.tolist() == [6.0, 6.0]
    seen = []
    x.register_hook(lambda grad: seen.append(grad.dtype))
    assert torch.autograd.grad((x * 3).sum(), x)[0].dtype is torch.float16 and seen == [torch.float16]
    x.grad = None
    (x * x * x).sum().backward(create_graph=True)
    assert x.grad.dtype is torch.float16 and x.grad.grad_fn is not None


def test_none_leaves_them_as_they_are():
    x = leaf()
    x.grad_dtype = None
    assert x.grad_dtype is None
    assert torch.autograd.grad(Doubled.apply(x).sum(), x)[0].dtype is torch.float64
    Doubled.apply(x).sum().backward()
    assert x.grad.dtype is torch.float64 and x.grad.tolist() == [1.0, 1.0]
    (x * 3).sum().backward()  # it is added to what is there
    assert x.grad.dtype is torch.float64 and x.grad.tolist() == [4.0, 4.0]
    scalar = torch.tensor(2.0, requires_grad=True)
    scalar.grad_dtype = None
    (scalar * torch.ones(3)).sum().backward()
    assert scalar.grad.shape == () and scalar.grad.item() == 3.0
    result = Doubled.apply(x)
    (metadata,) = result.grad_fn.next_functions[0][0]._input_metadata
    assert metadata.dtype is None and tuple(metadata.shape) == (2,)


def test_real_gradients_of_a_complex_dtype():
    x = leaf()
    x.grad_dtype = torch.complex64
    x.clone().sum().backward()
    assert x.grad.tolist() == [1, 1] and x.grad.dtype is torch.complex64


def test_an_assigned_gradient_has_it():
    x = leaf()
    x.grad_dtype = torch.float16
    with pytest.raises(RuntimeError, match="attempting to assign a gradient with dtype.*float.*with grad_dtype.*Half"):
        x.grad = torch.ones(2)
    assert x.grad is None
    x.grad = torch.ones(2, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="Cannot set grad_dtype.*because there is already a gradient"):
        x.grad_dtype = torch.float32
    assert x.grad_dtype is torch.float16
    x.grad_dtype = None
    x.grad = torch.ones(2, dtype=torch.float64)
    assert x.grad.dtype is torch.float64


def test_what_is_refused():
    x = leaf()
    with pytest.raises(RuntimeError, match="can only be accessed on leaf tensors"):
        (x * 2).grad_dtype  # noqa: B018
    with pytest.raises(RuntimeError, match="can only be set on leaf tensors"):
        (x * 2).grad_dtype = torch.float16
    with pytest.raises(RuntimeError, match="must be a torch.dtype or None, but got int"):
        x.grad_dtype = 3
    with pytest.raises(RuntimeError, match="cannot be deleted"):
        del x.grad_dtype
    assert x.grad_dtype is torch.float32


def test_copies_do_not_have_it():
    x = leaf()
    x.grad_dtype = torch.float16
    for other in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.detach(), torch.empty_like(x)):
        assert other.grad_dtype is torch.float32


@pytest.mark.parametrize("kind", ["SGD", "RMSprop"])
def test_a_step_takes_them(kind):
    """bfloat16 weights with gradients in float32."""
    x = leaf(torch.bfloat16)
    x.grad_dtype = torch.float32
    optimizer = getattr(torch.optim, kind)([x], lr=0.1)
    (x.float() ** 2).sum().backward()
    assert x.grad.dtype is torch.float32
    optimizer.step()
    assert x.dtype is torch.bfloat16 and all(
        after < before for after, before in zip(x.tolist(), [1.0, 2.0], strict=True)
    )


def test_old_names():
    x = leaf()
    y = x * 2
    assert y._grad_fn is y.grad_fn and x._grad_fn is None
    with pytest.raises(RuntimeError, match="Deletion of _grad_fn not allowed"):
        del x._grad_fn
    with pytest.raises(RuntimeError, match="can be only set to None"):
        y._grad_fn = 3
    y._grad_fn = None
    assert y.grad_fn is None and not y.requires_grad
    with pytest.raises(RuntimeError, match="cannot create"):
        torch._C.TensorBase()
