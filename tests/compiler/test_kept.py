"""What kernels make of weights is kept between compiled calls, and forgotten before a weight can change."""

import ctypes
import gc

import mica
import numpy as np
import pytest

F = mica.nn.functional


def kept():
    gc.collect()
    return mica._C._recording_counts()["bytes_of_arranged_weights"]


CASES = {  # input, weight, arguments: by Winograd, directly, from planes, and where little or nothing is kept
    "winograd": ((1, 64, 28, 28), (64, 64, 3, 3), {"padding": 1}),
    "direct": ((1, 32, 28, 28), (48, 32, 3, 3), {"stride": 2, "padding": 1}),
    "direct_groups": ((2, 64, 14, 14), (64, 32, 5, 5), {"padding": 2, "groups": 2}),
    "pointwise": ((1, 512, 7, 7), (128, 512, 1, 1), {}),
    "narrow_groups": ((1, 64, 14, 14), (64, 8, 3, 3), {"padding": 1, "groups": 8}),
    "depthwise": ((1, 64, 14, 14), (64, 1, 3, 3), {"padding": 1, "groups": 64}),
    "whole": ((4, 32, 6, 6), (16, 32, 6, 6), {}),
    "row": ((2, 32, 300), (64, 32, 5), {"padding": 2}),
}


def made(case, last=False):
    x, w, arguments = CASES[case]
    mica.manual_seed(1)
    x, w = mica.randn(x), mica.randn(w) / 16
    if last and x.dim() == 4:
        x, w = x.to(memory_format=mica.channels_last), w.to(memory_format=mica.channels_last)
    function = F.conv1d if x.dim() == 3 else F.conv2d
    return x, w, lambda x, w: function(x, w, **arguments)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("last", [False, True])
def test_bits_stay(case, last):
    before = kept()
    x, w, function = made(case, last)
    compiled = mica.compile(function)
    with mica.no_grad():
        wanted = function(x, w)
        for _ in range(4):
            assert mica.equal(compiled(x, w), wanted)
        w.mul_(2)
        for _ in range(4):
            assert mica.equal(compiled(x, w), function(x, w))
    del w
    assert kept() == before


def test_something_is_kept_from_the_second_call_on():
    before = kept()
    x, w, function = made("winograd")
    compiled = mica.compile(function)
    with mica.no_grad():
        compiled(x, w)
        assert kept() == before
        compiled(x, w)
        assert kept() - before >= 16 * 64 * 64 * 4
        assert "bytes of weights are kept in the order" in str(mica.explain(compiled, x, w))
        first = kept()
        compiled(x, w)
        function(x, w)  # only reads
        assert kept() == first
    del w
    assert kept() == before


def test_nothing_is_kept_in_training_or_without_a_compiled_function():
    before = kept()
    x, w, function = made("winograd")
    w.requires_grad_()
    x.requires_grad_()
    for _ in range(3):
        mica.compile(function)(x, w).sum().backward()
    with mica.no_grad():
        for _ in range(3):
            function(x, w)
    assert kept() == before


def write_by_address(w):
    ctypes.memset(write_by_address.address, 0, w.nbytes)


CHANGES = {
    "in place": lambda w: w.add_(1),
    "data": lambda w: w.data.mul_(3),
    "part": lambda w: w[3].zero_(),
    "element": lambda w: w[1, 2, 0, 0].fill_(100),
    "view": lambda w: w.view(-1)[5:7].fill_(50),
    "copy": lambda w: w.copy_(mica.ones_like(w)),
    "random": lambda w: w.normal_(),
    "numpy": lambda w: w.numpy().__setitem__((0, 0), 7),
    "dlpack": lambda w: np.from_dlpack(w).__setitem__((0, 0), 7) if np.from_dlpack(w).flags.writeable else w.add_(1),
    "storage": lambda w: w.untyped_storage().fill_(0),
    "swap": lambda w: w.set_(mica.full_like(w, 3.0)),
    "out": lambda w: mica.ones(w.shape, out=w),
    "index": lambda w: w.index_fill_(0, mica.tensor([2]), 9.0),
    "address": write_by_address,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", ["winograd", "direct", "pointwise"])
def test_changes_are_seen(change, case):
    x, w, function = made(case)
    write_by_address.address = w.data_ptr()
    compiled = mica.compile(function)
    with mica.inference_mode() if change == "in place" else mica.no_grad():
        for _ in range(3):
            compiled(x, w)
        CHANGES[change](w)
        for _ in range(3):
            assert mica.equal(compiled(x, w), function(x, w))


def test_a_view_of_numpy_that_lives_on_is_never_kept():
    x, w, function = made("winograd")
    array = w.numpy()
    before = kept()
    compiled = mica.compile(function)
    with mica.no_grad():
        for i in range(4):
            array[0, 0] = i
            assert mica.equal(compiled(x, w), function(x, w))
    assert kept() == before


def test_changes_within_the_function_are_seen():
    x, w, _ = made("winograd")

    def function(x, w):
        y = F.conv2d(x, w, padding=1)
        w.mul_(1.5)
        z = F.conv2d(x, w, padding=1)
        w.add_(0.01)
        return y, z

    a, b = w.clone(), w.clone()
    compiled = mica.compile(function)
    with mica.no_grad():
        for _ in range(4):
            for wanted, found in zip(function(x, a), compiled(x, b), strict=True):
                assert mica.equal(wanted, found)


def test_parts_of_one_storage_are_kept_apart():
    x, w, function = made("winograd")
    both = mica.cat((w, w * 2))
    compiled = mica.compile(function)
    with mica.no_grad():
        for _ in range(4):
            for part in both.split(64):
                assert mica.equal(compiled(x, part), function(x, part))
            turned = both[:64].flip(0)
            assert mica.equal(compiled(x, turned), function(x, turned))


def test_training_and_evaluation_by_turns():
    mica.manual_seed(2)
    model = mica.nn.Sequential(mica.nn.Conv2d(16, 32, 3, padding=1), mica.nn.ReLU(), mica.nn.Conv2d(32, 16, 1))
    optimizer = mica.optim.SGD(model.parameters(), lr=0.1)
    compiled, x = mica.compile(model), mica.randn(2, 16, 24, 24)
    for _ in range(3):
        with mica.no_grad():
            for _ in range(3):
                assert mica.equal(compiled(x), model(x))
        optimizer.zero_grad()
        compiled(x).square().mean().backward()
        optimizer.step()
    state = {name: value + 1 for name, value in model.state_dict().items()}
    with mica.no_grad():
        compiled(x), compiled(x)
        model.load_state_dict(state)
        assert mica.equal(compiled(x), model(x))


def test_threads_share_what_is_kept():
    import concurrent.futures

    x, w, function = made("direct")
    compiled = mica.compile(function)

    def call(_):
        with mica.no_grad():
            return compiled(x, w)

    with mica.no_grad():
        wanted = function(x, w)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(mica.equal(found, wanted) for found in pool.map(call, range(40)))


PRODUCTS = {  # rows, outputs, inputs: panels packed one by one, block by block and all at first, depths in parts
    "few_rows": (128, 300, 200),
    "many_rows": (700, 256, 300),
    "deep": (64, 200, 5000),
    "wide": (40, 5000, 130),
    "deep_many_rows": (400, 130, 4200),
}


KINDS = [(case, mica.float32) for case in PRODUCTS] + [("few_rows", mica.float64), ("few_rows", mica.bfloat16)]


@pytest.mark.parametrize("case, dtype", KINDS)
@pytest.mark.parametrize("threads", [1, 2])
def test_linear_layers(case, dtype, threads):
    rows, outputs, inputs = PRODUCTS[case]
    bias = case != "wide"
    mica.manual_seed(3)
    model = mica.nn.Linear(inputs, outputs, bias=bias).to(dtype)
    x = mica.randn(rows, inputs).to(dtype)
    compiled, before = mica.compile(model), kept()
    threads_before = mica.get_num_threads()
    mica.set_num_threads(threads)
    try:
        with mica.no_grad():
            for _ in range(2):
                for _ in range(3):
                    assert mica.equal(compiled(x), model(x))
                assert kept() - before >= inputs * outputs * 2
                assert mica.equal(compiled(x[: rows // 2]), model(x[: rows // 2]))
                model.weight.mul_(1.5)
                assert mica.equal(compiled(x), model(x))
    finally:
        mica.set_num_threads(threads_before)
    del model, compiled
    assert kept() == before


@pytest.mark.parametrize(
    "kind, options",
    [
        ("LSTM", {}),
        ("GRU", {}),
        ("RNN", {}),
        ("LSTM", {"num_layers": 2, "bidirectional": True}),
        ("LSTM", {"proj_size": 24}),
    ],
)
def test_recurrent_layers(kind, options):
    mica.manual_seed(4)
    before = kept()
    model = getattr(mica.nn, kind)(96, 80, batch_first=True, **options)
    x = mica.randn(2, 11, 96)
    compiled = mica.compile(model)
    with mica.no_grad():
        for factor in (1, 2):
            for parameter in model.parameters():
                parameter.mul_(factor)
            for _ in range(4):
                assert mica.equal(compiled(x)[0], model(x)[0])
            assert kept() > before
    del model, compiled
    assert kept() == before


def test_products_of_tensors_that_are_made_each_time():
    before = kept()
    x = mica.randn(64, 256)

    def function(x, y):
        return (x @ (y * 2).t()) @ y

    y = mica.randn(128, 256)
    compiled = mica.compile(function)
    with mica.no_grad():
        for i in range(4):
            y.fill_(i)
            assert mica.equal(compiled(x, y), function(x, y))
    assert kept() == before
