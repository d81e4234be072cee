"""The numbers of docs/errata.md."""

import mica


def test_bfloat16_of_seventy_thousand():
    assert mica.tensor(70000.0).bfloat16().item() == 70144.0
    assert mica.nextafter(mica.tensor(70144.0).bfloat16(), mica.tensor(0.0).bfloat16()).item() == 69632.0


def test_a_product_and_a_transfer_on_an_a100():
    product = 2 * 4096**3 / 312e12
    transfer = mica.empty(4096, 4096, dtype=mica.float16, device="meta").nbytes / 25e9
    assert f"{product * 1e3:.2f}" == "0.44" and f"{transfer * 1e3:.2f}" == "1.34" and round(transfer / product) == 3


def test_sparse_of_three_by_three():
    coo = mica.tensor([[0, 0, 3.0], [4.0, 0, 0], [0, 5.0, 0]]).to_sparse()
    assert coo._indices().nbytes + coo._values().nbytes == 60
    full = mica.ones(100, 100).to_sparse()
    assert 1 - 40000 / (full._indices().nbytes + full._values().nbytes) == 0.8


def fitted(seed, rate):
    mica.manual_seed(seed)
    x = mica.randn(100, 1) * 10
    y = 2 * x + 1 + mica.randn(100, 1) * 2
    model = mica.nn.Linear(1, 1)
    optimizer = mica.optim.SGD(model.parameters(), lr=rate)
    for _ in range(500):
        loss = mica.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def test_the_rate_of_the_regression():
    assert not fitted(14, 0.01) < 1e6  # infinite, or nan
    assert all(fitted(seed, 0.001) < 20 for seed in (13, 14, 16))


def test_the_index_of_a_point():
    points = mica.tensor([[4.0, 1.0], [5.0, 3.0], [2.0, 1.0]])
    assert points.storage_offset() == 0 and points[1].storage_offset() == 2
    assert points[1, 1].storage_offset() == 3 and points.untyped_storage().nbytes() == 24
