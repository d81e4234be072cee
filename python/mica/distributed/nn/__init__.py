"""Collectives with gradients."""

from mica.distributed.nn.functional import *  # noqa: F403
