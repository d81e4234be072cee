"""What recorded results cannot show: errors, subclasses, pickles, registries, exact derivatives of samples."""

import copy
import io
import pickle

import mica
import pytest
from mica import distributions as D
from mica.distributions import biject_to, constraints, kl_divergence, register_kl, transform_to
from mica.distributions.utils import lazy_property, tril_matrix_to_vec, vec_to_tril_matrix


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: D.Normal(0.0, -1.0), r"Expected parameter scale \(Tensor of shape \(\)\) of distribution Normal\("),
        (
            lambda: D.Normal(mica.zeros(2), mica.tensor([1.0, 0.0])),
            r"to satisfy the constraint GreaterThan\(lower_bound=0.0\)",
        ),
        (lambda: D.Bernoulli(0.5, 0.5), "Either `probs` or `logits` must be specified, but not both."),
        (lambda: D.Bernoulli(), "Either `probs` or `logits` must be specified, but not both."),
        (lambda: D.Categorical(mica.tensor(0.5)), "`probs` parameter must be at least one-dimensional."),
        (lambda: D.Dirichlet(mica.tensor(0.5)), "`concentration` parameter must be at least one-dimensional."),
        (lambda: D.Uniform(1.0, 0.0), "Expected parameter low"),
        (lambda: D.Geometric(mica.tensor([0.0, 0.5])), "to be positive but found invalid values"),
        (lambda: D.Normal(0.0, 1.0).log_prob(3), "The value argument to log_prob must be a Tensor"),
        (lambda: D.Normal(mica.zeros(2), 1.0).log_prob(mica.zeros(3)), "Value is not broadcastable with batch_shape"),
        (
            lambda: D.Dirichlet(mica.ones(3)).log_prob(mica.ones(2) / 2),
            "The right-most size of value must match event_shape",
        ),
        (
            lambda: D.Exponential(1.0).log_prob(mica.tensor(-1.0)),
            r"to be within the support \(GreaterThanEq\(lower_bound=0.0\)\)",
        ),
        (lambda: D.LKJCholesky(1), "Expected dim to be an integer greater than or equal to 2"),
        (lambda: D.Independent(D.Normal(0.0, 1.0), 1), "Expected reinterpreted_batch_ndims <= len"),
        (lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), 3), "transforms must be a Transform or list, but was 3"),
        (lambda: D.ExpTransform(cache_size=2), "cache_size must be 0 or 1"),
        (lambda: vec_to_tril_matrix(mica.ones(4)), "cannot be expressed as the lower triangular part"),
        (lambda: D.Normal("a", 1.0), "Input arguments must all be instances of Number"),
    ],
)
def test_refuses(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_validation_can_be_turned_off():
    D.Normal(0.0, -1.0, validate_args=False)
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        D.Normal(0.0, -1.0)


def test_subclasses_must_say_how_they_expand():
    class Odd(D.Normal):
        def __init__(self, loc):
            super().__init__(loc, 1.0)

    with pytest.raises(NotImplementedError, match="must also define a custom .expand"):
        Odd(mica.zeros(2)).expand((3, 2))

    class Same(D.LogNormal):
        pass

    assert type(Same(mica.zeros(2), 1.0).expand((3, 2))) is Same


@pytest.mark.parametrize("loads", ["pickle", "copy", "mica"])
def test_distributions_survive_copies(loads):
    for d in (
        D.Gamma(mica.tensor([1.0, 2.0]), 3.0),
        D.LogNormal(0.5, 1.0),
        D.Beta(mica.rand(3) + 1, 2.0),
        D.Categorical(mica.rand(4)),
    ):
        if loads == "pickle":
            other = pickle.loads(pickle.dumps(d))
        elif loads == "copy":
            other = copy.deepcopy(d)
        else:
            file = io.BytesIO()
            mica.save(d, file)
            file.seek(0)
            other = mica.load(file, weights_only=False)
        mica.manual_seed(3)
        sample = d.sample((5,))
        mica.manual_seed(3)
        assert mica.equal(other.sample((5,)), sample)
        assert mica.equal(other.log_prob(sample), d.log_prob(sample))


def test_divergences_are_found_by_type():
    class Special(D.Normal):
        pass

    p, q = Special(0.0, 1.0), Special(1.0, 2.0)
    assert kl_divergence(p, q) == kl_divergence(D.Normal(0.0, 1.0), D.Normal(1.0, 2.0))
    register_kl(Special, Special)(lambda a, b: 17)
    assert kl_divergence(p, q) == 17
    with pytest.raises(NotImplementedError, match="No KL\\(p \\|\\| q\\) is implemented for p type VonMises"):
        kl_divergence(D.VonMises(mica.zeros(1), mica.ones(1)), D.Normal(0.0, 1.0))
    with pytest.raises(TypeError, match="Expected type_p to be a Distribution subclass"):
        register_kl(1, D.Normal)


def test_an_exponential_family_knows_its_entropy_and_divergence():
    p, q = D.Gamma(mica.tensor([2.0, 0.5]), 1.5), D.Gamma(mica.tensor([1.0, 3.0]), 0.5)
    general = D.ExponentialFamily.entropy(p)
    mica.testing.assert_close(general, p.entropy())
    from mica.distributions._kl_same import _exponential_family

    mica.testing.assert_close(_exponential_family(p, q), kl_divergence(p, q))


@pytest.mark.parametrize("registry", [biject_to, transform_to], ids=["biject_to", "transform_to"])
def test_transforms_reach_their_constraint(registry):
    low = mica.tensor([1.0, -2.0, 0.5])
    for constraint in (
        constraints.real, constraints.positive, constraints.nonnegative, constraints.greater_than(low),
        constraints.greater_than_eq(low), constraints.less_than(low), constraints.interval(low, low + 2),
        constraints.unit_interval, constraints.half_open_interval(low, low + 2), constraints.simplex,
        constraints.corr_cholesky, constraints.independent(constraints.positive, 1),
        constraints.cat([constraints.positive, constraints.unit_interval], -1, [1, 2]),
        constraints.stack([constraints.real, constraints.positive, constraints.unit_interval], -1),
    ):  # fmt: skip
        transform = registry(constraint)
        x = mica.randn(5, 3)
        y = transform(x)
        assert constraint.check(y).all(), constraint
        if registry is biject_to:
            mica.testing.assert_close(transform.inv(y), x, rtol=1e-3, atol=1e-3)
    with pytest.raises(NotImplementedError, match="Cannot transform _Boolean constraints"):
        registry(constraints.boolean)


def test_a_cache_of_one_gives_back_the_value_itself():
    t = D.TanhTransform(cache_size=1)
    x = mica.tensor([50.0])
    assert t.inv(t(x)) is x
    assert D.TanhTransform() == D.TanhTransform()
    assert D.AffineTransform(1.0, 2.0) != D.AffineTransform(1.0, 3.0)
    assert D.ComposeTransform([D.ExpTransform()]).inv.inv == D.ComposeTransform([D.ExpTransform()])


def test_lazy_properties_and_triangles():
    class Thing:
        @lazy_property
        def value(self):
            return mica.ones(1)

    thing = Thing()
    assert thing.value is thing.value
    matrix = mica.arange(9.0).view(3, 3).tril(-1)
    mica.testing.assert_close(vec_to_tril_matrix(tril_matrix_to_vec(matrix, -1), -1), matrix)


# ---------------------------------------------------------------------------------------- derivatives of samples
def _quantile_slope(cdf, density, a, x, step=1e-5):
    """-(dF/da) / f by differences in double."""
    return -(cdf(a + step, x) - cdf(a - step, x)) / (2 * step) / density(a, x)


@pytest.mark.parametrize("a", [0.05, 0.4, 1.0, 3.3, 20.0, 300.0, 15000.0, 30000.0, 1e6])
def test_a_gamma_sample_moves_with_its_concentration(a):
    alpha = mica.full((8,), a, dtype=mica.float64)
    mica.manual_seed(1)
    x = mica._standard_gamma(alpha)
    found = mica._standard_gamma_grad(alpha, x)
    step = 1e-5 * a
    expected = -(mica.igamma(alpha + step, x) - mica.igamma(alpha - step, x)) / (2 * step)
    expected = expected / mica.exp((alpha - 1) * mica.log(x) - x - mica.lgamma(alpha))
    if a < 1000:  # above, the difference of distribution functions has few digits left
        mica.testing.assert_close(found, expected, rtol=2e-5, atol=1e-8)
    else:
        # d/da of a + z sqrt(a) + ...: one, and half a deviation by the root
        mica.testing.assert_close(found, 1 + (x - a) / (2 * a), rtol=2e-2 / a**0.5 + 1e-5, atol=0.0)


def test_the_regimes_of_the_gamma_derivative_agree():
    """Left and right of where another formula takes over."""
    for a in (19999.0, 20001.0):
        alpha = mica.full((5,), a, dtype=mica.float64)
        z = mica.tensor([-3.0, -0.5, 0.01, 1.0, 4.0], dtype=mica.float64)
        other = mica.full((5,), 40000.0 - a, dtype=mica.float64)
        x = a + z * a**0.5
        y = (40000.0 - a) + z * (40000.0 - a) ** 0.5
        left, right = mica._standard_gamma_grad(alpha, x), mica._standard_gamma_grad(other, y)
        mica.testing.assert_close(left, right, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.4), (1.0, 1.0), (2.5, 7.0), (40.0, 3.0), (500.0, 900.0)])
def test_a_beta_sample_moves_with_its_concentration(a, b):
    """The derivative of the incomplete beta function by its parameter, from a fine integral of the density."""
    x = (
        mica.tensor([0.02, 0.2, 0.37, 0.6, 0.95], dtype=mica.float64)
        if a + b < 100
        else mica.tensor([0.33, 0.35, 0.357, 0.37, 0.4], dtype=mica.float64)
    )
    grid = mica.linspace(0, 1, 400001, dtype=mica.float64)
    u = (grid[1:] + grid[:-1]) / 2  # t = u^4 takes the edge off densities that are infinite at zero

    def mass(near, far, upper, norm):
        """Of t^(near - 1) (1 - t)^(far - 1) between 0 and `upper`."""
        root = upper**0.25
        t = (u * root) ** 4
        log_density = (near - 1) * t.log() + (far - 1) * (-t).log1p() - norm
        return (log_density.exp() * 4 * (u * root) ** 3).mean() * root

    def log_beta(alpha):
        norm = mica.lgamma(mica.tensor([alpha, b, alpha + b], dtype=mica.float64))
        return norm[0] + norm[1] - norm[2]

    def cdf(alpha, value):
        """Less one in the upper half, where the little that is left says more than a number near one."""
        norm = log_beta(alpha)
        return mass(alpha, b, value, norm) if value < a / (a + b) else -mass(b, alpha, 1 - value, norm)

    step = 1e-4 * a
    found = mica._dirichlet_grad(x, mica.full_like(x, a), mica.full_like(x, a + b))
    for i, value in enumerate(x.tolist()):
        point = mica.tensor(value, dtype=mica.float64)
        density = ((a - 1) * point.log() + (b - 1) * (-point).log1p() - log_beta(a)).exp()
        expected = -(cdf(a + step, value) - cdf(a - step, value)) / (2 * step) / density / (1 - value)
        mica.testing.assert_close(found[i], expected, rtol=1e-4, atol=1e-7)


def test_samples_at_the_edges():
    assert mica._standard_gamma(mica.zeros(0)).shape == (0,)
    assert mica._sample_dirichlet(mica.ones(0, 3)).shape == (0, 3)
    assert (mica._standard_gamma(mica.full((100,), 1e-30)) > 0).all()
    odd = mica.tensor([-1.0, -0.5, float("nan"), 0.0, float("inf")])
    assert mica._standard_gamma(odd).isnan().tolist() == [True, True, True, False, False]
    assert mica._sample_dirichlet(mica.tensor([[1.0, -2.0], [1.0, 1.0]])).isnan().tolist() == [
        [True, True],
        [False, False],
    ]
    assert mica._dirichlet_grad(odd, odd, odd).isnan()[:3].all()
    assert mica._standard_gamma_grad(odd, odd).isnan()[:3].all()
    assert mica._standard_gamma_grad(mica.tensor([2.0]), mica.tensor([0.0])).item() == 0
    with pytest.raises(RuntimeError, match="not implemented for 'Int'|not implemented for 'Long'"):
        mica._standard_gamma(mica.ones(3, dtype=mica.int64))
    alpha = mica.rand(3, 4).t().requires_grad_()
    mica._sample_dirichlet(alpha).sum().backward()
    assert alpha.grad.abs().max() < 1e-4  # shares sum to one whatever the concentrations


def test_a_density_follows_its_concentration():
    c = mica.tensor([0.5, 1.5, 3.0])
    d, x = D.Dirichlet(c), mica.tensor([0.2, 0.3, 0.5])
    before = d.log_prob(x)
    assert mica.equal(d.log_prob(x), before)
    c.add_(1)
    mica.testing.assert_close(d.log_prob(x), D.Dirichlet(c.clone()).log_prob(x))
    d.concentration = c * 2
    mica.testing.assert_close(d.log_prob(x), D.Dirichlet(c * 2).log_prob(x))
    c.requires_grad_()
    D.Dirichlet(c).log_prob(x).backward()
    assert c.grad is not None
    with mica.inference_mode():
        still = D.Dirichlet(mica.ones(3))
        mica.testing.assert_close(still.log_prob(x), mica.tensor(2.0).log())


def test_no_sampler_waits_for_ever():
    odd = mica.tensor([float("nan"), -1.0, 0.0, 2.0])
    angles = D.VonMises(mica.zeros(4), odd, validate_args=False).sample((3,))
    assert angles.isnan().all(0).tolist() == [True, True, True, False]
    assert D.Gamma(odd, mica.ones(4), validate_args=False).sample().isnan().tolist() == [True, True, False, False]
