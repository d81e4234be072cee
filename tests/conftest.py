"""What all tests share: every test starts from the same seeds."""

import os
import random

import numpy as np
import pytest


def pytest_collection_modifyitems(items):
    if not any(library in os.environ.get("LD_PRELOAD", "") for library in ("libasan", "libtsan")):
        return
    for item in items:
        marker = item.get_closest_marker("no_sanitizer")
        if marker is not None:
            item.add_marker(pytest.mark.skip(reason=marker.args[0]))


@pytest.fixture(autouse=True)
def repeatable_seeds():
    random.seed(0)
    np.random.seed(0)
    import mica

    mica.manual_seed(0)
