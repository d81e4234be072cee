"""Small programs over modules, run on torch and on Mica: the same results, the same errors in the same words."""

import warnings

import mica
import pytest

pytestmark = pytest.mark.torch

SETUP = """
import copy, pickle
from collections import OrderedDict
nn, F, init, utils = torch.nn, torch.nn.functional, torch.nn.init, torch.nn.utils
parametrize, parametrizations = utils.parametrize, utils.parametrizations
from_module = nn.modules.module
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("steps", torch.zeros(2))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)
        self.child = nn.Linear(2, 3)
        self.number = 5
    def forward(self, x, scale=1):
        return self.child(x * self.weight) * scale
class Doubled(nn.Module):
    def forward(self, x): return 2 * x
    def right_inverse(self, x): return x / 2
torch.manual_seed(7)
net, log = Net(), []
"""

PROGRAMS = [
    # registration and attributes
    "net.weight = torch.ones(2)",
    "net.weight = 3",
    "net.child = 3",
    "net.steps = 'x'",
    "net.missing",
    "del net.missing",
    "net.register_buffer('a.b', torch.ones(1))",
    "net.register_buffer('', torch.ones(1))",
    "net.register_buffer(3, torch.ones(1))",
    "net.register_buffer('number', torch.ones(1))",
    "net.register_buffer('weight', torch.ones(1))",
    "net.register_buffer('forward', torch.ones(1))",
    "net.register_buffer('new', [1])",
    "net.register_parameter('new', torch.ones(1))",
    "net.register_parameter('a.b', None)",
    "net.register_parameter('', None)",
    "net.register_parameter(None, None)",
    "net.register_parameter('steps', None)",
    "net.register_parameter('p', (nn.Parameter(torch.ones(1)) * 2))",
    "net.add_module('new', 3)",
    "net.add_module(3, nn.ReLU())",
    "net.add_module('', nn.ReLU())",
    "net.add_module('a.b', nn.ReLU())",
    "net.add_module('number', nn.ReLU())",
    "net.add_module('child', None); result = net",
    "nn.Module().x",
    "nn.Module(3)",
    "nn.Module(a=3)",
    "nn.Module()(3)",
    "nn.Module.__new__(nn.Module)(3)",
    "nn.Module.__new__(nn.Module).x",
    "nn.Module.__new__(nn.Module).register_buffer('x', None)",
    "nn.Module.__new__(nn.Module).register_parameter('x', None)",
    "nn.Linear.__new__(nn.Linear).weight",
    "net.get_submodule('child.weight')",
    "net.get_submodule('x.y')",
    "net.get_parameter('child.x')",
    "net.get_parameter('child')",
    "net.get_buffer('child.weight')",
    "net.set_submodule('', nn.ReLU())",
    "net.set_submodule('a', 3)",
    "net.set_submodule('number', nn.ReLU())",
    "net.set_submodule('x', nn.ReLU(), strict=True)",
    "net.set_submodule('x', nn.ReLU()); result = net",
    "net.set_submodule('child.x', nn.ReLU()); result = net",
    "net.train(1)",
    "net.to(torch.int64)",
    "net.to(torch.float64, copy=True)",
    "result = [p.dtype for p in net.to(torch.zeros(1, dtype=torch.float64)).parameters()]",
    "result = [b.dtype for b in net.half().buffers()]",
    "result = [p.dtype for p in net.type(torch.float64).parameters()]",
    "result = [p.dtype for p in net.to(device='cpu', dtype=torch.bfloat16).parameters()]",
    "nn.Linear(2, 2, device='meta').to('cpu')",
    "result = nn.Linear(2, 2, device='meta').to('meta').weight.is_meta",
    "result = sorted(k for k in vars(net))",
    "result = [n for n in dir(net) if not n.startswith('_') and n not in ('ipu', 'xpu', 'mtia')]",
    "net.again = net.child; result = [list(dict(net.named_modules(remove_duplicate=d))) for d in (True, False)]",
    "net.tied = net.weight; result = [list(dict(net.named_parameters(remove_duplicate=d))) for d in (True, False)]",
    "net.b2 = net.steps; result = [list(dict(net.named_buffers('p', True, d))) for d in (True, False)]",
    "net.weight = None; result = (net, list(net.state_dict()), list(dict(net.named_parameters())))",
    "net.weight = nn.Parameter(torch.ones(1)); net.steps = nn.Parameter(torch.ones(1)); result = list(net.state_dict())",
    "net.steps = nn.Buffer(torch.ones(3), persistent=False); result = list(net.state_dict())",
    "net.n = nn.Buffer(torch.ones(3)); result = (isinstance(net.n, nn.Buffer), type(net.n).__name__)",
    "result = (nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2), requires_grad=False), nn.Parameter())",
    "result = copy.deepcopy(net)(torch.ones(1, 2))",
    "net(torch.ones(1, 2)).sum().backward(); net.zero_grad(False); result = net.weight.grad",
    # hooks
    "net.register_forward_pre_hook(lambda m, a: log.append(len(a))); net(torch.ones(1, 2), scale=2); result = log",
    "net.register_forward_pre_hook(lambda m, a, k: 3, with_kwargs=True); net(torch.ones(1, 2))",
    "net.register_forward_pre_hook(lambda m, a: (a[0] * 2,)); result = net(torch.ones(1, 2))",
    "net.register_forward_hook(lambda m, a, k, o: o * k['scale'], with_kwargs=True); result = net(torch.ones(1, 2), scale=3)",
    "net.register_backward_hook(lambda *a: None); net.register_full_backward_hook(lambda *a: None)",
    "net.register_full_backward_hook(lambda *a: None); net.register_backward_hook(lambda *a: None)",
    """x = torch.ones(1, 2, requires_grad=True)
net.register_full_backward_hook(lambda m, gi, go: log.append((gi, go)))
net.child.register_full_backward_hook(lambda m, gi, go: log.append((gi, go)))
net.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
net(x).sum().backward()
y = net(x)
result = (log, x.grad, net.weight.grad, y.grad_fn.name())""",
    "net.register_full_backward_hook(lambda m, gi, go: (1, 2)); net(torch.ones(1, 2, requires_grad=True)).sum().backward()",
    "net.register_full_backward_pre_hook(lambda m, go: (1, 2)); net(torch.ones(1, 2, requires_grad=True)).sum().backward()",
    "net.register_full_backward_hook(lambda m, gi, go: 3); net(torch.ones(1, 2)).sum().backward()",
    """class Inplace(nn.Module):
    def forward(self, x): return x.mul_(2)
m = Inplace(); m.register_full_backward_hook(lambda *a: None)
m(torch.ones(2, requires_grad=True) * 1)""",
    """m = nn.ReLU(inplace=True)
m.register_full_backward_hook(lambda *a: None)
y = nn.Linear(2, 2)(torch.ones(1, 2)); m(y).sum().backward()""",
    """class Listed(nn.Module):
    def forward(self, x): return [x * 2]
m = Listed(); m.register_full_backward_hook(lambda m, gi, go: log.append(1)); m(torch.ones(1, requires_grad=True))[0].sum().backward()
result = log""",
    # state
    "result = net.load_state_dict(net.state_dict())",
    "net.load_state_dict({'x': torch.ones(1), 'child.y.z': 1, 'weight': torch.ones(3), 'steps': 3})",
    "net.load_state_dict({'x': torch.ones(1)}, False)",
    "result = net.load_state_dict({'x': torch.ones(1)}, strict=False)",
    "net.load_state_dict(3)",
    "result = (net.state_dict(prefix='a.'), net.state_dict()._metadata)",
    "result = list(nn.BatchNorm1d(2).state_dict()._metadata.items())",
    "s = net.state_dict(); s['weight'] = torch.ones(2, dtype=torch.float64); net.load_state_dict(s, assign=True); result = (net.weight.dtype, net.weight.requires_grad)",
    "s = net.state_dict(); s['weight'] = torch.ones(2, dtype=torch.float64); net.load_state_dict(s); result = net.weight",
    # containers
    "s = nn.Sequential(nn.ReLU()); s[3]",
    "s = nn.Sequential(nn.ReLU()); s[-2]",
    "s = nn.Sequential(nn.ReLU()); s['a']",
    "s = nn.Sequential(nn.ReLU()); s[0] = 3",
    "nn.Sequential(3)",
    "nn.Sequential(nn.ReLU()) + 3",
    "nn.Sequential(nn.ReLU()) * 0",
    "nn.Sequential(nn.ReLU()) * 'a'",
    "nn.Sequential(nn.ReLU()).insert(0, 3)",
    "nn.Sequential(nn.ReLU()).insert(5, nn.ReLU())",
    "nn.Sequential().pop(0)",
    "result = nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Tanh()))[1:]",
    "s = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.GELU()); del s[1]; result = (s, list(s._modules))",
    "s = nn.ModuleList([nn.ReLU()]); s.insert(1, nn.Tanh()); s += [nn.GELU()]; result = (s, s[1:], s + s)",
    "nn.ModuleList(3)",
    "nn.ModuleList([3])",
    "nn.ModuleList()(3)",
    "nn.ModuleDict({'a': 3})",
    "nn.ModuleDict({'a.b': nn.ReLU()})",
    "nn.ModuleDict({'keys': nn.ReLU()})",
    "nn.ModuleDict(3)",
    "nn.ModuleDict()['x']",
    "nn.ParameterList(torch.ones(2))",
    "nn.ParameterList([torch.ones(2)])[2]",
    "nn.ParameterList()(1)",
    "nn.ParameterDict({'a': torch.ones(2)})['b']",
    "nn.ParameterDict({3: torch.ones(2)})",
    "result = nn.ParameterDict({'b': torch.ones(2), 'a': 3}) | nn.ParameterDict({'c': torch.ones(1)})",
    # layers
    "nn.Linear(2, 3)(torch.ones(1, 3))",
    "nn.Linear(2, 3)(torch.ones(1, 2, dtype=torch.float64))",
    "nn.Linear(2.5, 3)",
    "result = nn.Linear(2, 3)(torch.ones(2))",
    "result = nn.Linear(2, 3)(torch.ones(0, 4, 2))",
    "nn.Bilinear(0, 2, 3)",
    "nn.Bilinear(2, 3, 4)(torch.ones(1, 2), torch.ones(2, 3))",
    "nn.Bilinear(2, 3, 4)(torch.ones(1, 3), torch.ones(1, 3))",
    "nn.Embedding(3, 2)(torch.tensor([5]))",
    "nn.Embedding(3, 2)(torch.ones(2))",
    "nn.Embedding(3, 2, padding_idx=3)",
    "nn.Embedding(3, 2, padding_idx=-4)",
    "nn.Embedding(3, 2, _weight=torch.ones(2, 2))",
    "nn.Embedding.from_pretrained(torch.ones(2))",
    "nn.Dropout(1.5)",
    "nn.Hardtanh(2, 1)",
    "nn.Unflatten(1, 3)",
    "nn.Unflatten(1, (2, 1.5))",
    "nn.Unflatten(1, (2, 2))(torch.ones(1, 6))",
    "nn.Softmax2d()(torch.ones(2))",
    "nn.CircularPad1d(1)(torch.ones(2))",
    "nn.ReflectionPad1d(3)(torch.ones(1, 1, 2))",
    "nn.Threshold(0, 1)",
    "nn.LazyLinear(2).weight.shape",
    "nn.LazyLinear(2).weight + 1",
    "nn.LazyLinear(2).share_memory()",
    "result = (nn.LazyLinear(2), nn.LazyLinear(2).weight, nn.LazyLinear(2).state_dict()['weight'])",
    "m = nn.LazyLinear(2); m(torch.ones(1, 3)); result = (m, m.weight.shape, sorted(m.__dict__))",
    "m = nn.LazyLinear(2); m.load_state_dict(nn.Linear(3, 2).state_dict()); result = (type(m).__name__, m.weight.shape)",
    "nn.Linear(3, 2).load_state_dict(nn.LazyLinear(2).state_dict())",
    # utils
    "utils.parameters_to_vector([])",
    "utils.vector_to_parameters(3, [])",
    "utils.skip_init(nn.ReLU)",
    "utils.skip_init(int)",
    "utils.remove_weight_norm(nn.ReLU())",
    "utils.remove_spectral_norm(nn.ReLU())",
    "utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)",
    "m = utils.spectral_norm(nn.Linear(3, 4)); m(torch.ones(1, 3)); result = (m.state_dict(), m.weight, m._metadata if hasattr(m, '_metadata') else 0)",
    "m = utils.spectral_norm(nn.Linear(3, 4)); utils.remove_spectral_norm(m); result = m.state_dict()",
    "m = utils.weight_norm(nn.Linear(3, 4), dim=None); result = (m.state_dict(), m(torch.ones(1, 3)))",
    "m = utils.weight_norm(nn.Linear(3, 4), dim=1); result = (m.state_dict(), m(torch.ones(1, 3)))",
    "parametrize.register_parametrization(net, 'x', Doubled())",
    "parametrize.remove_parametrizations(net, 'weight')",
    "parametrize.register_parametrization(net, 'weight', nn.Identity(), unsafe=False); result = (net, net.weight)",
    "parametrize.register_parametrization(net, 'weight', Doubled()); result = (net, net.state_dict(), net.weight, type(net).__name__)",
    "parametrize.register_parametrization(net, 'steps', Doubled()); net.steps = torch.ones(2); result = net.state_dict()",
    "parametrize.register_parametrization(net, 'weight', nn.Flatten(0)); net.weight = torch.ones(2)",
    "parametrize.register_parametrization(net, 'weight', nn.Unflatten(0, (1, 2)))",
    "parametrize.register_parametrization(net, 'weight', Doubled()); pickle.dumps(net)",
    "parametrizations.orthogonal(net, 'weight')",
    "parametrizations.orthogonal(net, 'x')",
    "parametrizations.orthogonal(nn.Linear(2, 2), 'weight', 'x')",
    *(
        f"torch.manual_seed(1); m = parametrizations.orthogonal(nn.Linear({i}, {o}, dtype=torch.float64), 'weight', {kind!r}, "
        f"use_trivialization={trivial}); (m(torch.ones(2, {i}, dtype=torch.float64)) ** 3).sum().backward(); "
        "result = (m.state_dict(), m.weight, [p.grad for p in m.parameters()])"
        for i, o in ((3, 3), (2, 4), (4, 2))
        for kind in ("matrix_exp", "cayley", "householder")
        for trivial in (True, False)
    ),
    "torch.manual_seed(1); m = parametrizations.spectral_norm(nn.Linear(3, 4)); m(torch.ones(1, 3)).sum().backward(); result = (m, m.state_dict(), [p.grad for p in m.parameters()])",
    "torch.manual_seed(1); m = parametrizations.weight_norm(nn.Linear(3, 4)); m(torch.ones(1, 3)).sum().backward(); result = (m, m.state_dict(), [p.grad for p in m.parameters()])",
    "net(torch.ones(3, 2)).pow(2).sum().backward(); result = (utils.clip_grad_norm_(net.parameters(), 0.5), [p.grad for p in net.parameters()])",
    "net(torch.ones(3, 2)).pow(2).sum().backward(); result = (utils.clip_grad_norm_(net.parameters(), 0.5, 1.5), [p.grad for p in net.parameters()])",
    "net(torch.ones(3, 2)).pow(2).sum().backward(); utils.clip_grad_value_(net.parameters(), 0.5); result = [p.grad for p in net.parameters()]",
    "net.weight.grad = torch.full((2,), float('nan')); utils.clip_grad_norm_(net.parameters(), 1, error_if_nonfinite=True)",
    "result = torch.func.functional_call(net, {'weight': torch.zeros(2), 'child.bias': torch.ones(3)}, torch.ones(1, 2))",
    "torch.func.functional_call(net, {'weight': torch.zeros(2)}, torch.ones(1, 2), strict=True)",
    # random functions
    "result = F.dropout(torch.ones(20), 0.3)",
    "result = F.dropout(torch.ones(20), 0.3, training=False)",
    "result = F.alpha_dropout(torch.ones(20), 0.3, training=True)",
    "result = F.feature_alpha_dropout(torch.ones(2, 5, 3), 0.3, training=True)",
    "result = (F.dropout1d(torch.ones(2, 5, 3)), F.dropout2d(torch.ones(2, 5, 3, 2)), F.dropout3d(torch.ones(2, 5, 1, 3, 2)))",
    "result = F.rrelu(-torch.ones(20), training=True)",
    "result = F.gumbel_softmax(torch.ones(3, 4))",
    "result = F.gumbel_softmax(torch.ones(3, 4), tau=0.5, hard=True, dim=0)",
    "x = torch.ones(20, requires_grad=True); F.gumbel_softmax(x, hard=True)[3].backward(); result = x.grad",
    "F.dropout(torch.ones(2), 1.5)",
    "F.dropout2d(torch.ones(2))",
    "result = F.normalize(torch.arange(6.0).reshape(2, 3), p=1.5)",
]


def described(value):
    """A result as something that compares: tensors by their values, modules by their text."""
    if hasattr(value, "detach"):
        if type(value).__name__.startswith("Uninitialized"):
            return ("lazy", type(value).__name__)
        return ("tensor", str(value.dtype), list(value.shape), value.requires_grad, value.detach().double().tolist())
    if isinstance(value, dict) or hasattr(value, "items"):
        return [(key, described(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple)) or type(value).__name__ in ("dict_keys", "odict_items"):
        return [described(each) for each in value]
    return repr(value)


def outcome(library, program):
    space = {"torch": library}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(SETUP + program, space)
        except Exception as error:
            return type(error).__name__, str(error)
    said = sorted({w.category.__name__ for w in caught})
    return "ok", said, described(space.get("result"))


def approximately(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == pytest.approx(b, rel=1e-4, abs=2e-6, nan_ok=True)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(approximately, a, b))
    return a == b


@pytest.mark.parametrize("program", PROGRAMS)
def test_same_on_both(program):
    torch = pytest.importorskip("torch")
    theirs, ours = outcome(torch, program), outcome(mica, program)
    if theirs[0] == "ok":
        assert approximately(ours, theirs), f"\nours   {ours}\ntheirs {theirs}"
        return
    assert ours[0] == theirs[0], f"\nours   {ours}\ntheirs {theirs}"
    # The end of an error's text may be ours: what came, and the way out.
    said = ours[1].replace("'mica.nn", "'torch.nn")
    assert said.startswith(theirs[1][:40]), f"\nours   {ours[1]}\ntheirs {theirs[1]}"
