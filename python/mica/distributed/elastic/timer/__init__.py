"""Time limits on parts of a program, which a server in the launching process watches."""

from mica.distributed.elastic.timer.api import TimerClient, TimerRequest, TimerServer, configure, expires
from mica.distributed.elastic.timer.local_timer import LocalTimerClient, LocalTimerServer

__all__ = [
    "LocalTimerClient",
    "LocalTimerServer",
    "TimerClient",
    "TimerRequest",
    "TimerServer",
    "configure",
    "expires",
]
