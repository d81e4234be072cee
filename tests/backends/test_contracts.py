"""The contracts of kernel slots in the table: every slot has one, and what it is said to write is among its arguments."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "codegen"))
import contracts  # noqa: E402
import cpp  # noqa: E402
import generate  # noqa: E402
import model  # noqa: E402
from schema import TableError  # noqa: E402

ADD = {"name": "add_to", "arguments": "const TensorView& out, const TensorView& self, int64_t* count"}


def test_a_slot_without_a_contract_is_refused():
    with pytest.raises(TableError, match="kernel add_to: say its `contract`"):
        contracts.read(ADD)
    with pytest.raises(TableError, match="kernel add_to: writes 'result', which is no argument"):
        contracts.read(ADD | {"contract": "Adds.", "writes": "result"})
    with pytest.raises(TableError, match=r"kernel add_to: unknown keys \['adds'\]"):
        contracts.read(ADD | {"contract": "Adds.", "adds": "out"})


def test_the_list_of_slots_has_the_places_of_what_is_written():
    kernel = ADD | {"contract": "Counts.", "writes": "out self"}
    table = cpp.kernel_table([], [kernel])
    assert "  // Counts. Writes out, self.\n  void (*add_to)(" in table
    assert "#define MICA_KERNEL_SLOTS(X) \\\n  X(add_to, 3u)\n" in table


@pytest.mark.parametrize("layers", [False, True])
def test_every_slot_is_on_the_page(layers):
    ops = [op for op in model.load(ROOT / "ops") if op.is_layer == layers]
    kernels = generate.kernels(ROOT / "ops", layers)
    known, slots = contracts.by_slot(ops, kernels), cpp.kernel_slots(ops, kernels)
    assert known.keys() == slots.keys() and len(slots) > 100
    page = contracts.page([("All", slots, known)])
    for slot in slots:
        assert f"### {slot}\n" in page and known[slot].text in page
