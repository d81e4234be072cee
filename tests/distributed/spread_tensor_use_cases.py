"""Spread tensors in programs: passes, changes in place, random numbers, states, errors. Each process runs each case."""

import copy
import io

import mica as torch
from mica import nn
from mica.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor, rand
from mica.distributed.tensor.experimental import implicit_replication, local_map, register_sharding
from ranks import error_of
from spread_tensor_cases import line

F = nn.functional
X = torch.arange(24.0).reshape(6, 4)


def spread(size, placement=None):
    return distribute_tensor(X, line(size), [placement or Shard(0)])


def is_whole(tensor, wanted):
    return isinstance(tensor, DTensor) and torch.equal(tensor.full_tensor(), wanted)


def passes(rank, size):
    """Every way to start a backward pass, with hooks, and none leaves a mode behind."""
    p = spread(size).requires_grad_()
    assert is_whole(torch.autograd.grad((p * p).sum(), [p])[0], 2 * X)
    torch.autograd.backward((p * 3).sum())
    torch.autograd.backward([(p * 3).sum()])
    assert is_whole(p.grad, torch.full_like(X, 6))
    for loss in (lambda: (p * p).sum().full_tensor(), lambda: (p * p).to_local().sum()):
        p.grad = None
        loss().backward()
        assert is_whole(p.grad, 2 * X)
    seen, p.grad = [], None
    p.register_hook(lambda gradient: seen.append(type(gradient)))
    p.register_post_accumulate_grad_hook(lambda leaf: seen.append(type(leaf.grad)))
    total = (p * p).sum()
    total.backward(retain_graph=True)
    assert seen == [DTensor, DTensor]
    total.backward()
    assert is_whole(p.grad, 4 * X)
    assert "second time" in error_of(total.backward)
    assert "scalar outputs" in error_of((p * 2).backward)
    assert torch._C._len_torch_dispatch_stack() == 0
    # Gradients that lie in different ways are added.
    q = spread(size, Replicate()).requires_grad_()
    other = spread(size, Shard(1))
    ((q * other).sum() + (q * spread(size)).sum() + q.sum()).backward()
    assert is_whole(q.grad, 2 * X + 1)


def gradients_of_gradients(rank, size):
    def penalty(x, w):
        first = torch.autograd.grad((F.linear(x, w).tanh() * x.sum()).mean(), (x, w), create_graph=True)
        return torch.autograd.grad(first[0].pow(2).sum() + first[1].pow(3).sum(), (x, w))

    plain = [t.double().requires_grad_() for t in (X / 24, X[:3] / 10)]
    wanted = penalty(*plain)
    for first, second in ((Shard(0), Replicate()), (Replicate(), Shard(0)), (Shard(1), Shard(1))):
        mine = [
            distribute_tensor(t.detach(), line(size), [p]).requires_grad_()
            for t, p in zip(plain, (first, second), strict=True)
        ]
        for got, one in zip(penalty(*mine), wanted, strict=True):
            assert torch.allclose(got.full_tensor(), one, rtol=1e-11, atol=1e-12)


def in_place(rank, size):
    x = spread(size).clone()
    x.add_(1).mul_(2)
    assert is_whole(x, (X + 1) * 2)
    x.zero_()
    x.fill_(3)
    assert is_whole(x, torch.full_like(X, 3))
    p = spread(size).requires_grad_()
    y = p * 2
    y += p
    y.mul_(2)
    y.sum().backward()
    assert is_whole(p.grad, torch.full_like(X, 6)) and is_whole(y.detach(), X * 6)
    assert "leaf Variable" in error_of(p.add_, 1)
    term = DTensor.from_local(X.int(), line(size), [Partial("max")])
    assert "placement changes" in error_of(term.add_, 1)
    lists = [spread(size).clone() for _ in range(2)]
    torch._foreach_add_(lists, [spread(size), spread(size)])
    torch._foreach_mul_(lists, 2.0)
    assert is_whole(lists[1], 4 * X)
    assert torch.allclose(torch._foreach_norm(lists)[0].full_tensor(), (4 * X).norm())


def random_numbers(rank, size):
    """A spread tensor has the numbers of a whole one, however the processes were seeded before."""
    for placement in (Replicate(), Shard(0), Shard(1)):
        for function in (
            lambda x: F.dropout(x, 0.5),
            lambda x: x.clone().uniform_(),
            lambda x: torch.randn_like(x),
            lambda x: nn.init.kaiming_uniform_(x.clone()),
            lambda x: nn.init.trunc_normal_(x.clone()),
            lambda x: nn.init.zeros_(x.clone()),
        ):
            torch.manual_seed(3)
            wanted = function(X)
            torch.manual_seed(3)
            assert is_whole(function(spread(size, placement)), wanted)
    torch.manual_seed(5)
    wanted = torch.rand(7, 3)
    torch.manual_seed(5)
    assert is_whole(rand(7, 3, device_mesh=line(size), placements=[Shard(0)]), wanted)


def _split(name, module, mesh):
    for key, value in list(module.named_parameters(recurse=False)):
        module.register_parameter(key, nn.Parameter(distribute_tensor(value, mesh, [Shard(0)])))


def states(rank, size):
    mesh, model = line(size), nn.Linear(4, 6)
    distribute_module(model, mesh, _split)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    model(distribute_tensor(torch.ones(2, 4), mesh, [Replicate()])).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()["state"][0]
    assert isinstance(state["exp_avg"], DTensor) and state["exp_avg"].placements == (Shard(0),)
    assert not isinstance(state["step"], DTensor) and state["step"].item() == 1
    other = torch.optim.Adam(model.parameters())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert is_whole(other.state[model.weight]["exp_avg"], state["exp_avg"].full_tensor())
    other.zero_grad(set_to_none=False)
    assert is_whole(model.weight.grad, torch.zeros(6, 4))
    again = copy.deepcopy(model)
    with torch.no_grad():
        again.weight.zero_()
    again.load_state_dict(model.state_dict())
    assert is_whole(again.weight.detach(), model.weight.full_tensor())
    again.double()
    assert again.weight.dtype == again.weight.to_local().dtype == torch.float64 and isinstance(again.weight, DTensor)
    file = io.BytesIO()
    torch.save(model.weight.detach(), file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False).to_local(), model.weight.to_local())
    assert "Muon of parameters that are spread over processes is not in Mica" in error_of(
        _stepped, torch.optim.Muon, model
    )


def _stepped(kind, model):
    model.weight.grad = model.weight.detach().clone()
    kind([model.weight]).step()


def values(rank, size):
    x = spread(size)
    assert x.sum().item() == X.sum().item() and bool(x.sum() > 0) and float(x.mean()) == X.mean().item()
    assert x.tolist() == X.tolist() and (x.numpy() == X.numpy()).all() and f"{x.sum():.1f}" == f"{X.sum():.1f}"
    assert torch.equal(x, x) and not torch.equal(x, x + 1) and torch.allclose(x, x + 1e-9)
    assert repr(x).startswith("DTensor(local_tensor=")
    large = distribute_tensor(torch.ones(64, 64), line(size), [Shard(0)])
    with torch._subclasses.dispatching.aside():
        assert large.data_ptr() == 0 and large.untyped_storage().nbytes() == 4 * 64 * 64  # only the part has memory
    assert is_whole(large * 2, torch.full((64, 64), 2.0))
    if size == 2:
        part = torch.ones(3 - rank, 2)
        assert DTensor.from_local(part, line(2), [Shard(0)], shape=(5, 2), stride=(2, 1)).full_tensor().shape == (5, 2)
    same = DTensor.from_local(torch.full((2,), float(rank)), line(size), [Replicate()], run_check=True)
    assert torch.equal(same.to_local(), torch.zeros(2))


def errors(rank, size):
    x, mesh = spread(size), line(size)
    assert "got mixed torch.Tensor and DTensor" in error_of(lambda: x + torch.ones(6, 4))
    with implicit_replication():
        assert is_whole(x + torch.ones(6, 4), X + 1)
    assert "aten.linalg_inv.default does not have a sharding strategy registered" in error_of(torch.linalg.inv, x[:4])
    assert "Can not redistribute" in error_of(x.redistribute, placements=[Partial()])
    assert "must have the same length" in error_of(distribute_tensor, X, mesh, [Shard(0), Shard(1)])
    assert "out of range" in error_of(distribute_tensor, X, mesh, [Shard(2)])
    assert "cannot be performed without redistribution" in error_of(spread(size, Shard(1)).view, 24)
    product = local_map(torch.matmul, [Shard(0)], ([Shard(0)], [Replicate()]), redistribute_inputs=True)
    assert is_whole(product(x, distribute_tensor(torch.eye(4), mesh, [Replicate()])), X)

    @register_sharding(torch.ops.aten.linalg_inv.default)
    def whole(A):
        return [([Replicate()], [Replicate()])]

    square = distribute_tensor(torch.eye(4) * 2, mesh, [Shard(0)])
    assert is_whole(torch.linalg.inv(square), torch.eye(4) / 2)


OPERATORS = [
    lambda x: x.split([1, 3], 1)[1], lambda x: x.topk(2, 1).values, lambda x: x.sort(1)[0], lambda x: x.argmax(1),
    lambda x: x.max(), lambda x: x.max(1).values, lambda x: (x > 3).any(), lambda x: (x >= 0).all(0), lambda x: x.T,
    lambda x: x.flip(1), lambda x: x.logsumexp(1), lambda x: x.new_zeros(3, 2), lambda x: torch.zeros_like(x),
    lambda x: 1 - x, lambda x: 1 / (x + 1), lambda x: x**2, lambda x: 2**x, lambda x: (x > 1) & (x < 5),
    lambda x: x.int().float(), lambda x: x.half().float(), lambda x: x.double().type_as(x), lambda x: x[:, None, 1:3],
    lambda x: x[..., 0], lambda x: x.norm(dim=1), lambda x: torch.outer(x[:, 0], x[0]), lambda x: x.clip(1, 2),
    lambda x: x.unbind(1)[0], lambda x: x.movedim(0, 1), lambda x: x.unflatten(1, (2, 2)),
    lambda x: x.unsqueeze(1).flatten(0, 1), lambda x: x.repeat(1, 2), lambda x: F.pad(x, (1, 1)),
    lambda x: F.normalize(x, dim=1), lambda x: F.smooth_l1_loss(x, x * 0.5), lambda x: x.diagonal(),
    lambda x: F.binary_cross_entropy_with_logits(x, x * 0), lambda x: x.lerp(x * 2, 0.3), lambda x: F.glu(x),
    lambda x: torch.addcmul(x, x, x, value=0.5), lambda x: torch.var_mean(x, 1)[0], lambda x: F.logsigmoid(x),
    lambda x: F.softplus(x), lambda x: F.relu6(x), lambda x: torch.atan2(x, x + 1), lambda x: torch.maximum(x, x * 0 + 3),
    lambda x: torch.cat([x, x]), lambda x: x.sum((0, 1)), lambda x: x.nan_to_num(), lambda x: F.gelu(x, approximate="tanh"),
]  # fmt: skip


def more_operators(rank, size):
    for number, function in enumerate(OPERATORS):
        wanted = function(X)
        for placement in (Replicate(), Shard(0), Shard(1)):
            got = function(spread(size, placement))
            assert isinstance(got, DTensor) and got.dtype == wanted.dtype, (number, placement)
            assert torch.allclose(got.full_tensor().double(), wanted.double(), rtol=1e-5), (number, placement)


CASES = [passes, gradients_of_gradients, in_place, random_numbers, states, values, errors, more_operators]
