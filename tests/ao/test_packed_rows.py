"""Tables of embeddings of 8, 4 and 2 bits: the bytes and sums are those that torch 2.13 gives."""

import mica as torch
import pytest

ops = torch.ops.quantized
PACKED = {
    "byte": [[255, 129, 0, 188, 247, 255, 110, 60, 73, 113, 11, 192], [36, 0, 205, 255, 133, 180, 15, 60, 45, 5, 179, 191],
             [0, 89, 35, 255, 217, 162, 103, 59, 68, 33, 56, 191]],
    "4bit": [[143, 176, 240, 51, 92, 192], [2, 252, 197, 48, 152, 189], [80, 242, 177, 43, 193, 185]],
    "2bit": [[139, 246, 60, 92, 192], [224, 247, 57, 152, 189], [196, 207, 52, 193, 185]],
}  # fmt: skip
INDICES, OFFSETS = torch.tensor([0, 3, 3, 1, 4]), torch.tensor([0, 2, 2])


def op(word, name):
    return getattr(ops, f"embedding_bag_{word}_{name}")


@pytest.fixture
def table():
    torch.manual_seed(0)
    return torch.randn(5, 8) * 3


@pytest.mark.parametrize("word", PACKED)
def test_rows_are_packed_as_in_torch(word):
    torch.manual_seed(0)
    weight = torch.randn(3, 4)
    packed = op(word, "prepack")(weight)
    assert packed.dtype == torch.uint8 and packed.tolist() == PACKED[word]
    extremes = torch.stack([weight.amin(1), weight.amax(1)], 1)
    assert torch.equal(op(word, "prepack_with_rowwise_min_max")(weight, extremes), packed)
    back = op(word, "unpack")(packed)
    step = (weight.amax(1) - weight.amin(1)) / {"byte": 255, "4bit": 15, "2bit": 3}[word]
    assert ((back - weight).abs().amax(1) <= 0.51 * step + 2e-3).all()


def test_rows_without_a_range():
    assert ops.embedding_bag_4bit_prepack(torch.ones(1, 4)).tolist() == [[0, 0, 0, 60, 0, 60]]
    assert ops.embedding_bag_4bit_prepack(torch.tensor([[1e-9, 2e-9, 0, 1e-9]])).tolist() == [[0, 0, 0, 60, 0, 0]]


def test_sums_of_bags(table):
    packed = ops.embedding_bag_4bit_prepack(table)
    expected = torch.tensor(
        [[-3.927490234375, -5.6083984375, 0.796875, -0.211669921875, 2.000244140625, 0.062744140625, 1.805419921875,
          -4.874267578125],
         [0.0] * 8,
         [4.471435546875, -5.498046875, -0.41015625, 1.369873046875, -1.790283203125, 1.022705078125, 1.282958984375,
          5.803955078125]]
    )  # fmt: skip
    bags = ops.embedding_bag_4bit_rowwise_offsets
    torch.testing.assert_close(bags(packed, INDICES, OFFSETS), expected)
    torch.testing.assert_close(bags(packed, INDICES.int(), OFFSETS.int(), mode=1), expected)  # sums whatever the mode
    both = bags(packed, INDICES, torch.tensor([0, 2, 5]), include_last_offset=True)
    torch.testing.assert_close(both, expected[[0, 2]])
    assert torch.equal(bags(packed, INDICES.view(5, 1)), ops.embedding_bag_4bit_unpack(packed)[INDICES])


def test_weights_of_samples_and_rows_that_were_left_out(table):
    packed = ops.embedding_bag_byte_prepack(table)
    bags = ops.embedding_bag_byte_rowwise_offsets
    three, two = torch.tensor([0, 1, 2]), torch.tensor([0, 2])
    weighted = bags(packed, three, two, per_sample_weights=torch.tensor([1.0, 2.0, 3.0]))
    assert weighted[0, :3].tolist() == pytest.approx([-1.4285415410995483, -11.031476974487305, 1.304384708404541])
    mapping = torch.tensor([1, -1, 0], dtype=torch.int32)
    pruned = bags(packed, three, two, pruned_weights=True, compressed_indices_mapping=mapping)
    assert pruned[0, :3].tolist() == pytest.approx([0.9765933156013489, -3.790004253387451, 1.03544020652771])
    assert pruned[1, :3].tolist() == pytest.approx([-3.381728410720825, -3.451467990875244, -0.766495943069458])


@pytest.mark.parametrize(("dtype", "word"), [(torch.quint8, "byte"), (torch.quint4x2, "4bit")], ids=str)
def test_packed_quantized_tables(table, dtype, word):
    quantized = torch.quantize_per_channel(table, torch.rand(5) + 0.1, torch.rand(5), 0, dtype)
    packed = ops.embedding_bag_prepack(quantized)
    assert ops.embedding_bag_unpack(packed) is quantized
    rows = quantized.dequantize()
    found = getattr(ops, f"embedding_{word}")(packed, INDICES)
    tolerance = 0 if word == "byte" else 2e-2  # the scales of rows of four bits are float16
    torch.testing.assert_close(found, rows[INDICES], rtol=1e-5 + tolerance, atol=1e-5 + tolerance)
    sums = getattr(ops, f"embedding_bag_{word}")(packed, INDICES, OFFSETS)
    torch.testing.assert_close(sums[2], found[2:].sum(0))


def test_what_is_refused(table):
    packed = ops.embedding_bag_4bit_prepack(table)
    with pytest.raises(RuntimeError, match="expects offsets to be set for 1D indices"):
        ops.embedding_bag_4bit_rowwise_offsets(packed, INDICES)
    for bad in ([7], [-1]):
        with pytest.raises(RuntimeError, match="out of bounds"):
            ops.embedding_bag_4bit_rowwise_offsets(packed, torch.tensor(bad), torch.tensor([0]))
    with pytest.raises(RuntimeError, match="number of columns a multiple of 4"):
        ops.embedding_bag_2bit_prepack(torch.randn(3, 6))
    with pytest.raises(RuntimeError, match="only supports quint8 and quint4x2"):
        ops.embedding_bag_prepack(torch.quantize_per_channel(table, torch.ones(5), torch.zeros(5), 0, torch.qint8))
    with pytest.raises(RuntimeError, match="packed rows of torch.uint8"):
        ops.embedding_bag_byte_unpack(table)
