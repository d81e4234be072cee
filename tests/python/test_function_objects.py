"""Functions of the engine handled like functions: attributes, signatures, wrapping, pickling."""

import copy
import functools
import inspect
import pickle
import weakref

import mica
import mica.nn.functional as F
import pytest


def test_attributes():
    F.relu.mark = 5
    try:
        assert F.relu.mark == 5 and F.relu.__dict__ == {"mark": 5}
    finally:
        del F.relu.mark
    assert (F.relu.__name__, F.relu.__qualname__, F.relu.__module__) == ("relu", "relu", "mica.nn.functional")
    assert F.relu.__doc__ == "relu(input, inplace=False) -> Tensor\n\nThe larger of the input and zero."
    assert repr(F.relu) == "<function relu>" and weakref.ref(F.relu)() is F.relu
    with pytest.raises(AttributeError):
        assert F.relu.nothing


def test_signature():
    signature = inspect.signature(F.dropout)
    assert list(signature.parameters) == ["input", "p", "training", "inplace"]
    assert signature.parameters["p"].default == 0.5 and signature.parameters["p"].annotation is float
    assert F.dropout.__text_signature__ == "(input, p=0.5, training=True, inplace=False)"
    assert F.dropout.__defaults__ == (0.5, True, False) and F.dropout.__annotations__["training"] is bool
    assert signature.bind(1, training=False).arguments == {"input": 1, "training": False}


def test_every_function_has_a_signature():
    functions = [f for f in vars(F).values() if isinstance(f, mica._C._Function)]
    assert len(functions) > 60
    for function in functions:
        inspect.signature(function)
        assert function.__doc__.startswith(function.__name__ + "(")


def test_defaults_that_are_small_numbers():
    defaults = {"layer_norm": 1e-5, "normalize": 1e-12, "gumbel_softmax": 1e-10, "triplet_margin_loss": 1e-6}
    for name, eps in defaults.items():
        assert inspect.signature(getattr(F, name)).parameters["eps"].default == eps


def test_functions_that_fill_tensors_have_signatures_too():
    init = mica.nn.init
    assert str(inspect.signature(init.constant_)).startswith("(tensor: torch.Tensor, val: ")
    assert list(inspect.signature(init.kaiming_uniform_).parameters)[:4] == ["tensor", "a", "mode", "nonlinearity"]
    assert list(inspect.signature(init.xavier_normal).parameters) == ["tensor", "gain", "generator"]  # the old name
    assert pickle.loads(pickle.dumps(init.zeros_)) is init.zeros_ and init.zeros_(mica.ones(1)).item() == 0


def test_wrapping():
    @functools.wraps(F.gelu)
    def mine(x):
        return F.gelu(x)

    assert mine.__name__ == "gelu" and mine.__wrapped__ is F.gelu
    functools.update_wrapper(F.silu, mine)
    assert F.silu.__wrapped__ is mine and F.silu.__name__ == "gelu"
    F.silu.__dict__.clear()
    assert F.silu.__name__ == "silu"


def test_identity_and_calls():
    assert copy.deepcopy(F.relu) is F.relu and pickle.loads(pickle.dumps(F.relu)) is F.relu
    assert {F.relu: 1}[F.relu] == 1 and callable(F.relu)
    x = mica.tensor([-1.0, 2.0])
    assert F.relu(x).tolist() == F.relu(input=x).tolist() == F.relu(*[x], **{"inplace": False}).tolist() == [0, 2]

    class Model:
        activation = F.relu

    assert Model().activation(x).tolist() == [0, 2]
    with pytest.raises(TypeError, match=r"relu\(\)"):
        F.relu()
    with pytest.raises(TypeError, match="cannot create"):
        type(F.relu)()


def test_methods_say_what_they_do():
    for name in ("is_complex", "is_conj", "is_floating_point", "is_inference", "is_neg", "is_signed"):
        assert getattr(mica.Tensor, name).__doc__.startswith("Whether")
    assert mica.is_inference_mode_enabled.__doc__ and mica.library.wrap_triton.__doc__
