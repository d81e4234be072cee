"""Hostile checkpoints: an error, never a crash, and nothing that a pickle names is run."""

import contextlib
import io
import pickle
import random
import struct

import mica
import pytest
from mica import _C
from mica.serialization import get_unsafe_globals_in_checkpoint

SENTINEL = []
EXPECTED = (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, UnicodeDecodeError)


def archive_with(data_pickle, records=()):
    """A checkpoint around a pickle of one's own."""
    buffer = io.BytesIO()
    writer = _C.PyTorchFileWriter(buffer)
    writer.write_record("data.pkl", data_pickle, len(data_pickle))
    writer.write_record("byteorder", "little", 6)
    for name, data in records:
        writer.write_record(name, data, len(data))
    writer.write_end_of_file()
    return buffer.getvalue()


def load(data, **options):
    return mica.load(io.BytesIO(data), **options)


class Pickle:
    """Writes pickles opcode by opcode."""

    def __init__(self):
        self.out = b"\x80\x02"

    def raw(self, data):
        self.out += data
        return self

    def name(self, module, name):
        return self.raw(b"c" + module.encode() + b"\n" + name.encode() + b"\n")

    def text(self, value):
        data = value.encode()
        return self.raw(b"X" + struct.pack("<I", len(data)) + data)

    def number(self, value):
        data = pickle.encode_long(value)
        return self.raw(b"\x8a" + bytes([len(data)]) + data)

    def numbers(self, values):
        self.raw(b"(")
        for value in values:
            self.number(value)
        return self.raw(b"t")

    def stop(self):
        return self.out + b"."


def tensor_pickle(
    reference=("storage", "kind", "0", "cpu", 8), offset=0, size=(8,), stride=(1,), function="_rebuild_tensor_v2"
):
    p = Pickle().name("torch._utils", function).raw(b"((").text(reference[0]).name("torch", "FloatStorage")
    p.text(reference[2]).text(reference[3]).number(reference[4]).raw(b"tQ").number(offset).numbers(size).numbers(stride)
    return p.raw(b"\x89").name("collections", "OrderedDict").raw(b")RtR").stop()


FLOATS = [("data/0", struct.pack("<8f", *range(8)))]


def test_missing_record():
    reference = ("storage", "kind", "7", "cpu", 2)
    pickled = tensor_pickle(reference)
    with pytest.raises(RuntimeError, match=r"failed locating file data/7"):
        load(archive_with(pickled))


def test_a_tensor_made_by_hand_loads():
    assert load(archive_with(tensor_pickle(), FLOATS)).tolist() == list(range(8))


@pytest.mark.parametrize(
    "changes",
    [
        {"size": (9,)},
        {"size": (2**40,)},
        {"size": (2**62, 2**62)},
        {"size": (-1,)},
        {"size": (2**63,)},
        {"stride": (2,)},
        {"stride": (2**61,)},
        {"stride": (-1,)},
        {"stride": (-(2**62),), "size": (5,)},
        {"size": (3, 3), "stride": (2**62, -(2**62))},
        {"size": (2**31, 2**31), "stride": (0, 2**33)},
        {"offset": 1},
        {"offset": -1},
        {"offset": 2**62},
        {"size": (2, 2), "stride": (1,)},
        {"size": (1,) * 100, "stride": (1,) * 100},
        {"reference": ("storage", "kind", "0", "cpu", 9)},
        {"reference": ("storage", "kind", "0", "cpu", 2**60)},
        {"reference": ("storage", "kind", "0", "cpu", -1)},
        {"reference": ("module", "kind", "0", "cpu", 8)},
        {"reference": ("storage", "kind", "../x", "cpu", 8)},
        {"reference": ("storage", "kind", "0", "nowhere", 8)},
    ],
)
@pytest.mark.parametrize("mmap", [False, True])
def test_geometry_that_reaches_outside(changes, mmap, tmp_path):
    path = tmp_path / "hostile.pt"
    path.write_bytes(archive_with(tensor_pickle(**changes), FLOATS))
    with pytest.raises(EXPECTED):
        mica.load(path, mmap=mmap)
    with pytest.raises((*EXPECTED, TypeError, OverflowError, AttributeError)):
        mica.load(path, mmap=mmap, weights_only=False)


def call(module, name, *values):
    """A pickle that calls a function with some numbers and strings."""
    p = Pickle().name(module, name).raw(b"(")
    for value in values:
        p.text(value) if isinstance(value, str) else p.number(value)
    return p.raw(b"tR").stop()


@pytest.mark.parametrize(
    ("module", "name", "values"),
    [
        ("os", "system", ["true"]),
        ("posix", "system", ["true"]),
        ("builtins", "eval", ["1"]),
        ("__builtin__", "eval", ["1"]),
        ("builtins", "getattr", ["a", "b"]),
        ("builtins", "bytearray", [2**45]),
        ("_codecs", "encode", ["x", "zlib"]),
        ("torch", "Tensor", [2**45]),
        ("torch", "FloatStorage", [2**45]),
        ("torch.storage", "UntypedStorage", [2**45]),
        ("torch", "zeros", [2**45]),
        ("torch", "load", ["x"]),
        ("torch.hub", "load", ["x"]),
        ("collections", "OrderedDict", [3]),
        ("collections", "Counter", [3]),
        ("torch", "Size", ["x"]),
        ("torch", "device", ["x"]),
        ("torch._utils", "_rebuild_tensor_v2", [1, 2, 3]),
        ("torch._utils", "_rebuild_parameter", ["x", 1, 2]),
        ("torch._utils", "_rebuild_meta_tensor_no_storage", [1, 2, 3, 4]),
        ("torch._tensor", "_rebuild_from_type_v2", [1, 2, 3, 4]),
        ("torch.nn.modules.linear", "Linear", [2, 2]),
    ],
)
def test_calls_are_refused(module, name, values):
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        load(archive_with(call(module, name, *values)))


def test_the_refused_class_is_named():
    with pytest.raises(pickle.UnpicklingError, match=r"GLOBAL subprocess\.Popen was not an allowed global"):
        load(archive_with(call("subprocess", "Popen", "true")))
    assert get_unsafe_globals_in_checkpoint(io.BytesIO(archive_with(call("subprocess", "Popen", "true")))) == [
        "subprocess.Popen"
    ]


def run_me():
    SENTINEL.append(1)
    return 1


class Evil:
    def __reduce__(self):
        return run_me, ()


def test_what_a_pickle_names_is_not_run():
    file = io.BytesIO()
    mica.save({"a": Evil()}, file)
    data = file.getvalue()
    with pytest.raises(pickle.UnpicklingError, match="run_me"):
        load(data)
    assert not SENTINEL
    load(data, weights_only=False)
    assert SENTINEL.pop()


NESTING = {"list": (b"]", b"q\x00]h\x00a"), "tuple": (b")", b"\x85"), "dict": (b"}", b"q\x00}K\x01h\x00s")}


def nested(depth, kind):
    innermost, around = NESTING[kind]
    return Pickle().raw(innermost + around * depth)


@pytest.mark.parametrize("kind", ["list", "tuple", "dict"])
def test_deep_nesting(kind):
    loaded = load(archive_with(nested(200_000, kind).stop()))
    assert loaded
    del loaded


@pytest.mark.parametrize("target", [b"}q\x01h\x00K\x01s.", b"\x8fq\x01(h\x00\x90."])
def test_deeply_nested_keys(target):
    """Python hashes a tuple by recursion that nothing bounds."""
    data = nested(500_000, "tuple").raw(b"q\x00").out + target
    with pytest.raises(pickle.UnpicklingError, match="nested"):
        load(archive_with(data))


def test_deeply_nested_members_of_a_set():
    data = Pickle().name("builtins", "set").raw(b"]").out + nested(500_000, "tuple").out[2:] + b"a\x85R."
    with pytest.raises(pickle.UnpicklingError, match="nested"):
        load(archive_with(data))


@pytest.mark.parametrize(
    "program",
    [
        b".",
        b"R.",
        b"(.",
        b"t.",
        b"h\x05.",
        b"j\xff\xff\xff\xff.",
        b"K\x01K\x02s.",
        b"}K\x01s.",
        b"](K\x01K\x02u.",
        b"}(K\x01u.",
        b"K\x01K\x02a.",
        b"K\x01K\x02b.",
        b"K\x01K\x02R.",
        b"K\x01K\x02\x81.",
        b"K\x01Q.",
        b"X\xff\xff\xff\xffabc.",
        b"\x8d" + b"\xff" * 8 + b".",
        b"\x8e" + b"\xff" * 8 + b".",
        b"\x8b\xff\xff\xff\x7f.",
        b"U\xffabc.",
        b"cabc",
        b"cabc\ndef",
        b"\x93.",
        b"K\x01K\x02\x93.",
        b"\xfe.",
        b"I1\n.",
        b"ios\nsystem\n.",
        b"\x82\x01.",
        b"]q\x00h\x00a.K",
        b"",
    ],
)
def test_broken_programs(program):
    try:
        loaded = load(archive_with(b"\x80\x02" + program))
    except EXPECTED:
        return
    assert isinstance(loaded, list)  # the one that holds itself


def test_random_programs():
    """Opcodes at random, with whatever follows them."""
    rng = random.Random(3)
    opcodes = b"().0121JKMNQRTUXabcd}eghijlopqrstu]GB" + bytes(range(0x80, 0x99))
    names = [
        b"ctorch._utils\n_rebuild_tensor_v2\n",
        b"ccollections\nOrderedDict\n",
        b"ctorch\nFloatStorage\n",
        b"X\x01\x00\x00\x000",
    ]
    for _ in range(3000):
        program = b"\x80\x02"
        for _ in range(rng.randrange(1, 40)):
            program += rng.choice(names) if rng.random() < 0.15 else bytes([rng.choice(opcodes)])
            if rng.random() < 0.4:
                program += rng.randbytes(rng.randrange(4))
        with contextlib.suppress(EXPECTED):
            load(archive_with(program + b".", FLOATS))


# ---- states


def parameter_with(state):
    """A pickle of a parameter with a state; `state` pushes a dict."""
    p = Pickle().name("torch._utils", "_rebuild_parameter_with_state").raw(b"(")
    p.raw(tensor_pickle()[2:-1]).raw(b"\x88").name("collections", "OrderedDict").raw(b")R")
    return state(p).raw(b"tR")


STATES = {
    "class": lambda p: p.raw(b"}").text("__class__").name("torch", "Tensor").raw(b"s"),
    "memory": lambda p: p.raw(b"}").text("__array_interface__").raw(b"}s"),
    "slot": lambda p: p.raw(b"N}").text("__dict__").raw(b"}s\x86"),
    "number": lambda p: p.raw(b"}").number(1).number(2).raw(b"s"),
}


@pytest.mark.parametrize("state", STATES)
def test_a_state_cannot_name_what_python_gives_a_meaning(state):
    with pytest.raises(pickle.UnpicklingError, match="the state of an object names"):
        load(archive_with(parameter_with(STATES[state]).stop(), FLOATS))
    wrapped = Pickle().name("torch._tensor", "_rebuild_from_type_v2").raw(b"(")
    wrapped.name("torch._utils", "_rebuild_tensor").name("torch", "Tensor").raw(b")")
    with pytest.raises(pickle.UnpicklingError, match="the state of an object names"):
        load(archive_with(STATES[state](wrapped).raw(b"tR").stop(), FLOATS))
    built = parameter_with(lambda p: p.raw(b"}"))
    with pytest.raises(pickle.UnpicklingError, match="the state of an object names"):
        load(archive_with(STATES[state](built).raw(b"b").stop(), FLOATS))


def test_other_states_are_kept():
    data = parameter_with(lambda p: p.raw(b"}").text("note").number(3).raw(b"s")).stop()
    loaded = load(archive_with(data, FLOATS))
    assert loaded.note == 3 and type(loaded) is mica.nn.Parameter and loaded.tolist() == list(range(8))


def test_one_list_says_what_files_may_name():
    from mica._checkpoints.safe_globals import _NESTED, _OBJECTS, ALLOWED

    assert [*_C._buildable_names(), *_NESTED] == list(ALLOWED) and set(_OBJECTS) == set(_C._buildable_names())


class Jagged:
    """A jagged tensor whose offsets the file chooses."""

    def __init__(self, offsets, lengths=None, values=None):
        self.parts = {
            "values": mica.arange(4.0) if values is None else values,
            "offsets": offsets,
            "lengths": lengths,
            "_ragged_idx": 1,
            "_metadata_cache": {},
            "requires_grad": False,
        }

    def __reduce__(self):
        from mica._utils import _rebuild_from_type_v2
        from mica.nested._internal.nested_tensor import NestedTensor, _rebuild_njt

        return _rebuild_from_type_v2, (_rebuild_njt, NestedTensor, (self.parts,), {})


@pytest.mark.parametrize(
    "bad",
    [
        Jagged(mica.tensor([0, 2, 9])),
        Jagged(mica.tensor([-4, 2, 4])),
        Jagged(mica.tensor([0, 3, 1])),
        Jagged(mica.tensor([[0, 4]])),
        Jagged(mica.tensor([0, 2, 4]), mica.tensor([2, 7])),
        Jagged(mica.tensor([0, 4]), values=[1, 2, 3, 4]),
    ],
    ids=range(6),
)
def test_jagged_tensors_stay_within_their_values(bad):
    buffer = io.BytesIO()
    mica.save(bad, buffer)
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="jagged tensor"):
        mica.load(buffer)
