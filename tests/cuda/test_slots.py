"""Which slots of the kernel tables the CUDA backend fills: what it leaves out is named here, with what happens instead."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "codegen"))
import cpp  # noqa: E402
import model  # noqa: E402
import optimizers  # noqa: E402

# Each of these runs as a composition of other operations, or through a slot that does the same on the device.
ELSEWHERE = {
    "int4_mm": "weights are packed for the CPU, as torch's names say: _weight_int4pack_mm_for_cpu",
    "int4_pack": "as int4_mm",
    "int8_weight_mm": "a product with the weights in the dtype of the activations",
    "linalg_lu_determinant": "the product of the diagonal and a count of exchanges",
    "linalg_lu_row_order": "linalg_lu_solve exchanges the rows of the identity",
    "linalg_small_qr": "linalg_geqrf and linalg_orgqr take many small matrices at once",
    "order_rows": "a sort for each column, the last first",
    "unscale_gradients": "unscale_on_device does it without reading anything back",
}


def slots():
    kernels = [k for _, _, table in model.read_tables(ROOT / "ops") for k in table.get("kernel", [])]
    return set(cpp.kernel_slots(model.load(ROOT / "ops"), kernels + optimizers.kernel_slots(ROOT / "ops")))


def test_every_slot_is_filled_or_accounted_for():
    filled = set(re.findall(r"X\((\w+)\)", (ROOT / "backends/cuda/slots.h").read_text()))
    all_of_them = slots()
    assert not filled - all_of_them, f"no such slots: {sorted(filled - all_of_them)}"
    assert not set(ELSEWHERE) - all_of_them
    missing = all_of_them - filled - set(ELSEWHERE)
    assert not missing, f"slots that the CUDA backend neither fills nor accounts for: {sorted(missing)}"
