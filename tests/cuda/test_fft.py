"""Fourier transforms on CUDA along one to five dimensions, against the CPU in float64."""

import mica
import numpy as np
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

# Batches before, between and after the dimensions; odd and even lengths, primes, ones; more dimensions than a plan has.
CASES = [
    ((16,), (0,)),
    ((8, 12), (0,)),
    ((8, 12), (0, 1)),
    ((8, 12), (1, 0)),
    ((3, 8, 15), (1,)),
    ((3, 8, 15), (1, 2)),
    ((3, 8, 15), (0, 2)),
    ((3, 8, 15), (0, 1)),
    ((3, 8, 15), (2, 0, 1)),
    ((2, 1, 6), (1, 2)),
    ((2, 6, 1), (1, 2)),
    ((4, 1, 1), (1, 2)),
    ((3, 4, 17, 6), (1, 2, 3)),
    ((3, 4, 17, 6), (0, 3)),
    ((2, 3, 4, 5), (0, 1, 2, 3)),
    ((2, 3, 4, 5), (3, 1, 0, 2)),
    ((2, 3, 2, 3, 4), (0, 1, 2, 3, 4)),
    ((2, 64, 64), (1, 2)),
    ((101, 33), (0, 1)),
]
DTYPES = ["float32", "float64"]


def numbers(shape, complex, seed=0):
    rng = np.random.default_rng([seed, *shape])
    values = rng.standard_normal(shape)
    return mica.from_numpy(values + 1j * rng.standard_normal(shape) if complex else values)


def narrow(t, dtype):
    name = {"float32": "complex64", "float64": "complex128"}[dtype] if t.is_complex() else dtype
    return t.to(getattr(mica, name))


def compare(name, x, dtype, **options):
    x = narrow(x, dtype)
    before = x.clone()
    wide = x.to(mica.complex128 if x.is_complex() else mica.float64)
    expected = getattr(mica.fft, name)(wide, **options)
    on_device = x.cuda()
    got = getattr(mica.fft, name)(on_device, **options)
    assert got.device.type == "cuda" and got.dtype == getattr(mica.fft, name)(x, **options).dtype
    assert got.shape == expected.shape
    epsilon = {"float32": 1.2e-7, "float64": 2.3e-16}[dtype]
    bound = 20 * epsilon * max(1.0, expected.abs().max().item())
    assert (got.cpu().to(expected.dtype) - expected).abs().max().item() <= bound
    assert (on_device.cpu() == before).all().item()  # nothing is written over


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape,dims", CASES, ids=str)
class TestAgainstTheCPU:
    def test_complex(self, shape, dims, dtype):
        for norm in ("backward", "ortho", "forward"):
            compare("fftn", numbers(shape, True), dtype, dim=dims, norm=norm)
            compare("ifftn", numbers(shape, True, 1), dtype, dim=dims, norm=norm)

    def test_from_reals(self, shape, dims, dtype):
        compare("rfftn", numbers(shape, False), dtype, dim=dims)
        compare("rfftn", numbers(shape, False, 1), dtype, dim=dims, norm="ortho")
        compare("fftn", numbers(shape, False, 2), dtype, dim=dims)
        compare("ihfftn", numbers(shape, False, 3), dtype, dim=dims)

    def test_to_reals(self, shape, dims, dtype):
        """Of any spectrum: what no real signal has is left out, as on the CPU."""
        for last in (7, 10):
            sizes = [shape[d] for d in dims[:-1]] + [last]
            half = [*shape]
            half[dims[-1]] = last // 2 + 1
            compare("irfftn", numbers(half, True), dtype, s=sizes, dim=dims)
            compare("irfftn", numbers(half, True, 1), dtype, s=sizes, dim=dims, norm="ortho")
            compare("hfftn", numbers(half, True, 2), dtype, s=sizes, dim=dims)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dims", [(1,), (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
def test_strided_inputs(dims, dtype):
    for is_complex in (True, False):
        name = "fftn" if is_complex else "rfftn"
        x = narrow(numbers((6, 10, 14), is_complex), dtype)
        views = {
            "transposed": lambda t: t.transpose(0, 2),
            "permuted": lambda t: t.permute(1, 2, 0),
            "steps": lambda t: t[::2, 1::2, ::3],
            "part": lambda t: t[1:5, 2:8, 1:12],
            "expanded": lambda t: t[:, :1, :].expand(6, 10, 14),
            "flipped": lambda t: t.flip(1)[:, :, 1:],
        }
        for view in views.values():
            got = getattr(mica.fft, name)(view(x.cuda()), dim=dims).cpu()
            expected = getattr(mica.fft, name)(view(x.to(mica.complex128 if is_complex else mica.float64)), dim=dims)
            epsilon = {"float32": 1.2e-7, "float64": 2.3e-16}[dtype]
            bound = 20 * epsilon * max(1.0, expected.abs().max().item())
            assert (got.to(expected.dtype) - expected).abs().max().item() <= bound


def test_nothing_to_transform():
    for dims in ((0, 1), (1, 2)):
        x = mica.ones(0, 4, 6, device="cuda") if dims == (1, 2) else mica.ones(4, 6, 0, device="cuda")
        assert mica.fft.rfft2(x, dim=dims).numel() == 0
        assert mica.fft.fft2(x + 0j, dim=dims).numel() == 0


def test_gradients_of_several_dimensions():
    for name, is_complex in (("fft2", True), ("rfft2", False), ("irfft2", True), ("ifft2", True)):
        x = numbers((2, 5, 6), is_complex)
        grads = []
        for device in ("cpu", "cuda"):
            leaf = x.clone().to(device).requires_grad_()
            y = getattr(mica.fft, name)(leaf)
            (y.abs() ** 2).sum().backward()
            grads.append(leaf.grad.cpu())
        assert (grads[0] - grads[1]).abs().max().item() <= 1e-10 * grads[0].abs().max().item()
