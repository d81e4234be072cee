"""Two hosts that are network namespaces of this machine, with a link between them that can be cut."""

import os
import subprocess

import pytest
import ranks


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Hosts:
    """Two namespaces and the link between them, as a context."""

    def __init__(self):
        number = os.getpid() % 60000
        self.names = [f"mica{number}a", f"mica{number}b"]
        self.links = [f"mc{number}a", f"mc{number}b"]
        self.addresses = [f"10.{180 + number // 16384}.{number // 64 % 256}.{number % 64 * 4 + k}" for k in (1, 2)]

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            first, second = (("netns", name) for name in self.names)
            ip("link", "add", self.links[0], *first, "type", "veth", "peer", self.links[1], *second)
            for name, link, address in zip(self.names, self.links, self.addresses, strict=True):
                ip("-n", name, "address", "add", f"{address}/30", "dev", link)
                ip("-n", name, "link", "set", link, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except OSError as error:
            self.__exit__()
            pytest.skip(f"this machine does not let root make network namespaces: {error}")
        return self

    def __exit__(self, *error):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def cut(self, on=True):
        """The second host hears nothing more, or again."""
        ip("-n", self.names[1], "link", "set", self.links[1], "down" if on else "up")

    @property
    def before(self):
        """For each host the words before a command that run it there, with process numbers of its own."""
        return [["ip", "netns", "exec", name, "unshare", "--pid", "--fork", "--kill-child"] for name in self.names]

    def ranks(self, function, **environment):
        return ranks.Ranks(
            2, function, environment={"MASTER_ADDR": self.addresses[0], **environment}, before=self.before
        )
