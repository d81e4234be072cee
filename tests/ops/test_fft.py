"""Fourier transforms of every kind of length, against NumPy's."""

import mica
import numpy as np
import pytest
from mica.autograd import gradcheck, gradgradcheck

# Powers, mixed radices, primes with a pass of their own, primes by convolution, odd lengths with and without a prime by
# convolution, and lengths that are cut in two.
LENGTHS = (
    *range(1, 33),
    37,
    61,
    64,
    67,
    74,
    97,
    100,
    103,
    121,
    128,
    134,
    185,
    201,
    206,
    309,
    210,
    243,
    360,
    509,
    512,
    600,
    625,
    999,
    1001,
    1009,
    1024,
    1030,
    1147,
    1647,
    2619,
    2048,
    4099,
    65536,
    40009,
)
TOLERANCE = {np.float32: 3e-6, np.float64: 1e-14}


def numbers(shape, real, complex_, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(shape)
    if complex_:
        x = x + 1j * generator.standard_normal(shape)
        return x.astype(np.complex64 if real is np.float32 else np.complex128)
    return x.astype(real)


def assert_spectrum(ours, theirs, real, n):
    ours = ours.resolve_conj().numpy()
    assert ours.shape == theirs.shape
    size = np.abs(theirs).max() if theirs.size else 1
    assert np.abs(ours - theirs).max(initial=0) <= TOLERANCE[real] * (8 + np.log2(n + 1)) * max(size, 1e-30), n


@pytest.mark.parametrize("real", (np.float32, np.float64))
@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(n, real):
    for batch in ((), (3,), (6,)):
        if n > 5000 and batch == (6,):
            continue
        z, x = numbers((*batch, n), real, True), numbers((*batch, n), real, False)
        assert_spectrum(mica.fft.fft(mica.from_numpy(z)), np.fft.fft(z.astype(np.complex128)), real, n)
        assert_spectrum(mica.fft.ifft(mica.from_numpy(z)), np.fft.ifft(z.astype(np.complex128)), real, n)
        assert_spectrum(mica.fft.fft(mica.from_numpy(x)), np.fft.fft(x.astype(np.float64)), real, n)
        assert_spectrum(mica.fft.ifft(mica.from_numpy(x)), np.fft.ifft(x.astype(np.float64)), real, n)
        half = np.fft.rfft(x.astype(np.float64))
        assert_spectrum(mica.fft.rfft(mica.from_numpy(x)), half, real, n)
        given = half.astype(np.complex64 if real is np.float32 else np.complex128)
        given[..., 0] += 3j  # it has no meaning, and must not show in the result
        assert_spectrum(
            mica.fft.irfft(mica.from_numpy(given), n), np.fft.irfft(given.astype(np.complex128), n), real, n
        )
        assert_spectrum(mica.fft.hfft(mica.from_numpy(given), n), np.fft.hfft(given.astype(np.complex128), n), real, n)
        assert_spectrum(mica.fft.ihfft(mica.from_numpy(x)), np.fft.ihfft(x.astype(np.float64)), real, n)


@pytest.mark.parametrize("norm", (None, "backward", "ortho", "forward"))
def test_dimensions_and_norms(norm):
    z, x = numbers((4, 6, 5, 7), np.float64, True), numbers((4, 6, 5, 7), np.float64, False)
    a, b = mica.from_numpy(z), mica.from_numpy(x)
    for dim in range(4):
        assert_spectrum(mica.fft.fft(a, dim=dim, norm=norm), np.fft.fft(z, axis=dim, norm=norm), np.float64, 7)
        assert_spectrum(mica.fft.rfft(b, dim=dim, norm=norm), np.fft.rfft(x, axis=dim, norm=norm), np.float64, 7)
        assert_spectrum(mica.fft.irfft(a, 9, dim, norm), np.fft.irfft(z, 9, dim, norm), np.float64, 9)
    for dims in ((0, 1), (2, 0, 3), (-1,)):
        assert_spectrum(mica.fft.fftn(a, dim=dims, norm=norm), np.fft.fftn(z, axes=dims, norm=norm), np.float64, 99)
        assert_spectrum(mica.fft.ifftn(a, dim=dims, norm=norm), np.fft.ifftn(z, axes=dims, norm=norm), np.float64, 99)
        assert_spectrum(mica.fft.rfftn(b, dim=dims, norm=norm), np.fft.rfftn(x, axes=dims, norm=norm), np.float64, 99)
        assert_spectrum(mica.fft.irfftn(a, dim=dims, norm=norm), np.fft.irfftn(z, axes=dims, norm=norm), np.float64, 99)
    sizes = (8, 3)
    assert_spectrum(mica.fft.fft2(a, sizes, norm=norm), np.fft.fft2(z, sizes, norm=norm), np.float64, 99)
    assert_spectrum(mica.fft.rfft2(b, sizes, norm=norm), np.fft.rfft2(x, sizes, norm=norm), np.float64, 99)


def test_strides():
    z = numbers((12, 40), np.float64, True)
    for view in (z[::3, ::2], z.T, z[:, ::-1][:, 3:], z[::-1]):
        ours = mica.from_numpy(z)
        ours = {
            (4, 20): lambda t: t[::3, ::2],
            (40, 12): lambda t: t.T,
            (12, 37): lambda t: t.flip(1)[:, 3:],
            (12, 40): lambda t: t.flip(0),
        }[view.shape](ours)
        assert_spectrum(mica.fft.fft(ours), np.fft.fft(view), np.float64, 40)
        assert_spectrum(mica.fft.fft(ours, dim=0), np.fft.fft(view, axis=0), np.float64, 40)
        assert_spectrum(mica.fft.rfft(ours.real), np.fft.rfft(view.real), np.float64, 40)
    conjugate = mica.from_numpy(z).conj()
    assert_spectrum(mica.fft.fft(conjugate), np.fft.fft(z.conj()), np.float64, 40)
    wide = mica.from_numpy(z[:1]).expand(5, 40)
    assert_spectrum(mica.fft.fft(wide, dim=0), np.fft.fft(np.broadcast_to(z[:1], (5, 40)), axis=0), np.float64, 5)


@pytest.mark.parametrize("n", (125, 360, 512, 509, 999, 1009, 2048))
def test_columns_and_full_batches(n):
    """More sequences than lanes of any machine, side by side and one after the other, and a remainder of them."""
    for real in (np.float32, np.float64):
        z = numbers((2, n, 37), real, True)
        double, ours = z.astype(np.complex128), mica.from_numpy(z)
        assert_spectrum(mica.fft.fft(ours, dim=1), np.fft.fft(double, axis=1), real, n)
        assert_spectrum(mica.fft.ifft(ours, dim=1), np.fft.ifft(double, axis=1), real, n)
        rows, row_numbers = ours.mT.contiguous(), np.ascontiguousarray(double.swapaxes(1, 2))
        assert_spectrum(mica.fft.fft(rows), np.fft.fft(row_numbers), real, n)
        assert_spectrum(mica.fft.ifft(rows), np.fft.ifft(row_numbers), real, n)
        assert_spectrum(mica.fft.rfft(rows.real), np.fft.rfft(row_numbers.real), real, n)
        reals = ours.real.contiguous()
        assert_spectrum(mica.fft.rfft(reals, dim=1), np.fft.rfft(double.real, axis=1), real, n)
        columns = np.fft.rfft(double.real, axis=1).astype(z.dtype)
        theirs = np.fft.irfft(columns.astype(np.complex128), n, axis=1)
        assert_spectrum(mica.fft.irfft(mica.from_numpy(columns), n, dim=1), theirs, real, n)
        half = np.fft.rfft(row_numbers.real).astype(z.dtype)
        assert_spectrum(mica.fft.irfft(mica.from_numpy(half), n), np.fft.irfft(half.astype(np.complex128), n), real, n)


def test_wrong_input():
    with pytest.raises(RuntimeError, match=r"Invalid number of data points \(0\) specified"):
        mica.fft.fft(mica.ones(4), 0)
    with pytest.raises(RuntimeError, match=r"Invalid number of data points \(0\) specified"):
        mica.fft.irfft(mica.ones(1))
    with pytest.raises(RuntimeError, match="rfft expects a real input tensor, but got ComplexFloat"):
        mica.fft.rfft(mica.ones(4, dtype=mica.complex64))
    with pytest.raises(RuntimeError, match='Invalid normalization mode: "none"'):
        mica.fft.fft(mica.ones(4), norm="none")
    with pytest.raises(RuntimeError, match="FFT dims must be unique"):
        mica.fft.fftn(mica.ones(4, 4), dim=(0, -2))
    with pytest.raises(RuntimeError, match="When given, dim and shape arguments must have the same length"):
        mica.fft.fftn(mica.ones(4, 4), (3,), (0, 1))
    with pytest.raises(RuntimeError, match="Unsupported dtype Half"):
        mica.fft.fft(mica.ones(4).half())
    with pytest.raises(IndexError):
        mica.fft.fft(mica.ones(4), dim=3)
    assert mica.fft.fft(mica.ones(3, 0, 4)).shape == (3, 0, 4)
    assert mica.fft.fft(mica.tensor([1, 2, 3])).dtype == mica.complex64


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "rfftn", "irfftn", "hfftn"])
def test_gradients(name):
    function = getattr(mica.fft, name)
    complex_ = name not in ("rfft", "ihfft", "rfftn")
    for shape in ((5,), (3, 4)):
        x = mica.from_numpy(numbers(shape, np.float64, complex_)).requires_grad_()
        for norm in (None, "ortho"):
            assert gradcheck(lambda t, norm=norm: function(t, norm=norm), (x,))
            assert gradgradcheck(lambda t, norm=norm: function(t, norm=norm), (x,))


def test_pieces_and_back():
    signal = mica.from_numpy(numbers((2, 1000), np.float64, False))
    for options in (
        {},
        {"hop_length": 30},
        {"hop_length": 25, "win_length": 90},
        {"normalized": True},
        {"onesided": False},
    ):
        window = mica.hann_window(options.get("win_length", 100), dtype=mica.float64)
        pieces = mica.stft(signal, 100, window=window, return_complex=True, **options)
        back = mica.istft(pieces, 100, window=window, length=1000, **options)
        reach = slice(0, 960)
        mica.testing.assert_close(back[:, reach], signal[:, reach], rtol=1e-10, atol=1e-10)
    assert pieces.shape[1] == 100
    with pytest.raises(RuntimeError, match="stft requires the return_complex parameter be given for real inputs"):
        mica.stft(signal, 100, window=window)
    with pytest.raises(RuntimeError, match="window overlap add min"):
        mica.istft(mica.ones(3, 4, dtype=mica.complex64), 4, window=mica.zeros(4))


def test_frequencies_and_shifts():
    for n in (1, 4, 5):
        np.testing.assert_allclose(mica.fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5), rtol=1e-6)
        np.testing.assert_allclose(mica.fft.rfftfreq(n, 0.5).numpy(), np.fft.rfftfreq(n, 0.5), rtol=1e-6)
        x = mica.arange(n)
        np.testing.assert_array_equal(mica.fft.fftshift(x).numpy(), np.fft.fftshift(x.numpy()))
        np.testing.assert_array_equal(mica.fft.ifftshift(mica.fft.fftshift(x)).numpy(), x.numpy())


def test_windows():
    theirs = {"bartlett": np.bartlett, "blackman": np.blackman, "hamming": np.hamming, "hann": np.hanning}
    for n in (0, 1, 2, 5, 8):
        for name, function in theirs.items():
            make, wanted = getattr(mica, f"{name}_window"), function(n)
            assert make(n).dtype == mica.float32
            np.testing.assert_allclose(make(n, False, dtype=mica.float64).numpy(), wanted, rtol=1e-12, atol=1e-15)
            periodic = function(n + 1)[:-1] if n > 1 else wanted
            np.testing.assert_allclose(make(n, dtype=mica.float64).numpy(), periodic, rtol=1e-12, atol=1e-15)
            ours = getattr(mica.signal.windows, name)(n, dtype=mica.float64).numpy()
            np.testing.assert_allclose(ours, wanted, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(
            mica.kaiser_window(n, False, 4.5, dtype=mica.float64).numpy(), np.kaiser(n, 4.5), rtol=1e-7
        )
        np.testing.assert_allclose(
            mica.signal.windows.kaiser(n, beta=4.5, dtype=mica.float64).numpy(), np.kaiser(n, 4.5), rtol=1e-7
        )
    wide = mica.hamming_window(5, False, 0.6, 0.4, dtype=mica.float64)
    np.testing.assert_allclose(wide.numpy(), 0.6 - 0.4 * np.cos(2 * np.pi * np.arange(5) / 4), rtol=1e-12)
    with pytest.raises(RuntimeError, match="hann_window requires non-negative window_length, got window_length=-1"):
        mica.hann_window(-1)
    with pytest.raises(RuntimeError, match="hann_window expects floating point dtypes, got: Long"):
        mica.hann_window(3, dtype=mica.int64)
    windows = mica.signal.windows
    assert windows.cosine(6, sym=False).tolist() == pytest.approx(windows.cosine(7).tolist()[:-1])
    assert windows.gaussian(6, std=2.0, sym=False).tolist() == pytest.approx(windows.gaussian(7, std=2.0).tolist()[:-1])
    assert windows.exponential(6, sym=False).tolist() == pytest.approx(windows.exponential(7).tolist()[:-1])
    assert windows.nuttall(6, sym=False).tolist() == pytest.approx(windows.nuttall(7).tolist()[:-1])
    with pytest.raises(ValueError, match="Standard deviation must be positive, got: 0 instead"):
        windows.gaussian(3, std=0)


# Cuts into rows and columns that have functions of their own, each length of the list on either side at least once.
@pytest.mark.parametrize("real", (np.float32, np.float64))
@pytest.mark.parametrize(
    "n",
    (250, 252, 256, 270, 280, 288, 294, 300, 320, 324, 336, 384, 400, 405, 420, 441, 448, 450, 480, 486, 500, 525, 560)
    + (576, 625, 640, 672, 675, 720, 729, 750, 768, 784, 810, 900, 960, 1000, 1152, 1200, 1296, 1500, 1536, 1600, 1800)
    + (2304, 2400, 2500, 3000, 3600, 3840, 4096, 6400, 8192, 16384),
)
def test_cuts(n, real):
    z, x = numbers((3, n), real, True), numbers((3, n), real, False)
    a = mica.from_numpy(z)
    whole = np.fft.fft(z.astype(np.complex128))
    assert_spectrum(mica.fft.fft(a), whole, real, n)
    assert_spectrum(mica.fft.ifft(a), np.fft.ifft(z.astype(np.complex128)), real, n)
    assert_spectrum(mica.fft.rfft(mica.from_numpy(x)), np.fft.rfft(x.astype(np.float64)), real, n)
    columns = np.ascontiguousarray(np.broadcast_to(z[0][:, None], (n, 19)))  # full lanes side by side, and a few more
    for ours, theirs in ((mica.fft.fft, whole[0]), (mica.fft.ifft, np.fft.ifft(z[0].astype(np.complex128)))):
        assert_spectrum(ours(mica.from_numpy(columns), dim=0), np.repeat(theirs[:, None], 19, axis=1), real, n)


def test_planes_in_turn():
    """More planes than are transformed at once, and a remainder; the first dimension runs backward in one of them."""
    z = numbers((9, 256, 260), np.float32, True)
    whole = np.fft.fft2(z.astype(np.complex128))
    assert_spectrum(mica.fft.fft2(mica.from_numpy(z)), whole, np.float32, z[0].size)
    assert_spectrum(mica.fft.fft2(mica.from_numpy(z).flip(0)), whole[::-1], np.float32, z[0].size)
    turned = mica.from_numpy(z).mT
    assert_spectrum(mica.fft.ifft2(turned), np.fft.ifft2(z.swapaxes(1, 2)), np.float32, z[0].size)
    half = np.fft.rfft2(z.real.astype(np.float64))
    assert_spectrum(mica.fft.rfft2(mica.from_numpy(z).real), half, np.float32, z[0].size)


@pytest.mark.parametrize("n", (1, 2, 3, 8, 37, 74, 103, 227, 243, 360, 999, 1024, 1030, 40009, 65536))
def test_whole_spectra_of_reals(n):
    """A real sequence goes by half of its spectrum; the other half are exact conjugates, in any layout."""
    for shape, dim in (((9, n), 1), ((n, 9), 0), ((2, n, 3), 1)):
        if n > 5000 and dim == 0:
            continue
        x = numbers(shape, np.float32, False, seed=n)
        for given in (mica.from_numpy(x), mica.from_numpy(np.flip(x, dim).copy()).flip(dim)):
            spectrum = mica.fft.fft(given, dim=dim)
            assert_spectrum(spectrum, np.fft.fft(x.astype(np.float64), axis=dim), np.float32, n)
            mirror = (-mica.arange(n)) % n
            assert mica.equal(spectrum.index_select(dim, mirror).conj(), spectrum)
            half = mica.fft.rfft(given, dim=dim)
            assert mica.equal(half, spectrum.narrow(dim, 0, n // 2 + 1))
            out = mica.empty(0, dtype=mica.complex64)
            assert mica.fft.fft(given, dim=dim, out=out) is out
            assert mica.equal(out, spectrum)


def test_transforms_of_reals_are_recorded_as_such():
    x = mica.rand(5, 7, dtype=mica.float64, requires_grad=True)
    assert mica.fft.fft(x).grad_fn.name() == "FftR2CBackward0"
    assert not mica.fft.fft(x).is_conj()
    assert mica.fft.ifft(x).is_conj()
    assert mica.fft.ihfft(x).is_conj()
    assert not mica.fft.ihfft2(x).is_conj()
    for transform in (mica.fft.fft, mica.fft.ifft):
        for norm in (None, "ortho", "forward"):
            assert gradcheck(lambda x, t=transform, norm=norm: t(x, norm=norm), (x,))
        assert gradcheck(lambda x, t=transform: t(x, n=4, dim=0), (x,))
        assert gradgradcheck(lambda x, t=transform: t(x), (x,))


def test_two_sided_pieces_of_a_signal():
    signal = mica.rand(2, 500, dtype=mica.float64)
    window = mica.hann_window(60, dtype=mica.float64)
    half = mica.stft(signal, 60, window=window, return_complex=True)
    whole = mica.stft(signal, 60, window=window, onesided=False, return_complex=True)
    assert whole.shape == (2, 60, half.shape[2])
    assert mica.equal(whole[:, :31], half)
    assert mica.equal(whole[:, 31:], half[:, 1:30].flip(1).conj())
