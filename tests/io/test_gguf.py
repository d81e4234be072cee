"""GGUF files: weights of few bits are read as the package gguf reads them, multiplied, and never trusted."""

import copy
import pickle
import random
import struct
from pathlib import Path

import mica
import pytest
from mica.nn import functional as F

FILE = Path(__file__).parents[1] / "recorded" / "files" / "blocks.gguf"
BLOCKS = ["Q4_0", "Q8_0", "Q4_K", "Q6_K"]


def test_every_type_is_what_gguf_says():
    weights = mica.load_gguf(FILE)
    assert list(weights)[:2] == ["Q4_0", "Q4_0.expected"] and len(weights) == 14
    for name in (*BLOCKS, "F16", "F32", "BF16"):
        weight, expected = weights[name], weights[name + ".expected"]
        assert weight.shape == expected.shape
        if name not in BLOCKS:
            assert mica.equal(weight.float(), expected)
            continue
        assert weight.type == name and repr(weight) == f"BlockWeight({name}, shape=(5, 512))"
        got = weight.dequantize()
        if name == "Q4_K":  # in Q4_K the offset is combined with another number first
            assert (got - expected).abs().max() <= 1e-6 * expected.abs().max()
        else:
            assert mica.equal(got, expected)


def test_keys_and_values():
    metadata = mica.load_gguf(str(FILE)).metadata
    assert metadata["general.architecture"] == "llama" and metadata["llama.block_count"] == 2
    assert metadata["tokenizer.ggml.tokens"] == ["<s>", "ä", "word"] and metadata["general.some_numbers"] == [1, 2, 3]
    assert metadata["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("dtype", [mica.float32, mica.bfloat16, mica.float16])
def test_products(name, dtype):
    weights = mica.load_gguf(FILE)
    weight, real = weights[name], weights[name + ".expected"].double()
    mica.manual_seed(0)
    for rows in (1, 2, 3, 7, 8, 13):
        x = mica.randn(rows, 512).to(dtype)
        expected = x.double() @ real.t()
        got = F.linear(x, weight)
        assert got.dtype is dtype and got.shape == (rows, 5)
        assert (got.double() - expected).abs().max() < 2e-2 * expected.abs().max()


@pytest.mark.parametrize("name, size", [("Q4_0", 18), ("Q8_0", 34)])
@pytest.mark.parametrize("columns", [5, 16, 37])
@pytest.mark.parametrize("depth", [32, 96])
def test_products_that_need_no_rounding_are_exact(name, size, columns, depth):
    from mica._checkpoints.block_weight import BlockWeight

    mica.manual_seed(2)
    data = mica.randint(0, 256, (columns * depth // 32, size), dtype=mica.uint8)
    scales = mica.tensor([0.25, 0.5, 1.0, -2.0])[mica.randint(0, 4, (len(data), 1))]
    data[:, :2] = scales.half().view(mica.uint8)
    weight = BlockWeight(name, data.flatten(), (columns, depth))
    # Each group's greatest activation is 127, so that a step is 1, or 2 in the later ones.
    x = mica.randint(-127, 128, (20, depth)).float()
    x[:, ::32] = 127
    x[:, depth // 64 * 32 :] *= 2
    expected = (x.double() @ weight.dequantize().double().t()).float()
    for rows in (1, 2, 3, 4, 8, 15, 20):
        assert mica.equal(F.linear(x[:rows], weight), expected[:rows])
    assert mica.equal(F.linear(x[:1].bfloat16(), weight), expected[:1].bfloat16())


def test_small_weights_are_moved_together():
    from mica._checkpoints.block_weight import BlockWeight, gather

    mica.manual_seed(3)

    def some(columns):
        data = mica.randint(0, 60, (columns * 1024 // 32, 18), dtype=mica.uint8)
        return BlockWeight("Q4_0", data.flatten(), (columns, 1024))

    x = mica.randn(2, 1024)
    for sizes, together in (((1000, 2000, 3000), True), ((1000, 100), False)):
        weights = [some(n) for n in sizes]
        before = [(w.linear(x), w.dequantize(), w.nbytes) for w in weights]
        gather(weights)
        for weight, (product, numbers, nbytes) in zip(weights, before, strict=True):
            assert mica.equal(weight.linear(x), product) and mica.equal(weight.dequantize(), numbers)
            assert weight.nbytes == nbytes
        places = {part.untyped_storage().data_ptr() for w in weights for part in w._parts[2:4]}
        assert len(places) == (1 if together else 2 * len(weights))


@pytest.mark.parametrize("name", BLOCKS)
def test_weights_are_saved_as_the_file_has_them(name):
    weight = mica.load_gguf(FILE)[name]
    data = pickle.dumps(weight)
    assert len(data) < weight._parts[1].nbytes + 2000  # without the packed numbers
    again = pickle.loads(data)
    assert again.type == name and again.shape == weight.shape
    x = mica.randn(1, 512)
    assert mica.equal(again.linear(x), weight.linear(x)) and mica.equal(again.dequantize(), weight.dequantize())
    assert copy.deepcopy(weight) is weight


def test_in_the_place_of_a_matrix():
    weights = mica.load_gguf(FILE)
    weight, real = weights["Q8_0"], weights["Q8_0.expected"]
    layer = mica.nn.Linear(512, 5)
    with mica.no_grad():
        x = mica.randn(2, 3, 512)
        expected = F.linear(x, real, layer.bias)
        del layer.weight
        layer.weight = weight
        assert (layer(x) - expected).abs().max() < 2e-2 * expected.abs().max()
    ids = mica.tensor([[4, 0], [2, 2]])
    assert mica.equal(F.embedding(ids, weight), real[ids])
    with pytest.raises(IndexError, match="index 5 is out of range"):
        F.embedding(mica.tensor([5]), weight)
    with pytest.raises(NotImplementedError, match="dequantize"):
        mica.add(mica.ones(5, 512), weight)
    for x, words in (
        (mica.ones(3, 511), "512"),
        (mica.ones(3, 512, dtype=mica.float64), "float32, bfloat16 or float16"),
    ):
        with pytest.raises(RuntimeError, match=words):
            weight.linear(x)
    assert weight.linear(mica.ones(0, 512)).shape == (0, 5)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("dtype", [mica.float32, mica.bfloat16])
def test_what_comes_before_a_weight_is_trained(name, dtype):
    mica.manual_seed(1)
    weight = mica.load_gguf(FILE)[name]
    x = mica.randn(2, 3, 512).to(dtype).requires_grad_()
    grad = mica.randn(2, 3, 5).to(dtype)
    F.linear(x, weight).backward(grad)
    expected = grad.double() @ weight.dequantize().double()
    assert x.grad.dtype is dtype
    assert (x.grad.double() - expected).abs().max() < (1e-6 if dtype is mica.float32 else 1e-2) * expected.abs().max()


def test_rows_without_steps():
    weight = mica.load_gguf(FILE)["Q4_0"]
    x = mica.ones(3, 512)
    x[0, 7], x[2] = float("inf"), 1e-40
    got, real = weight.linear(x), weight.dequantize()
    assert not got[0].isfinite().any() and mica.equal(got[1], weight.linear(x[1]))
    assert (got[2] - x[2] @ real.t()).abs().max() <= 1e-42


def header(tensors=b"", keys=b"", version=3, counts=None):
    counts = counts or (bool(tensors), bool(keys))
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + keys + tensors


def text(words):
    return struct.pack("<Q", len(words)) + words


def tensor(dims, kind=0, offset=0, name=b"x"):
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"GGU", "missing"),
        (b"GGML" + bytes(100), "does not begin with GGUF"),
        (header(version=1), "version 1"),
        (header(version=3 << 24), "version"),
        (header(counts=(1 << 60, 0)), "missing"),
        (header(keys=struct.pack("<Q", 1 << 63)), "missing"),
        (header(keys=text(b"\xff") + struct.pack("<IB", 0, 0)), "decode"),
        (header(keys=text(b"k") + struct.pack("<I", 77)), "type 77"),
        (header(keys=text(b"k") + struct.pack("<IIQ", 9, 0, 1 << 62)), "missing"),
        (header(keys=text(b"k") + struct.pack("<IIQ", 9, 8, 1 << 40)), "longer than the file"),
        (header(keys=text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 40), "within"),
        (header(keys=text(b"k") + bytes(5) + text(b"k") + bytes(5), counts=(0, 2)), "comes twice"),
        (header(keys=text(b"general.alignment") + struct.pack("<II", 4, 3)), "no power of two"),
        (header(tensors=tensor([1, 1, 1, 1, 1])), "5 dimensions"),
        (header(tensors=tensor([1 << 63, 1 << 63])), "outside of the file"),
        (header(tensors=tensor([4], offset=1 << 62)), "outside of the file"),
        (header(tensors=tensor([4]) * 2, counts=(2, 0)), "comes twice"),
        (header(tensors=tensor([31], kind=2)), "no blocks of 32"),
        (header(tensors=tensor([0], kind=2)), "no blocks of 32"),
        (header(tensors=tensor([], kind=2)), "no blocks of 32"),
        (header(tensors=tensor([256], kind=10)), "Q2_K, which Mica does not read"),
        (header(tensors=tensor([4], kind=4)), "type 4"),
    ],
    ids=range(23),
)
def test_files_that_are_refused(tmp_path, data, words):
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(RuntimeError, match=words) as error:
        mica.load_gguf(path)
    assert str(path) in str(error.value)


def test_damaged_files_are_read_or_refused(tmp_path):
    whole, rng, path = FILE.read_bytes(), random.Random(0), tmp_path / "x.gguf"
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(1200 if rng.random() < 0.9 else len(data))] = rng.choice((0, 1, 255, rng.randrange(256)))
        path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
        try:
            for weight in mica.load_gguf(path).values():
                if hasattr(weight, "linear"):
                    weight.dequantize().sum()
                else:
                    weight.clone()
        except RuntimeError as error:
            assert "GGUF" in str(error)
            refused += 1
    assert 100 < refused < 300
