"""torch.cuda.tunable: algorithms of cuBLASLt that were timed, and the file that keeps the choices."""

import mica
import pytest
from mica.cuda import tunable

pytestmark = pytest.mark.cuda


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tunable.set_filename(str(tmp_path / "results.csv"), insert_device_ordinal=True)
    tunable.set_max_tuning_duration(2)
    tunable.enable()
    tunable.tuning_enable()
    yield tmp_path / f"results{mica.cuda.current_device()}.csv"
    tunable.enable(False)
    tunable.set_max_tuning_duration(30)
    tunable.record_untuned_enable(False)


def rows(file):
    return [line.split(",") for line in file.read_text().splitlines() if not line.startswith("Validator")]


@pytest.mark.parametrize("dtype", [mica.float32, mica.float16, mica.bfloat16, mica.float64, mica.complex64], ids=str)
def test_products_are_right_and_their_choices_are_kept(tuned, dtype):
    a, b = (mica.randint(-3, 4, size, device="cuda").to(dtype) for size in ((3, 72, 40), (3, 40, 56)))
    bias = mica.randint(-3, 4, (56,), device="cuda").to(dtype)
    layer = mica.nn.functional.linear
    for product in (
        lambda x, y, z: x[0] @ y[0],
        lambda x, y, z: x @ y,
        lambda x, y, z: x[1].mT.contiguous().mT @ y[1],
        lambda x, y, z: layer(x[0], y[0].mT.contiguous(), z),
    ):
        expected = product(*(t.cpu().to(mica.complex128) for t in (a, b, bias)))
        for _ in range(2):  # tuned, then chosen
            found = product(a, b, bias).cpu().to(mica.complex128)
            assert (found - expected).abs().max() == 0
    name = str(dtype).removeprefix("torch.")
    kept = rows(tuned)
    assert kept and all(name in row[0] for row in kept)
    assert {tuple(row[:3]) for row in kept} <= {row[:3] for row in tunable.get_results()}


def test_a_file_of_elsewhere_is_refused(tuned, tmp_path):
    a = mica.randn(24, 48, device="cuda")
    a @ a.mT
    assert tunable.read_file()
    other = tmp_path / "other.csv"
    other.write_text(tuned.read_text().replace("CUBLASLT_VERSION,", "CUBLASLT_VERSION,9"))
    with pytest.warns(UserWarning, match="was tuned elsewhere and is not used: its CUBLASLT_VERSION"):
        assert not tunable.read_file(str(other))
    assert not tunable.read_file(str(tmp_path / "none.csv"))
    assert dict(tunable.get_validators()).keys() == {"FORMAT", "CUBLASLT_VERSION", "DEVICE"}


def test_nonsense_in_a_file_changes_no_result(tuned, tmp_path):
    a = mica.randint(-3, 4, (40, 32), device="cuda").float()
    expected = a @ a.mT
    (operation, parameters, *_) = rows(tuned)[-1]
    validators = [line for line in tuned.read_text().splitlines() if line.startswith("Validator")]
    for solution in (
        "Default",
        "Gemm_CublasLt_",
        "Gemm_CublasLt_999999_1_1_1_1_1_1_1_1",
        "Gemm_CublasLt_0_-1",
        "x" * 5000,
    ):
        other = tmp_path / "other.csv"
        other.write_text("\n".join([*validators, f"{operation},{parameters},{solution},0.1", ",,,", "a,b", ""]))
        assert tunable.read_file(str(other))
        assert mica.equal(a @ a.mT, expected)


def test_products_are_recorded_and_tuned_later(tuned, tmp_path):
    tunable.tuning_enable(False)
    tunable.record_untuned_enable()
    a = mica.randn(2, 80, 96, device="cuda")
    a[0] @ a[1].mT, a @ a.mT, mica.nn.functional.linear(a[0], a[1], a[0, :, 0].contiguous())
    file = tmp_path / f"tunableop_untuned{mica.cuda.current_device()}.csv"
    recorded = {tuple(line.split(",")) for line in file.read_text().splitlines()}
    assert len(recorded) == 3 and not tuned.exists()
    with pytest.raises(AssertionError, match="call enable"):
        tunable.tune_gemm_in_file(str(file))
    tunable.record_untuned_enable(False)
    tunable.tuning_enable()
    tunable.tune_gemm_in_file(str(file))
    assert recorded <= {tuple(row[:2]) for row in rows(tuned)}


def test_settings():
    for getter, setter, value in (
        (tunable.get_max_tuning_duration, tunable.set_max_tuning_duration, 7),
        (tunable.get_max_tuning_iterations, tunable.set_max_tuning_iterations, 5),
        (tunable.get_rotating_buffer_size, tunable.set_rotating_buffer_size, 3),
    ):
        before = getter()
        setter(value)
        assert getter() == value
        setter(before)
    assert not tunable.is_enabled()
