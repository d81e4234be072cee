"""Every sample of the operation table under vmap: examples at once give what they give one by one.

Of the tensors of a sample all are examples, or only the first, or all but the first: the rest is shared.
"""

import mica
import pytest
from mica.func import _batch_rules  # noqa: F401 - enters the rules
from mica.func._batched import DataDependent, Level, active_levels, is_batched, wrap
from sample_runner import Evaluator, Numbers, load_samples, tensors_of

CHOICES = {"all": lambda i: True, "first": lambda i: i == 0, "rest": lambda i: i > 0}
# Arguments on which a result's shape or a branch depends cannot differ between examples.
BY_VALUE = {
    "allclose", "argwhere", "bincount", "equal", "is_nonzero", "masked_select", "nonzero", "nonzero_numpy",
    "repeat_interleave", "unique_consecutive", "unique_dim", "_unique2", "one_hot", "masked_scatter", "histc", "histogram",
}  # fmt: skip
SAMPLES = [s for s in load_samples() if s.op not in BY_VALUE]


class Examples(Evaluator):
    """Tensors that a list gives, one by one, in place of new ones."""

    def __init__(self, given):
        super().__init__(mica)
        self.given = iter(given)

    def make(self, shape, draw, dtype):
        super().make(shape, draw, dtype)
        return next(self.given)

    def X(self, *shape, high):
        super().make(shape, lambda: int(self.numbers.unit() * high), mica.int64)
        return next(self.given)


class Recorded(Evaluator):
    """An evaluator that remembers the tensors it made."""

    def __init__(self, seed):
        super().__init__(mica)
        self.numbers, self.made = Numbers(seed), []

    def make(self, shape, draw, dtype):
        made = super().make(shape, draw, dtype)
        self.made.append(made)
        return made


def run_both(sample, choice):
    made = []
    for seed in (7, 8, 9):
        evaluator = Recorded(seed)
        evaluator.run(sample.text)
        made.append(evaluator.made)
    if not made[0] or (choice != "all" and len(made[0]) < 2):
        return None
    batched = CHOICES[choice]
    one_by_one = []
    for tensors in made:
        mixed = [t if batched(i) else made[0][i] for i, t in enumerate(tensors)]
        one_by_one.append(tensors_of(Examples([t.clone() for t in mixed]).run(sample.text)))
    level = Level(1, 3, "error")
    active_levels().append(level)
    try:
        given = [
            wrap(mica.stack([t[i] for t in made]), level) if batched(i) else made[0][i].clone()
            for i in range(len(made[0]))
        ]
        at_once = tensors_of(Examples(given).run(sample.text))
    finally:
        active_levels().pop()
    values = [x._batch_value if is_batched(x, level) else x.expand(3, *x.shape) for x in at_once]
    return values, one_by_one


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.id)
def test_sample(sample, choice):
    try:
        both = run_both(sample, choice)
    except DataDependent:
        pytest.fail(f"{sample.text} asks for values")
    except RuntimeError as e:
        if "is not possible because there exists a Tensor `other`" in str(e):
            assert choice == "rest"  # the examples would not fit in what is changed in place
            return
        if "results of different shapes for different examples" in str(e):
            assert "[B(" in sample.text  # as many elements as a mask has ones
            return
        raise
    if both is None:
        return  # nothing to choose among
    values, one_by_one = both
    for i, value in enumerate(values):
        expected = [results[i] for results in one_by_one]
        if any(t.shape != expected[0].shape for t in expected):
            continue
        expected = mica.stack(expected)
        mica.testing.assert_close(value, expected, rtol=1e-9, atol=1e-10, equal_nan=True)
