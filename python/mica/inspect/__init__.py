"""See through a program: the anatomy of a tensor, the copies nobody asked for, the memory that is held and by which line."""

from mica.inspect._copies import Copy, copies
from mica.inspect._estimate import Estimate, estimate
from mica.inspect._explain import Explanation, explain
from mica.inspect._memory import memory
from mica.inspect._operations import operations

__all__ = ["Copy", "Estimate", "Explanation", "copies", "estimate", "explain", "memory", "operations"]
