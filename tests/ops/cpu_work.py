"""The processor's time in units of a fixed piece of Python's own work, measured at the same moment.

Seconds differ by a factor of ten between machines, and by two on one whose cores are shared; the ratio of two pieces of
work of one interpreter differs little.
"""

import time


def unit():
    """Seconds that the interpreter takes for a loop of 200,000 turns: the least of some."""
    least = float("inf")
    for _ in range(5):
        start = time.process_time()
        total = 0
        for i in range(200_000):
            total += i & 3
        least = min(least, time.process_time() - start)
    return least
