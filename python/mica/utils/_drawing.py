"""Which operators draw random numbers."""

# By their names in aten. Without a call of one, later draws would give other numbers.
DRAWING_OPERATORS = frozenset(
    """
    _sample_dirichlet _standard_gamma alpha_dropout bernoulli binomial cauchy dropout exponential feature_alpha_dropout
    feature_dropout geometric log_normal multinomial native_dropout normal normal_functional poisson rand rand_like randint
    randint_like randn randn_like random randperm rrelu rrelu_with_noise rrelu_with_noise_functional uniform
    """.split()  # noqa: SIM905
)
