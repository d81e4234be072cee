"""Helpers of AOT autograd by the path that backends import them from."""

from mica._functorch.compilers import make_boxed_compiler, make_boxed_func

__all__ = ["make_boxed_compiler", "make_boxed_func"]
