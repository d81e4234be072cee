"""Comparing results in tests, and making inputs for them."""

from mica.testing._comparison import assert_allclose, assert_close
from mica.testing._creation import make_tensor
from mica.testing._file_check import FileCheck

__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]
