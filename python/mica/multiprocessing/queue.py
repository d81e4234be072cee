"""Queues that tensors go through without a copy: Python's own, whose pickler knows tensors (reductions.py)."""

from multiprocessing.queues import Queue, SimpleQueue

__all__ = ["Queue", "SimpleQueue"]
