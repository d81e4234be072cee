"""Random numbers on CUDA: which of Philox's numbers an element is made of, as torch's kernels have it."""

import mica
import numpy as np
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

SEED = 7


def words(subsequence, place, seed=SEED):
    """Philox 4x32 with ten rounds: four words for each subsequence and place in it."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    subsequence, place = np.broadcast_arrays(np.uint64(subsequence), np.uint64(place))
    c = [place & low, place >> half, subsequence & low, subsequence >> half]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> half) ^ c[1] ^ np.uint64(key[0]), b & low, (a >> half) ^ c[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, -1)


def unit(word):
    return (word.astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)).astype(np.float32)


def grid_threads(n):
    facts = mica.cuda.get_device_properties()
    most = facts.multi_processor_count * (facts.max_threads_per_multi_processor // 256)
    return min(most, -(-n // 256)) * 256


@pytest.mark.parametrize("n", [1, 5, 1003, 300_000])
@pytest.mark.parametrize("dtype", [mica.float32, mica.float64], ids=str)
def test_bernoulli_of_a_tensor(n, dtype):
    p = mica.linspace(0, 1, n, dtype=dtype, device="cuda")
    mica.manual_seed(SEED)
    drawn = mica.bernoulli(p).cpu().numpy()
    i = np.arange(n)
    assert ((unit(words(i // 4, 0)[i, i % 4]) <= p.cpu().numpy()) == drawn).all()
    assert mica.cuda.default_generators[0].get_offset() == 12


@pytest.mark.parametrize("n", [1, 6, 64, 1001, 1002, 300_000, 4_000_004])
@pytest.mark.parametrize("dtype", [mica.float32, mica.float64], ids=str)
def test_dropout(n, dtype):
    mica.manual_seed(SEED)
    kept = mica.nn.functional.dropout(mica.ones(n, dtype=dtype, device="cuda"), 0.3).cpu().numpy() != 0
    width = next(w for w in (16 // dtype.itemsize, 2, 1) if n % w == 0)
    threads, i = grid_threads(n), np.arange(n)
    if width == 1:
        thread, place, which = i % threads, i // threads // 4, i // threads % 4
    else:
        thread, place, which = i // width % threads, i // width // threads, i % width
    assert ((unit(words(thread, place)[i, which]) < np.float32(0.7)) == kept).all()


@pytest.mark.parametrize("n", [1, 2, 10, 1000, 70_000])
def test_randperm(n):
    mica.manual_seed(SEED)
    drawn = mica.randperm(n, device="cuda").cpu().numpy()
    assert sorted(drawn.tolist()) == list(range(n))
    bits = min(64, int(np.ceil(np.log2(n - (6 * n * n + 1) / (12 * np.log(0.9))))))
    if bits > 32:
        return  # keys of 64 bits, of which some may be equal
    threads, i = grid_threads(n), np.arange(n)
    drawn_words = words(i % threads, i // threads // 2)
    pair = i // threads % 2 * 2
    word = drawn_words[i, pair] << np.uint64(32) | drawn_words[i, pair + 1]
    key = (word % np.uint64(0xFFFFFFFF) + np.uint64(1 << 31)) & np.uint64((1 << bits) - 1)
    if len(set(key.tolist())) == n:
        assert drawn.tolist() == np.argsort(key, kind="stable").tolist()


def test_multinomial_with_replacement():
    weights = mica.rand(3, 20, device="cuda")
    mica.manual_seed(SEED)
    drawn = mica.multinomial(weights, 200, True).cpu().numpy()
    edges = np.cumsum(weights.cpu().double().numpy(), 1)
    for row in range(3):
        u = unit(words(row * 256 + np.arange(200), 0)[:, 0]) * edges[row, -1]
        expected = np.searchsorted(edges[row], u)
        assert (drawn[row] == expected).mean() > 0.98  # float32 sums may put an edge beside the number


class Single:
    """Single words of a subsequence as uniform numbers, and pairs of them as normal ones."""

    def __init__(self, subsequence):
        self.words = iter(words(subsequence, np.arange(200)).ravel())
        self.second = None

    def next(self):
        return unit(next(self.words))

    def next_normal(self):
        if self.second is not None:
            kept, self.second = self.second, None
            return kept
        radius = np.sqrt(-2 * np.log(np.float64(self.next())))
        angle = 2 * np.pi * (np.float64(next(self.words)) + 0.5) / 2**32
        self.second = radius * np.cos(angle)
        return radius * np.sin(angle)


def marsaglia_and_tsang(alpha, numbers):
    scale = 1.0
    if alpha < 1:
        scale = float(1 - numbers.next()) ** (1 / alpha)
        alpha += 1
    d = alpha - 1 / 3
    c = 1 / np.sqrt(9 * d)
    while True:
        x = numbers.next_normal()
        while 1 + c * x <= 0:
            x = numbers.next_normal()
        v, u = (1 + c * x) ** 3, float(1 - numbers.next())
        if u < 1 - 0.0331 * x**4 or np.log(u) < 0.5 * x * x + d * (1 - v + np.log(v)):
            return scale * d * v


@pytest.mark.parametrize("dtype", [mica.float32, mica.float64], ids=str)
def test_gamma(dtype):
    alpha = mica.linspace(0.1, 30, 500, dtype=dtype, device="cuda")
    mica.manual_seed(SEED)
    drawn = mica._standard_gamma(alpha).cpu().numpy()
    assert mica.cuda.default_generators[0].get_offset() == 12
    expected = [marsaglia_and_tsang(float(a), Single(i)) for i, a in enumerate(alpha.cpu().tolist())]
    np.testing.assert_allclose(drawn, expected, rtol=3e-5)


def test_poisson():
    """Counts below 64 events and the normal numbers above 4000 are cuRAND's; the distribution holds between them too."""
    rates = mica.linspace(0.05, 60, 500, device="cuda")
    mica.manual_seed(SEED)
    drawn = mica.poisson(rates).cpu().tolist()
    assert mica.cuda.default_generators[0].get_offset() == 20
    for i, rate in enumerate(rates.cpu().tolist()):
        numbers, product, count = Single(i), np.exp(np.float32(rate)), -1
        while count < 0 or product > 1:
            product, count = np.float32(product * numbers.next()), count + 1
        assert drawn[i] == count
    for rate in (0.5, 20.0, 100.0, 1000.0, 10_000.0):
        x = mica.poisson(mica.full((1_000_000,), rate, dtype=mica.float64, device="cuda"))
        assert abs(x.mean().item() - rate) < 6 * (rate / 1e6) ** 0.5
        assert abs(x.var().item() - rate) < 0.01 * rate


def test_samples_of_gamma_distributions():
    """Means and variances of a million samples; slopes against the CPU's."""
    mica.manual_seed(SEED)
    for alpha in (0.1, 0.7, 1.0, 5.0, 200.0):
        x = mica._standard_gamma(mica.full((1_000_000,), alpha, device="cuda"))
        assert abs(x.mean().item() - alpha) < 6 * (alpha / 1e6) ** 0.5
        assert abs(x.var().item() - alpha) < 0.03 * max(alpha, 1)
    alpha = mica.rand(1000, dtype=mica.float64) * 20 + 0.05
    x = alpha * (mica.rand(1000, dtype=mica.float64) + 0.5)
    here, there = mica._standard_gamma_grad(alpha, x), mica._standard_gamma_grad(alpha.cuda(), x.cuda())
    mica.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=1e-12)
    share = mica._sample_dirichlet(mica.full((1000, 7), 2.0, device="cuda"))
    mica.testing.assert_close(share.sum(-1).cpu(), mica.ones(1000), rtol=1e-5, atol=1e-5)
    total = alpha * 3
    here = mica._dirichlet_grad(alpha / total, alpha, total)
    there = mica._dirichlet_grad((alpha / total).cuda(), alpha.cuda(), total.cuda())
    mica.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [1, 6, 1001, 300_000, 4_000_004])
def test_rrelu(n):
    x = mica.randn(n, device="cuda")
    mica.manual_seed(SEED)
    got = mica.nn.functional.rrelu(x, 0.1, 0.4, training=True).cpu().numpy()
    threads, i, x = grid_threads(n), np.arange(n), x.cpu().numpy()
    drawn = unit(words(i % threads, i // threads // 4)[i, i // threads % 4])
    slopes = (drawn.astype(np.float64) * (0.4 - 0.1) + 0.1).astype(np.float32)
    assert (np.where(x <= 0, x * slopes, x) == got).all()


def test_binomial_of_few():
    """A thread draws for four elements, 128 apart, from one subsequence: as long as it takes."""
    n, count, p = 1300, 20, 0.3
    mica.manual_seed(SEED)
    got = mica.binomial(mica.full((n,), float(count), device="cuda"), mica.full((n,), p, device="cuda")).cpu().numpy()
    assert mica.cuda.default_generators[0].get_offset() == 44
    log_failure = np.log1p(-np.float32(p))
    right = 0
    for first in [i for i in range(n) if i % 512 < 128]:
        thread = first // 512 * 128 + first % 128
        drawn = iter((words(thread, np.arange(60)).reshape(-1) & np.uint64(0xFFFFFF)).astype(np.float32) / 2**24)
        for i in range(first, min(first + 512, n), 128):
            trials = successes = 0
            while (trials := trials + np.ceil(np.log(next(drawn)) / log_failure)) <= count:
                successes += 1
            right += successes == got[i]
    assert right > 0.99 * n  # a logarithm may be rounded to the other side of an integer
