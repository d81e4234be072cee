"""Options that once were swallowed: each does what torch's does, or is refused by its name."""

import mica
import pytest
from mica import nn
from mica.fx import symbolic_trace
from mica.fx.passes.split_module import split_module


def test_times_of_a_table_are_in_the_unit_that_is_asked_for():
    with mica.profiler.profile(activities=[mica.profiler.ProfilerActivity.CPU]) as recording:
        mica.ones(8, 8) @ mica.ones(8, 8)
    averages = recording.key_averages()
    for unit in ("s", "ms", "us"):
        row = next(line for line in averages.table(time_unit=unit).splitlines() if "aten::matmul" in line).split()
        times = [cell for cell in row if cell.endswith("s") and cell[0].isdigit()]
        assert len(times) == 3 and all(cell.rstrip("smu") + unit == cell for cell in times), row
    total = averages.table(time_unit="s").splitlines()[-1].split()[-1]
    assert float(total[:-1]) == pytest.approx(averages.self_cpu_time_total / 1e6, abs=6e-4)
    with pytest.raises(ValueError, match="'s', 'ms' or 'us', not 'hours'"):
        averages.table(time_unit="hours")


def test_averages_by_the_names_of_overloads():
    Event = mica.autograd.profiler_util.FunctionEvent
    events = mica.autograd.profiler_util.EventList(
        Event(i, "aten::add", 0, 0, 10, overload_name=name) for i, name in enumerate(["Tensor", "Scalar", "Tensor"])
    )
    assert [each.count for each in events.key_averages()] == [3]
    apart = events.key_averages(group_by_overload_name=True)
    assert [(each.overload_name, each.count) for each in apart] == [("Tensor", 2), ("Scalar", 1)]


def test_a_profiler_refuses_what_it_does_not_know():
    for profile in (mica.profiler.profile, mica.autograd.profiler.profile):
        with pytest.raises(TypeError, match="unexpected keyword argument 'record_shape'"):
            profile(record_shape=True)
        with pytest.raises(NotImplementedError, match="experimental_config"):
            profile(experimental_config=object())
    with pytest.warns(FutureWarning, match="`use_cuda` will be deprecated"):
        if mica.cuda.is_available():
            assert mica.autograd.profiler.profile(use_cuda=True).use_device == "cuda"
        else:
            with pytest.warns(UserWarning, match="CUDA is not available"):
                mica.autograd.profiler.profile(use_cuda=True)


def test_backends_are_listed_by_their_tags():
    from mica import _dynamo

    assert mica.compiler.list_backends() == ["inductor"]
    _dynamo.register_backend(lambda graph, inputs: graph, name="nodded_plain")
    _dynamo.register_backend(lambda graph, inputs: graph, name="nodded_debug", tags=("debug",))
    try:
        assert mica.compiler.list_backends() == ["inductor", "nodded_plain"]
        assert {"eager", "nodded_debug"} <= set(mica.compiler.list_backends(exclude_tags=None))
    finally:
        for name in ("nodded_plain", "nodded_debug"):
            del _dynamo._registered[name], _dynamo._tags[name]


def test_optimize_heeds_its_options():
    from mica import _dynamo

    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def double(x):
        return x * 2

    assert _dynamo.optimize(backend, disable=True)(double) is double
    for dynamic, count in ((True, 1), (False, 2)):
        graphs.clear()
        _dynamo.reset()
        made = _dynamo.optimize(backend, dynamic=dynamic)(double)
        assert made(mica.ones(3)).tolist() == [2] * 3 and made(mica.ones(4)).tolist() == [2] * 4
        assert len(graphs) == count, dynamic

    def broken(x):
        _dynamo.graph_break()
        return x * 2

    assert _dynamo.optimize(backend, error_on_graph_break=False)(broken)(mica.ones(1)).tolist() == [2]
    for options in ({"error_on_graph_break": True}, {"nopython": True}):
        with pytest.raises(Exception, match="graph_break"):
            _dynamo.optimize(backend, **options)(broken)(mica.ones(1))
    with pytest.raises(NotImplementedError, match="there are no guards"):
        _dynamo.optimize(backend, guard_fail_fn=print)
    with pytest.raises(TypeError, match="unexpected keyword argument 'dynamics'"):
        _dynamo.optimize_assert(backend, dynamics=True)
    assert mica.compiler.set_enable_guard_collectives(True) is False
    assert mica.compiler.set_enable_guard_collectives(False) is True


def test_a_fake_is_not_replaced_where_that_is_not_allowed():
    with mica.library._scoped_library("nodded_fakes", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        mica.library.register_fake("nodded_fakes::twice", lambda x: x.new_empty(1), allow_override=False)
        with pytest.raises(RuntimeError, match="already has a fake impl registered"):
            mica.library.register_fake("nodded_fakes::twice", lambda x: x.new_empty(2), allow_override=False)
        assert mica.ops.nodded_fakes.twice(mica.empty(3, device="meta")).shape == (1,)
        mica.library.register_fake("nodded_fakes::twice", lambda x: x.new_empty(2))
        assert mica.ops.nodded_fakes.twice(mica.empty(3, device="meta")).shape == (2,)
        library.define("thrice(Tensor x) -> Tensor")
        library.impl("thrice", lambda x: x.new_empty(3), "Meta")
        with pytest.raises(RuntimeError, match="already has a DispatchKey::Meta implementation"):
            mica.library.register_fake("nodded_fakes::thrice", lambda x: x, lib=library, allow_override=False)


def test_names_in_the_parts_of_a_module():
    def f(x, y):
        a = x + y
        b = a + y
        return a + b + x

    traced = symbolic_trace(f)
    place = {"add": 0, "add_1": 0, "add_2": 1, "add_3": 1}

    def names(**options):
        made = split_module(traced, None, lambda node: place[node.name], **options)
        assert made(mica.ones(1), mica.ones(1)).tolist() == [6]
        return [node.name for node in made.submod_1.graph.nodes]

    # as torch names them
    assert names() == ["add", "add_1", "x", "add_2", "add_3", "output"]
    assert names(keep_original_node_name=True) == ["add", "add_1", "x", "add_2", "add_3", "output"]
    assert names(keep_original_input_name=False) == ["arg_0", "arg_1", "arg_2", "add", "add_1", "output"]
    assert names(keep_original_input_name=False, keep_original_node_name=True)[3:5] == ["add_2", "add_3"]


def test_a_line_of_a_node_with_its_tensor():
    graph = symbolic_trace(lambda x: x + 1).graph
    node, output = list(graph.nodes)[1:]
    assert node.format_node(include_tensor_metadata=True) == node.format_node()
    node.meta["val"] = mica.ones(2, 3).t()
    assert node.format_node(include_tensor_metadata=True) == (
        '%add : Tensor "f32[3, 2][1, 3]cpu"[num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})'
    )
    assert node.format_node().startswith("%add : [num_users=1]")
    names = [""]
    output.type = int
    assert output.format_node(None, names) == "return add" and names == [" -> int"]


def test_scans_check_their_arguments():
    from mica._higher_order_ops.associative_scan import associative_scan

    def add(a, b):
        return a + b

    for mode in ("generic", "pointwise"):
        assert associative_scan(add, mica.ones(4), -1, combine_mode=mode).tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="must either 'pointwise' or 'generic', but got other"):
        associative_scan(add, mica.ones(4), 0, combine_mode="other")
    with pytest.raises(IndexError, match=r"\[-1, 0\], but got 5"):
        associative_scan(add, mica.ones(4), 5)
    with pytest.raises(ValueError, match="differ in size along dimension 0"):
        associative_scan(lambda a, b: a, (mica.ones(4), mica.ones(3)), 0)


@pytest.mark.parametrize("make", [mica.Stream, mica.Event])
def test_streams_and_events_know_their_arguments(make):
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        make("cpu", colour=1)


def test_a_stream_by_its_numbers():
    stream = mica.Stream(stream_id=3, device_index=0, device_type=0)
    assert repr(stream) == "torch.Stream device_type=cpu, device_index=0, stream_id=3"


def test_block_masks_know_their_options():
    from mica.nn.attention.flex_attention import create_block_mask

    def causal(b, h, q, kv):
        return q >= kv

    create_block_mask(causal, 1, 1, 8, 8, compute_dq_write_order=False, dq_kv_order=True)
    with pytest.raises(NotImplementedError, match="there are no orders of writing"):
        create_block_mask(causal, 1, 1, 8, 8, compute_dq_write_order=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'blocksize'"):
        create_block_mask(causal, 1, 1, 8, 8, blocksize=4)


@pytest.mark.parametrize("layout", [mica.strided, mica.jagged])
def test_nested_tensors_are_pinned(layout):
    def make():
        return mica.nested.nested_tensor([[1.0], [1.0, 2.0]], layout=layout, pin_memory=True)

    if mica.accelerator.is_available():
        assert make().is_pinned()
    else:
        with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is available."):
            make()


def test_draft_export_heeds_its_options():
    model = nn.Sequential(nn.Linear(2, 2))
    made = mica.export.draft_export(model, (mica.ones(1, 2),), preserve_module_call_signature=("0",))
    assert [entry.fqn for entry in made.module_call_graph if entry.signature is not None and entry.fqn] == ["0"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'shapes'"):
        mica.export.draft_export(model, (mica.ones(1, 2),), shapes=None)


def test_what_quantization_by_graphs_is_told_again():
    from mica.ao.quantization import PlaceholderObserver, QConfigMapping, convert, default_qconfig
    from mica.ao.quantization.quantize_fx import convert_fx, prepare_fx

    mapping = QConfigMapping().set_global(default_qconfig)
    model = prepare_fx(nn.Sequential(nn.Linear(2, 2)).eval(), mapping, (mica.ones(1, 2),))
    model(mica.ones(1, 2))
    assert convert_fx(model, qconfig_mapping=mapping)(mica.ones(1, 2)).shape == (1, 2)
    with pytest.raises(NotImplementedError, match="other than that of prepare_fx"):
        convert_fx(model, qconfig_mapping=QConfigMapping().set_global(None))
    with pytest.raises(NotImplementedError, match="keep_original_weights"):
        convert_fx(model, keep_original_weights=True)
    with pytest.raises(NotImplementedError, match="use_precomputed_fake_quant"):
        convert(nn.Linear(2, 2), use_precomputed_fake_quant=True)
    with pytest.warns(UserWarning, match="Please use `is_dynamic` instead of `compute_dtype`"):
        assert PlaceholderObserver(compute_dtype=mica.qint8).is_dynamic


def test_a_ref_of_a_fork_is_not_fetched(monkeypatch, tmp_path):
    import io
    import json
    import zipfile

    from mica.hub import _repositories

    asked = []

    def answered(request):
        asked.append(request.full_url)
        first = request.full_url.endswith("&page=1")
        listed = [{"name": "v1", "commit": {"sha": "abcdef"}}] if first and "/tags" in request.full_url else []
        return io.BytesIO(json.dumps(listed).encode())

    def fetched(url, path, progress):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("top/hubconf.py", "def small():\n    return 5\n")

    monkeypatch.setattr(_repositories.urllib.request, "urlopen", answered)
    monkeypatch.setattr(_repositories, "download_url_to_file", fetched)
    monkeypatch.setattr(_repositories, "get_dir", lambda: str(tmp_path))
    for ref in ("v1", "abc"):
        assert mica.hub.load(f"me/mine:{ref}", "small", trust_repo=True, verbose=False) == 5
    assert len(asked) == 2 * 2 and all(url.startswith("https://api.github.com/repos/me/mine/") for url in asked)
    with pytest.raises(
        ValueError, match="Cannot find 1234 in https://github.com/me/mine. If it's a commit from a fork"
    ):
        mica.hub.load("me/mine:1234", "small", trust_repo=True)
    assert not (tmp_path / "me_mine_1234").exists()
    asked.clear()
    assert mica.hub.load("me/mine:1234", "small", trust_repo=True, skip_validation=True) == 5
    assert mica.hub.load("me/mine", "small", trust_repo=True) == 5 and not asked


def test_states_of_devices_go_back_to_their_devices(monkeypatch):
    from mica.utils.checkpoint import set_device_states

    done = []
    monkeypatch.setattr(mica.cuda, "set_rng_state", lambda state, device: done.append((device, state)))
    set_device_states([3, 1], ["a", "b"])
    assert done == [(3, "a"), (1, "b")]
    set_device_states([0], ["a"], device_type="meta")
    assert len(done) == 2
    with pytest.raises(NotImplementedError, match="not of 'xpu'"):
        set_device_states([0], ["a"], device_type="xpu")


def test_make_fx_knows_its_options():
    from mica.fx.experimental.proxy_tensor import make_fx

    with pytest.raises(TypeError, match="unexpected keyword argument 'tracing'"):
        make_fx(mica.sin, tracing="real")
    with pytest.raises(NotImplementedError, match="proxy_module_inputs"):
        make_fx(mica.sin, proxy_module_inputs=True)


@pytest.mark.parametrize("layout", [mica.sparse_coo, mica.sparse_csr])
def test_sparse_tensors_have_no_channels_last(layout):
    x = mica.eye(3).to_sparse(layout=layout)
    for call in (
        lambda: x.clone(memory_format=mica.channels_last),
        lambda: x.contiguous(memory_format=mica.channels_last_3d),
        lambda: x.to(mica.float64, memory_format=mica.channels_last),
        lambda: x.to(memory_format=mica.channels_last),
        lambda: mica.zeros_like(x, memory_format=mica.channels_last),
    ):
        with pytest.raises(RuntimeError, match="memory format"):
            call()
    assert x.clone(memory_format=mica.preserve_format).to_dense().equal(mica.eye(3))
