"""How exact float32 has to be computed: torch's older and newer settings, and how they show in each other.

The expected values are what torch 2.13 answers after the same assignments.
"""

import subprocess
import sys

import pytest

STATE = """
import mica
b = mica.backends

def answer(question):
    try:
        return str(question())
    except RuntimeError as error:
        assert "older function" in str(error)
        return "?"

def show():
    new = (b.fp32_precision, b.cuda.matmul.fp32_precision, b.cudnn.fp32_precision, b.cudnn.conv.fp32_precision,
           b.cudnn.rnn.fp32_precision, b.mkldnn.fp32_precision, b.mkldnn.matmul.fp32_precision)
    old = (mica.get_float32_matmul_precision, lambda: b.cuda.matmul.allow_tf32, lambda: b.cudnn.allow_tf32)
    print(*new, *map(answer, old))
"""

SEQUENCES = {
    "everywhere": [
        ("b.fp32_precision = 'tf32'", "tf32 tf32 tf32 tf32 tf32 tf32 tf32 ? ? True"),
        ("b.fp32_precision = 'ieee'", "ieee ieee ieee ieee ieee ieee ieee highest False ?"),
        ("b.cudnn.conv.fp32_precision = 'tf32'", "ieee ieee ieee tf32 ieee ieee ieee highest False ?"),
        ("b.cudnn.fp32_precision = 'tf32'", "ieee tf32 tf32 tf32 tf32 ieee ieee ? ? True"),
        ("b.fp32_precision = 'bf16'", "bf16 tf32 tf32 tf32 tf32 bf16 bf16 ? ? True"),
    ],
    "products": [
        ("pass", "none none none tf32 tf32 none none highest False True"),
        ("mica.set_float32_matmul_precision('high')", "none tf32 none tf32 tf32 none tf32 high True True"),
        ("mica.set_float32_matmul_precision('medium')", "none tf32 none tf32 tf32 none bf16 medium True True"),
        ("b.cuda.matmul.fp32_precision = 'ieee'", "none ieee none tf32 tf32 none bf16 medium ? True"),
        ("mica.set_float32_matmul_precision('highest')", "none ieee none tf32 tf32 none ieee highest False True"),
        ("b.cuda.matmul.allow_tf32 = True", "none tf32 none tf32 tf32 none ieee high True True"),
    ],
    "layers": [
        ("b.cudnn.allow_tf32 = False", "none none none none none none none highest False False"),
        ("b.cudnn.allow_tf32 = True", "none none none tf32 tf32 none none highest False True"),
        ("b.cudnn.rnn.fp32_precision = 'ieee'", "none none none tf32 ieee none none highest False ?"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SEQUENCES)
def test_settings_show_in_each_other(name):
    program = STATE + "".join(f"{statement}\nshow()\n" for statement, _ in SEQUENCES[name])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [expected for _, expected in SEQUENCES[name]]


def test_unknown_words_are_refused_and_change_nothing():
    import mica

    with pytest.raises(RuntimeError, match="Unknown precision: fast"):
        mica.backends.cuda.matmul.fp32_precision = "fast"
    with pytest.raises(RuntimeError, match="backend 'cuda' does not support precision 'bf16'"):
        mica.backends.cudnn.conv.fp32_precision = "bf16"
    with pytest.raises(AttributeError, match="Unknown attribute fp16_precision"):
        mica.backends.cudnn.conv.fp16_precision = "ieee"
    assert mica.backends.cuda.matmul.fp32_precision == "none"
    assert mica.backends.cudnn.conv.fp32_precision == "tf32"


def test_flags_hold_within_their_block():
    import mica

    cudnn = mica.backends.cudnn
    with cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        assert (cudnn.enabled, cudnn.deterministic, cudnn.allow_tf32) == (True, True, False)
    assert (cudnn.enabled, cudnn.deterministic, cudnn.allow_tf32) == (True, False, True)
    with cudnn.flags(False, True):  # those not named have torch's values for the block
        assert (cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit) == (False, True, 10)
    assert cudnn.set_flags(_benchmark=True) == (True, False, None, False, True, "none", "auto")
    assert cudnn.set_flags(_benchmark=False)[1] is True
    with pytest.raises(TypeError, match="unexpected keyword argument 'enabled'"):
        cudnn.set_flags(enabled=True)
    with pytest.raises(TypeError, match="multiple values for argument 'enabled'"), cudnn.flags(True, enabled=True):
        pass
    with mica.backends.flags(fp32_precision="ieee"):
        assert mica.backends.cuda.matmul.fp32_precision == "ieee"
    assert mica.backends.fp32_precision == "none"
