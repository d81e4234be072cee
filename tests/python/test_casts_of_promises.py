"""Autocast where values are not there yet: fake tensors, and graphs of backends of one's own."""

import mica as torch
import pytest
from mica._subclasses.fake_tensor import FakeTensorMode


def dtypes(x, weight):
    """The dtypes of functions that autocast casts, and the mean of a product that is asked for as float32."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = [x @ weight, torch.nn.functional.linear(x, weight), x.softmax(-1), x + weight, x.mm(weight)]
        with torch.autocast("cpu", enabled=False):
            made.append(x @ weight)
        made.append(torch.cat([x.bfloat16(), x]))
    made.append(x @ weight)
    return [each.dtype for each in made], made[0].float().mean()


def test_fake_tensors_are_cast_as_real_ones():
    meant = dtypes(torch.randn(4, 4), torch.randn(4, 4))[0]
    with FakeTensorMode():
        assert dtypes(torch.randn(4, 4), torch.randn(4, 4))[0] == meant
    assert meant[0] is torch.bfloat16 and not torch.is_autocast_enabled("meta")
    assert (torch.empty(2, 2, device="meta") @ torch.empty(2, 2, device="meta")).dtype is torch.float32


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_captured_function_knows_what_its_casts_make(dynamic):
    x, weight = torch.randn(4, 4), torch.randn(4, 4)
    made = torch.compile(dtypes, backend=lambda graph, inputs: graph.forward, dynamic=dynamic)(x, weight)
    meant = dtypes(x, weight)
    assert made[0] == meant[0] and made[1].dtype is torch.float32 and torch.equal(made[1], meant[1])
