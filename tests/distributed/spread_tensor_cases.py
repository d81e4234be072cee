"""What every process of a grid runs for tests of spread tensors: each case is called with its rank and the world's size."""

import itertools

import mica as torch
from mica.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from ranks import LONG

MESHES = {}


def line(size):
    if size not in MESHES:
        MESHES[size] = init_device_mesh("cpu", (size,))
    return MESHES[size]


def square():
    if "square" not in MESHES:
        MESHES["square"] = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    return MESHES["square"]


def numbers(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def distribution_and_back(rank, size):
    mesh = line(size)
    for shape in ((8, 4), (7, 3), (1, 5), (0, 3), (5,)):
        x = numbers(*shape)
        for placement in (Replicate(), *(Shard(d) for d in range(len(shape))), Shard(-1)):
            spread = distribute_tensor(x, mesh, [placement])
            assert spread.shape == x.shape and spread.stride() == x.stride() and spread.dtype == x.dtype
            if isinstance(placement, Shard):
                chunks = x.chunk(size, placement.dim) if x.shape[placement.dim] else (x,)
                mine = chunks[rank] if rank < len(chunks) else x.narrow(placement.dim, 0, 0)
                assert torch.equal(spread.to_local(), mine), (shape, placement)
            assert torch.equal(spread.full_tensor(), x)


def every_pair_of_placements(rank, size):
    mesh = line(size)
    for shape in ((8, 4), (7, 3), (3, 9, 2)):
        x = numbers(*shape)
        ways = [Replicate(), *(Shard(d) for d in range(len(shape)))]
        for a, b in itertools.product(ways, ways):
            moved = distribute_tensor(x, mesh, [a]).redistribute(placements=[b])
            assert moved.placements == (b,) and torch.equal(moved.full_tensor(), x)
            assert torch.equal(moved.to_local(), distribute_tensor(x, mesh, [b]).to_local())
        terms = DTensor.from_local(x * (rank + 1), mesh, [Partial()])
        total = x * (size * (size + 1) // 2)
        for b in ways:
            assert torch.allclose(terms.redistribute(placements=[b]).full_tensor(), total, rtol=1e-14)
    for name, value in (("avg", sum(range(size)) / size), ("max", size - 1), ("min", 0)):
        local = torch.full((5,), float(rank))
        assert torch.equal(
            DTensor.from_local(local, mesh, [Partial(name)]).full_tensor(), torch.full((5,), float(value))
        )


def grids(rank, size):
    if size != 4:
        return
    mesh = square()
    assert mesh.shape == (2, 2) and mesh.get_local_rank("columns") == rank % 2
    assert list(mesh.get_coordinate()) == [rank // 2, rank % 2] and mesh["rows"].size() == 2
    assert mesh["columns"].mesh.tolist() == [[0, 1], [2, 3]][rank // 2]
    for shape in ((8, 4), (7, 3)):
        x = numbers(*shape)
        ways = [Replicate(), Shard(0), Shard(1)]
        pairs = list(itertools.product(ways, ways))
        for a in pairs:
            spread = distribute_tensor(x, mesh, list(a))
            assert torch.equal(spread.full_tensor(), x), a
            for b in pairs:
                moved = spread.redistribute(placements=list(b))
                assert torch.equal(moved.to_local(), distribute_tensor(x, mesh, list(b)).to_local()), (a, b)
        for b in pairs:
            terms = DTensor.from_local(x.clone(), mesh, [Partial(), Partial()])
            assert torch.allclose(terms.redistribute(placements=list(b)).full_tensor(), x * 4)


def _some(ways):
    """Each input in each way beside whole ones, and all inputs split."""
    whole = [each[0] for each in ways]
    yield tuple(whole)
    for i, each in enumerate(ways):
        for way in each[1:]:
            yield (*whole[:i], way, *whole[i + 1 :])
    for column in zip(*(each[1:] for each in ways), strict=False):
        if len(ways) > 1:
            yield column


def operators(rank, size):
    """Every operator of the list, on every way to spread its inputs, beside the same on whole tensors."""
    functions = torch.nn.functional
    a, b, w, bias = numbers(6, 8), numbers(6, 8, seed=1), numbers(4, 8, seed=2), numbers(4, seed=3)
    cube = numbers(2, 6, 8, seed=4)
    cases = [
        (lambda x, y: x + y, a, b), (lambda x, y: x * y - 2, a, b), (lambda x: x.exp().sum(), a),
        (lambda x, y: x / y.abs(), a, numbers(8, seed=5)), (lambda x: x.sum(0), a), (lambda x: x.mean(), a),
        (lambda x: x.mean(1, keepdim=True), a), (lambda x: x.amax(1), a), (lambda x: x.var(0), a),
        (lambda x, y: x @ y.T, a, b), (lambda x, y: torch.matmul(x, y), cube, numbers(8, 3)),
        (functions.linear, a, w, bias), (functions.linear, cube, w), (lambda x: x.softmax(-1), a),
        (lambda x: x.log_softmax(0), a), (lambda x: x.reshape(6, 2, 4).transpose(1, 2), a),
        (lambda x: x.view(2, 3, 8), a.repeat(size, 1)[: 6]), (lambda x: x.permute(1, 0).contiguous(), a),
        (lambda x: x[1:4, 2], a), (lambda x: x.unsqueeze(1).expand(6, 3, 8), a), (lambda x: x.flatten(1), cube),
        (lambda x: torch.cat([x, x * 2], 1), a), (lambda x, y: torch.stack([x, y]), a, b), (lambda x: x.cumsum(1), a),
        (lambda x: functions.layer_norm(x, (8,)), a), (lambda x, s, t: functions.layer_norm(x, (8,), s, t), cube, b[0], b[1]),
        (lambda x: functions.rms_norm(x, (8,)), a), (functions.gelu, a), (functions.silu, a), (functions.relu, a),
        (lambda x: torch.where(x > 0, x, 0.5), a), (lambda x: x.masked_fill(x < 0, 1.0), a), (lambda x: x.clamp(-1, 0.5), a),
        (lambda x: x.split(3, 0)[1] * 2, a), (lambda x: x.chunk(2, 1)[0], a), (lambda x: x.tril(), a),
        (lambda x, y: torch.einsum("ij,kj->ik", x, y), a, b), (lambda x, y: functions.mse_loss(x, y), a, b),
        (lambda x: x.pow(2).sum(1).sqrt(), a), (lambda x: torch.linalg.vector_norm(x), a), (lambda x: x.norm(), a),
        (lambda x: x[:, 3:5].sum(1), a), (lambda x: x.to(torch.float32).double(), a), (lambda x, y: torch.bmm(x, y), cube, cube.mT.contiguous()),
        (lambda x, y: torch.addmm(y, x, x.T), a, numbers(6)), (lambda x: x.std(), a), (lambda x: x.sigmoid().prod(1), a),
    ]  # fmt: skip
    for number, (function, *inputs) in enumerate(cases):
        plain = [t.clone().requires_grad_() for t in inputs]
        wanted = function(*plain)
        weight = numbers(*wanted.shape, seed=9)
        gradients = torch.autograd.grad((wanted * weight).sum(), plain)
        ways = [[Replicate(), *(Shard(d) for d in range(t.dim()))] for t in inputs]
        for way in (LONG and itertools.product(*ways)) or _some(ways):
            spread = [distribute_tensor(t, line(size), [p]).requires_grad_() for t, p in zip(inputs, way, strict=True)]
            try:
                got = function(*spread)
            except RuntimeError as error:
                assert "Attempted to flatten" in str(error), (number, way, error)
                continue
            where = (number, way)
            assert isinstance(got, DTensor) and got.shape == wanted.shape, where
            assert torch.allclose(got.full_tensor(), wanted, rtol=1e-11, atol=1e-12), where
            (got * distribute_tensor(weight, line(size), [Replicate()])).sum().backward()
            for t, g in zip(spread, gradients, strict=True):
                assert isinstance(t.grad, DTensor) and torch.allclose(
                    t.grad.full_tensor(), g, rtol=1e-10, atol=1e-11
                ), where


CASES = [distribution_and_back, every_pair_of_placements, grids, operators]
ON_FOUR = [distribution_and_back, every_pair_of_placements, grids]
