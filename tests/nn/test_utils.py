"""nn.utils: clipping, vectors of parameters, norms of weights, parametrizations, fusions, calls without state."""

import copy
import math

import mica
import pytest
from mica import nn
from mica.nn import utils
from mica.nn.utils import parametrizations, parametrize


def with_gradients(*values):
    parameters = [nn.Parameter(mica.zeros(len(each))) for each in values]
    for parameter, each in zip(parameters, values, strict=True):
        parameter.grad = mica.tensor(each)
    return [*parameters, nn.Parameter(mica.zeros(1))]  # one without a gradient


# ---- clipping


@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize(("norm_type", "norm"), [(2.0, 13.0), (1, 19.0), (math.inf, 12.0), ("inf", 12.0)])
def test_clipping_by_norm(norm_type, norm, foreach):
    parameters = with_gradients([3.0, -4.0], [12.0])
    total = utils.clip_grad_norm_(parameters, 2.0, norm_type, foreach=foreach)
    assert total.item() == norm and total.dim() == 0
    factor = 2.0 / (norm + 1e-6)
    assert mica.allclose(parameters[0].grad, mica.tensor([3.0, -4.0]) * factor)
    assert utils.get_total_norm([p.grad for p in parameters[:2]], norm_type).item() == pytest.approx(2.0, rel=1e-5)


def test_clipping_leaves_small_gradients_and_takes_generators():
    parameters = with_gradients([0.3, -0.4])
    assert utils.clip_grad_norm_((p for p in parameters), 1.0).item() == pytest.approx(0.5)
    assert parameters[0].grad.tolist() == pytest.approx([0.3, -0.4])
    assert utils.clip_grad_norm_([], 1.0).item() == 0
    with pytest.warns(UserWarning, match="`parameters` is an empty generator"):
        utils.clip_grad_norm_((p for p in []), 1.0)
    assert utils.clip_grad_norm_(parameters[0], 0.1).item() == pytest.approx(0.5)
    utils.clip_grads_with_norm_(parameters, 0.05, mica.tensor(0.1))
    assert parameters[0].grad.norm().item() == pytest.approx(0.05, rel=1e-4)
    with pytest.warns(FutureWarning, match="clip_grad_norm` is now deprecated"):
        utils.clip_grad_norm(parameters, 1.0)


def test_norms_that_are_not_finite():
    parameters = with_gradients([math.inf, 1.0])
    with pytest.raises(RuntimeError, match="The total norm of order 2.0 for gradients from `parameters` is non-finite"):
        utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
    assert parameters[0].grad.tolist() == [math.inf, 1.0]
    utils.clip_grad_norm_(parameters, 1.0)
    assert math.isnan(parameters[0].grad[0].item())


def test_clipping_by_value():
    parameters = with_gradients([3.0, -4.0, 0.5])
    utils.clip_grad_value_(parameters, 1)
    assert parameters[0].grad.tolist() == [1, -1, 0.5]


# ---- vectors


def test_parameters_as_a_vector():
    net = nn.Linear(2, 3)
    vector = utils.parameters_to_vector(net.parameters())
    assert vector.shape == (9,) and vector.grad_fn is not None
    utils.vector_to_parameters(mica.arange(9.0), net.parameters())
    assert net.weight.flatten().tolist() == list(range(6)) and net.bias.tolist() == [6, 7, 8]
    with pytest.raises(TypeError, match="expected torch.Tensor, but got: list"):
        utils.vector_to_parameters([], net.parameters())


# ---- norms of weights


def test_weight_norm_by_hooks():
    net = nn.Linear(3, 4)
    weight = net.weight.detach().clone()
    with pytest.warns(FutureWarning, match="weight_norm` is deprecated in favor"):
        utils.weight_norm(net)
    assert list(net.state_dict()) == ["bias", "weight_g", "weight_v"] and net.weight_g.shape == (4, 1)
    assert mica.allclose(net.weight, weight)
    net.weight_g.data.mul_(2)
    net(mica.ones(1, 3)).sum().backward()
    assert mica.allclose(net.weight, 2 * weight) and net.weight_g.grad is not None
    utils.remove_weight_norm(net)
    assert list(net.state_dict()) == ["bias", "weight"] and isinstance(net.weight, nn.Parameter)
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        utils.remove_weight_norm(net)


def test_spectral_norm_by_hooks():
    net = utils.spectral_norm(nn.Linear(3, 4), n_power_iterations=50)
    assert list(net.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    assert net.state_dict()._metadata[""]["spectral_norm"] == {"weight.version": 1}
    net(mica.ones(1, 3)).sum().backward()
    assert net.weight_orig.grad is not None
    singular = (net.weight.detach().double() @ mica.ones(3, 1, dtype=mica.float64)).norm()
    assert singular <= math.sqrt(3) * (1 + 1e-5)
    other = utils.spectral_norm(nn.Linear(3, 4))
    other.load_state_dict(net.state_dict())
    with pytest.raises(RuntimeError, match="Cannot register two spectral_norm hooks on the same parameter weight"):
        utils.spectral_norm(net)
    utils.remove_spectral_norm(net)
    assert list(net.state_dict()) == ["bias", "weight"] and not net._state_dict_hooks
    assert not net._load_state_dict_pre_hooks


# ---- parametrizations


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x

    def right_inverse(self, x):
        return x / 2


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


def test_registering_and_removing_parametrizations():
    net = nn.Linear(3, 3)
    before = net.weight.detach().clone()
    assert parametrize.register_parametrization(net, "weight", Doubled()) is net
    assert type(net).__name__ == "ParametrizedLinear" and isinstance(net, nn.Linear)
    assert parametrize.is_parametrized(net) and parametrize.is_parametrized(net, "weight")
    assert not parametrize.is_parametrized(net, "bias")
    assert parametrize.type_before_parametrizations(net) is nn.Linear
    assert mica.allclose(net.weight, before)
    assert mica.allclose(net.parametrizations.weight.original, before / 2)
    assert list(net.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert [n for n, _ in net.named_parameters()] == ["bias", "parametrizations.weight.original"]
    net.weight = mica.eye(3)
    assert mica.equal(net.weight, mica.eye(3)) and net.parametrizations.weight.original[0, 0] == 0.5
    parametrize.register_parametrization(net, "weight", Symmetric())
    net(mica.ones(1, 3)).sum().backward()
    assert net.parametrizations.weight.original.grad is not None
    other = copy.deepcopy(net)
    assert mica.equal(other.weight, net.weight) and other.parametrizations is not net.parametrizations
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        net.__getstate__()
    with parametrize.cached():
        assert net.weight is net.weight
    assert net.weight is not net.weight
    parametrize.remove_parametrizations(net, "weight")
    assert type(net) is nn.Linear and mica.equal(net.weight, mica.eye(3)) and not hasattr(net, "parametrizations")
    assert isinstance(net.weight, nn.Parameter)


def test_what_parametrizations_must_not_do():
    class Wider(nn.Module):
        def forward(self, x):
            return mica.cat([x, x])

    class Other(nn.Module):
        def forward(self, x):
            return x.double()

    with pytest.raises(ValueError, match="may not change the shape of the tensor, unless `unsafe` flag"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", Wider())
    with pytest.raises(ValueError, match="may not change the dtype of the tensor"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", Other())
    with pytest.raises(ValueError, match="does not have a parameter, a buffer, or a parametrized element with name"):
        parametrize.register_parametrization(nn.Linear(2, 2), "nothing", Doubled())
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        parametrize.remove_parametrizations(nn.Linear(2, 2), "weight")
    net = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    with pytest.raises(RuntimeError, match="parametrization Symmetric does not implement right_inverse"):
        net.weight = mica.eye(2)
    wide = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Wider(), unsafe=True)
    assert wide.weight.shape == (4, 2)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("use_trivialization", [True, False])
def test_orthogonal_weights(shape, orthogonal_map, use_trivialization):
    net = nn.Linear(shape[1], shape[0], dtype=mica.float64)
    parametrizations.orthogonal(net, "weight", orthogonal_map, use_trivialization=use_trivialization)
    for _ in range(3):
        weight = net.weight if shape[0] >= shape[1] else net.weight.t()
        assert mica.allclose(weight.t() @ weight, mica.eye(min(shape), dtype=mica.float64), atol=1e-12)
        (net(mica.ones(2, shape[1], dtype=mica.float64)) ** 2).sum().backward()
        original = net.parametrizations.weight.original
        with mica.no_grad():
            original -= 0.1 * original.grad
    target = nn.init.orthogonal_(mica.empty(shape, dtype=mica.float64))
    if use_trivialization or orthogonal_map == "householder":
        net.weight = target
        assert mica.allclose(net.weight, target, atol=1e-12)
    else:
        with pytest.raises(NotImplementedError, match="It is not possible to assign to the matrix exponential"):
            net.weight = target


def test_orthogonal_maps_have_right_gradients():
    def check(function, *shapes):
        inputs = [mica.randn(shape, dtype=mica.float64, requires_grad=True) for shape in shapes]
        assert mica.autograd.gradcheck(function, inputs)

    def module(orthogonal_map, shape):
        made = parametrizations._Orthogonal(mica.empty(shape), orthogonal_map, use_trivialization=False)
        return lambda x: (
            made.forward(x) if orthogonal_map != "householder" else made.forward(x.tril(-1) + mica.eye(*shape[-2:]))
        )

    for orthogonal_map in ("matrix_exp", "cayley", "householder"):
        check(module(orthogonal_map, (3, 3)), (3, 3))
        check(module(orthogonal_map, (2, 4, 3)), (2, 4, 3))
    check(mica._C._weight_norm, (3, 4), (3, 1))


def test_errors_of_orthogonal():
    with pytest.raises(ValueError, match="Expected a matrix or batch of matrices. Got a tensor of 1 dimensions."):
        parametrizations.orthogonal(nn.Linear(2, 2), "bias")
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        parametrizations.orthogonal(nn.Linear(2, 2), "weight", "other")


def test_weight_norm_as_a_parametrization():
    net = parametrizations.weight_norm(nn.Linear(3, 4))
    keys = ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
    assert list(net.state_dict()) == keys
    plain = nn.Linear(3, 4)
    with pytest.warns(FutureWarning):
        utils.weight_norm(plain)
    net.load_state_dict(plain.state_dict())  # of the older form
    assert mica.allclose(net.weight, plain.weight)
    parametrize.remove_parametrizations(net, "weight")
    assert mica.allclose(net.weight, plain.weight)


def test_spectral_norm_as_a_parametrization():
    net = parametrizations.spectral_norm(nn.Linear(3, 4))
    assert "parametrizations.weight.0._u" in net.state_dict()
    largest = net.weight
    for _ in range(30):
        largest = net.weight
    vector = mica.ones(3)
    for _ in range(30):
        vector = largest.t() @ (largest @ vector)
        vector = vector / vector.norm()
    assert (largest @ vector).norm().item() == pytest.approx(1, abs=1e-4)
    with pytest.raises(IndexError, match="Dimension out of range"):
        parametrizations.spectral_norm(nn.Linear(3, 4), dim=5)
    bias = parametrizations.spectral_norm(nn.Linear(3, 4), "bias")
    assert bias.bias.norm().item() == pytest.approx(1)


def test_transferring_parametrizations():
    source, target = nn.Linear(3, 3), nn.Linear(3, 3)
    parametrize.register_parametrization(source, "weight", Doubled())
    parametrize.transfer_parametrizations_and_params(source, target)
    assert mica.equal(source.weight, target.weight)
    assert target.parametrizations.weight.original is source.parametrizations.weight.original


# ---- fusions, calls without state


def test_fusing_a_normalisation_into_a_linear_layer():
    linear, norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    linear.eval(), norm.eval()
    x = mica.randn(5, 3)
    assert mica.allclose(utils.fuse_linear_bn_eval(linear, norm)(x), norm(linear(x)), atol=1e-5)
    with pytest.raises(AssertionError, match="Fusion only for eval!"):
        utils.fuse_linear_bn_eval(linear.train(), norm)


@pytest.mark.parametrize("transpose", [False, True])
def test_fusing_a_normalisation_into_a_convolution(transpose):
    conv = nn.ConvTranspose2d(2, 3, 3) if transpose else nn.Conv2d(2, 3, 3, bias=False)
    norm = nn.BatchNorm2d(3)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    conv.eval(), norm.eval()
    x = mica.randn(2, 2, 6, 6)
    assert mica.allclose(utils.fuse_conv_bn_eval(conv, norm, transpose)(x), norm(conv(x)), atol=1e-5)


def test_memory_formats_of_convolutions():
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv1d(2, 3, 3))
    utils.convert_conv2d_weight_memory_format(net, mica.channels_last)
    assert net[0].weight.is_contiguous(memory_format=mica.channels_last)


def test_functional_calls():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight  # tied
    x = mica.ones(1, 2)
    weight = mica.eye(2, requires_grad=True)
    zeros = {"0.bias": mica.zeros(2), "1.bias": mica.zeros(2)}
    before = net[0].weight
    result = mica.func.functional_call(net, {"0.weight": weight, **zeros}, x)
    assert mica.equal(result, x) and net[0].weight is before and net[1].weight is before
    result.sum().backward()
    assert weight.grad is not None and before.grad is None
    untied = mica.func.functional_call(net, {"0.weight": weight, **zeros}, x, tie_weights=False)
    assert mica.allclose(untied, x @ before.t())
    with pytest.raises(RuntimeError, match="Missing key\\(s\\): '0.bias', '1.bias'"):
        mica.func.functional_call(net, {"0.weight": weight}, x, strict=True)
    with pytest.raises(ValueError, match="which are tied"):
        mica.func.functional_call(net, {"0.weight": weight, "1.weight": mica.ones(2, 2)}, x)
    with pytest.warns(FutureWarning, match="stateless.functional_call` is deprecated"):
        utils.stateless.functional_call(net, {"unknown": weight}, (x,))
    lookup = nn.Module()
    lookup.forward = lambda name: getattr(lookup, name)
    assert mica.func.functional_call(lookup, {"extra": weight}, "extra") is weight and not hasattr(lookup, "extra")

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", mica.zeros(()))

        def forward(self, x):
            self.count = self.count + 1
            return x

    state = {"count": mica.tensor(4.0)}
    counter = Counter()
    mica.func.functional_call(counter, state, x)
    assert state["count"].item() == 5 and counter.count.item() == 0


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"weight": 3}, TypeError, "3 is not an instance of torch.Tensor"),
        ({"in_features": mica.ones(1)}, TypeError, "attribute `in_features`: 2 is not an instance of torch.Tensor"),
        ({"absent.weight": mica.ones(1)}, AttributeError, "Linear has no attribute `absent`"),
        ({"weight.weight": mica.ones(1)}, TypeError, "is not an instance of torch.nn.Module"),
        ({"": mica.ones(1)}, KeyError, "empty string"),
        (3, ValueError, "to be a dict, or a list/tuple of dicts, but got <class 'int'>"),
        ([{}, 3], ValueError, "Expected all elements of parameter_and_buffer_dicts to be dictionaries"),
    ],
)
def test_functional_calls_with_what_is_no_state(given, error, words):
    net = nn.Linear(2, 2)
    before = dict(net.named_parameters())
    with pytest.raises(error, match=words):
        mica.func.functional_call(net, given, mica.ones(1, 2))
    assert all(tensor is before[name] for name, tensor in net.named_parameters())
