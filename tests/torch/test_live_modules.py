"""Every module class beside torch's, live: repr, parameters from one seed, outputs, and states that move both ways."""

import importlib
import warnings

import mica
import numpy as np
import pytest
from module_cases import OTHERS, OWN, is_lazy, make, state_of

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("expression", [*OWN, *OTHERS])
def test_same_repr_and_state(torch, expression):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = make(torch, expression), make(mica, expression)
    assert repr(ours) == repr(theirs)
    assert state_of(ours) == state_of(theirs)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert [p.requires_grad for p in ours.parameters()] == [p.requires_grad for p in theirs.parameters()]
    assert list(ours.state_dict()._metadata.items()) == list(theirs.state_dict()._metadata.items())
    assert getattr(ours, "__constants__", None) == getattr(theirs, "__constants__", None)


@pytest.mark.parametrize("expression", [*OWN, *OTHERS])
def test_states_move_both_ways(torch, expression):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = make(torch, expression, seed=1), make(mica, expression, seed=2)
    if any(is_lazy(p) for p in ours.parameters()):
        return
    to_ours = {key: mica.from_numpy(value.numpy().copy()) for key, value in theirs.state_dict().items()}
    ours.load_state_dict(to_ours)
    assert state_of(ours) == state_of(theirs)
    theirs.load_state_dict({key: torch.from_numpy(value.numpy().copy()) for key, value in ours.state_dict().items()})


SHAPES = [(2, 3), (2, 2), (2, 4), (2, 1), (2, 6), (2, 3, 6), (2, 3, 6, 6), (2, 3, 8, 8, 8)]


def run(library, module, arguments):
    """The outputs of the module in training, and all gradients."""
    library.manual_seed(11)
    inputs = [library.from_numpy(each.copy()) for each in arguments]
    for each in inputs:
        if each.is_floating_point():
            each.requires_grad_()
    output = module(*(each * 1 if each.is_floating_point() else each for each in inputs))
    if not output.requires_grad:
        return [output.numpy()]
    (output * library.arange(output.numel()).reshape(output.shape)).sum().backward()
    gradients = [each.grad for each in (*inputs, *module.parameters())]
    return [output.detach().numpy(), *(each.numpy() for each in gradients if each is not None)]


def arguments_for(expression):
    """Inputs to try, of which torch takes the first that fits."""
    random = np.random.default_rng(0)
    if "Embedding" in expression:
        yield [np.array([[0, 1], [2, 1]])]
        return
    count = 2 if "Bilinear" in expression else 1
    dtype = np.float64 if "float64" in expression else np.float32
    for shape in SHAPES:
        yield [random.standard_normal((*shape[:-1], shape[-1] + i)).astype(dtype) for i in range(count)]


@pytest.mark.parametrize("expression", OWN)
def test_same_outputs_and_gradients(torch, expression):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = make(torch, expression), make(mica, expression)
        for arguments in arguments_for(expression):
            try:
                expected = run(torch, theirs, arguments)
            except Exception:
                theirs = make(torch, expression)
                continue
            for mine, other in zip(run(mica, ours, arguments), expected, strict=True):
                np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-6)
            return
    assert isinstance(ours, (mica.nn.ModuleList, mica.nn.ModuleDict, mica.nn.ParameterList, mica.nn.ParameterDict)) or (
        type(ours) is mica.nn.Module or "sparse=True" in expression
    ), "no shape fits"


def test_every_class_of_torchs_nn_has_a_case(torch):
    classes = {
        name
        for name, value in vars(torch.nn).items()
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and not name.startswith("Lazy")
    }
    abstract = {
        "Module",
        "RNNBase",
        "RNNCellBase",
        "Container",
        "DataParallel",
        "TransformerDecoder",
        "LinearCrossEntropyLoss",
        "NLLLoss2d",
    }
    covered = {expression.split("(")[0].removeprefix("nn.").split(".")[0] for expression in [*OWN, *OTHERS]}
    assert classes - abstract - covered == set()


def test_classes_are_where_torch_has_them(torch):
    for name, value in vars(torch.nn).items():
        ours = getattr(mica.nn, name, None)
        if isinstance(value, type) and isinstance(ours, type):
            assert ours.__module__.removeprefix("mica") == value.__module__.removeprefix("torch"), name
            assert getattr(importlib.import_module(ours.__module__), name) is ours


def test_module_has_every_public_name(torch):
    missing = {name for name in dir(torch.nn.Module) if not name.startswith("__")} - set(dir(mica.nn.Module))
    # Devices that Mica does not know.
    assert missing <= {"ipu", "xpu", "mtia", "_slow_forward", "_maybe_warn_non_full_backward_hook"}
