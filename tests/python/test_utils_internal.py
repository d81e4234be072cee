"""torch._utils_internal: what the tests of packages ask for."""

import os

import pytest
from mica import _utils_internal


def _old(x, y=15):
    return x + y


def test_deprecated_functions_warn_by_their_public_name():
    marked = _utils_internal.deprecated()(_old)
    assert marked is _old and marked(1, 2) == 3
    with pytest.warns(UserWarning, match="old is DEPRECATED"):
        assert globals()["old"](1, y=2) == 3
    with pytest.raises(RuntimeError, match="has that name already"):
        _utils_internal.deprecated()(_old)
    with pytest.raises(ValueError, match="begins with an underscore"):
        _utils_internal.deprecated()(os.getcwd)


def test_paths(tmp_path):
    assert os.path.isfile(_utils_internal.get_file_path("mica", "_utils_internal.py"))
    assert _utils_internal.get_file_path_2("a", "b") == os.path.join("a", "b")
    assert _utils_internal.get_writable_path(str(tmp_path)) == str(tmp_path)
