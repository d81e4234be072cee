"""What programs for torch say before they compute: which devices there are, how libraries are set, what is compiled."""

import subprocess
import sys

import mica
import pytest

NONE = not mica.cuda.is_available()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("backends.mps.is_available()", False),
        ("backends.mps.is_built()", False),
        ("backends.mkldnn.is_available()", False),
        ("backends.cudnn.enabled", True),
        ("backends.cudnn.benchmark", False),
        ("backends.cuda.matmul.allow_tf32", False),
        ("backends.cuda.flash_sdp_enabled()", True),
        ("mps.is_available()", False),
        ("xpu.device_count()", 0),
        ("distributed.is_available()", True),
        ("distributed.is_initialized()", False),
        ("jit.is_scripting()", False),
        ("compiler.is_compiling()", False),
        ("get_device_module('cpu')", mica.cpu),
        ("_assert(True, 'text')", None),
        ("_check(True)", None),
        ("legacy_contiguous_format", mica.contiguous_format),
    ],
)
def test_answers(expression, value):
    assert eval(f"mica.{expression}") is value or eval(f"mica.{expression}") == value


def test_cudnn_has_a_version_where_it_is_available():
    version = mica.backends.cudnn.version()
    assert version >= 90000 if mica.backends.cudnn.is_available() else version is None


@pytest.mark.skipif(not NONE, reason="there is a GPU")
def test_answers_without_a_gpu():
    assert mica.accelerator.is_available() is False
    assert mica.accelerator.current_accelerator() is None
    assert mica.accelerator.device_count() == 0
    with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is available"):
        mica.accelerator.synchronize()
    assert mica.cuda.manual_seed_all(1) is None
    assert mica.cuda.get_rng_state_all() == []
    assert mica.cuda.memory_allocated() == mica.cuda.max_memory_reserved() == 0
    assert issubclass(mica.cuda.OutOfMemoryError, RuntimeError)
    with mica.cuda.device_of(mica.zeros(1)), mica.cuda.stream(None):
        pass


def test_settings_are_kept_and_given_back():
    cudnn = mica.backends.cudnn
    with cudnn.flags(enabled=False, benchmark=True):
        assert (cudnn.enabled, cudnn.benchmark) == (False, True)
    assert (cudnn.enabled, cudnn.benchmark) == (True, False)
    from mica.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        assert not mica.backends.cuda.flash_sdp_enabled()
    assert mica.backends.cuda.flash_sdp_enabled()
    with pytest.raises(AssertionError, match="Backend must be an instance of SDPBackend"):
        sdpa_kernel(3)
    with pytest.warns(FutureWarning, match="sdp_kernel"), mica.backends.cuda.sdp_kernel(enable_math=False):
        assert not mica.backends.cuda.math_sdp_enabled()


@pytest.mark.parametrize(
    "call",
    [
        lambda: mica.cuda.amp.autocast(enabled=False),
        lambda: mica.cuda.amp.GradScaler(enabled=False),
        lambda: mica.cuda.amp.custom_fwd(lambda ctx, x: x),
        lambda: mica.cpu.amp.autocast(),
    ],
)
def test_older_names_of_mixed_precision_warn_where_they_are_used(call):
    with pytest.warns(FutureWarning, match=r"amp\.\w+\(args\.\.\.\)` is deprecated") as caught:
        call()
    assert caught[0].filename == __file__


def test_small_names_of_torchscript():
    assert issubclass(mica.jit.ScriptModule, mica.nn.Module)
    assert mica.jit.wait(mica.jit.fork(lambda x: 2 * x, 3)) == 6
    assert mica.jit.isinstance([1, 2], list[int]) and not mica.jit.isinstance(["a"], list[int])
    with pytest.raises(RuntimeError, match="no TorchScript"):
        mica.jit.save(mica.nn.Linear(2, 2), "nowhere")


@pytest.mark.skipif(not NONE, reason="there is a GPU")
def test_data_parallel_without_gpus_calls_the_module():
    layer = mica.nn.Linear(2, 3)
    parallel = mica.nn.DataParallel(layer)
    x = mica.ones(1, 2)
    assert mica.equal(parallel(x), layer(x))
    assert mica.equal(mica.nn.parallel.data_parallel(layer, x), layer(x))
    assert list(parallel.state_dict()) == ["module.weight", "module.bias"] and parallel.device_ids == []
    with pytest.raises(ValueError, match="process group"):
        mica.nn.parallel.DistributedDataParallel(layer)


def test_torch_version_compares_as_a_version():
    version = mica.torch_version.TorchVersion("2.13.0+mica.0.1.0")
    assert version >= "1.8" and version >= (2, 1) and version > "2.9" and version < "2.14.0.dev1" and version != "2.12"
    assert mica.torch_version.TorchVersion("2.13.0a0") < "2.13"


def test_torch_says_which_torch_it_is():
    program = "import torch, torch.version; print(torch.__version__ >= (2, 13), torch.version.__version__)"
    ran = subprocess.run(
        [sys.executable, "-c", f"from mica._as_torch.alias import install; install(); {program}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout == f"True 2.13.0+mica.{mica.version.mica}\n"


def test_weights_from_a_url_are_fetched_once(tmp_path):
    source = tmp_path / "there" / "weights-123.pt"
    source.parent.mkdir()
    mica.save({"w": mica.arange(3)}, source)
    folder = tmp_path / "here"
    load = mica.utils.model_zoo.load_url
    assert load(source.as_uri(), model_dir=folder, progress=False)["w"].tolist() == [0, 1, 2]
    source.unlink()
    assert load(source.as_uri(), model_dir=folder, progress=False)["w"].tolist() == [0, 1, 2]
    mica.save({}, source)
    with pytest.raises(RuntimeError, match="invalid hash value"):
        load(source.as_uri(), model_dir=tmp_path / "checked", progress=False, check_hash=True)
    assert list((tmp_path / "checked").iterdir()) == []


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda la, x: la.norm(x), 55**0.5),
        (lambda la, x: la.vector_norm(x, 1, -1), [3.0, 12.0]),
        (lambda la, x: la.vector_norm(x, float("inf"), keepdim=True), [[5.0]]),
        (lambda la, x: la.matrix_norm(x, 1), 7.0),
        (lambda la, x: la.matrix_norm(x, -float("inf")), 3.0),
        (lambda la, x: la.norm(x, "fro"), 55**0.5),
        (lambda la, x: la.vecdot(x, x), [5.0, 50.0]),
        (lambda la, x: la.cross(x, x.flip(0))[0], [-3.0, 6.0, -3.0]),
        (lambda la, x: la.multi_dot([x[0], x.T, x]), [42.0, 61.0, 80.0]),
    ],
)
def test_norms_and_products_of_linalg(call, expected):
    x = mica.arange(6.0).reshape(2, 3)
    assert mica.allclose(call(mica.linalg, x), mica.tensor(expected))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: mica.linalg.norm(mica.arange(3)), "Expected a floating point or complex tensor as input. Got Long"),
        (lambda: mica.linalg.norm(mica.ones(2, 2, 2), 2), "the input must be 1D or 2D"),
        (lambda: mica.linalg.cross(mica.ones(2, 3), mica.ones(3)), "must have the same number of dimensions"),
    ],
)
def test_linalg_says_what_it_cannot(call, error):
    with pytest.raises(RuntimeError, match=error):
        call()


@pytest.mark.parametrize("name", ["mps", "xpu", "xla", "hpu", "mtia", "vulkan", "privateuseone"])
def test_devices_that_are_only_names(name):
    device = mica.device(name, 1)
    assert (
        str(device) == f"{name}:1"
        and device.type == name
        and device != mica.device(name)
        and hash(device) == hash(mica.device(name, 1))
    )
    with pytest.raises(RuntimeError, match=f"device type '{name}': no backend is registered"):
        mica.ones(2, device=device)
    with pytest.raises(RuntimeError, match=name):
        mica.ones(2).to(name)
    assert not mica.is_autocast_enabled(name)
    if mica.amp.is_autocast_available(name):
        with mica.autocast(name, enabled=False):
            pass


def test_an_unknown_device():
    with pytest.raises(
        RuntimeError, match="Expected one of cpu, cuda, meta.*mps.* device type at start of device string: npu"
    ):
        mica.device("npu")


@pytest.mark.skipif(not NONE, reason="there is a GPU")
def test_names_of_gpus_without_one():
    for call in (mica.cuda.get_device_capability, mica.cuda.get_device_properties):
        with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
            call()
    with pytest.raises(RuntimeError, match="CUDA"):
        mica.cuda.Stream()
    assert mica.cuda.get_arch_list() == [] and issubclass(mica.cuda.FloatTensor, object)
    with pytest.raises(AssertionError, match="Torch not compiled with XPU enabled"):
        mica.xpu.current_device()
    assert mica.xpu.empty_cache() is None and mica.mtia.device_count() == 0
    with pytest.raises(RuntimeError, match="without MPS backend"):
        mica.mps.empty_cache()


def test_streams_and_events_of_the_cpu():
    stream, event, later = (
        mica.Stream("cpu"),
        mica.Event("cpu", enable_timing=True),
        mica.Event("cpu", enable_timing=True),
    )
    with stream:
        event.record()
        later.record()
    assert stream.query() and event.elapsed_time(later) >= 0 and stream == mica.Stream("cpu")
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        event.elapsed_time(stream.record_event())


def test_functions_of_functions():
    from mica._higher_order_ops import associative_scan

    x = mica.rand(5, 3)
    assert mica.allclose(associative_scan(lambda a, b: a + b, x, 0), x.cumsum(0))
    assert mica.allclose(associative_scan(lambda a, b: a * b, x, 1, reverse=True), x.flip(1).cumprod(1).flip(1))
    assert mica.cond(mica.tensor(True), lambda x: x + 1, lambda x: x - 1, (1,)) == 2
    for wrong in (None, "text", mica.ones(2)):
        with pytest.raises(RuntimeError, match="Expected pred to be bool or"):
            mica.cond(wrong, lambda x: x + 1, lambda x: x - 1, (1,))
    assert mica.while_loop(lambda i: i < 5, lambda i: (i + 1,), (mica.tensor(0),))[0] == 5


def test_hub_of_a_folder(tmp_path):
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['mica']\ndef small(n=2):\n    'Makes a layer.'\n    import mica\n    return mica.nn.Linear(n, n)\n"
    )
    assert mica.hub.list(str(tmp_path), source="local") == ["small"]
    assert mica.hub.help(str(tmp_path), "small", source="local") == "Makes a layer."
    assert mica.hub.load(str(tmp_path), "small", n=3, source="local").in_features == 3
    with pytest.raises(RuntimeError, match="Cannot find callable other"):
        mica.hub.load(str(tmp_path), "other", source="local")


def test_names_that_packages_take_from_modules():
    from mica.nn.parallel.scatter_gather import gather, scatter, scatter_kwargs

    assert mica.version.xpu is None and mica.version.rocm is None
    assert mica.functional.norm is mica.norm and mica.nn.functional.has_torch_function(()) is False
    assert mica.types._Number == (bool, int, float)
    assert mica._softmax(mica.zeros(2), 0, False).tolist() == [0.5, 0.5]
    assert [part.tolist() for part in mica._unique2(mica.tensor([2, 1]))] == [[1, 2], [], []]
    assert mica._shape_as_tensor(mica.zeros(2, 3)).tolist() == [2, 3]
    assert mica.cpu.current_stream().query() and mica.cpu.is_initialized()
    x = mica.nn.init._no_grad_fill_(mica.nn.Parameter(mica.zeros(2)), 3.0)
    assert x.tolist() == [3.0, 3.0] and x.is_leaf
    parts, named = scatter_kwargs((mica.arange(4), "same"), {"k": [mica.ones(2)]}, ["cpu", "cpu"])
    assert (
        [p[0].tolist() for p in parts] == [[0, 1], [2, 3]] and parts[1][1] == "same" and named[0]["k"][0].numel() == 1
    )
    assert gather(scatter({"a": mica.arange(4)}, [-1, -1]), -1)["a"].tolist() == [0, 1, 2, 3]


def test_copies_of_a_module_share_its_gradients():
    from mica.nn.parallel import parallel_apply, replicate

    module = mica.nn.Sequential(mica.nn.Linear(2, 2), mica.nn.BatchNorm1d(2)).eval()
    copies = replicate(module, ["cpu", "cpu"])
    results = parallel_apply(copies, [mica.ones(3, 2), mica.ones(3, 2)])
    assert mica.equal(results[0], module(mica.ones(3, 2)))
    sum(each.sum() for each in results).backward()
    twice = module[0].weight.grad.clone()
    module.zero_grad()
    module(mica.ones(3, 2)).sum().backward()
    assert mica.allclose(twice, 2 * module[0].weight.grad)


def test_types_of_sparse_tensors():
    index, values = mica.tensor([[0, 1], [1, 0]]), mica.tensor([1.0, 2.0])
    made = mica.sparse.FloatTensor(index, values, mica.Size([2, 3]))
    assert made.to_dense().tolist() == [[0, 1, 0], [2, 0, 0]] and made.type() == "torch.sparse.FloatTensor"
    assert isinstance(made, mica.sparse.FloatTensor) and not isinstance(values, mica.sparse.FloatTensor)
    assert not isinstance(made, mica.sparse.LongTensor) and mica.sparse.IntTensor(2, 3).shape == (2, 3)
    with pytest.raises(AttributeError):
        _ = mica.sparse.NoTensor


def test_functions_by_the_name_of_their_module():
    assert mica._C._VariableFunctions.relu is mica.relu and mica._C._VariableFunctions.rsub is mica.rsub
    assert not hasattr(mica._C._VariableFunctions, "no_such_function")


def test_functions_of_networks_beside_those_of_tensors():
    assert mica.functional.F is mica.nn.functional and not hasattr(mica.functional, "G")
