"""Within a FakeTensorMode: what a program makes of numbers, lists and arrays of NumPy is fake, too."""

import mica as torch
import pytest
from mica._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode

np = pytest.importorskip("numpy")

MADE = {
    "div": (lambda: torch.div(3, 2), (), torch.float32),
    "div, cut off": (lambda: torch.div(4, 4, rounding_mode="trunc"), (), torch.int64),
    "add": (lambda: torch.add(1, 2), (), torch.int64),
    "mul": (lambda: torch.mul(2, 3.5), (), torch.float32),
    "floor_divide": (lambda: torch.floor_divide(7, 2), (), torch.int64),
    "tensor": (lambda: torch.tensor(np.zeros((4, 2))), (4, 2), torch.float64),
    "tensor of another dtype": (lambda: torch.tensor(np.zeros((4, 2)), dtype=torch.int32), (4, 2), torch.int32),
    "from_numpy": (lambda: torch.from_numpy(np.zeros((2, 3), dtype=np.float32)), (2, 3), torch.float32),
    "as_tensor": (lambda: torch.as_tensor(np.ones(3)), (3,), torch.float64),
    "as_tensor of a list": (lambda: torch.as_tensor([1, 2]), (2,), torch.int64),
    "asarray": (lambda: torch.asarray([1, 2.0]), (2,), torch.float32),
    "sum": (lambda: torch.from_numpy(np.ones(3)) + torch.ones(3), (3,), torch.float64),
    "list of places": (lambda: torch.ones(4, 3)[[0, 1]], (2, 3), torch.float32),
    "array of places": (lambda: torch.ones(4, 3)[np.array([0, 1])], (2, 3), torch.float32),
    "place": (lambda: torch.ones(4, 3)[torch.tensor(1)], (3,), torch.float32),
    "two places": (lambda: torch.ones(4, 3)[torch.tensor(-1), torch.tensor(2)], (), torch.float32),
    "place of columns": (lambda: torch.ones(4, 3)[:, torch.tensor(1)], (4,), torch.float32),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_data_is_fake(name):
    make, shape, dtype = MADE[name]
    with FakeTensorMode():
        made = make()
    assert isinstance(made, FakeTensor)
    assert tuple(made.shape) == shape and made.dtype is dtype and made.device == torch.device("cpu")
    assert make().dtype is dtype


def test_a_place_is_set():
    with FakeTensorMode():
        x = torch.ones(4, 3)
        x[torch.tensor(1)] = 3.0
        assert x.shape == (4, 3)


def test_a_place_that_data_decide_is_refused():
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        x = torch.ones(4, 3)
        x[x.sum(1).argmax()]


def test_real_tensors_are_still_refused():
    real = torch.ones(())
    with FakeTensorMode(), pytest.raises(AssertionError, match="Please convert all Tensors to FakeTensors first"):
        torch.ones(3) + real
