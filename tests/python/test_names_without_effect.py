"""Names that once answered without doing anything: each does what torch's does, or raises."""

import copy
import inspect
import logging
import pickle
import unittest.mock

import mica
import pytest
from mica import fx, nn
from mica.nn import functional as F


@mica.jit.script
def scripted(x, times: int = 2):
    """Multiplies."""
    return x * times


def test_a_scripted_function_runs_as_python_and_says_so():
    assert scripted(3) == 6 and scripted.__name__ == "scripted" and scripted.__doc__ == "Multiplies."
    assert list(inspect.signature(scripted).parameters) == ["x", "times"]
    assert repr(scripted) == "<function scripted, which runs as Python>"
    assert not isinstance(scripted, mica.jit.ScriptFunction) and not hasattr(scripted, "graph")
    for name in ("graph", "code", "save", "inlined_graph"):
        with pytest.raises(NotImplementedError, match=f"'{name}': there is no TorchScript in Mica yet"):
            getattr(scripted, name)
    assert mica.jit.script(scripted) is scripted is mica.jit.trace(scripted, (1,))
    assert pickle.loads(pickle.dumps(scripted)) is scripted


def test_a_scripted_module_runs_as_python_and_says_so():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    made = mica.jit.script(net)
    x = mica.ones(2)
    assert made is not net and made[0] is net[0] and list(made.state_dict()) == ["0.weight", "0.bias"]
    assert type(made).__name__ == "PythonModule[Sequential]" and repr(made).startswith("PythonModule[Sequential](")
    assert made.original_name == "Sequential" and isinstance(made, nn.Sequential)
    assert made.eval()(x).equal(net[0](x)) and not made.training and net.training
    for name in ("graph", "code", "save"):
        assert not hasattr(made, name)
        with pytest.raises(NotImplementedError, match=f"'{name}': there is no TorchScript"):
            getattr(made, name)
    other = copy.deepcopy(made)
    assert type(other) is type(made) and other[0].weight is not net[0].weight and other(x).equal(made(x))
    with pytest.raises(RuntimeError, match="cannot be pickled"):
        pickle.dumps(made)
    assert mica.jit.freeze(made) is made
    with pytest.raises(RuntimeError, match="Freezing expects a ScriptModule"):
        mica.jit.freeze(net.eval())
    with pytest.raises(RuntimeError, match=r"cannot be compiled since it inherits from nn\.Module"):
        mica.jit.script(nn.Linear)
    with pytest.raises(NotImplementedError, match="no TorchScript"):
        mica.jit.script([1, 2])


def test_that_nothing_is_compiled_is_said_once(caplog, monkeypatch):
    monkeypatch.setattr("mica.jit._python_programs._said", False)
    with caplog.at_level(logging.WARNING, logger="torch.jit"):
        mica.jit.script(lambda x: x)
        mica.jit.trace(lambda x: x, (1,))
    assert [record.message for record in caplog.records] == [
        "torch.jit: there is no TorchScript in Mica yet, so that script and trace make no program: what they return runs "
        "as Python (this is said once)"
    ]


def test_marks_are_kept_on_functions():
    from mica._jit_internal import FunctionModifiers

    def f():
        pass

    assert mica.jit.export(f) is f and f._torchscript_modifier == FunctionModifiers.EXPORT
    assert mica.jit.ignore(f)._torchscript_modifier == FunctionModifiers.IGNORE
    assert mica.jit.ignore(drop=True)(f)._torchscript_modifier == FunctionModifiers.UNUSED
    before = mica.jit.set_fusion_strategy([("STATIC", 1)])
    assert mica.jit.set_fusion_strategy(before) == [("STATIC", 1)]
    with pytest.raises(Exception, match="unrecognized fuser option"):
        mica.jit.fuser("other")


@pytest.mark.parametrize("module", ["_dynamo", "_inductor", "compiler"])
def test_settings_of_another_name_do_not_exist(module):
    config = __import__(f"mica.{module}.config", fromlist=["x"])
    assert not hasattr(config, "misspelt") and len(dir(config)) > 20
    for use in (
        lambda: config.misspelt,
        lambda: setattr(config, "misspelt", 1),
        lambda: config.patch(misspelt=1).__enter__(),  # as in torch, not before
        lambda: config.load_config({"misspelt": 1}),
    ):
        with pytest.raises(AttributeError, match=f"torch.{module}.config.misspelt does not exist"):
            use()


def test_settings_have_torchs_defaults_and_are_given_back():
    dynamo, inductor = mica._dynamo.config, mica._inductor.config
    assert (dynamo.recompile_limit, dynamo.cache_size_limit, inductor.max_autotune) == (8, 8, False)
    assert inductor.triton.cudagraphs is False and not hasattr(inductor.triton, "misspelt")
    with inductor.patch({"triton.cudagraphs": True}), dynamo.patch(cache_size_limit=3):
        assert inductor.triton.cudagraphs is True and dynamo.recompile_limit == 3
    assert inductor.triton.cudagraphs is False and dynamo.recompile_limit == 8


def test_a_storage_is_pinned_as_its_tensor_is(monkeypatch):
    x = mica.zeros(3)
    assert not x.untyped_storage().is_pinned() and not x.storage().is_pinned()
    monkeypatch.setattr(mica.Tensor, "is_pinned", lambda self, device=None: True)
    assert x.untyped_storage().is_pinned() and x.storage().is_pinned()


def test_arguments_of_a_node_by_its_targets_parameters():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x, y):
            return mica.relu(x), F.dropout(x, p=0.1), mica.sum(x, 1), self.layer(x), x + y, mica.add(x, y), x.view(2)

    graph = fx.symbolic_trace(Net())
    nodes = {node.name: node for node in graph.graph.nodes}
    x, y = nodes["x"], nodes["y"]

    def of(name, **options):
        return nodes[name].normalized_arguments(graph, **options)

    # As torch 2.13 answers.
    assert of("relu") == ((x,), {}) and of("relu", normalize_to_only_use_kwargs=True) == ((), {"input": x})
    assert of("dropout") == ((x,), {"p": 0.1, "training": True, "inplace": False})
    assert of("sum_1") == ((x, 1), {"keepdim": False, "dtype": None}) and of("layer") == ((x,), {})
    assert of("add") is None and of("view") is None and of("x") is None
    with pytest.raises(RuntimeError, match="the schema match was ambiguous!"):
        of("add_1")
    assert of("add_1", arg_types=(mica.Tensor, mica.Tensor)) == ((x, y), {"alpha": 1})


class _Writer:
    """Keeps what is written, as the exporter's graph does."""

    opset = 18

    def __init__(self):
        self.written, self.bound = [], {}

    def value(self, tensor):
        return "input"

    def add(self, op, inputs, outputs=1, **attributes):
        self.written.append((op, inputs, attributes))
        return f"{op}_{len(self.written)}"

    def bind(self, tensor, name):
        self.bound[id(tensor)] = name


def test_what_is_registered_for_onnx_is_what_is_written():
    from mica.onnx import register_custom_op_symbolic, symbolic_helper, unregister_custom_op_symbolic
    from mica.onnx.custom import symbolic_of, write_symbolic

    @mica.library.custom_op("nodded::scale", mutates_args=())
    def scale(x: mica.Tensor, k: int = 2) -> mica.Tensor:
        return x * k

    @symbolic_helper.parse_args("v", "i")
    def write(g, x, k):
        return g.op("my.domain::Scale", x, k_i=k, hint_s=None)

    operator = mica.ops.nodded.scale.default
    assert symbolic_of(operator, 18) is None
    register_custom_op_symbolic("nodded::scale", write, 11)
    assert symbolic_of(operator, 18) is write and symbolic_of(operator, 10) is None
    writer, out = _Writer(), mica.ones(2)
    write_symbolic(writer, write, operator, (mica.ones(2),), {}, out)
    assert writer.written == [("Scale", ["input"], {"domain": "my.domain", "k": 2})] and writer.bound == {
        id(out): "Scale_1"
    }
    unregister_custom_op_symbolic("nodded::scale", 11)
    assert symbolic_of(operator, 18) is None
    with pytest.raises(RuntimeError, match="'domain::name'"):
        register_custom_op_symbolic("scale", write, 11)


# ---- arguments that were taken and left


def test_batched_gradients_are_checked():
    x = mica.randn(3, dtype=mica.float64, requires_grad=True)
    assert mica.autograd.gradcheck(lambda v: v.sin() * 2, (x,), check_batched_grad=True)
    assert mica.autograd.gradgradcheck(lambda v: v.sin() * 2, (x,), check_batched_grad=True, check_fwd_over_rev=True)
    assert mica.autograd.gradcheck(lambda v: v.sin(), (x,), check_forward_ad=True, check_batched_forward_grad=True)
    with pytest.raises(AssertionError, match="check_batched_forward_grad=True requires check_forward_ad"):
        mica.autograd.gradcheck(lambda v: v.sin(), (x,), check_batched_forward_grad=True)
    with pytest.raises(AssertionError, match="Expected at least one of check_forward_ad or check_backward_ad"):
        mica.autograd.gradcheck(lambda v: v.sin(), (x,), check_backward_ad=False)


def test_batched_gradients_that_differ_are_found(monkeypatch):
    x = mica.randn(3, dtype=mica.float64, requires_grad=True)
    grad = mica.autograd.grad

    def twice_as_much(*args, **options):
        made = grad(*args, **options)
        return tuple(g * 2 for g in made) if options.get("is_grads_batched") else made

    monkeypatch.setattr(mica.autograd, "grad", twice_as_much)
    with pytest.raises(RuntimeError, match="failed while testing batched gradient computation"):
        mica.autograd.gradcheck(lambda v: v.sin(), (x,), check_batched_grad=True)
    assert not mica.autograd.gradcheck(lambda v: v.sin(), (x,), check_batched_grad=True, raise_exception=False)


def test_opcheck_runs_the_checks_that_are_named():
    @mica.library.custom_op("nodded::same", mutates_args=())
    def same(x: mica.Tensor) -> mica.Tensor:
        return x.clone()

    x = (mica.ones(2),)
    assert mica.library.opcheck(same, x, test_utils="test_schema") == {"test_schema": "SUCCESS"}
    with pytest.raises(ValueError, match="expected test_utils to be subset of"):
        mica.library.opcheck(same, x, test_utils="test_other")
    with pytest.raises(NotImplementedError, match="needs a compiler"):
        mica.library.opcheck(same, x, test_utils=["test_aot_dispatch_dynamic"])


def test_operations_of_onnx_heed_their_arguments():
    from mica.onnx import decompositions as written

    x = mica.randn(2, 3, 5)
    for p in (1, 2, 3, float("inf")):
        mica.testing.assert_close(written.normalize(x, p, 1), F.normalize(x, p, 1))
    for order in (0, 1, 2, 3, float("inf"), -float("inf")):
        mica.testing.assert_close(written.vector_norm(x, order, 1), mica.linalg.vector_norm(x, order, 1))
    assert (
        written.vector_norm(x, dtype=mica.float64).dtype
        == written.softmin(x, 1, dtype=mica.float64).dtype
        == mica.float64
    )
    mean, var, weight = mica.randn(3), mica.rand(3) + 0.5, mica.randn(3)
    mica.testing.assert_close(
        written.instance_norm(x, mean, var, weight, None, use_input_stats=False),
        F.instance_norm(x, mean, var, weight, None, use_input_stats=False),
    )


def test_options_of_exports_and_parallel_modules_that_are_not_there():
    for option in ("verify", "report", "profile", "export_modules_as_functions"):
        with pytest.raises(NotImplementedError, match=option):
            mica.onnx.export(nn.Linear(2, 2), (mica.ones(2),), **{option: True})
    with pytest.raises(TypeError, match="misspelt"):
        mica.onnx.export(nn.Linear(2, 2), (mica.ones(2),), misspelt=True)
    with pytest.raises(TypeError, match="misspelt"):
        nn.parallel.DistributedDataParallel(nn.Linear(2, 2), misspelt=True)
    with pytest.raises(TypeError, match="mixed_precision"):
        nn.parallel.DistributedDataParallel(nn.Linear(2, 2), mixed_precision="some")


def test_the_mode_of_fake_tensors_is_found():
    from mica._guards import active_fake_mode, detect_fake_mode
    from mica._subclasses.fake_tensor import FakeTensorMode

    assert active_fake_mode() is None and detect_fake_mode([mica.ones(1)]) is None
    with FakeTensorMode() as mode:
        made = mica.ones(2)
        assert active_fake_mode() is mode and detect_fake_mode() is mode
    assert active_fake_mode() is None and detect_fake_mode([{"x": made}]) is mode
    with FakeTensorMode(), pytest.raises(AssertionError, match="doesn't match mode"):
        detect_fake_mode(made)


def test_small_names_do_what_they_say():
    linalg = mica.backends.cuda.preferred_linalg_library
    before = linalg()
    assert before.name == "Default" and linalg("magma").name == "Magma" and linalg().name == "Magma"
    assert linalg(before) is before
    with pytest.raises(RuntimeError, match=r"Unknown input value\. Choose from: default, cusolver, magma"):
        linalg("other")
    with pytest.warns(FutureWarning, match="mark_shared_storage is deprecated"):
        mica.autograd.function.FunctionCtx().mark_shared_storage()


def test_forked_streams_of_devices_are_put_back(monkeypatch):
    states = {0: "a", 1: "b"}
    monkeypatch.setattr(mica.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(mica.cuda, "get_rng_state", lambda device=0: states[device])
    monkeypatch.setattr(mica.cuda, "set_rng_state", lambda state, device=0: states.update({device: state}))
    monkeypatch.setattr("mica.random._warned_of_many", False)
    before = mica.get_rng_state()
    with pytest.warns(UserWarning, match="CUDA reports that you have 2 available devices"), mica.random.fork_rng():
        states.update({0: "moved", 1: "moved"})
        mica.rand(1)
    assert states == {0: "a", 1: "b"} and before.equal(mica.get_rng_state())
    with mica.random.fork_rng(devices=[1]):
        states.update({0: "moved", 1: "moved"})
    assert states == {0: "moved", 1: "b"}
    with mica.random.fork_rng(enabled=False):
        states[1] = "moved"
    assert states[1] == "moved"
    with pytest.raises(RuntimeError, match="at start of device string: nope"), mica.random.fork_rng(device_type="nope"):
        pass


def test_packages_take_urlparse_from_hub():
    from mica.hub import HASH_REGEX, urlparse

    assert HASH_REGEX.search("weights-0123.pt").group(1) == "0123" and urlparse("http://a/b").path == "/b"


def test_mock_patch_sets_settings_back():
    config = mica._dynamo.config
    config.suppress_errors = True
    try:
        with unittest.mock.patch("mica._dynamo.config.suppress_errors", False):
            assert config.suppress_errors is False
        assert config.suppress_errors is True
        del config.suppress_errors
        assert not hasattr(config, "suppress_errors")
    finally:
        config.suppress_errors = False
    with pytest.raises(AttributeError, match="does not exist"):
        del config.misspelt
