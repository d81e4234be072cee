"""Every collective, with every dtype, reduction and layout, between processes; expected values are computed locally."""

import mica
import mica.distributed as dist
import ranks
from ranks import error_of


def reductions(rank, size):
    failed = []
    integral = [mica.uint8, mica.int8, mica.int16, mica.int32, mica.int64, mica.uint16, mica.uint32, mica.uint64]
    floating = [mica.float16, mica.bfloat16, mica.float32, mica.float64]
    makers = {"SUM": "add", "PRODUCT": "mul", "MIN": "minimum", "MAX": "maximum"}
    bits = {"BAND": "bitwise_and", "BOR": "bitwise_or", "BXOR": "bitwise_xor"}
    for count in (0, 7, 30_011):  # one round, and chunks
        base = [mica.arange(count) % 5 + each + 1 for each in range(size)]
        for name, function in {**makers, **bits}.items():
            for dtype in integral + ([] if name in bits else floating):
                x = base[rank].to(dtype, copy=True)
                expected = base[0].clone()
                for other in base[1:]:
                    expected = getattr(mica, function)(expected, other)
                dist.all_reduce(x, getattr(dist.ReduceOp, name))
                if not x.equal(expected.to(dtype)):
                    failed.append(f"all_reduce {name} {dtype} {count}")
        for dtype in [*floating, mica.complex64, mica.complex128]:
            x = base[rank].to(dtype, copy=True)
            dist.all_reduce(x, dist.ReduceOp.AVG)
            if not mica.allclose(x, (sum(base) / size).to(dtype)):
                failed.append(f"all_reduce AVG {dtype} {count}")
            x = base[rank].to(dtype, copy=True)
            dist.all_reduce(x, dist.ReduceOp.PREMUL_SUM(0.5))
            if not mica.allclose(x, (sum(base) * 0.5).to(dtype)):
                failed.append(f"all_reduce PREMUL_SUM {dtype} {count}")
        x = base[rank].to(mica.float32)
        dist.all_reduce(x, dist.ReduceOp.PREMUL_SUM(mica.tensor(2.0)))
        if not x.equal((sum(base) * 2).float()):
            failed.append(f"all_reduce PREMUL_SUM by a tensor {count}")
        x = base[rank] > 3
        both = [each > 3 for each in base]
        dist.all_reduce(x)
        if not x.equal(mica.stack(both).any(0)):
            failed.append(f"all_reduce bool {count}")
        x = base[rank] > 3
        dist.all_reduce(x, dist.ReduceOp.PRODUCT)
        if not x.equal(mica.stack(both).all(0)):
            failed.append(f"all_reduce bool PRODUCT {count}")
        x = mica.complex(base[rank].double(), -base[rank].double())
        dist.all_reduce(x)
        if not x.equal(mica.complex(sum(base).double(), -sum(base).double())):
            failed.append(f"all_reduce complex {count}")
        out = base[rank].float()
        dist.reduce(out, size - 1)
        if not out.equal((sum(base) if rank == size - 1 else base[rank]).float()):
            failed.append(f"reduce {count}")
    x = mica.tensor([1.0, float("nan") if rank == size - 1 else 2.0])
    dist.all_reduce(x, dist.ReduceOp.MAX)
    if not x.isnan()[1] or x[0] != 1:
        failed.append("a NaN is lost")
    errors = [
        error_of(dist.all_reduce, mica.ones(2).long(), dist.ReduceOp.AVG),
        error_of(dist.all_reduce, mica.ones(2), dist.ReduceOp.BAND),
        error_of(dist.all_reduce, mica.ones(2).cfloat(), dist.ReduceOp.MAX),
        error_of(dist.all_reduce, mica.ones(2).to(mica.float8_e4m3fn)),
    ]
    x = mica.ones(2)
    dist.all_reduce(x)  # what was refused has left the group as it was
    return failed, errors, x.tolist()


def test_every_reduction_of_every_dtype():
    for failed, errors, after in ranks.run(3, reductions):
        assert failed == [] and after == [3, 3]
        assert errors == [
            "RuntimeError: result type Float can't be cast to the desired output type Long",
            "RuntimeError: Cannot use ReduceOp.BAND with non-integral dtype",
            "ValueError: all_reduce does not support 4 on complex tensors",
            "RuntimeError: Invalid scalar type: all_reduce does not reduce float8_e4m3fn",
        ]


def movements(rank, size):
    failed = []

    def check(what, condition):
        if not condition:
            failed.append(what)

    dtypes = [mica.uint8, mica.int64, mica.bool, mica.float16, mica.bfloat16, mica.complex64, mica.float8_e4m3fn]
    for dtype in dtypes:
        for shape in ((), (0,), (5,), (300, 701)):
            count = mica.ones(shape).numel()
            values = [((mica.arange(count) + each) % 3).reshape(shape).to(dtype) for each in range(size)]
            same = lambda a, b: a.view(mica.uint8).equal(b.view(mica.uint8)) if a.dim() else a.tolist() == b.tolist()  # noqa: E731
            what = f"{dtype} {shape}"
            x = values[rank].clone()
            dist.broadcast(x, 1)
            check(f"broadcast {what}", same(x, values[1]))
            out = [mica.zeros(shape, dtype=dtype) for _ in values]
            dist.all_gather(out, values[rank])
            check(f"all_gather {what}", all(same(a, b) for a, b in zip(out, values, strict=True)))
            out = [mica.zeros(shape, dtype=dtype) for _ in values]
            dist.gather(values[rank], out if rank == 2 else None, dst=2)
            check(f"gather {what}", rank != 2 or all(same(a, b) for a, b in zip(out, values, strict=True)))
            x = mica.zeros(shape, dtype=dtype)
            dist.scatter(x, values if rank == 0 else None)
            check(f"scatter {what}", same(x, values[rank]))
            out = [mica.zeros(shape, dtype=dtype) for _ in values]
            dist.all_to_all(out, [values[(rank + to) % size] for to in range(size)])
            check(f"all_to_all {what}", all(same(out[a], values[(a + rank) % size]) for a in range(size)))
            if len(shape) and count:
                whole = mica.zeros((shape[0] * size, *shape[1:]), dtype=dtype)
                dist.all_gather_into_tensor(whole, values[rank])
                check(f"all_gather_into_tensor {what}", same(whole, mica.cat(values)))
    for count in (1, 50_000):
        inputs = [mica.arange(count) + rank + to for to in range(size)]
        expected = sum(mica.arange(count) + each + rank for each in range(size))
        out = mica.zeros(count, dtype=mica.int64)
        dist.reduce_scatter(out, inputs)
        check(f"reduce_scatter {count}", out.equal(expected))
        out.zero_()
        dist.reduce_scatter_tensor(out, mica.cat(inputs))
        check(f"reduce_scatter_tensor {count}", out.equal(expected))
    # Parts of different sizes: rank r sends r + to + 1 elements to each.
    given = [mica.full((rank + to + 1, 2), rank * 10.0 + to) for to in range(size)]
    out = mica.zeros(sum(each + rank + 1 for each in range(size)), 2)
    dist.all_to_all_single(
        out, mica.cat(given), [each + rank + 1 for each in range(size)], [rank + to + 1 for to in range(size)]
    )
    check(
        "all_to_all_single",
        out.equal(mica.cat([mica.full((each + rank + 1, 2), each * 10.0 + rank) for each in range(size)])),
    )
    lists = [mica.zeros(each + 1) for each in range(size)]
    dist.all_gather(lists, mica.full((rank + 1,), float(rank)))
    check("all_gather of unequal sizes", all(x.eq(i).all() for i, x in enumerate(lists)))
    # Layouts: transposed, strided, expanded, conjugated.
    x = (mica.arange(6.0).reshape(2, 3) + rank).t()
    dist.all_reduce(x)
    check("transposed", x.equal((mica.arange(6.0).reshape(2, 3) * size + sum(range(size))).t()))
    base = mica.arange(8.0) + rank
    dist.all_reduce(base[::2])
    expected = mica.arange(8.0) + rank
    expected[::2] = mica.arange(8.0)[::2] * size + sum(range(size))
    check("strided", base.equal(expected))
    x = mica.zeros(2, 6).t()
    dist.broadcast(x, 0) if rank else dist.broadcast(mica.arange(12.0).reshape(6, 2), 0)
    check("broadcast into a transposed tensor", rank == 0 or x.equal(mica.arange(12.0).reshape(6, 2)))
    x = mica.tensor([1 + 2j]).conj()
    out = [mica.zeros(1, dtype=mica.complex64) for _ in range(size)]
    dist.all_gather(out, x)
    check("conjugated", all(each.tolist() == [1 - 2j] for each in out))
    x = mica.ones(1).expand(5)
    out = mica.zeros(5 * size)
    dist.all_gather_into_tensor(out, x)
    check("expanded", out.eq(1).all())
    dist.barrier()
    return failed


def test_every_movement_of_every_dtype():
    assert ranks.run(3, movements) == [[]] * 3


def asynchronous(rank, size):
    tensors = [mica.full((20_000,), float(i)) for i in range(8)]
    works = [dist.all_reduce(each, async_op=True) for each in tensors]
    dist.all_reduce(last := mica.ones(3))  # waits for those before it
    for each in works:
        assert each.wait() and each.is_completed() and each.is_success() and each.exception() is None
    values = [each[0].item() for each in tensors]
    x = (mica.arange(6.0).reshape(2, 3)).t()
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future().then(lambda done: done.value()[0].sum().item())
    total = future.wait()
    for _ in range(20):  # works that nobody waits for
        dist.all_reduce(mica.ones(1000), async_op=True)
    dist.barrier()
    with dist._coalescing_manager(async_ops=True) as manager:
        for each in tensors:
            dist.all_reduce(each)
    manager.wait()
    return values, last.tolist(), total, [each[0].item() for each in tensors]


def test_works_and_futures():
    for values, last, total, again in ranks.run(2, asynchronous):
        assert values == [2.0 * i for i in range(8)] and last == [2, 2, 2] and total == 30
        assert again == [4.0 * i for i in range(8)]


def objects(rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "long": "x" * 10_000 * rank})
    at_root = [None] * size if rank == 1 else None
    dist.gather_object([rank], at_root, dst=1)
    given = [rank, "text", {"a": mica.arange(3).tolist()}] if rank == 0 else [None] * 3
    dist.broadcast_object_list(given, src=0)
    taken = [None]
    dist.scatter_object_list(taken, [{"to": to} for to in range(size)] if rank == 0 else None, src=0)
    if rank == 0:
        dist.send_object_list(["sent", 5], dst=1)
        got, sender = None, None
    else:
        got = [None, None]
        sender = dist.recv_object_list(got, src=0)
    return [len(each["long"]) for each in gathered], at_root, given, taken, got, sender


def test_objects():
    first, second = ranks.run(2, objects)
    given = [0, "text", {"a": [0, 1, 2]}]
    assert first == [[0, 10_000], None, given, [{"to": 0}], None, None]
    assert second == [[0, 10_000], [[0], [1]], given, [{"to": 1}], ["sent", 5], 0]


def gradients(rank, size):
    from mica.distributed import _functional_collectives as fc
    from mica.distributed.nn import functional as nnf

    world, weight = dist.group.WORLD, mica.arange(1.0, 3.0)
    x = (mica.arange(4.0).reshape(2, 2) + rank).requires_grad_()
    out = {}

    def run(name, made, scale=None):
        x.grad = None
        (made * (rank + 1 if scale is None else scale)).sum().backward()
        out[name] = [made.detach().flatten().tolist(), None if x.grad is None else x.grad.flatten().tolist()]

    run("all_reduce", fc.all_reduce(x, "sum", world))
    run("all_gather", fc.all_gather_tensor(x, 1, world))
    run("reduce_scatter", fc.reduce_scatter_tensor(x, "sum", 0, world))
    run("all_to_all", fc.all_to_all_single(x, None, None, world))
    run("broadcast", nnf.broadcast(x, 0))
    run("nn.all_gather", mica.stack(nnf.all_gather(x)), weight.reshape(2, 1, 1))
    run("nn.reduce", nnf.reduce(x, 0), 1)
    run("nn.scatter", nnf.scatter([x, x * 2], 0))
    run("permute", fc.permute_tensor(x, [1, 0], world))
    return out


def test_gradients_of_two_processes():
    first, second = ranks.run(2, gradients)
    a, b = [0, 1, 2, 3], [1, 2, 3, 4]
    total = [1, 3, 5, 7]
    assert first["all_reduce"] == [total, [3] * 4] and second["all_reduce"] == [total, [3] * 4]
    assert first["all_gather"] == [[0, 1, 1, 2, 2, 3, 3, 4], [3] * 4] and second["all_gather"][1] == [3] * 4
    assert first["reduce_scatter"] == [total[:2], [1, 1, 2, 2]] and second["reduce_scatter"] == [
        total[2:],
        [1, 1, 2, 2],
    ]
    assert first["all_to_all"] == [[0, 1, 1, 2], [1, 1, 2, 2]] and second["all_to_all"] == [[2, 3, 3, 4], [1, 1, 2, 2]]
    assert first["broadcast"] == [a, [3] * 4] and second["broadcast"] == [a, [0] * 4]
    assert first["nn.all_gather"] == [a + b, [2] * 4] and second["nn.all_gather"] == [a + b, [4] * 4]
    assert first["nn.reduce"] == [total, [1] * 4] and second["nn.reduce"][1] == [1] * 4
    assert first["nn.scatter"] == [a, [1 + 4] * 4] and second["nn.scatter"] == [[0, 2, 4, 6], [0] * 4]
    assert first["permute"] == [b, [2] * 4] and second["permute"] == [a, [1] * 4]


def given_outputs(rank, size):
    from mica.distributed.nn import functional as nnf

    x = (mica.arange(4.0).reshape(2, 2) + rank).requires_grad_()
    apart, listed, single = mica.zeros(2), [mica.zeros(2), mica.zeros(2)], mica.zeros(2, 2)
    made = [
        nnf.reduce_scatter(apart, list(x.unbind())),
        mica.stack(nnf.all_to_all(listed, list(x.unbind()))),
        nnf.all_to_all_single(single, x),
    ]
    for each in made:
        each.sum().backward()
    given = [apart, mica.stack(listed), single]
    return [each.tolist() for each in given], [each.tolist() for each in made], x.grad.tolist()


def test_collectives_with_gradients_write_the_outputs_that_they_are_given():
    first, second = ranks.run(2, given_outputs)
    assert first[0] == first[1] == [[1, 3], [[0, 1], [1, 2]], [[0, 1], [1, 2]]]
    assert second[0] == second[1] == [[5, 7], [[2, 3], [3, 4]], [[2, 3], [3, 4]]]
    assert first[2] == second[2] == [[3, 3], [3, 3]]


def wrong_arguments(rank, size):
    x = mica.arange(4.0)
    return [
        error_of(dist.all_reduce, 3), error_of(dist.all_gather, [3], x), error_of(dist.broadcast, x),
        error_of(dist.broadcast, x, 5), error_of(dist.all_gather, [mica.zeros(4)], x),
        error_of(dist.all_gather, [mica.zeros(3)] * 2, x), error_of(dist.gather, x, None, rank),
        error_of(dist.gather, x, [x, x], 1 - rank), error_of(dist.scatter, x, None, rank),
        error_of(dist.all_gather_into_tensor, mica.zeros(7), x), error_of(dist.send, x, rank),
        error_of(dist.all_to_all_single, x, x, [1, 2], [2, 2]), error_of(dist.all_to_all_single, mica.zeros(5), mica.zeros(5)),
        error_of(dist.P2POp, 3, x, 1 - rank), error_of(dist.batch_isend_irecv, [3]), error_of(dist.new_group, [0, 5]),
        error_of(dist.new_group, [0, 0]), error_of(dist.init_process_group, "gloo"),
        error_of(dist.all_reduce, mica.ones(3).to_sparse()),
    ]  # fmt: skip


def test_what_is_wrong_is_said_and_changes_nothing():
    for errors in ranks.run(2, wrong_arguments):
        words = [
            "TypeError: Invalid function argument. Expected parameter `tensor` of type torch.Tensor",
            "TypeError: Invalid function argument. Expected parameter `tensor_list` of type List[torch.Tensor]",
            "ValueError: Must specify global_rank or group_rank", "RuntimeError: ProcessGroupGloo::broadcast: invalid root rank: 5",
            "invalid output tensor list at index 0 (expected length 2, got 1)", "invalid tensor size at index 0 (expected (4,), got (3,))",
            "ValueError: Argument ``gather_list`` must be specified on destination rank.",
            "ValueError: Argument ``gather_list`` must NOT be specified on non-destination ranks.",
            "ValueError: Argument ``scatter_list`` must be specified on source rank.", "invalid tensor size at index 1",
            "ValueError: Invalid destination rank: destination rank should not be the same as the rank of the current process.",
            "RuntimeError: Split sizes doesn't match total dim 0 size", "RuntimeError: Tensor's dim 0 does not divide equally across group size",
            "ValueError: Invalid ``op``.", "ValueError: Invalid ``p2p_op_list``.",
            "ValueError: Rank 5 is out of range. Valid ranks are 0 to 1 (world_size=2)",
            "ValueError: ranks list must not contain duplicate entries, got [0, 0]",
            "ValueError: trying to initialize the default process group twice!", "dense tensors",
        ]  # fmt: skip
        for error, expected in zip(errors, words, strict=True):
            assert expected in error
