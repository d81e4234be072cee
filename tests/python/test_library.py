"""Operators by name and operators of one's own: mica.ops and mica.library."""

import copy
import pickle

import mica
import pytest
from mica._subclasses.fake_tensor import DataDependentOutputException
from mica._subclasses.fake_tensor import FakeTensorMode as _FakeTensorMode


@pytest.fixture
def library():
    with mica.library._scoped_library("test_library", "FRAGMENT") as made:
        yield made


def test_every_operation_of_the_table_is_in_aten():
    aten = mica.ops.aten
    names = dir(aten)
    assert len(names) > 700
    for name in names:
        packet = getattr(aten, name)
        for overload in packet.overloads():
            assert getattr(packet, overload)._schema.name == f"aten::{name}"


def test_overloads_compute():
    a, aten = mica.tensor([3.0, 1.0]), mica.ops.aten
    assert mica.equal(aten.add.Tensor(a, a, alpha=2), a * 3) and mica.equal(aten.add(a, 1), a + 1)
    assert mica.equal(aten.add.Scalar(self=a, other=2), a + 2)
    out = mica.empty(2)
    assert aten.mul.out(a, a, out=out) is out and mica.equal(out, a * a)
    values, indices = mica.empty(2), mica.empty(2, dtype=mica.int64)
    aten.sort.out(a, 0, False, values=values, indices=indices)
    assert values.tolist() == [1, 3] and indices.tolist() == [1, 0]
    assert aten.view.default(a, [2, 1]).shape == (2, 1) and aten.sum.dim_IntList(a, [0], keepdim=True).tolist() == [4]
    b = a.clone()
    assert aten.add_.Tensor(b, a) is b and mica.equal(b, a + a)


def test_overloads_as_objects():
    op = mica.ops.aten.add.Tensor
    assert str(op) == "aten.add.Tensor" and op.name() == "aten::add.Tensor" and op.namespace == "aten"
    assert repr(op) == "<OpOverload(op='aten.add', overload='Tensor')>" and op.overloadpacket is mica.ops.aten.add
    assert str(op._schema) == "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    assert copy.deepcopy(op) is op and pickle.loads(pickle.dumps(op)) == op and {op: 1}[op] == 1
    with pytest.raises(AttributeError, match="has no overload name 'nothing'"):
        assert mica.ops.aten.add.nothing
    with pytest.raises(AttributeError, match="'_OpNamespace' 'aten' object has no attribute 'nothing'"):
        assert mica.ops.aten.nothing


def test_define_and_implement(library):
    library.define("scaled(Tensor x, float by=2.0, *, int plus=0) -> Tensor")
    library.impl("scaled", lambda x, by, plus: x * by + plus, "CPU")
    op, x = mica.ops.test_library.scaled, mica.ones(2)
    assert op(x).tolist() == [2, 2] and op(x, 3.0, plus=1).tolist() == [4, 4] and op.default(x=x).tolist() == [2, 2]
    assert not op(x.clone().requires_grad_()).requires_grad  # only a kernel of the CPU: no gradient
    for call, words in [
        (lambda: op(), "missing value for argument 'x'"),
        (lambda: op(x, 1.0, 2), "at most 2 argument"),
        (lambda: op(x, nothing=1), "Unknown keyword argument 'nothing'"),
    ]:
        with pytest.raises(TypeError, match=words):
            call()
    with pytest.raises(
        NotImplementedError, match=r"Could not run 'test_library::scaled' with arguments from the 'Meta' backend"
    ):
        op(mica.ones(2, device="meta"))
    with pytest.raises(RuntimeError, match="multiple times"):
        library.define("scaled(Tensor x) -> Tensor")


def test_registrations_for_what_nobody_defines(library):
    mica.library.register_fake("test_library::absent", lambda x: x)
    library.impl("absent", lambda x: x, "CUDA")
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        assert mica.ops.test_library.absent


def test_implicit_and_explicit_gradients(library):
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", lambda x: x**3, "CompositeImplicitAutograd")
    x = mica.tensor([2.0], requires_grad=True)
    mica.ops.test_library.cube(x).backward()
    assert x.grad.tolist() == [12]

    class Doubled(mica.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return mica.ops.test_library.double(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CPU")
    library.impl("double", Doubled.apply, "Autograd")
    y = mica.tensor([1.0], requires_grad=True)
    mica.ops.test_library.double(y).backward()
    assert y.grad.tolist() == [2]


def test_custom_op_with_gradient():
    @mica.library.custom_op("test_custom::weighted", mutates_args=())
    def weighted(parts: list[mica.Tensor], by: float = 2.0) -> mica.Tensor:
        return sum(parts) * by

    weighted.register_fake(lambda parts, by=2.0: mica.empty_like(parts[0]))
    a, b = (mica.ones(3, requires_grad=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        weighted([a, b]).sum().backward()

    def setup(ctx, inputs, output):
        ctx.count, ctx.by = len(inputs[0]), inputs[1]

    weighted.register_autograd(lambda ctx, grad: ([grad * ctx.by] * ctx.count, None), setup_context=setup)
    weighted([a, b], 3.0).sum().backward()
    assert a.grad.tolist() == b.grad.tolist() == [3, 3, 3]
    assert weighted([mica.ones(2, device="meta")]).shape == (2,)
    assert set(mica.library.opcheck(weighted, ([a, b],)).values()) == {"SUCCESS"}
    assert (
        str(mica.ops.test_custom.weighted.default._schema)
        == "test_custom::weighted(Tensor[] parts, float by=2.0) -> Tensor"
    )


def test_custom_op_that_changes_an_argument():
    @mica.library.custom_op("test_custom::add_one_", mutates_args={"x"})
    def add_one_(x: mica.Tensor, times: int, name: str | None = None) -> None:
        x.add_(times)

    x = mica.zeros(2)
    assert add_one_(x, 3) is None and x.tolist() == [3, 3]
    assert "Tensor(a0!) x, SymInt times, str? name=None) -> ()" in str(mica.ops.test_custom.add_one_.default._schema)

    @mica.library.custom_op("test_custom::same", mutates_args=())
    def same(x: mica.Tensor) -> mica.Tensor:
        return x

    with pytest.raises(RuntimeError, match="must not also be an input"):
        same(x)


def test_tags_let_an_operator_return_what_it_has_written():
    @mica.library.custom_op("test_custom::twice_", mutates_args={"x"}, tags=mica.Tag.inplace)
    def twice_(x: mica.Tensor) -> mica.Tensor:
        return x.mul_(2)

    @mica.library.custom_op("test_custom::twice_out", mutates_args={"out"}, tags=[mica.Tag.out])
    def twice_out(x: mica.Tensor, *, out: mica.Tensor) -> mica.Tensor:
        return out.copy_(x * 2)

    x, out = mica.ones(2), mica.empty(2)
    assert twice_(x) is x and x.tolist() == [2, 2]
    assert twice_out(x, out=out) is out and out.tolist() == [4, 4]
    assert str(mica.Tag.out) == "Tag.out" and mica.Tag.out.__class__.__module__ == "torch"


def test_a_kernel_is_off_within_a_context():
    @mica.library.custom_op("test_custom::constant", mutates_args=())
    def constant(x: mica.Tensor) -> mica.Tensor:
        return mica.zeros(1)

    constant.register_kernel("cpu", lambda x: mica.ones(1))
    x = mica.ones(1)
    assert constant(x).item() == 1
    with constant.set_kernel_enabled("cpu", enabled=False):
        assert constant(x).item() == 0
        with constant.set_kernel_enabled("cpu", enabled=True):
            assert constant(x).item() == 1
        assert constant(x).item() == 0
    assert constant(x).item() == 1


def test_rules_of_an_operator_for_a_mode():
    @mica.library.custom_op("test_custom::cloned", mutates_args=())
    def cloned(x: mica.Tensor) -> mica.Tensor:
        return x.clone()

    class Mode(mica.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    @mica.library.register_torch_dispatch("test_custom::cloned", Mode)
    def rule(mode, func, types, args, kwargs):
        assert isinstance(mode, Mode) and func is mica.ops.test_custom.cloned.default and kwargs == {}
        return args[0] + 1

    x = mica.zeros(2)
    assert cloned(x).tolist() == [0, 0]
    with Mode():
        assert cloned(x).tolist() == [1, 1]
    assert cloned(x).tolist() == [0, 0]


def test_fake_tensors_reach_the_fake_function():
    from mica._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    @mica.library.custom_op("test_custom::opaque", mutates_args=())
    def opaque(x: mica.Tensor) -> mica.Tensor:
        raise NotImplementedError("only its shape is known")

    opaque.register_fake(lambda x: x.new_empty(x.shape[0], 7))
    with FakeTensorMode():
        y = opaque(mica.randn(3, 2))
    assert isinstance(y, FakeTensor) and y.shape == (3, 7) and y.device.type == "cpu"


@pytest.mark.parametrize("dynamic", [None, False, True])
def test_a_fake_function_that_makes_its_result_of_sizes_and_a_device(dynamic):
    @mica.library.custom_op(f"test_custom::product_{dynamic}", mutates_args=())
    def product(x: mica.Tensor, w: mica.Tensor) -> tuple[mica.Tensor, mica.Tensor]:
        return x @ w, mica.arange(len(x))

    @product.register_fake
    def _(x, w):
        made = mica.empty(x.size(0), w.size(1), device=x.device, dtype=x.dtype)
        return made, mica.arange(x.size(0), device=x.device)

    def function(x, w):
        y, numbers = product(x.sin(), w)
        return y + numbers[:, None]

    x, w = mica.randn(3, 2), mica.randn(2, 4)
    for backend in ("eager", "aot_eager"):
        compiled = mica.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
        assert mica.equal(compiled(x, w), function(x, w))
    program = mica.export.export(_AsModule(function), (x, w))
    assert mica.equal(program.module()(x, w), function(x, w))


def test_defaults_that_are_dtypes_and_devices():
    seen, here = [], mica.device("cpu")

    @mica.library.custom_op("test_custom::cast", mutates_args=())
    def cast(x: mica.Tensor, dtype: mica.dtype = mica.float64, device: mica.device = here) -> mica.Tensor:
        seen.append((dtype, device))
        return x.to(dtype, copy=True)

    assert str(mica.ops.test_custom.cast.default._schema).endswith(
        '(Tensor x, ScalarType dtype=float64, Device device="cpu") -> Tensor'
    )
    assert mica.ops.test_custom.cast(mica.ones(1)).dtype is mica.float64
    assert cast(mica.ones(1), mica.int8).dtype is mica.int8
    assert seen == [(mica.float64, here), (mica.int8, here)]


class _AsModule(mica.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def test_the_node_of_an_operator_bears_its_name():
    @mica.library.custom_op("test_custom::doubled", mutates_args=())
    def doubled(x: mica.Tensor) -> mica.Tensor:
        return x * 2

    doubled.register_autograd(lambda ctx, grad: grad * 2)
    y = doubled(mica.ones(1, requires_grad=True))
    assert type(y.grad_fn).__name__ == "GeneratedBackwardFor_test_custom_doubled_defaultBackward"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x, "must have a type annotation"),
        ("def f(x: dict) -> mica.Tensor: pass", "unsupported type"),
        ("def f(x: mica.Tensor): pass", "No return type annotation"),
        ("def f(*x: mica.Tensor) -> mica.Tensor: pass", "varargs"),
    ],
)
def test_functions_without_a_schema(function, words):
    if isinstance(function, str):
        scope = {"mica": mica}
        exec(function, scope)
        function = scope["f"]
    with pytest.raises(ValueError, match=words):
        mica.library.infer_schema(function, mutates_args=())


def test_operators_beside_the_table():
    aten, x = mica.ops.aten, mica.tensor([[1.0, -2.0], [3.0, 4.0]])
    assert aten._to_copy.default(x, dtype=mica.float64).dtype == mica.float64
    assert aten.mse_loss(x, x + 1, 2).item() == 4 and aten.slice.Tensor(x, 1, 1).tolist() == [[-2.0], [4.0]]
    assert aten.special_erf(x).equal(mica.erf(x)) and aten.upsample_nearest2d(x[None, None], [4, 4]).shape == (
        1,
        1,
        4,
        4,
    )
    assert mica.allclose(aten._softmax.default(x, 1, False).sum(1), mica.ones(2))
    assert aten.convolution_backward.default._schema.arguments[0].name == "grad_output"
    with pytest.raises(NotImplementedError, match="aten::_scaled_grouped_mm is not in Mica"):
        aten._scaled_grouped_mm(x, x)


def test_compiled_functions_hand_dense_tensors_to_operators_that_ask_for_them():
    seen = []

    @mica.library.custom_op("wants_dense::look", mutates_args=(), tags=[mica.Tag.needs_contiguous_strides])
    def look(x: mica.Tensor) -> mica.Tensor:
        seen.append(x.is_contiguous())
        return x.clone()

    @look.register_fake
    def _(x):
        return mica.empty_like(x)

    x = mica.ones(2, 3).t()
    look(x)
    mica.compile(lambda x: look(x), fullgraph=True)(x)
    assert seen == [False, True]


def test_a_tensor_where_a_list_of_indices_is_asked_for():
    """It is the list of its parts, as in mica."""
    x, places = mica.arange(4).reshape(2, 2), mica.ones(2, dtype=mica.int64)
    for found in (mica.ops.aten.index(x, places), mica.ops.aten.index.Tensor(x, indices=places)):
        assert found.shape == () and found.item() == 3
    assert mica.ops.aten.index_put(x, places, mica.tensor(7)).tolist() == [[0, 1], [2, 7]]
    with pytest.raises(TypeError, match="must be tuple of Tensors, not Tensor"):
        mica.ops.aten.cat(x)


def test_an_operator_that_only_changes_arguments_needs_no_fake_function():
    mica.library.define("test_bare::count", "(Tensor(a!) x, Tensor[] others, int n) -> ()")

    @mica.library.impl("test_bare::count", "cpu")
    def count(x, others, n):
        x.add_(n).add_(others[0])

    def function(x):
        y = x * 2
        mica.ops.test_bare.count(y, [x], 3)
        return y + 1

    x = mica.arange(3.0)
    for backend in ("eager", "aot_eager"):
        assert mica.equal(mica.compile(function, backend=backend, fullgraph=True)(x), function(x))
    assert mica.equal(mica.export.export(_AsModule(function), (x,)).module()(x), function(x))
    mica.library.define("test_bare::reads", "(Tensor x) -> ()")
    mica.library.impl("test_bare::reads", "cpu", lambda x: None)
    with _FakeTensorMode(), pytest.raises(RuntimeError, match="test_bare.reads.default"):
        mica.ops.test_bare.reads(mica.ones(2))


@pytest.mark.parametrize("has_fake", [False, True])
def test_a_number_that_an_operator_writes_is_not_known(has_fake):
    name = f"test_bare::write{int(has_fake)}"
    mica.library.define(name, "(Tensor(a!) x) -> ()")
    if has_fake:
        mica.library.register_fake(name, lambda x: None)
    with _FakeTensorMode():
        number = mica.tensor(2.0)
        assert number.item() == 2
        getattr(mica.ops.test_bare, name.rpartition(":")[2])(number)
        with pytest.raises(DataDependentOutputException):
            number.item()


def test_scales_of_resampling_by_their_name():
    x, aten = mica.rand(1, 2, 4, 5), mica.ops.aten
    made = aten.upsample_bilinear2d.vec(x, output_size=None, align_corners=False, scale_factors=[2.0, 3.0])
    assert mica.equal(made, aten.upsample_bilinear2d.vec(x, None, False, [2.0, 3.0])) and made.shape == (1, 2, 8, 15)
    assert aten.upsample_nearest2d.vec(x, output_size=None, scale_factors=[2.5, 2.5]).shape == (1, 2, 10, 12)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_an_operator_that_returns_nothing_needs_no_fake_function(library, backend):
    library.define("add_into(Tensor(a!) x, Tensor y) -> ()")

    @mica._dynamo.disable
    def add_into(x, y):
        x.add_(y)

    library.impl("add_into", add_into, "CPU")

    def function(x):
        y = x * 2
        mica.ops.test_library.add_into(y, x)
        return y + 1

    x = mica.ones(3)
    assert mica.compile(function, backend=backend, fullgraph=True)(x).tolist() == [4, 4, 4]


def test_results_of_marked_operators_are_what_they_write_to(library):
    from mica._subclasses.fake_tensor import FakeTensorMode

    library.define("twice_(Tensor(a!) x) -> Tensor(a!)", tags=mica.Tag.inplace)
    library.define("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", tags=mica.Tag.out)
    library.impl("twice_", lambda x: x.mul_(2), "CPU")
    library.impl("twice.out", lambda x, *, out: out.copy_(x * 2), "CPU")
    with FakeTensorMode():
        x, out = mica.ones(3), mica.empty(3)
        assert mica.ops.test_library.twice_(x) is x
        assert mica.ops.test_library.twice.out(x, out=out) is out
