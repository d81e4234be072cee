"""What tests of compiled functions that are replayed on CUDA share: they compare all bits with eager execution, and see which
kernels ran."""

import json
import tempfile
from pathlib import Path

import mica
from mica._dynamo.utils import counters

DTYPES = [mica.float16, mica.bfloat16]


def drawn(*shape, seed=0, dtype=mica.bfloat16, scale=1.0):
    generator = mica.Generator("cuda").manual_seed(seed)
    return (mica.randn(shape, generator=generator, device="cuda") * scale).to(dtype)


def flat(results):
    return [results] if isinstance(results, mica.Tensor) else list(results)


def kernels_of(run, path):
    with mica.profiler.profile(activities=[mica.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        mica.cuda.synchronize()
    profile.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("cat") == "kernel"]


def replayed_as_eagerly(function, *arguments, changed=()):
    """Runs the function compiled until it is replayed, and once eagerly, and compares all bits: of the results, and of
    the arguments that it changes. Returns the names of the kernels of a replay."""
    compiled = mica.compile(function, mode="reduce-overhead")
    with mica.no_grad():
        before = [t.clone() for t in changed]

        def run(f):
            for t, b in zip(changed, before, strict=True):
                t.copy_(b)
            return [r.clone() for r in flat(f(*arguments))] + [t.clone() for t in changed]

        expected = run(function)
        replays = counters["replay"]["replayed"]
        for _ in range(8):
            found = run(compiled)
        assert counters["replay"]["replayed"] > replays
        for there, here in zip(found, expected, strict=True):
            assert there.dtype is here.dtype
            assert mica.equal(there.contiguous().view(mica.uint8), here.contiguous().view(mica.uint8))
        with tempfile.TemporaryDirectory() as folder:
            return kernels_of(lambda: compiled(*arguments), Path(folder) / "trace.json")


def count(kernels, text):
    return sum(text in name for name in kernels)
