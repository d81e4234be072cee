"""Two hosts that are network namespaces of this machine, with a link between them that can be cut."""

import os
import subprocess
import time

import mica
import mica.distributed as dist
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
            ip(
                "link",
                "add",
                self.links[0],
                "netns",
                self.names[0],
                "type",
                "veth",
                "peer",
                self.links[1],
                "netns",
                self.names[1],
            )
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

    def ranks(self, function, **environment):
        variables = {"MASTER_ADDR": self.addresses[0], **environment}
        # A host has process numbers of its own: nothing is shared but the link.
        before = [["ip", "netns", "exec", name, "unshare", "--pid", "--fork", "--kill-child"] for name in self.names]
        return ranks.Ranks(2, function, environment=variables, before=before)


@pytest.fixture(scope="module")
def hosts():
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    if not os.path.exists(ranks.PACKAGE / "libmica_gloo.so"):
        pytest.skip("this build has no Gloo")
    with Hosts() as made:
        yield made


def trains(rank, size):
    mica.manual_seed(0)
    model = mica.nn.Linear(4, 3)
    parallel = mica.nn.parallel.DistributedDataParallel(model)
    optimizer = mica.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad()
        x = mica.arange(8.0).reshape(2, 4) * 0.1 + step
        parallel(x[rank : rank + 1]).square().mean().backward()
        optimizer.step()
    return model.weight.flatten().tolist(), os.getpid(), dist.get_world_size()


def test_training_on_two_hosts(hosts):
    with hosts.ranks(trains) as world:
        first, second = (each.result for each in world.ends_well())
    assert first[0] == second[0] and first[2] == second[2] == 2
    mica.manual_seed(0)
    model = mica.nn.Linear(4, 3)
    optimizer = mica.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad()
        x = mica.arange(8.0).reshape(2, 4) * 0.1 + step
        model(x).square().mean().backward()
        optimizer.step()
    assert mica.tensor(first[0]).sub(model.weight.flatten()).abs().max() < 1e-6


def reduces(rank, size):
    began, text, most, steps = time.monotonic(), "no error", 0, 0
    while time.monotonic() < began + 60:
        start = time.monotonic()
        text = error_of(dist.all_reduce, x := mica.ones(100_000))  # noqa: F821
        most = max(most, time.monotonic() - start)
        if text != "no error":
            break
        assert x[0] == 2
        steps += 1
        if rank == 0 and steps == 20:
            open(os.path.join(os.environ["MICA_TEST_FOLDER"], "begun"), "w").close()
        done = mica.tensor(float(os.path.exists(os.path.join(os.environ["MICA_TEST_FOLDER"], "enough"))))
        text = error_of(dist.all_reduce, done)  # noqa: F821
        if text != "no error" or done.item():
            break
        time.sleep(0.02)
    return text, most, time.monotonic()


def _wait_for(path):
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.long
def test_a_link_that_is_cut_for_ever(hosts):
    with hosts.ranks(reduces, MICA_DISTRIBUTED_LINK_LIMIT="6") as world:
        folder = world.ranks[0].output.parent
        _wait_for(folder / "begun")
        hosts.cut()
        cut = time.monotonic()
        try:
            world.wait(30)
        finally:
            hosts.cut(False)
        for each in world.ranks:
            text, _, ended = each.result
            assert "cannot end: rank " in text and "is lost" in text
            assert ended - cut < 10


@pytest.mark.long
def test_a_link_that_is_cut_for_twenty_seconds(hosts):
    with hosts.ranks(reduces) as world:
        folder = world.ranks[0].output.parent
        _wait_for(folder / "begun")
        hosts.cut()
        time.sleep(20)
        hosts.cut(False)
        time.sleep(10)
        (folder / "enough").touch()
        world.wait(40)
        for each in world.ranks:
            text, most, _ = each.result
            assert text == "no error" and 18 < most < 30
