"""Windows by which pieces of a signal are weighted: `sym` for the design of filters, not `sym` for spectra."""

from math import pi, sqrt

import mica as torch

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip


def _check(name, M, dtype, layout):
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout not in (None, torch.strided):
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if dtype not in (None, torch.float32, torch.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")


def _window(name, M, sym, dtype, layout, device, requires_grad, weights):
    """`weights` of the places of a window, of which it also gets the number of gaps."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    _check(name, M, dtype, layout)
    if M == 0:
        return torch.empty((0,), dtype=dtype, device=device, requires_grad=requires_grad)
    gaps = max(M - 1 if sym else M, 1)
    window = weights(torch.arange(M, dtype=dtype, device=device), gaps)
    return window.requires_grad_(requires_grad) if requires_grad else window


def exponential(
    M, *, center=None, tau=1.0, sym=True, dtype=None, layout=torch.strided, device=None, requires_grad=False
):
    """exp(-|n - center| / tau)."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def weights(n, gaps):
        middle = (gaps if not sym and M > 1 else M - 1) / 2.0 if center is None else center
        return torch.exp(-(n - middle).abs() / tau)

    return _window("exponential_window", M, sym, dtype, layout, device, requires_grad, weights)


def cosine(M, *, sym=True, dtype=None, layout=torch.strided, device=None, requires_grad=False):
    """Half a period of a sine."""

    def weights(n, gaps):
        return torch.sin((n + 0.5) * (pi / (M + 1 if not sym and M > 1 else M)))

    return _window("cosine_window", M, sym, dtype, layout, device, requires_grad, weights)


def gaussian(M, *, std=1.0, sym=True, dtype=None, layout=torch.strided, device=None, requires_grad=False):
    """The bell curve of a standard deviation."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")

    def weights(n, gaps):
        return torch.exp(-(((n - (gaps if M > 1 else 0) / 2.0) / (std * sqrt(2))) ** 2))

    return _window("gaussian_window", M, sym, dtype, layout, device, requires_grad, weights)


def kaiser(M, *, beta=12.0, sym=True, dtype=None, layout=torch.strided, device=None, requires_grad=False):
    """Kaiser's window of Bessel functions."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")

    def weights(n, gaps):
        if M == 1:
            return torch.ones_like(n)
        ratio = n * (2.0 / gaps) - 1
        top = torch.tensor(beta, dtype=n.dtype, device=n.device)
        return torch.i0(beta * torch.sqrt((1 - ratio * ratio).clamp_min(0))) / torch.i0(top)

    return _window("kaiser_window", M, sym, dtype, layout, device, requires_grad, weights)


def general_cosine(M, *, a, sym=True, dtype=None, layout=torch.strided, device=None, requires_grad=False):
    """A sum of cosines with the weights `a`, of alternating signs."""
    from collections.abc import Iterable

    if not isinstance(a, Iterable):
        raise TypeError(f"Coefficients must be a list/tuple, but got {type(a).__name__}")
    a = list(a)
    if not a:
        raise ValueError("Coefficients cannot be empty: a window is a sum of cosines, and has one coefficient for each")

    def weights(n, gaps):
        if M == 1:
            return torch.ones_like(n)
        angle = n * (2 * pi / gaps)
        return sum((-1) ** i * factor * torch.cos(i * angle) for i, factor in enumerate(a))

    return _window("general_cosine_window", M, sym, dtype, layout, device, requires_grad, weights)


def hann(M, *, sym=True, dtype=None, layout=torch.strided, device=None, requires_grad=False):
    """Hann's window, a raised cosine."""
    return general_hamming(
        M, alpha=0.5, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


def hamming(M, *, sym=True, dtype=None, layout=torch.strided, device=None, requires_grad=False):
    """Hamming's window, a raised cosine that does not reach zero."""
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def general_hamming(M, *, alpha=0.54, sym=True, dtype=None, layout=torch.strided, device=None, requires_grad=False):
    """Hamming's window with any alpha: alpha - (1 - alpha) cos(2 pi n / M)."""
    return general_cosine(
        M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


def blackman(M, *, sym=True, dtype=None, layout=torch.strided, device=None, requires_grad=False):
    """Blackman's window, a sum of three cosines."""
    return general_cosine(
        M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


def bartlett(M, *, sym=True, dtype=None, layout=torch.strided, device=None, requires_grad=False):
    """Bartlett's window, a triangle that is zero at both ends."""

    def weights(n, gaps):
        return torch.ones_like(n) if M == 1 else 1 - (n * (2.0 / gaps) - 1).abs()

    return _window("bartlett_window", M, sym, dtype, layout, device, requires_grad, weights)


def nuttall(M, *, sym=True, dtype=None, layout=torch.strided, device=None, requires_grad=False):
    """Nuttall's window, a sum of four cosines."""
    return general_cosine(
        M,
        a=[0.3635819, 0.4891775, 0.1365995, 0.0106411],
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )
