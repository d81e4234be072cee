"""How calls are understood, and torch's words when they are not."""

import subprocess
import sys

import mica as torch
import pytest

x = torch.ones(2, 3)


class Index:
    def __index__(self):
        return 1


def says(words):
    return pytest.raises(TypeError, match=f"^{words}$")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: torch.add(x, "a"), r"add\(\): argument 'other' \(position 2\) must be Tensor, not str"),
        (lambda: x.add("a"), r"add\(\): argument 'other' \(position 1\) must be Tensor, not str"),
        (lambda: x.add(x, alpha="q"), r"add\(\): argument 'alpha' must be Number, not str"),
        (lambda: torch.add(x, x, foo=1), r"add\(\) got an unexpected keyword argument 'foo'"),
        (lambda: torch.add(x, input=x, other=x), r"add\(\) got multiple values for argument 'input'"),
        (
            lambda: torch.add(1),
            r"add\(\) received an invalid combination of arguments - got \(int\), but expected "
            r"\(Tensor input, Tensor other, \*, Number alpha = 1, Tensor out = None\)",
        ),
        (lambda: x.transpose(0), r'transpose\(\) missing 1 required positional arguments: "dim1"'),
        (lambda: x.transpose(0, 1, 2), r"transpose\(\) takes 2 positional arguments but 3 were given"),
        (lambda: x.transpose(0, 1.0), r"transpose\(\): argument 'dim1' \(position 2\) must be int, not float"),
        (lambda: torch.zeros("a"), r"zeros\(\): argument 'size' \(position 1\) must be tuple of ints, not str"),
        (lambda: torch.zeros(), r'zeros\(\) missing 1 required positional arguments: "size"'),
        (lambda: torch.zeros((2, 3), 3), r"zeros\(\) takes 1 positional argument but 2 were given"),
        (lambda: torch.zeros(2, dtype="a"), r"zeros\(\): argument 'dtype' must be torch.dtype, not str"),
        (lambda: torch.zeros(2, device=3.5), r"zeros\(\): argument 'device' must be torch.device, not float"),
        (
            lambda: x.view(2, "a"),
            r"view\(\): argument 'size' failed to unpack the object at pos 2 with error "
            r'"type must be tuple of ints,but got str"',
        ),
        (lambda: torch.cat(x), r"cat\(\): argument 'tensors' \(position 1\) must be tuple of Tensors, not Tensor"),
        (lambda: torch.cat([x, 1]), "expected Tensor as element 1 in argument 0, but got int"),
        (lambda: x.size("a"), r"size\(\): argument 'dim' \(position 1\) must be int, not str"),
        (lambda: x + "a", r"unsupported operand type\(s\) for \+: 'Tensor' and 'str'"),
    ],
)
def test_refusals(call, words):
    with says(words):
        call()


def test_a_refusal_lists_the_signatures():
    with pytest.raises(TypeError) as error:
        x.sum("a")
    assert str(error.value) == (
        "sum() received an invalid combination of arguments - got (str), but expected one of:\n"
        " * (*, torch.dtype dtype = None)\n"
        " * (tuple of ints dim, bool keepdim = False, *, torch.dtype dtype = None)\n"
    )


def test_integers_come_in_many_forms():
    one = torch.tensor(1)
    for form in (1, (1,), [1], Index(), one, (one,), torch.Size([1])):
        assert x.sum(form).tolist() == [3.0, 3.0]
    for form in (True, 1.0, "1", torch.tensor(1.0)):
        with pytest.raises(TypeError):
            x.sum(form)


def test_sizes_may_be_spread_out():
    assert x.view(3, 2).shape == x.view((3, 2)).shape == x.view([3, 2]).shape == x.view(torch.Size([3, 2])).shape
    assert torch.zeros(2, 3).shape == torch.zeros((2, 3)).shape == torch.zeros(size=(2, 3)).shape
    assert x.permute(1, 0).shape == (3, 2)


def test_numpy_names():
    assert x.sum(axis=1, keepdims=True).shape == (2, 1)
    assert torch.add(x1=x, x2=x).tolist() == torch.add(input=x, other=x).tolist()


def test_numbers_stand_for_tensors_where_torch_has_it():
    assert torch.add(2, x).tolist() == (x + 2).tolist()
    assert torch.mul(2, x).dtype is torch.float32
    assert torch.add(torch.ones(2, dtype=torch.int8), 2).dtype is torch.int8


def test_out():
    out = torch.empty(0)
    assert torch.add(x, x, out=out) is out and out.tolist() == [[2.0] * 3] * 2


def test_factory_keywords():
    t = torch.zeros(2, dtype=torch.float64, layout=torch.strided, device="cpu", pin_memory=False, requires_grad=True)
    assert t.dtype is torch.float64 and t.requires_grad and t.is_leaf
    assert torch.zeros(2, dtype=float).dtype is torch.float64 and torch.zeros(2, dtype=int).dtype is torch.int64
    assert torch.zeros(2, device=torch.device("meta")).is_meta
    assert torch.zeros(2, dtype=None, device=None).dtype is torch.get_default_dtype()


def test_keywords_need_not_be_interned():
    name = "".join(["keep", "dim"])
    assert x.sum(1, **{name: True}).shape == (2, 1)


def test_errors_have_torch_types():
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 2"):
        x[5]
    with pytest.raises(RuntimeError, match="a Tensor with 6 elements cannot be converted to Scalar"):
        x.item()
    assert issubclass(torch.OutOfMemoryError, RuntimeError)


def test_a_list_that_holds_itself_is_refused():
    endless = [1]
    endless.append(endless)
    with pytest.raises(ValueError, match="too many dimensions"):
        torch.tensor(endless)


@pytest.mark.parametrize(
    ("data", "dtype"),
    [(1, "int64"), (1.0, "float32"), (True, "bool"), (1j, "complex64"), ([1, 2.5], "float32"), ([], "float32"),
     ([True, 2], "int64"), ([[1], [2]], "int64")],
)  # fmt: skip
def test_tensor_infers_its_dtype(data, dtype):
    assert torch.tensor(data).dtype is getattr(torch, dtype)


def test_tensor_refuses_ragged_data():
    with pytest.raises(ValueError, match=r"expected sequence of length 2 at dim 1 \(got 1\)"):
        torch.tensor([[1, 2], [3]])
    with pytest.raises(TypeError, match=r"new\(\): invalid data type 'str'"):
        torch.tensor("abc")
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.tensor([300], dtype=torch.uint8)


def test_the_order_of_old_is_taken_with_one_warning_in_a_process():
    program = "import mica; x = mica.ones(2); print(mica.add(x, 2, x).tolist())\nprint(x.addcmul_(1, x, x).tolist())"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[3.0, 3.0]\n[2.0, 2.0]\n"
    assert ran.stderr.count("This overload of") == 1 and "This overload of add is deprecated" in ran.stderr


def test_none_stands_for_an_empty_list_and_for_an_optional_that_has_to_be_given():
    assert torch.amax(torch.ones(2), None).item() == 1
    assert torch.roll(torch.arange(3), 1, None).tolist() == [2, 0, 1]
    with pytest.raises(TypeError, match="must be tuple of ints, not NoneType"):
        torch.rot90(torch.ones(2, 2), 1, None)
    torch.manual_seed(0)
    drawn = torch.empty(1000, dtype=torch.int16).random_(5, None)
    assert drawn.min() >= 5 and drawn.max() > 1000


def test_sizes_that_are_tensors_of_one_element():
    n, m = torch.tensor([5]), torch.tensor([[2]])
    assert (
        torch.zeros(n).shape == (5,) and torch.ones(n, m, 3).shape == (5, 2, 3) and torch.rand([m, n]).shape == (2, 5)
    )
    x = torch.arange(10.0)
    assert x.view(n, 2).shape == (5, 2) and x.repeat(m).shape == (20,) and x.new_zeros(n).shape == (5,)
    assert x[:1].expand(n).shape == (5,) and x.view(5, 2).sum(torch.tensor([1])).shape == (5,)
    assert [len(part) for part in x.tensor_split(torch.tensor([4]))] == [4, 6]
    for wrong in (torch.tensor([5.0]), torch.tensor([2, 3])):
        with pytest.raises(TypeError):
            torch.zeros(wrong)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        made = torch.compile(lambda n: torch.ones(n).repeat(2), backend="eager", dynamic=True, fullgraph=True)(n)
    assert made.shape == (10,)
