"""Numbers that a launcher reports: restarts, durations, successes. By default nobody takes them."""

from mica.distributed.elastic.metrics.api import *  # noqa: F403


def initialize_metrics(cfg=None):
    """Does nothing: a program that wants the numbers calls configure."""
