"""Every sample of the operator table, recorded as a list of calls and made again for other values: what Python computes."""

import ast

import mica as torch
import pytest
from mica import _C
from mica._dynamo.replay.call_lists import Recorder
from mica._dynamo.replay.observe import Refused
from sample_runner import Evaluator, Numbers, load_samples
from test_compiled_samples import UNDETERMINED, alike

# Samples that look at values themselves, or make tensors that are not dense.
MOST_REFUSED = 12


class Values(Evaluator):
    """Makes the tensors of a sample from a seed, and hands them out again when the sample is evaluated."""

    def __init__(self, mode, seed):
        super().__init__(torch, mode, "float32")
        self.numbers, self.made, self.given = Numbers(seed), [], None

    def make(self, shape, draw, dtype):
        if self.given is not None:
            return next(self.given)
        tensor = super().make(shape, draw, dtype)
        self.made.append(tensor)
        return tensor

    def call(self, code, scope, tensors):
        self.given = iter(tensors)
        value = eval(code, scope)
        return tuple(value) if isinstance(value, tuple) else value  # a tuple with names is Python's to make


def outcome(function):
    """What a function returns, or the kind of its error."""
    torch.manual_seed(3)
    try:
        return function()
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        return type(error)


def agree(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and alike(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(agree, a, b))
    return a == b or a != a


def copies(tensors):
    """Copies that lie in memory as the tensors do, with what is between their elements."""
    return [
        each.as_strided((each.untyped_storage().nbytes() // each.itemsize,), (1,), 0)
        .clone()
        .as_strided(each.shape, each.stride(), each.storage_offset())
        for each in tensors
    ]


def made_again(text, mode, compare_seed):
    """What Python gives for other values, and the list; Refused where there is none."""
    first = Values(mode, 7)
    first.run(text)
    code, scope = Values.compile(first, ast.parse(text, mode="eval").body)
    recorder = Recorder(first.made, [])
    value = _C._call_recorded_by(recorder, first.call, (code, scope, list(first.made)), {})
    recorder.end()
    result = recorder.encoded(value, ())
    if result is None:
        raise Refused("its result")
    steps = _C._CallList(recorder.list_that_returns(result), True)
    other, again = Values(mode, compare_seed), Values(mode, compare_seed)
    if isinstance(outcome(lambda: other.run(text)), type):
        raise Refused("other values are an error")
    again.run(text)
    other.made, again.made = [copies(each.made) for each in (again, again)]
    code, scope = other.compile(ast.parse(text, mode="eval").body)
    want, got = outcome(lambda: other.call(code, scope, other.made)), outcome(lambda: steps.run(again.made))
    return want, got, other.made, again.made


@pytest.mark.parametrize("mode", ["plain", "noncontiguous"])
def test_samples_are_made_again(mode):
    wrong, refused, other_shapes, taken = [], {}, [], 0
    for sample in load_samples():
        if any(name in sample.op for name in UNDETERMINED):
            continue
        try:
            with torch.no_grad():
                want, got, changed, changed_again = made_again(sample.text, mode, 11)
        except Refused as reason:
            refused[sample.text] = str(reason)
            continue
        if got is NotImplemented:
            other_shapes.append(sample.text)
        elif not agree(want, got) or not all(map(alike, changed, changed_again)):
            wrong.append(sample.text)
        taken += 1
    assert not wrong, f"{len(wrong)} samples differ: {wrong[:20]}"
    assert taken > 1000 and len(refused) <= MOST_REFUSED, refused
    assert len(other_shapes) <= 10, other_shapes
