"""Copies between the GPUs of one process, by the name that torch's parallel modules have for them."""

from mica.cuda.comm import broadcast, broadcast_coalesced, gather, reduce_add, scatter  # noqa: F401
