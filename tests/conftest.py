"""What all tests share: every test starts from the same seeds."""

import random

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def repeatable_seeds():
    random.seed(0)
    np.random.seed(0)
    import mica

    mica.manual_seed(0)
