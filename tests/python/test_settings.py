"""Settings of the process."""

import warnings

import mica
import pytest


@pytest.fixture
def warn_once_again():
    yield
    mica.set_warn_always(False)


def warnings_of(calls):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(calls):
            mica.ones(2, 2, 2).T  # noqa: B018 - deprecated for tensors that are no matrices
    return [str(each.message) for each in caught]


def test_set_warn_always(warn_once_again):
    assert mica.is_warn_always_enabled() is False
    assert len(warnings_of(3)) <= 1  # none where somebody has been warned before
    assert warnings_of(3) == []
    mica.set_warn_always(True)
    assert mica.is_warn_always_enabled() is True
    always = warnings_of(3)
    assert len(always) == 3 and all("The use of `x.T` on tensors of dimension other than 2" in each for each in always)
    mica.set_warn_always(False)
    assert warnings_of(3) == []
    with pytest.raises(TypeError, match="setWarnOnlyOnce expects a bool, but got int"):
        mica.set_warn_always(1)


def test_set_warn_always_for_warnings_from_python(warn_once_again):
    mica.set_warn_always(True)
    for _ in range(2):
        with pytest.warns(UserWarning, match="torch.meshgrid: in an upcoming release"):
            mica.meshgrid(mica.ones(2), mica.ones(3))
    mica.set_warn_always(False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mica.meshgrid(mica.ones(2), mica.ones(3))
    assert caught == []
