"""The fastest of cuBLASLt's algorithms for each product, found by timing them and kept in a file.

torch.cuda.tunable.enable()
y = a @ b  # the first product of these sizes times the algorithms; later ones, and later programs, take the fastest

The variables PYTORCH_TUNABLEOP_ENABLED, _TUNING, _RECORD_UNTUNED, _FILENAME, _MAX_TUNING_DURATION_MS,
_MAX_TUNING_ITERATIONS and _ROTATING_BUFFER_SIZE say the same from outside. A file that was made by another version of the
library or on another kind of GPU is not used.
"""

import os
import warnings

from mica import _C

__all__ = [
    "enable",
    "get_filename",
    "get_max_tuning_duration",
    "get_max_tuning_iterations",
    "get_results",
    "get_rotating_buffer_size",
    "get_validators",
    "is_enabled",
    "read_file",
    "record_untuned_enable",
    "record_untuned_is_enabled",
    "set_filename",
    "set_max_tuning_duration",
    "set_max_tuning_iterations",
    "set_rotating_buffer_size",
    "tune_gemm_in_file",
    "tuning_enable",
    "tuning_is_enabled",
]

_DTYPES = {"tf32": "float32"}


def _ask(name, value=None):
    from mica.cuda import current_device

    return _C._backend_query(f"cuda:{current_device()}", "tuning", name if value is None else f"{name}\n{value}")


def enable(val=True):
    """Let products use algorithms that were found by timing, and find them where tuning is on, as it is at first."""
    _ask("enabled", int(val))


def is_enabled():
    """Whether products use what was tuned."""
    return _ask("enabled") == "1"


def tuning_enable(val=True):
    """Whether a product without a choice is tuned; otherwise it takes the heuristic's algorithm."""
    _ask("tuning", int(val))


def tuning_is_enabled():
    """Whether products are tuned."""
    return _ask("tuning") == "1"


def record_untuned_enable(val=True):
    """Whether the names of products without a choice are written to tunableop_untuned<device>.csv."""
    _ask("recording", int(val))


def record_untuned_is_enabled():
    """Whether the names of products without a choice are written."""
    return _ask("recording") == "1"


def set_max_tuning_duration(duration):
    """For how many milliseconds an algorithm is timed at most; 0 for any."""
    _ask("duration", int(duration))


def get_max_tuning_duration():
    """For how many milliseconds an algorithm is timed at most."""
    return int(_ask("duration"))


def set_max_tuning_iterations(iterations):
    """How often an algorithm is run at most; 0 for any number."""
    _ask("iterations", int(iterations))


def get_max_tuning_iterations():
    """How often an algorithm is run at most."""
    return int(_ask("iterations"))


def set_rotating_buffer_size(buffer_size):
    """How many MB are written between two runs, so that a run finds its operands outside of the cache; 0 for none."""
    _ask("rotating", int(buffer_size))


def get_rotating_buffer_size():
    """How many MB are written between two runs."""
    return int(_ask("rotating"))


def set_filename(filename, insert_device_ordinal=False):
    """Where choices are kept: with the number of the device before the ending, if that is asked for."""
    if "\n" in filename or not filename:
        raise ValueError(f"expected the name of a file, but got {filename!r}")
    if insert_device_ordinal:
        stem, ending = os.path.splitext(filename)
        filename = f"{stem}%d{ending}"
    _ask("file", filename)


def get_filename():
    """Where choices of the current device are kept."""
    return _ask("file")


def get_results():
    """The choices: (operation, parameters, algorithm, milliseconds) for each product."""
    rows = (line.split(",") for line in _ask("results").splitlines())
    return tuple((operation, parameters, choice, float(taken)) for operation, parameters, choice, taken in rows)


def get_validators():
    """The (name, value) pairs with which a file must agree to be used."""
    return tuple(tuple(line.split(",", 1)) for line in _ask("validators").splitlines())


def read_file(filename=None):
    """Read the choices of a file. Returns False where there is none, or where it was tuned on another machine."""
    read = _ask("read", filename if filename is not None else get_filename()) == "1"
    trouble = _ask("trouble")
    if trouble:
        warnings.warn(trouble, stacklevel=2)
    return read


def tune_gemm_in_file(filename):
    """Tune the products that record_untuned_enable wrote down."""
    if not (is_enabled() and tuning_is_enabled()):
        raise AssertionError("tune_gemm_in_file: call enable() and tuning_enable() first")
    with open(filename, encoding="utf-8") as file:
        for line in sorted({line.strip() for line in file if line.strip()}):
            _run(*line.split(","))


def _run(operation, parameters):
    """Run a product of the sizes that the name describes, on arbitrary numbers."""
    kind, dtype, *result = operation.split("_")[:-1]
    fields = parameters.split("_")
    m, n, k = map(int, fields[1:4])
    batch = (int(fields[fields.index("B") + 1]),) if "B" in fields else ()
    pitches = [int(p) for p in fields[fields.index("ld") + 1 :]]
    dtype = getattr(_C, _DTYPES.get(dtype, dtype))

    def operand(rows, columns, transposed, pitch):
        # The library's matrices are column-major, so a matrix of (rows, columns) is a tensor of (columns, rows).
        lines, width = (rows, columns) if transposed else (columns, rows)
        made = _C.randn(*batch, lines, pitch, device="cuda").to(dtype)[..., :width]
        return made.mT if transposed else made

    a, b = operand(m, k, fields[0][0] == "t", pitches[0]), operand(k, n, fields[0][1] == "t", pitches[1])
    if result:  # the result is wider than the operands
        (_C.bmm if batch else _C.mm)(b, a, out_dtype=getattr(_C, result[0]))
        return
    out = _C.empty(*batch, n, pitches[2], device="cuda", dtype=dtype)[..., :m]
    if kind.startswith("GemmAndBias"):
        _C.addmm(_C.zeros(m, device="cuda", dtype=dtype), b, a, out=out)
    else:
        _C.matmul(b, a, out=out)
