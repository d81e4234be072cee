"""Fixtures of the tests of the compiler."""

import pytest
from calls_made_again import EARLY


@pytest.fixture
def replays_begin_early(monkeypatch):
    for place, name, value in EARLY:
        monkeypatch.setattr(place, name, value)
