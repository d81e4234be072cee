"""Layers, losses, modules, initialisers and helpers under hostile arguments: a result or an exception, nothing else."""

import random
import re

import good_calls
import pytest
from call_mutations import Mutator, substitutions
from call_runner import findings_apart

DTYPES = ["float64"] * 5 + ["float32"] * 3 + ["bfloat16", "float16"]
THEMES = {
    "layers": good_calls.layer_calls,
    "modules": lambda: good_calls.MODULES,
    "helpers": lambda: good_calls.INITIALISERS + good_calls.UTILITIES,
}
# So many layers, or steps of an iteration, take as long as they say.
ENDLESS = re.compile(r"(nn\.(Transformer|LSTM|GRU|RNN)|spectral_norm).*\d{9}")


def test_good_calls_are_good():
    calls = [c for theme in THEMES.values() for c in theme()]
    assert findings_apart([(c, "float64") for c in calls]) == []


@pytest.mark.parametrize(("theme", "count"), [("layers", 2500), ("modules", 1200), ("helpers", 800)])
def test_hostile_arguments(theme, count):
    numbers = random.Random(theme)
    mutator = Mutator(numbers, hostility=0.6, negative_strides=True)
    calls = THEMES[theme]()
    cases = [(mutator.mutate(numbers.choice(calls)), numbers.choice(DTYPES)) for _ in range(count)]
    assert findings_apart(case for case in cases if not ENDLESS.search(case[0])) == []


def test_tensors_on_other_devices():
    """A kernel must never see the memory of a tensor that has none."""
    changes = ["{}.to('meta')", "torch.empty({}.shape, device='meta')"]
    calls = good_calls.layer_calls() + good_calls.UTILITIES
    assert findings_apart([(c, "float32") for call in calls for c in substitutions(call, changes)]) == []
