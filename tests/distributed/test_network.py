"""Training on two hosts, which are network namespaces of this machine, while the link between them is cut."""

import json
import os
import time

import mica
import mica.distributed as dist
import pytest
import ranks
from hosts import Hosts
from killed_training import STEPS, TRAINING, train
from launching import Program


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
    with hosts.ranks(reduces) as world:
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
        assert any("MICA_DISTRIBUTED_LINK_LIMIT" in each.result[0] for each in world.ranks)


@pytest.mark.long
def test_a_cut_of_twenty_seconds_is_waited_through_where_a_program_asks_for_it(hosts):
    with hosts.ranks(reduces, MICA_DISTRIBUTED_LINK_LIMIT="30") as world:
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


STATIC = ["--nnodes=2", "--master-port=29501", "--master-addr={0}"]
ELASTIC = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint={0}:29502", "--rdzv-id=run"]


@pytest.mark.long
@pytest.mark.parametrize("meeting", ["static", "c10d"])
def test_a_launched_training_resumes_after_a_cut_of_twenty_seconds(hosts, tmp_path, meeting):
    """Ranks end with an error within ten seconds, and their launchers start them again when the link is back."""
    expected, _ = train(tmp_path / "undisturbed", pause=0)
    program = Program(tmp_path, TRAINING)
    launchers = []
    for number, (before, address) in enumerate(zip(hosts.before, hosts.addresses, strict=True)):
        options = [f"--node-rank={number}", *STATIC] if meeting == "static" else [*ELASTIC, f"--local-addr={address}"]
        if meeting == "c10d":
            options.append(f"--rdzv-conf=is_host={1 - number}")
        options = ["--max-restarts=3", *(each.format(*hosts.addresses) for each in options)]
        launchers.append(program.start(*options, before=before, PAUSE="0.2"))
    try:
        _wait_for(tmp_path / "latest")
        hosts.cut()
        time.sleep(20)
        assert not (tmp_path / "losses.json").exists()
        hosts.cut(False)
        outputs = [each.communicate(timeout=100) for each in launchers]
    finally:
        hosts.cut(False)
        for each in launchers:
            each.kill()
            each.communicate()
    assert [each.returncode for each in launchers] == [0, 0], "\n".join(errors for _, errors in outputs)
    losses = json.loads((tmp_path / "losses.json").read_text())
    assert losses == expected and len(losses) == STEPS
    assert any("is lost" in errors for _, errors in outputs)
