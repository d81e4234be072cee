"""Maxima of a volume without a batch whose channels lie last: they lie so too, as in torch."""

import mica as torch
import pytest


@pytest.mark.parametrize("return_indices", [False, True])
def test_channels_last_volume(return_indices):
    x = torch.randn(1, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d).squeeze(0).requires_grad_()
    plain = x.detach().contiguous().requires_grad_()
    pool = torch.nn.MaxPool3d(2, return_indices=return_indices)
    found, wanted = pool(x), pool(plain)
    pairs = list(zip(found, wanted, strict=True)) if return_indices else [(found, wanted)]
    for ours, theirs in pairs:
        assert torch.equal(ours, theirs) and theirs.is_contiguous()
        assert ours.unsqueeze(0).is_contiguous(memory_format=torch.channels_last_3d)
    pairs[0][0].square().sum().backward()
    pairs[0][1].square().sum().backward()
    assert torch.equal(x.grad, plain.grad)
