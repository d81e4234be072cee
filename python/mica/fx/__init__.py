"""What programs ask about tracing into a graph: nothing is traced, and there is no tracer yet."""

__all__ = ["Proxy", "wrap"]


class Proxy:
    """What stands for a value while a program is traced: nothing is one."""

    def __init__(self, *args, **kwargs):
        raise RuntimeError("There is no tracer in Mica yet, so nothing stands for a traced value")


def wrap(fn_or_name):
    """The function or its name, as they are: they matter to a tracer only."""
    return fn_or_name
