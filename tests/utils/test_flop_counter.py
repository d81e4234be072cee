"""FlopCounterMode: the operations of products, convolutions and attention, by module and by operator."""

import mica
import pytest
from mica import nn
from mica.utils.flop_counter import (
    FlopCounterMode,
    register_flop_formula,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)


def count(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return counter


def test_products():
    a, b = mica.randn(64, 512), mica.randn(512, 256)
    assert count(lambda: a @ b).get_total_flops() == 2 * 64 * 512 * 256
    batch = mica.randn(3, 4, 5)
    counts = count(lambda: mica.bmm(batch, batch.mT)).get_flop_counts()
    assert counts == {"Global": {mica.ops.aten.bmm: 2 * 3 * 4 * 5 * 4}}
    assert count(lambda: a + 1).get_total_flops() == 0


def test_modules_and_their_backward():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    x = mica.randn(4, 8)
    counter = count(lambda: model(x).sum().backward())
    counts = {module: sum(flops.values()) for module, flops in counter.get_flop_counts().items()}
    first, second = 2 * 4 * 8 * 16, 2 * 4 * 16 * 2
    # Backward: the weight's gradient, and the input's where somebody wants it.
    assert counts["Sequential.0"] == 2 * first
    assert counts["Sequential.2"] == 3 * second
    assert counts["Sequential"] == counts["Global"] == 2 * first + 3 * second


@pytest.mark.parametrize(
    ("layer", "shape", "forward"),
    [
        (lambda: nn.Conv2d(3, 8, 3, padding=1), (2, 3, 10, 10), 2 * 2 * 100 * 8 * 3 * 9),
        (lambda: nn.Conv1d(4, 6, 5), (2, 4, 12), 2 * 2 * 8 * 6 * 4 * 5),
        (lambda: nn.ConvTranspose2d(3, 8, 2, stride=2), (2, 3, 5, 5), 2 * 2 * 25 * 8 * 3 * 4),
    ],
)
def test_convolutions(layer, shape, forward):
    layer = layer()
    x = mica.randn(shape, requires_grad=True)
    assert count(lambda: layer(x)).get_total_flops() == forward
    assert count(lambda: layer(x).sum().backward()).get_total_flops() == 3 * forward


def test_attention():
    q = mica.randn(2, 3, 10, 8, requires_grad=True)
    product = 2 * 2 * 3 * 10 * 10 * 8
    # torch has no formula for the CPU's attention in one piece, and counts it as nothing; with dropout it is products.
    assert count(lambda: nn.functional.scaled_dot_product_attention(q, q, q)).get_total_flops() == 0
    counter = count(lambda: nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.1).sum().backward())
    assert counter.get_flop_counts() == {"Global": {mica.ops.aten.bmm: 6 * product}}
    shape = (2, 3, 10, 8)
    assert sdpa_flop_count(shape, shape, shape) == 2 * product
    assert sdpa_backward_flop_count(shape, shape, shape, shape) == 5 * product, "the backward computes the scores again"


def test_formulas_of_the_programs_own():
    formula = {mica.ops.aten.add: lambda a, b, out_shape=None: 7}
    with FlopCounterMode(display=False, custom_mapping=formula) as counter:
        mica.ones(3) + mica.ones(3)
    assert counter.get_flop_counts() == {"Global": {mica.ops.aten.add: 7}}
    with pytest.raises(ValueError, match="expected each target to be OpOverloadPacket"):
        register_flop_formula("add")(lambda *shapes, **named: 0)
    with pytest.raises(RuntimeError, match="duplicate registrations"):
        register_flop_formula(mica.ops.aten.mm)(lambda *shapes, **named: 0)


def test_table(capsys):
    with FlopCounterMode(depth=1) as counter:
        nn.Linear(1000, 1000)(mica.randn(1000, 1000))
    out = capsys.readouterr().out
    assert "2000.000M" in out
    assert "100.00%" in out
    assert counter.get_table() in out
    assert "Global" in FlopCounterMode().get_table()


def test_an_exception_leaves_nothing_behind():
    model = nn.Linear(3, 3)
    with pytest.raises(RuntimeError), FlopCounterMode(display=False):
        model(mica.ones(2))
    assert not mica._C._len_torch_dispatch_stack()
    assert model(mica.ones(3)).shape == (3,)


def test_modules_need_not_be_given():
    with pytest.warns(UserWarning, match="mods argument is not needed"):
        FlopCounterMode(nn.Linear(2, 2))
