"""Variables of the environment, free ports, and what stands for a local rank in arguments."""

import os
import socket
from string import Template


def get_env_variable_or_raise(env_name):
    value = os.environ.get(env_name)
    if value is None:
        raise ValueError(f"Environment variable {env_name} expected, but not set")
    return value


def get_socket_with_port():
    """A socket that listens on a free port of this machine. The port is free for others once it is closed."""
    for family, kind, protocol, _, _ in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        try:
            made.bind(("localhost", 0))
            made.listen(0)
        except OSError:
            made.close()
        else:
            return made
    raise RuntimeError("Failed to create a socket")


class macros:
    """What may stand in the arguments of a program: ${local_rank}."""

    local_rank = "${local_rank}"

    @staticmethod
    def substitute(args, local_rank):
        return [
            Template(each).safe_substitute(local_rank=local_rank) if isinstance(each, str) else each for each in args
        ]
