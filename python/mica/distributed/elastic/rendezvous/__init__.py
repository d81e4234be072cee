"""How the machines of a run meet: at a fixed address (static), or through a store that lets them come and go (c10d)."""

from mica.distributed.elastic.rendezvous.api import *  # noqa: F403
from mica.distributed.elastic.rendezvous.registry import _register_default_handlers

_register_default_handlers()
