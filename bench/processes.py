"""Starts the processes of a world on this machine, and always ends them."""

import os
import socket
import subprocess


def outputs(command, ranks, limit=None, **variables):
    """What each process of a command has printed. With 0 ranks it is one process that is told of no world."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {**os.environ, **variables}
    world = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} if ranks else {}
    started = []
    try:
        for rank in range(max(ranks, 1)):
            place = {**world, "RANK": str(rank)} if ranks else {}
            own = {**environment, **place}
            started.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True))
        return [each.communicate(timeout=limit)[0] for each in started]
    finally:
        for each in started:
            each.kill()
