"""The scale of blocks, pairs of 4-bit floats, bits and integers below a byte: what torch does with them, recorded, and files."""

import copy
import json
import pickle
from pathlib import Path

import mica
import pytest
import storage_dtype_cases as cases

RECORDED = json.loads((Path(__file__).parents[1] / "recorded/storage_dtypes.json").read_text())
ALL = [*cases.DTYPES, *cases.SMALL_INTEGERS]
SCALE, PAIR = mica.float8_e8m0fnu, mica.float4_e2m1fn_x2


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_what_moves_elements(dtype):
    for case in cases.CASES:
        assert cases.answer(mica, dtype, case) == RECORDED["answers"][dtype][case], case


@pytest.mark.parametrize("dtype", cases.SMALL_INTEGERS)
def test_integers_below_a_byte_move_as_bytes_do(dtype):
    """torch makes and views them and copies none; here they move as bits8 do."""
    for case in cases.CASES:
        name, *rest = RECORDED["answers"]["bits8"][case]
        expected = [name.replace("bits8", dtype), *rest]
        assert cases.answer(mica, dtype, case) == expected, case


@pytest.mark.parametrize("dtype", ALL)
def test_what_is_refused(dtype):
    for case in cases.REFUSED:
        assert cases.refusal(mica, dtype, case) == RECORDED["refused"][dtype][case], case


def test_casts_of_scales():
    for case, answer in cases.casts(mica).items():
        assert answer == RECORDED["casts"][case], case


def test_facts():
    assert repr(SCALE) == "torch.float8_e8m0fnu" and SCALE.is_floating_point and not SCALE.is_signed
    assert repr(PAIR) == "torch.float4_e2m1fn_x2" and PAIR.is_floating_point and PAIR.is_signed and PAIR.itemsize == 1
    assert mica.bits16.itemsize == 2 and not mica.bits16.is_floating_point and not mica.bits16.is_complex
    assert mica.bit is mica.uint1 and mica.int4.is_signed and not mica.uint4.is_signed
    with pytest.raises(RuntimeError, match="Bits types are undefined"):
        _ = mica.bits8.is_signed
    for quantized in (mica.quint8, mica.quint4x2, mica.quint2x4):
        with pytest.raises(RuntimeError, match="isSignedType not supported for quantized types"):
            _ = quantized.is_signed
    info = mica.finfo(SCALE)
    assert (info.bits, info.eps, info.max, info.min, info.tiny) == (8, 1.0, 2.0**127, 2.0**-127, 2.0**-127)
    assert repr(info) == (
        "finfo(resolution=1, min=5.87747e-39, max=1.70141e+38, eps=1, smallest_normal=5.87747e-39, tiny=5.87747e-39, "
        "dtype=float8_e8m0fnu)"
    )


def test_numbers_that_a_scale_cannot_hold():
    x = mica.zeros(2, dtype=SCALE)
    for number in (0.0, -1.0, 1e39, float("inf"), 1 + 0j):
        with pytest.raises(
            RuntimeError, match="value cannot be converted to type c10::Float8_e8m0fnu without overflow"
        ):
            x.fill_(number)
    assert x.view(mica.uint8).tolist() == [0, 0]
    for number, byte in ((0, 0), (-1, 127), (3, 129), (float("nan"), 255), (5.9e-39, 1)):
        assert mica.full((2,), number, dtype=SCALE).view(mica.uint8).tolist() == [byte] * 2
        assert mica.tensor([number], dtype=SCALE).view(mica.uint8).tolist() == [byte]
    assert mica.tensor([-1.0, 1e39, 0.0], dtype=SCALE).view(mica.uint8).tolist() == [127, 255, 0]


def test_equality():
    x = cases.example(mica, "float8_e8m0fnu")
    assert (x == x).tolist() == [[True] * 4, [True] * 4, [False, True, True, True]]  # 255 is NaN
    pairs = cases.example(mica, "float4_e2m1fn_x2")
    assert (pairs == pairs).all() and not (pairs != pairs).any()


def test_texts():
    assert repr(cases.example(mica, "float4_e2m1fn_x2")) == (
        "tensor([[  0.,   1.,   2.,   3.],\n        [126., 127., 128., 254.],\n        [255.,  64.,  17.,  90.]], "
        "dtype=torch.float4_e2m1fn_x2)"
    )
    assert repr(mica.tensor([0.5, 4.0], dtype=SCALE)) == "tensor([0.5000, 4.0000], dtype=torch.float8_e8m0fnu)"
    for dtype in ALL:
        kind = getattr(mica, dtype)
        assert repr(mica.empty(0, dtype=kind)) == f"tensor([], dtype=torch.{dtype})"
        assert (
            repr(mica.empty(2, dtype=kind, device="meta"))
            == f"tensor(..., device='meta', size=(2,), dtype=torch.{dtype})"
        )
    with pytest.raises(NotImplementedError, match="\"_local_scalar_dense_cpu\" not implemented for 'Bits8'"):
        repr(mica.zeros(2, dtype=mica.bits8))


@pytest.mark.parametrize("dtype", ALL)
def test_pickles(dtype):
    kind = getattr(mica, dtype)
    assert pickle.loads(pickle.dumps(kind)) is kind and copy.deepcopy(kind) is kind
    x = cases.example(mica, dtype)
    y = pickle.loads(pickle.dumps(x))
    assert y.dtype == kind and y.view(mica.uint8).equal(x.view(mica.uint8))


def test_promotion():
    for dtype in ALL:
        kind = getattr(mica, dtype)
        assert mica.promote_types(kind, kind) == kind
    assert mica.promote_types(mica.uint4, mica.float32) == mica.float32
    for a, b, words in (
        (
            SCALE,
            mica.float32,
            "Promotion for Float8 Types is not supported, attempted to promote Float8_e8m0fnu and Float",
        ),
        (mica.bits8, SCALE, "Promotion from Bits8 and Float8_e8m0fnu is unsupported"),
        (
            mica.uint1,
            mica.int4,
            "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote UInt1 and Int4",
        ),
        (mica.int4, mica.float32, "Promotion from Int4 and Float is unsupported"),
    ):
        with pytest.raises(RuntimeError, match=words):
            mica.promote_types(a, b)
    assert mica.can_cast(mica.bits8, mica.float32) and not mica.can_cast(mica.complex64, mica.bits8)
    assert not mica.can_cast(SCALE, mica.int64) and not mica.can_cast(mica.uint4, mica.bool)


def test_dlpack():
    for dtype in ("float8_e8m0fnu", "float4_e2m1fn_x2"):
        x = cases.example(mica, dtype)
        y = mica.from_dlpack(x)
        assert y.dtype == x.dtype and y.data_ptr() == x.data_ptr() and y.shape == x.shape
    assert mica.from_dlpack(cases.example(mica, "uint4")).dtype == mica.uint8
    assert mica.from_dlpack(cases.example(mica, "int4")).dtype == mica.int8
    with pytest.raises(BufferError, match="Bit types are not supported by dlpack"):
        mica.from_dlpack(cases.example(mica, "bits8"))


def test_safetensors(tmp_path):
    from mica._checkpoints.safetensors import load_safetensors

    path = tmp_path / "blocks.safetensors"
    pairs, scales = mica.tensor([[0x21, 0x43]], dtype=mica.uint8), mica.tensor([127, 130], dtype=mica.uint8)
    header = json.dumps(
        {
            "pairs": {"dtype": "F4", "shape": [1, 4], "data_offsets": [0, 2]},
            "scales": {"dtype": "F8_E8M0", "shape": [2], "data_offsets": [2, 4]},
        }
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(pairs.flatten().tolist() + scales.tolist()))
    loaded = load_safetensors(str(path), "cpu")
    assert loaded["pairs"].dtype == PAIR and loaded["pairs"].view(mica.uint8).equal(pairs)
    assert loaded["scales"].dtype == SCALE and loaded["scales"].tolist() == [1.0, 8.0]
    odd = header.replace(b"[1, 4]", b"[4, 1]")
    path.write_bytes(len(odd).to_bytes(8, "little") + odd + bytes(4))
    with pytest.raises(RuntimeError, match="do not fill whole bytes"):
        load_safetensors(str(path), "cpu")
