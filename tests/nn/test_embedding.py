"""embedding and embedding_bag where torch's own tests found them wrong."""

import mica as torch
import pytest

F = torch.nn.functional


@pytest.mark.parametrize("mode, padding, dtype, second, grad", [
    ("sum", 61, torch.float32, 9.0, [1, 2, 2, 2]),
    ("mean", 61, torch.float32, 3.0, [1, 2 / 3, 2 / 3, 2 / 3]),
    ("max", None, torch.float32, 4.0, [1, 0, 0, 2]),
    ("sum", None, torch.float64, 9.0, [1, 2, 2, 2]),
    ("sum", None, torch.float32, 2.0, [1, 2, 0, 0]),
])  # fmt: skip
def test_the_last_bag_runs_to_the_end_but_in_plain_sums(mode, padding, dtype, second, grad):
    weight = torch.arange(1, 101, dtype=dtype).reshape(100, 1).requires_grad_()
    given = {"include_last_offset": True, "mode": mode, "padding_idx": padding}
    out = F.embedding_bag(torch.tensor([0, 1, 2, 3]), weight, torch.tensor([0, 1, 2]), **given)
    assert out.flatten().tolist() == [1.0, second]
    out.backward(torch.tensor([[1.0], [2.0]], dtype=dtype))
    torch.testing.assert_close(weight.grad[:4].flatten(), torch.tensor(grad, dtype=dtype))


def test_a_sparse_gradient_keeps_the_indices_of_its_pass():
    embedding = torch.nn.Embedding(10, 3, sparse=True)
    index = torch.tensor([7, 1, 3])
    embedding(index).sum().backward()
    index[0] = 8
    embedding(index).sum().backward()
    assert embedding.weight.grad._indices().tolist() == [[7, 1, 3, 8, 1, 3]]
