"""What each process of an attention over a divided sequence does, and checks."""

import mica as torch
import pytest
from mica import nn
from mica.distributed.tensor.experimental import _attention, context_parallel
from mica.nn import functional as F
from ranks import same_losses

dist = torch.distributed


def grid(size):
    return dist.device_mesh.init_device_mesh("cpu", (size,))


def data(heads=4, kv_heads=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)
    shapes = [(2, heads, 16, 6), (2, kv_heads, 16, 6), (2, kv_heads, 16, 6), (2, heads, 16, 6)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def whole(**options):
    q, k, v, g = data(**{name: options.pop(name) for name in ("heads", "kv_heads", "dtype") if name in options})
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out = F.scaled_dot_product_attention(*leaves, **options)
    out.backward(g)
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def in_parts(mesh, **options):
    q, k, v, g = data(**{name: options.pop(name) for name in ("heads", "kv_heads", "dtype") if name in options})
    with context_parallel(mesh, buffers=[q, k, v, g], buffer_seq_dims=[2] * 4, no_restore_buffers={g}):
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        out = F.scaled_dot_product_attention(*leaves, **options)
        out.backward(g)
    assert q.shape[2] == 16 and g.shape[2] == 16 // mesh.size()
    return _attention.context_parallel_unshard(mesh, [out, *(leaf.grad for leaf in leaves)], [2] * 4)


def equals_attention_of_one_process(rank, size):
    mesh = grid(size)
    for method in ("alltoall", "allgather"):
        _attention.set_rotate_method(method)
        for balanced in (True, False):
            _attention._cp_options.enable_load_balance = balanced
            for options in ({}, {"is_causal": True}, {"is_causal": True, "scale": 0.3},
                            {"is_causal": True, "kv_heads": 2, "enable_gqa": True}):  # fmt: skip
                for ours, theirs in zip(in_parts(mesh, **options), whole(**options), strict=True):
                    assert torch.allclose(ours, theirs, rtol=1e-11, atol=1e-13), (method, balanced, options)
            ours, theirs = in_parts(mesh, dtype=torch.float32), whole(dtype=torch.float32)
            assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(ours, theirs, strict=True))
    _attention._cp_options.enable_load_balance = True


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out, self.places = nn.Linear(8, 24), nn.Linear(8, 8), None
        self.register_buffer("places_of", torch.randn(8, 8, generator=torch.Generator().manual_seed(1)).double())

    def forward(self, x):
        x = x + self.places_of
        q, k, v = self.into(x).unflatten(-1, (3, 2, 4)).movedim(-3, 0).transpose(-2, -3)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-2, -3).flatten(-2))


def losses_of_one_process(rank, size):
    mesh = grid(size)

    def train(parts):
        torch.manual_seed(0)
        model = Block().double()
        generator, losses = torch.Generator().manual_seed(2), []
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(50):
            x = torch.randn(2, 8, 8, generator=generator, dtype=torch.float64)
            y = x.cumsum(1).tanh()
            optimizer.zero_grad()
            if not parts:
                loss = (model(x) - y).square().mean()
                loss.backward()
                losses.append(loss.item())
            else:
                with context_parallel(mesh, buffers=[x, y, model.places_of], buffer_seq_dims=[1, 1, 0]):
                    loss = (model(x) - y).square().mean()
                    loss.backward()
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
                total = loss.detach().clone()
                dist.all_reduce(total, dist.ReduceOp.AVG)
                losses.append(total.item())
            optimizer.step()
        return losses

    same_losses(train(True), train(False))


def refusals(rank, size):
    mesh, x = grid(size), torch.zeros(3, 5)
    with pytest.raises(ValueError, match="multiple of"), context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
        pass
    assert x.shape == (3, 5)
    with pytest.raises(ValueError, match="same number"), context_parallel(mesh, buffers=[x], buffer_seq_dims=[]):
        pass
    with pytest.raises(NotImplementedError, match="attn_mask"), context_parallel(mesh):
        F.scaled_dot_product_attention(*data()[:3], attn_mask=torch.ones(16, 16))
    with pytest.raises(NotImplementedError, match="rotation"):
        _attention.set_rotate_method("none")


CASES = [equals_attention_of_one_process, losses_of_one_process, refusals]
