"""Parts of the launcher within one process: how machines meet, what options and error files say, functions as programs."""

import io
import json
import os
import signal
import threading
import time

import pytest
from mica import multiprocessing as mp
from mica.distributed import HashStore
from mica.distributed.elastic import events, metrics, timer
from mica.distributed.elastic.multiprocessing import (
    ChildFailedError,
    ProcessFailure,
    Std,
    record,
    start_processes,
    to_map,
)
from mica.distributed.elastic.multiprocessing.logs import DefaultLogsSpecs
from mica.distributed.elastic.multiprocessing.process_context import restore_signals
from mica.distributed.elastic.multiprocessing.tail_log import TailLog
from mica.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousParameters, RendezvousTimeoutError
from mica.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from mica.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler
from mica.distributed.elastic.rendezvous.rendezvous_state import State, Watch
from mica.distributed.elastic.rendezvous.utils import _parse_rendezvous_config, parse_rendezvous_endpoint
from mica.distributed.elastic.utils import macros
from mica.distributed.elastic.utils.data import CyclingIterator, ElasticDistributedSampler
from mica.distributed.launcher.api import LaunchConfig, elastic_launch

# ---- how machines meet


class _LockedStore(HashStore):
    """A store that threads may share: each stands for the launcher of one machine."""

    def __init__(self):
        super().__init__()
        self._lock = threading.RLock()

    def compare_set(self, *args):
        with self._lock:
            return super().compare_set(*args)


def _machine(store, least, most, **options):
    options = {"last_call_timeout": 1, "join_timeout": 20, **options}
    params = RendezvousParameters("c10d", "", "run", least, most, local_addr="localhost", **options)
    return create_handler(store, C10dRendezvousBackend(store, "run"), params)


def _meet(*machines):
    """What each machine gets, when all ask at once."""
    results = [None] * len(machines)

    def ask(place):
        try:
            info = machines[place].next_rendezvous()
            results[place] = (info.rank, info.world_size)
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(machines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


@pytest.fixture
def store(monkeypatch):
    # The store for processes needs no server here.
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    monkeypatch.setattr("mica.distributed.PrefixStore", lambda prefix, store: HashStore())
    monkeypatch.setattr(
        "mica.distributed.elastic.rendezvous.api.RendezvousStoreInfo.build", lambda *args, **options: None
    )
    return _LockedStore()


def test_machines_meet_and_get_ranks(store):
    machines = [_machine(store, 3, 3) for _ in range(3)]
    assert sorted(_meet(*machines)) == [(0, 3), (1, 3), (2, 3)]
    assert [each.num_nodes_waiting() for each in machines] == [0, 0, 0]


def test_fewer_than_the_most_begin_after_the_last_call(store):
    first, second = _machine(store, 1, 4), _machine(store, 1, 4)
    start = time.monotonic()
    assert sorted(_meet(first, second)) == [(0, 2), (1, 2)]
    assert time.monotonic() - start >= 1
    # A third one waits, is seen, and is let in when the others meet again.
    third = _machine(store, 1, 4)
    waiting = threading.Thread(target=third.next_rendezvous)
    waiting.start()
    while first.num_nodes_waiting() == 0:
        time.sleep(0.01)
    assert sorted(_meet(first, second)) in ([(0, 3), (1, 3)], [(0, 3), (2, 3)], [(1, 3), (2, 3)])
    waiting.join(30)


def test_a_machine_that_starts_again_brings_the_others_back(store):
    machines = [_machine(store, 2, 2) for _ in range(2)]
    _meet(*machines)
    again = []
    thread = threading.Thread(target=lambda: again.append(machines[0].next_rendezvous().world_size))
    thread.start()
    while machines[1].num_nodes_waiting() == 0:
        time.sleep(0.01)
    assert machines[1].next_rendezvous().world_size == 2
    thread.join(30)
    assert again == [2]


def test_a_machine_that_leaves_is_not_waited_for(store):
    machines = [_machine(store, 1, 2) for _ in range(2)]
    _meet(*machines)
    machines[0].leave()
    start = time.monotonic()
    assert machines[1].next_rendezvous().world_size == 1 and time.monotonic() - start < 5
    assert machines[0].num_nodes_waiting() == 1  # it is told to come back, if it still runs


def test_too_few_machines_and_a_run_that_is_over(store):
    lonely = _machine(store, 2, 2, join_timeout=1)
    with pytest.raises(RendezvousTimeoutError, match="1 of at least 2 machines"):
        lonely.next_rendezvous()
    lonely.why_closed = "rank 3 has failed with 1: ValueError: no"
    assert lonely.shutdown() and lonely.is_closed()
    with pytest.raises(RendezvousClosedError, match="is closed: rank 3 has failed with 1: ValueError: no"):
        _machine(store, 1, 1).next_rendezvous()


def test_a_machine_that_is_not_heard_of_is_dropped(monkeypatch):
    state, now = State(complete=True), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = Watch(patience=10)
    state.participants, state.beats = {"a": 0, "b": 1}, {"a": 0, "b": 0}
    for seconds, dead in [(0, []), (4, []), (4, []), (4, ["b"])]:
        now[0] += seconds
        state.beats["a"] += 1
        assert watch.dead(state, "a") == dead
    # A machine that stood still itself gives the others their full time again.
    now[0] += 60
    assert watch.dead(state, "a") == []
    state.drop("b")
    state.waiting.append("c")
    state.drop("a")
    assert (state.round, state.complete, state.participants) == (1, False, {"c": -1})
    assert State.read(state.bytes()) == state


# ---- what text says


def test_a_machine_that_was_dropped_comes_back_with_the_same_count(monkeypatch):
    state, now = State(), [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    watch = Watch(patience=10)
    for node in ("own", "other"):
        state.join(node)
        state.beats[node] = 2
    for _ in range(4):
        assert watch.dead(state, "own") == []
        now[0] += 3
    assert watch.dead(state, "own") == ["other"]
    assert watch.dead(state, "own") == ["other"]  # the value could not be written: the same again
    state.drop("other")
    watch.forget(["other"])
    state.join("other")
    state.beats["other"] = 2
    assert watch.dead(state, "own") == []


def test_a_round_that_has_lost_a_machine_is_not_begun():
    state = State()
    for node in ("a", "b"):
        state.join(node)
    state.finish()
    assert state.size == 2 and state.participants == {"a": 0, "b": 1}
    state.drop("a")  # before b has seen that the round is complete
    state.join("b")
    assert (state.round, state.complete, state.participants) == (1, False, {"b": -1})


def test_endpoints_and_options():
    assert parse_rendezvous_endpoint("", 7) == ("localhost", 7)
    assert parse_rendezvous_endpoint("host", 7) == ("host", 7)
    assert parse_rendezvous_endpoint("[::1]:80", 7) == ("::1", 80) and parse_rendezvous_endpoint("[::1]", 7) == (
        "::1",
        7,
    )
    for wrong in ("host:", "host:70000", "host:x", "a b:1"):
        with pytest.raises(ValueError, match="rendezvous endpoint"):
            parse_rendezvous_endpoint(wrong, 7)
    assert _parse_rendezvous_config(" a=1, b = 2 ") == {"a": "1", "b": "2"} and _parse_rendezvous_config("") == {}
    params = RendezvousParameters("c10d", "", "run", 1, 1, flag="yes", number="3", wrong="x")
    assert params.get_as_bool("flag") is True and params.get_as_int("number") == 3 and params.get_as_int("none", 4) == 4
    with pytest.raises(ValueError, match="valid boolean"):
        params.get_as_bool("wrong")
    with pytest.raises(ValueError, match="valid integer"):
        params.get_as_int("wrong")


def test_streams_by_rank():
    assert Std.from_str("3") == Std.ALL and Std.from_str("0:3,12:1") == {0: Std.ALL, 12: Std.OUT}
    assert to_map({1: Std.OUT}, 2) == {0: Std.NONE, 1: Std.OUT} and to_map(Std.ERR, 2) == {0: Std.ERR, 1: Std.ERR}
    assert macros.substitute(["--rank=${local_rank}", 3, "${other}"], "7") == ["--rank=7", 3, "${other}"]


# ---- failures


def test_record_leaves_an_error_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))

    @record
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    failure = ProcessFailure(1, 42, 1, str(tmp_path / "error.json"))
    assert failure.message["message"] == "ValueError: no" and "in fail" in failure.message["extraInfo"]["py_callstack"]
    killed = ProcessFailure(0, 43, -9, str(tmp_path / "none"))
    assert killed.message == "Signal 9 (SIGKILL) received by PID 43" and killed.error_file == "<N/A>"
    error = ChildFailedError("train.py", {0: killed, 1: failure})
    assert error.get_first_failure() == (1, failure)
    text = str(error)
    assert text.index("rank      : 0") < text.index("Root Cause") < text.index("rank      : 1") < text.index("in fail")

    @record
    def pass_on():
        raise error

    with pytest.raises(ChildFailedError):
        pass_on()
    assert json.loads((tmp_path / "error.json").read_text())["message"]["errorCode"] == 1


def test_half_an_error_file_is_no_reason_to_fail(tmp_path):
    (tmp_path / "error.json").write_text('{"message": {"mess')
    assert ProcessFailure(0, 1, -9, str(tmp_path / "error.json")).message.startswith("Signal 9")


# ---- functions as programs


def _double(number):
    return 2 * number + int(os.environ["RANK"])


def _fail_in_rank_one(message):
    if os.environ["RANK"] == "1":
        raise RuntimeError(message)
    time.sleep(60)


def _config(**options):
    return LaunchConfig(1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="fork", **options)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_functions_give_their_results_by_rank():
    before = signal.getsignal(signal.SIGINT)
    assert elastic_launch(_config(), _double)(10) == {0: 20, 1: 21}
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ChildFailedError) as caught:
        elastic_launch(_config(max_restarts=0), _fail_in_rank_one)("no luck")
    rank, failure = caught.value.get_first_failure()
    assert rank == 1 and failure.message["message"] == "RuntimeError: no luck"


def test_commands_are_waited_for(tmp_path):
    logs = DefaultLogsSpecs(str(tmp_path), redirects=Std.ALL)
    started = start_processes("some", "/bin/sh", {0: ("-c", "echo $WORD"), 1: ("-c", "sleep 30")}, {
        0: {"WORD": "hello"}, 1: {},
    }, logs)  # fmt: skip
    assert started.wait(timeout=0.2, period=0.05) is None and sorted(started.pids()) == [0, 1]
    started.close()
    assert (tmp_path / started.stdouts[0]).read_text() == "hello\n"
    assert started.wait(0).failures[1].exitcode == -15
    restore_signals()


# ---- what is reported


def test_events_and_metrics():
    event = events.Event("start", events.EventSource.AGENT, metadata={"rank": 1})
    assert events.Event.deserialize(event.serialize()) == event
    taken = []

    class Taker(metrics.MetricHandler):
        def emit(self, metric_data):
            taken.append((metric_data.group_name, metric_data.name))

    metrics.configure(Taker(), "mine")

    @metrics.prof(group="mine")
    def work():
        return 3

    assert work() == 3 and taken == [
        ("mine", "test_events_and_metrics.<locals>.work.success"),
        ("mine", "test_events_and_metrics.<locals>.work.duration.ms"),
    ]


# ---- time limits


def _pass_a_limit(rank, queue):
    timer.configure(timer.LocalTimerClient(queue))
    with timer.expires(after=60):
        pass
    with timer.expires(after=0.05 if rank == 1 else 60):
        time.sleep(0.5)


def test_a_process_that_passes_a_time_limit_is_killed():
    queue = mp.get_context("fork").Queue()
    server = timer.LocalTimerServer(queue, max_interval=0.05)
    server.start()
    try:
        with pytest.raises(mp.ProcessExitedException, match="process 1 terminated with signal SIGKILL"):
            mp.start_processes(_pass_a_limit, (queue,), nprocs=2, start_method="fork")
    finally:
        server.stop()
    with pytest.raises(RuntimeError, match="Configure timer client"), timer.expires(after=1):
        pass


# ---- data


def test_data_from_where_a_training_was_stopped():
    data = list(range(10))
    samplers = [ElasticDistributedSampler(data, num_replicas=2, rank=rank, start_index=3) for rank in range(2)]
    # What torch 2.13 gives.
    assert [list(sampler) for sampler in samplers] == [[7, 8, 5, 4], [3, 6, 9, 7]]
    assert [len(sampler) for sampler in samplers] == [4, 4]
    assert sorted({index for sampler in samplers for index in sampler}) == [3, 4, 5, 6, 7, 8, 9]
    with pytest.raises(ValueError, match="Start index 10 should be less than dataset size 10"):
        ElasticDistributedSampler(data, num_replicas=2, rank=0, start_index=10)
    assert list(CyclingIterator(3, lambda epoch: iter([epoch, 9] if epoch != 1 else []))) == [0, 9, 2, 9]


# ---- output


def test_a_letter_that_is_written_in_halves_is_shown_whole(tmp_path):
    shown, path = io.StringIO(), tmp_path / "stdout.log"
    with open(path, "wb", buffering=0) as file:
        tail = TailLog("some", {3: str(path)}, shown, interval_sec=0.01).start()
        file.write(b"caf" + "é".encode()[:1])
        time.sleep(0.05)
        file.write("é".encode()[1:] + b"!\nand more")
        tail.stop()
    assert shown.getvalue() == "[some3]:café!\n[some3]:and more\n" and tail.stopped()
