"""Streams, events, graphs, pinned memory, and errors that a kernel finds."""

import subprocess
import sys

import mica
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]


def test_streams_run_and_wait():
    side = mica.cuda.Stream()
    assert side != mica.cuda.current_stream() and mica.cuda.current_stream() == mica.cuda.default_stream()
    x = mica.ones(1 << 20, device="cuda")
    side.wait_stream(mica.cuda.current_stream())
    with mica.cuda.stream(side):
        assert mica.cuda.current_stream() == side
        y = x * 3
        y.record_stream(mica.cuda.default_stream())
    mica.cuda.current_stream().wait_stream(side)
    assert (y + 1).sum().item() == 4 * (1 << 20)
    assert mica.cuda.current_stream() == mica.cuda.default_stream()
    side.synchronize()
    assert side.query()


def test_events_measure():
    start, end = mica.cuda.Event(enable_timing=True), mica.cuda.Event(enable_timing=True)
    x = mica.rand(2048, 2048, device="cuda")
    start.record()
    for _ in range(4):
        x = x @ x * 1e-3
    end.record()
    end.synchronize()
    assert end.query() and 0 < start.elapsed_time(end) < 1000
    with pytest.raises(ValueError, match="enable_timing"):
        mica.cuda.Event().elapsed_time(end)


def test_pinned_memory():
    x = mica.arange(1000.0)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and pinned.pin_memory() is pinned and pinned.tolist() == x.tolist()
    there = pinned.to("cuda", non_blocking=True)
    back = mica.empty(1000).pin_memory()
    back.copy_(there * 2, non_blocking=True)
    mica.cuda.synchronize()
    assert back.tolist() == (x * 2).tolist()


def test_a_graph_replays_with_new_inputs():
    x = mica.zeros(64, 64, device="cuda")
    w = mica.eye(64, device="cuda") * 2
    (x @ w).relu()  # libraries start before the capture
    graph = mica.cuda.CUDAGraph()
    with mica.cuda.graph(graph):
        assert mica.cuda.is_current_stream_capturing()
        y = (x @ w).relu() + 1
    for value in (1.0, -3.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert y[0, 0].item() == max(value * 2, 0) + 1
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        mica.cuda.CUDAGraph().replay()


def test_what_graphs_and_events_do_not_do_is_refused():
    with pytest.raises(NotImplementedError, match="keep_graph"):
        mica.cuda.CUDAGraph(keep_graph=True)
    with pytest.raises(NotImplementedError, match="keep_graph"):
        mica.accelerator.Graph(keep_graph=True)
    with pytest.raises(NotImplementedError, match="external"):
        mica.cuda.Event(external=True)
    mica.cuda.CUDAGraph(keep_graph=False), mica.cuda.Event(external=False)


def test_graphs_share_a_pool():
    x = mica.ones(1 << 20, device="cuda")
    (x * 2).sum()
    pool = mica.cuda.graph_pool_handle()
    first, second, apart = (mica.cuda.CUDAGraph() for _ in range(3))
    with mica.cuda.graph(first, pool=pool):
        temporary = (x * 2) + 1
        address, a = temporary.data_ptr(), temporary.sum()
        del temporary
    with mica.cuda.graph(second, pool=first.pool()):
        temporary = (x * 3) + 1
        assert temporary.data_ptr() == address  # what the first graph let go of
        b = temporary.sum()
    with mica.cuda.graph(apart):
        c = (x * 4).sum()
    assert first.pool() == second.pool() == pool != apart.pool()
    for graph in (first, second, apart):
        graph.replay()
    assert [a.item(), b.item(), c.item()] == [3 << 20, 4 << 20, 4 << 20]
    first.reset()
    second.replay()
    assert b.item() == 4 << 20  # the pool lives as long as one of its graphs


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_modes_of_capture(mode):
    x = mica.ones(4, device="cuda")
    x + 1
    graph = mica.cuda.CUDAGraph()
    with mica.cuda.graph(graph, capture_error_mode=mode):
        y = x + 1
    graph.replay()
    assert y.tolist() == [2] * 4
    with pytest.raises(RuntimeError, match="Unknown capture error mode"):
        mica.cuda.CUDAGraph().capture_begin(capture_error_mode="none")


def test_graphed_callables_share_memory_in_the_order_of_their_runs():
    layers = tuple(mica.nn.Sequential(mica.nn.Linear(64, 64), mica.nn.GELU()).cuda() for _ in range(3))
    x = mica.randn(32, 64, device="cuda", requires_grad=True)

    def step(chain):
        y = x
        for layer in chain:
            y = layer(y)
        return mica.autograd.grad(y.square().sum(), [x, *(p for layer in layers for p in layer.parameters())])

    expected = step(layers)
    samples = tuple((mica.randn(32, 64, device="cuda", requires_grad=True),) for _ in layers)
    graphed = mica.cuda.make_graphed_callables(layers, samples)
    for got, wanted in zip(step(graphed), expected, strict=True):
        mica.testing.assert_close(got, wanted)


def test_a_graph_draws_new_numbers():
    mica.rand(4, device="cuda")
    graph = mica.cuda.CUDAGraph()
    with mica.cuda.graph(graph):
        y = mica.rand(1000, device="cuda")
    graph.replay()
    first = y.tolist()
    graph.replay()
    assert y.tolist() != first
    mica.cuda.manual_seed(5)
    graph.replay()
    seeded = y.tolist()
    mica.cuda.manual_seed(5)
    graph.replay()
    assert y.tolist() == seeded


def test_a_training_step_with_adam_is_captured():
    def make():
        mica.manual_seed(0)
        model = mica.nn.Sequential(mica.nn.Linear(16, 32), mica.nn.ReLU(), mica.nn.Linear(32, 1)).cuda()
        return model, mica.optim.Adam(model.parameters(), lr=1e-2, capturable=True)

    x, y = mica.rand(64, 16, device="cuda"), mica.rand(64, 1, device="cuda")

    def step(model, optimizer):
        optimizer.zero_grad(set_to_none=True)
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    plain_model, plain = make()
    losses = [step(plain_model, plain).item() for _ in range(8)]
    model, optimizer = make()
    side = mica.cuda.Stream()
    side.wait_stream(mica.cuda.current_stream())
    with mica.cuda.stream(side):
        warm = [step(model, optimizer).item() for _ in range(3)]
    mica.cuda.current_stream().wait_stream(side)
    graph = mica.cuda.CUDAGraph()
    with mica.cuda.graph(graph):
        loss = step(model, optimizer)
    replayed = []
    for _ in range(5):
        graph.replay()
        replayed.append(loss.item())
    for a, b in zip(warm + replayed, losses, strict=True):
        assert abs(a - b) <= 1e-4 * abs(b)


def test_rng_states():
    state = mica.cuda.get_rng_state()
    a = mica.randn(100, device="cuda")
    mica.cuda.set_rng_state(state)
    assert mica.randn(100, device="cuda").tolist() == a.tolist()
    generator = mica.Generator(device="cuda").manual_seed(3)
    assert generator.device.type == "cuda"
    b = mica.rand(10, device="cuda", generator=generator)
    assert mica.rand(10, device="cuda", generator=generator.manual_seed(3)).tolist() == b.tolist()


def test_an_index_outside_is_an_error_and_the_device_lives_on():
    table = mica.arange(12.0, device="cuda").view(4, 3)
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 4"):
        table[mica.tensor([1, 7], device="cuda")].sum().item()
    with pytest.raises(IndexError, match="index -1"):
        mica.gather(table, 1, mica.tensor([[-1]], device="cuda")).item()
    before = table.clone()
    with pytest.raises(IndexError, match="out of bounds"):
        table.index_put_((mica.tensor([9], device="cuda"),), mica.ones(3, device="cuda"))
        mica.cuda.synchronize()
    assert table.tolist() == before.tolist()
    with pytest.raises(IndexError, match="nll_loss|cross_entropy"):
        mica.nn.functional.cross_entropy(mica.zeros(2, 3, device="cuda"), mica.tensor([0, 3], device="cuda")).item()
    assert (table + 1).sum().item() == 78.0


def test_facts_and_memory():
    facts = mica.cuda.get_device_properties(0)
    assert facts.total_memory > 0 and facts.multi_processor_count > 0
    assert mica.cuda.get_device_capability() == (facts.major, facts.minor)
    x = mica.ones(1 << 18, device="cuda")
    assert mica.cuda.memory_stats()["allocated_bytes.all.current"] >= x.nbytes
    assert "Allocated memory" in mica.cuda.memory_summary()
    address = mica.cuda.caching_allocator_alloc(1024)
    mica.cuda.caching_allocator_delete(address)
    mica.cuda.set_per_process_memory_fraction(0.01)
    try:
        with pytest.raises(mica.cuda.OutOfMemoryError):
            mica.empty(1 << 33, device="cuda", dtype=mica.uint8)
    finally:
        mica.cuda.set_per_process_memory_fraction(1.0)


def test_a_forked_child_is_refused():
    import multiprocessing

    mica.ones(1, device="cuda")

    def child(queue):
        try:
            mica.ones(1, device="cuda")
        except RuntimeError as error:
            queue.put(str(error))

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert "Cannot re-initialize CUDA in forked subprocess" in queue.get(timeout=30)
    process.join()


def test_a_green_context_runs_on_a_part_of_the_gpu():
    all_of_them = mica.cuda.get_device_properties(0).multi_processor_count
    context = mica.cuda.GreenContext.create(num_sms=8)
    assert 8 <= context.num_sms < all_of_them
    x = mica.randn(2048, 2048, device="cuda")
    wanted = x @ x
    before = mica.cuda.current_stream()
    context.set_context()
    assert mica.cuda.current_stream() != before
    found = (x @ x) + 0
    context.pop_context()
    assert mica.cuda.current_stream() == before and found.equal(wanted)
    with mica.cuda.stream(context.Stream()) as _:
        mica.cuda.current_stream().wait_stream(before)
        y = x * 2
        mica.cuda.current_stream().synchronize()
    assert y.equal(x + x)
    with pytest.raises(RuntimeError, match="is not the current one"):
        context.pop_context()
    with pytest.raises(RuntimeError, match="Invalid number of SMs"):
        mica.cuda.GreenContext.create(num_sms=all_of_them + 1)


def test_the_first_call_of_a_thread():
    """A thread that has not used the device yet, whatever its first call is."""
    program = """
import threading, mica as torch
found = []
def first(call):
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
x = torch.ones(3, device="cuda")
first(lambda: torch.full((2, 3), 5.0, device="cuda"))
first(lambda: x + 1)
first(lambda: torch.zeros(4, device="cuda"))
first(lambda: x.cpu())
print([each.sum().item() for each in found])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[30.0, 6.0, 0.0, 3.0]\n", done.stderr
