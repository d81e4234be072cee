"""A training whose ranks are killed at random moments ends with the losses of one that nobody disturbs."""

import random

import pytest
from killed_training import STEPS, train


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    losses, _ = train(tmp_path_factory.mktemp("undisturbed"), pause=0)
    assert len(losses) == STEPS and losses[-1] < losses[0]
    return losses


def test_a_killed_rank_costs_no_number(undisturbed, tmp_path):
    random.seed()
    losses, killed = train(tmp_path, kills=[0.5, 1.0])
    assert killed >= 1 and losses == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("run", range(100))
def test_a_hundred_times(undisturbed, tmp_path, run):
    random.seed(run)
    losses, _ = train(tmp_path, kills=[random.uniform(0, 2.5) for _ in range(random.randint(1, 3))], ranks=2)
    assert losses == undisturbed
