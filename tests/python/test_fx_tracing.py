"""How torch.fx traces: arguments that are fixed or nests, assertions, where nodes come from, code that is changed."""

import copy
import enum
import inspect
import io
import pickle
import warnings

import mica
import mica.fx as fx
import mica.nn.functional as F
import pytest
from mica import nn
from mica.fx import PH, traceback
from mica.fx.experimental.rewriter import RewritingTracer


def total(x):
    return sum(x.values())


def test_nests_are_taken_apart():
    traced = fx.symbolic_trace(total, {"x": {"a": PH, "b": PH, "c": 3}})
    assert traced({"a": mica.tensor(1.0), "b": 2, "c": 3}).item() == 6
    assert [n.name for n in traced.graph.nodes if n.op == "placeholder"] == ["x_1", "x_2", "x_3"]
    assert "x_1, x_2, x_3, = fx_pytree.tree_flatten_spec([x], self._in_spec)" in traced.code
    with pytest.raises(AssertionError, match="x has been specialized to have value 3"):
        traced({"a": 1, "b": 2, "c": 4})
    again = pickle.loads(pickle.dumps(traced))
    assert again({"a": 1, "b": 2, "c": 3}) == 6 and copy.deepcopy(traced)({"a": 1, "b": 2, "c": 3}) == 6


def test_nests_are_put_together():
    traced = fx.symbolic_trace(lambda x: {"sum": x[0] + x[1], "first": x[0]}, {"x": [PH, PH]})
    assert traced([1, 2]) == {"sum": 3, "first": 1}
    flat = fx.GraphModule({}, copy.deepcopy(traced.graph))
    flat.graph.set_codegen(fx.graph.CodeGen())
    flat.recompile()
    assert traced.graph.process_outputs(flat(*traced.graph.process_inputs([1, 2]))) == {"sum": 3, "first": 1}
    assert fx.Interpreter(traced).run([1, 2]) == {"sum": 3, "first": 1}


def test_none_is_asserted():
    traced = fx.symbolic_trace(lambda x, y=None: x if y is None else x + y, {"y": None})
    assert traced(1) == 1
    with pytest.raises(AssertionError, match="y has been specialized to have value None"):
        traced(1, 2)


def test_what_is_written_on_a_placeholder_stands_on_its_node():
    from mica.fx._symbolic_trace import PHWithMeta

    traced = fx.symbolic_trace(lambda a, b: a + b, {"a": PHWithMeta("left"), "b": PHWithMeta("right")})
    assert [n.ph_key for n in traced.graph.nodes if n.op == "placeholder"] == ["left", "right"]


def test_every_kind_of_parameter():
    def f(a, b=4, *args, c=5, **kwargs):
        return a + b + args[0] + c + kwargs["d"]

    graph = fx.symbolic_trace(f).graph
    assert [n.target for n in graph.nodes if n.op == "placeholder"] == ["a", "b", "c", "*args", "**kwargs"]

    class Any(nn.Module):
        def forward(self, *args, **kwargs):
            return args[0] + args[1]

    assert fx.symbolic_trace(Any(), (PH, PH))(1, 2) == 3

    class NoSelf(nn.Module):
        def forward(*args):
            return args[1]

    with pytest.raises(RuntimeError, match=r"cannot be part of \*args expansion"):
        fx.symbolic_trace(NoSelf())
    tracer = fx.Tracer()
    tracer.traced_func_name = "backward_again"
    with pytest.raises(AssertionError, match="doesn't exist in Any"):
        tracer.trace(Any())


@pytest.mark.parametrize("function", [F.linear, mica.add, mica.linalg.inv, F.conv1d, len])
def test_functions_of_the_engine_are_not_traced(function):
    with pytest.raises(AssertionError, match="Expected FunctionType"):
        fx.symbolic_trace(function)


def test_names_of_families():
    def f(x):
        return F.linear(mica.fft.fft(x), x) + mica.linalg.inv(x) + F.logsigmoid(mica.special.airy_ai(x))

    code = fx.symbolic_trace(f).code
    for call in ("torch._C._fft.fft_fft(x)", "torch._C._nn.linear(fft_fft, x)", "torch._C._linalg.linalg_inv(x)",
                 "torch._C._nn.log_sigmoid(special_airy_ai)", "torch._C._special.special_airy_ai(x)"):  # fmt: skip
        assert call in code
    for function in (mica.fft.fft, mica.linalg.inv, mica.special.airy_ai, F.linear, F.logsigmoid, F.prelu):
        assert pickle.loads(pickle.dumps(function)) is function
    assert F.prelu is mica.prelu and F.avg_pool1d is mica.avg_pool1d and mica.linalg.inv.__name__ == "linalg_inv"
    with pytest.raises(TypeError, match=r"^linalg_inv\(\) missing 1 required positional arguments: \"A\"$"):
        mica.linalg.inv()


def test_operators_are_recorded_as_themselves():
    traced = fx.symbolic_trace(lambda x: mica.ops.aten.add_.Tensor(mica.ops.aten.cat([x, x]), 1))
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"] == [
        mica.ops.aten.cat, mica.ops.aten.add_.Tensor,
    ]  # fmt: skip
    assert traced(mica.zeros(1)).tolist() == [1, 1]


def asserting(x):
    assert x.shape[0] > 1, "too few"
    y: int = x + 1
    return y


def test_assertions(monkeypatch):
    class Asserting(fx.Tracer):
        trace_asserts = True

    as_written = {}  # pytest rewrites the assertions of its files
    exec(inspect.getsource(asserting), as_written)
    graph = Asserting().trace(as_written["asserting"])
    assert [n.name for n in graph.nodes if n.op == "call_function"][-2:] == ["assert_fn", "add"]
    monkeypatch.setitem(globals(), "torch", mica)
    monkeypatch.setitem(globals(), "annotate", fx.annotate.annotate)
    tracer = RewritingTracer()
    graph = tracer.trace(asserting)
    assert next(n for n in graph.nodes if n.name == "add").type is int
    module = fx.GraphModule(tracer.root, graph)
    assert module(mica.zeros(2)).tolist() == [1, 1]
    with pytest.raises(AssertionError, match="too few"):
        module(mica.zeros(1))


def test_mutable_operations_are_refused_where_that_is_asked_for():
    class Checking(fx.Tracer):
        check_mutable_operations = True

    with pytest.raises(RuntimeError, match=r"mutable operation aten::sigmoid\.out"):
        Checking().trace(lambda x: mica.sigmoid(x, out=mica.rand_like(x)))
    Checking().trace(lambda x: F.normalize(mica.sigmoid(x)))


def test_where_nodes_come_from():
    class Recording(fx.Tracer):
        record_stack_traces = True

    module = fx.GraphModule({}, Recording().trace(total, {"x": {"a": PH, "b": PH}}))
    assert "test_fx_tracing.py" in next(n for n in module.graph.nodes if n.name == "add").stack_trace
    transformed = fx.Transformer(module).transform()
    assert "test_fx_tracing.py" in next(n for n in transformed.graph.nodes if n.name == "add").stack_trace
    assert "test_fx_tracing.py" in module.forward.__code__.co_filename
    with traceback.preserve_node_meta(), traceback.annotate({"stage": 1}):
        graph = Recording().trace(lambda x: x + 1)
    assert next(n for n in graph.nodes if n.name == "add").meta["custom"] == {"stage": 1}


def test_code_that_is_changed():
    module = fx.symbolic_trace(lambda a, b: mica.sin(a) + mica.cos(b))
    assert {1: 2, 2: 3, 3: 4, 4: 5}.items() <= module._lineno_map.items() and module._prologue_start == 4
    with module.graph.on_generate_code(lambda before: lambda lines: ["seen = a\n", *lines]):
        module.recompile()
        assert "    seen = a\n    sin = torch.sin(a)" in module.code and module._lineno_map[2] == 2
    module.recompile()
    assert "seen" not in module.code


def test_an_error_in_a_graph_says_where(capsys):
    module = fx.symbolic_trace(lambda x: mica.dot(x, x).relu())
    with pytest.raises(TypeError):
        module(5)
    assert (
        "Call using an FX-traced Module, line 5 of the traced Module's generated forward function:"
        in capsys.readouterr().err
    )


def test_boxed_runs_take_what_the_graph_takes():
    interpreter = fx.Interpreter(fx.symbolic_trace(lambda x, y: x + y))
    given = [1, 2]
    assert interpreter.boxed_run(given) == 3 and given == []
    for wrong, words in (([1, 2, 3], "extra arguments"), ([1], "missing arguments")):
        count = len(wrong)
        with pytest.raises(RuntimeError, match=words):
            interpreter.boxed_run(wrong)
        assert len(wrong) == count


def test_nodes_without_a_module_are_warned_of():
    module = fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    with pytest.warns(UserWarning, match="Attempted to insert a call_module Node with no underlying reference"):
        module.graph.call_module("nothing")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.graph.call_module("0")
    module.meta["self"] = module
    made = copy.deepcopy(module)
    assert made.meta["self"] is made


def test_a_code_generator_of_ones_own():
    class OfAList(fx.graph.CodeGen):
        def gen_fn_def(self, free_vars, maybe_return_annotation):
            return f"def forward(self, given: List[torch.Tensor]):\n    {', '.join(free_vars)} = given"

        def additional_globals(self):
            return [("List", list)]

        def process_inputs(self, *inputs):
            return inputs[0]

        def generate_output(self, output_args):
            return f"return list({output_args!r})"

        def process_outputs(self, outputs):
            return list(outputs)

    module = fx.symbolic_trace(lambda a, b: (a + b, a - b))
    module.graph.set_codegen(OfAList())
    module.recompile()
    assert module([3, 2]) == [5, 1] == fx.Interpreter(module).run([3, 2])


def test_nodes_of_a_function():
    from mica.fx.passes.tools_common import legalize_graph
    from mica.fx.passes.utils.source_matcher_utils import check_subgraphs_connected, get_source_partitions

    layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    module = mica.export.export(layers, (mica.randn(2, 3),)).module()
    found = get_source_partitions(module.graph, ["linear", "relu"])
    assert [len(found[name]) for name in ("linear", "relu")] == [2, 1]
    first, second, relu = *found["linear"], found["relu"][0]
    assert check_subgraphs_connected(first, relu) and not check_subgraphs_connected(second, relu)
    assert (
        relu.input_nodes == first.output_nodes
        and get_source_partitions(module.graph, [nn.ReLU])[nn.ReLU][0].nodes == relu.nodes
    )
    assert get_source_partitions(module.graph, ["linear"], lambda node: node in first.nodes)["linear"] == [first]
    traced = fx.symbolic_trace(lambda x: (x + 1) * 2)
    *_, add, mul, _ = traced.graph.nodes
    mul.append(add)
    with pytest.raises(RuntimeError, match="used before"):
        traced.graph.lint()
    assert legalize_graph(traced)(1) == 4
    traced.graph.lint()


def test_passes_are_put_in_order():
    from mica.fx.passes.infra.pass_manager import PassManager, pass_result_wrapper, this_before_that_pass_constraint

    ran = []

    def of(name):
        def run(module):
            ran.append(name)

        run.__name__ = name
        return pass_result_wrapper(run)

    first, second = of("first"), of("second")
    constraint = this_before_that_pass_constraint(first, second)
    PassManager([second, first], [constraint])(fx.symbolic_trace(lambda x: x))
    assert ran == ["first", "second"]
    with pytest.raises(RuntimeError, match="Circular dependency"):
        PassManager([first, second], [constraint, this_before_that_pass_constraint(second, first)]).solve_constraints()

    def breaks(module):
        raise ValueError("no")

    with pytest.raises(Exception, match=r"running the 'breaks' pass after the following passes: \['first'\]") as caught:
        PassManager([first, breaks])(fx.symbolic_trace(lambda x: x))
    assert isinstance(caught.value.__cause__, ValueError)


def test_methods_of_classes_are_recorded_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(fx._symbolic_trace, "_wrapped_methods_to_patch", [(mica.Tensor, "__getitem__")])

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Buffer(mica.arange(8.0).reshape(4, 2))

        def forward(self, x):
            return self.rows[: x.size(0)]

    traced = fx.symbolic_trace(Table())
    assert [n.target for n in traced.graph.nodes if n.op == "call_method"] == ["size", "__getitem__"]
    assert traced(mica.zeros(2)).tolist() == [[0, 1], [2, 3]]
    assert "__getitem__" not in vars(mica.Tensor) and mica.arange(3)[1].item() == 1


def test_operators_that_draw_stay():
    graph = fx.symbolic_trace(lambda x: (mica.ops.aten.bernoulli.default(x), mica.ops.aten.neg.default(x), x)[2]).graph
    graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes if n.op == "call_function"] == ["bernoulli_default"]
    drawn = next(n for n in graph.nodes if n.op == "call_function")
    assert drawn.is_impure() and not drawn.is_impure(impure_random=False)


def test_functions_that_draw_stay():
    graph = fx.Graph()
    x = graph.placeholder("x")
    for function in (mica.rand, mica.ops.aten.randn, mica.full):
        graph.call_function(function, ([2],))
    graph.call_function(mica.bernoulli, (x,))
    graph.output(x)
    graph.eliminate_dead_code()
    assert [n.target for n in graph.nodes if n.op == "call_function"] == [
        mica.rand,
        mica.ops.aten.randn,
        mica.bernoulli,
    ]
    assert all(n.is_impure(impure_random=False) for n in graph.nodes if n.target in (mica.rand, mica.bernoulli))


def test_calls_for_what_they_do_stay():
    graph = fx.Graph()
    x = graph.placeholder("x")
    doing = [
        mica.ops.aten._assert_async.msg,
        mica.ops.aten._assert_tensor_metadata.default,
        mica.ops._c10d_functional.wait_tensor.default,
        mica.ops._c10d_functional.wait_tensor,
        mica.ops.profiler._record_function_enter.default,
        mica._assert_async,
        mica._C._set_grad_enabled,
        mica.amp.autocast_mode._enter_autocast,
    ]
    for function in [*doing, mica.ops._c10d_functional.all_reduce.default]:
        graph.call_function(function, (x,))
    graph.output(x)
    graph.eliminate_dead_code()
    assert [n.target for n in graph.nodes if n.op == "call_function"] == doing


class Axis(enum.IntEnum):
    ROWS = 0
    COLUMNS = 1


class Flag(enum.IntFlag):
    LEFT = 1
    RIGHT = 2


def test_members_of_enumerations_are_arguments():
    def function(x):
        by = {Axis.ROWS: x.sum(Axis.ROWS), Axis.COLUMNS: x.sum(dim=(Axis.COLUMNS,))}
        return by[Axis.ROWS] + by[Axis.COLUMNS] + x[..., Axis.ROWS] + x[Axis.ROWS : Axis.COLUMNS][0]

    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    x = mica.randn(2, 2)
    program = mica.export.export(Model(), (x,))
    mica.export.save(program, io.BytesIO())
    graphs = fx.symbolic_trace(function), mica._dynamo.export(function)(x)[0], program.module()
    compiled = mica.compile(function, backend=lambda graph, inputs: graph.forward)
    assert all(mica.equal(made(x), function(x)) for made in (*graphs, compiled))
    assert "Axis.ROWS" in graphs[0].code and "Axis" not in program.graph_module.code
    graph = fx.Graph()
    graph.output(graph.call_function(total, ({"x": {Axis.ROWS: Axis.COLUMNS, "both": Flag.LEFT | Flag.RIGHT}},)))
    code = graph.python_code("self")
    assert "{'x': {Axis.ROWS: Axis.COLUMNS, 'both': Flag(3)}}" in code.src and code.globals["Axis"] is Axis
