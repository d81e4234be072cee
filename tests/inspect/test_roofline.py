"""What lines cost and what bounds them."""

import mica
import pytest
from mica import nn

# A machine of round numbers, so that bounds are known.
MACHINE = {
    "bandwidth": 1e10,
    "cache_bandwidth": 4e10,
    "cache_bytes": 1e4,
    "overhead": 1e-6,
    "flops": {"float32": 1e11, "float64": 5e10},
}


def test_bytes_and_operations_of_lines():
    a, b = mica.ones(64, 128), mica.ones(128, 32)
    with mica.inspect.roofline(MACHINE) as cost:
        c = a @ b
        d = c + 1
        e = d.t()
    rows = {r["code"]: r for r in cost.by_line()}
    product, addition, view = rows["c = a @ b"], rows["d = c + 1"], rows["e = d.t()"]
    assert product["operations"] == 2 * 64 * 128 * 32
    assert product["bytes"] == a.nbytes + b.nbytes + c.nbytes
    assert (addition["operations"], addition["bytes"]) == (c.numel(), 2 * c.nbytes)
    assert (view["operations"], view["bytes"]) == (0, 0) and view["bound"] == "overhead" and e.shape == (32, 64)
    assert all(r["calls"] == 1 and r["seconds"] > 0 for r in rows.values())


@pytest.mark.parametrize(
    ("body", "bound"),
    [
        (lambda x: x @ x, "arithmetic"),
        (lambda x: x + x, "memory"),
        (lambda x: x[0, :2] + 1, "overhead"),
    ],
)
def test_what_bounds_a_line(body, bound):
    x = mica.ones(512, 512)
    with mica.inspect.roofline(MACHINE) as cost:
        body(x)
    rows = [r for r in cost.by_operation() if r["operation"] not in ("select", "slice")]
    assert [r["bound"] for r in rows] == [bound]
    expected = {"arithmetic": 2 * 512**3 / 1e11, "memory": 3 * 512 * 512 * 4 / 1e10, "overhead": 1e-6}
    assert rows[0]["attainable"] == pytest.approx(expected[bound])


def test_a_backward_pass_belongs_to_its_forward_line():
    model, x = nn.Linear(64, 32), mica.randn(16, 64)
    with mica.inspect.roofline(MACHINE) as cost:
        y = model(x)
        loss = y.pow(2).sum()
        loss.backward()
    rows = {(r["code"], r["backward"]): r for r in cost.by_line()}
    assert rows[("y = model(x)", False)]["operations"] == 2 * 16 * 64 * 32
    # The gradient of the weight alone: the input asks for none.
    assert rows[("y = model(x)", True)]["operations"] >= 2 * 16 * 64 * 32
    assert ("loss = y.pow(2).sum()", True) in rows
    assert cost.training_time(100) == pytest.approx(100 * cost.seconds)
    slow = {**MACHINE, "bandwidth": 1e6}
    assert cost.training_time(1, slow) > 50 * cost.training_time(1, {**MACHINE, "bandwidth": 1e9, "overhead": 1e-9})
    assert "bound by" in str(cost) and "(backward)" in str(cost)


def test_this_machine_is_measured_once():
    with mica.inspect.roofline() as cost:
        mica.ones(4) + 1
    roof = cost.machine
    assert roof["cache_bandwidth"] >= roof["bandwidth"] and roof["cache_bytes"] > 1e5
    assert 1e8 < roof["bandwidth"] < 1e13 and 1e8 < roof["flops"]["float32"] < 1e15 and 1e-9 < roof["overhead"] < 1e-3
    with mica.inspect.roofline() as again:
        pass
    assert again.machine == roof and again.seconds == 0
