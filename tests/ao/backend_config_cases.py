"""Backends' configurations, and models quantized by them, as functions of a library that speaks torch."""

import copy
import importlib

BACKENDS = ("native", "fbgemm", "qnnpack", "x86", "tensorrt")


def _module(t, name):
    return importlib.import_module(f"{t.__name__}.{name}")


# ---- the tables


def _name(t, thing):
    if isinstance(thing, tuple | list):
        return [_name(t, each) for each in thing]
    if isinstance(thing, str):
        return repr(thing)
    name = getattr(thing, "__name__", str(thing))
    if name == "fn":  # one of torch's functions that choose by a flag
        name = next(key for key, value in vars(t.nn.functional).items() if value is thing and key[0] != "_")
    if not isinstance(thing, type):
        return name
    rooms = ((".qat", "qat"), ("reference", "reference"), ("intrinsic", "intrinsic"))
    return f"{next((room for part, room in rooms if part in thing.__module__), 'nn')}.{name}"


def _dtypes(config):
    parts = (
        config.input_dtype_with_constraints,
        config.output_dtype_with_constraints,
        config.weight_dtype_with_constraints,
    )
    texts = []
    for part in parts:
        kept = [str(value).rpartition(".")[2] if key == "dtype" else value for key, value in vars(part).items()]
        texts.append([kept[0], *(value for value in kept[1:] if value is not None)])
    return [*texts, str(config.bias_dtype), config.is_dynamic]


def table(t, backend):
    """What a backend's configuration says, in texts: a list for each pattern."""
    _module(t, "ao.quantization.quantize_fx")
    _module(t, "ao.quantization.backend_config.utils")
    made = getattr(_module(t, f"ao.quantization.backend_config.{backend}"), f"get_{backend}_backend_config")()
    rows = []
    for each in made.configs:
        classes = (each.root_module, each.qat_module, each.reference_quantized_module, each.fused_module)
        rows.append([
            _name(t, each.pattern), each.observation_type.name, [_dtypes(d) for d in each.dtype_configs],
            [None if kind is None else _name(t, kind) for kind in classes], each.fuser_method is not None,
            [[number, kind.name] for number, kind in each._num_tensor_args_to_observation_type.items()],
            list(each._input_type_to_index.items()),
        ])  # fmt: skip
    return sorted(rows, key=repr)


# ---- models


def _filled(t, module):
    for place, parameter in enumerate(module.parameters()):
        with t.no_grad():
            steps = t.arange(parameter.numel()) * 37 + place * 5
            parameter.copy_((steps % 23 - 11).reshape(parameter.shape) / 17)
    return module


def _input(t, *sizes):
    count = 1
    for size in sizes:
        count *= size
    return (t.arange(count) * 29 % 19 - 9).reshape(sizes) / 7


def _net(t):
    nn, F = t.nn, t.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn, self.relu = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
            self.conv2, self.pool = nn.Conv2d(4, 4, 1), nn.AdaptiveAvgPool2d(1)
            self.fc, self.sig, self.fc2 = nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 2)

        def forward(self, x):
            x = self.relu(self.bn(self.conv(x)))
            x = F.relu(x + self.conv2(x))
            x = t.flatten(self.pool(x), 1)
            x = self.sig(F.relu(self.fc(x)))
            return self.fc2(x * 2)

    return _filled(t, Net()), _input(t, 2, 3, 8, 8)


def _chain(t):
    """A model whose layers are joined, and whose difference is quantized, only by a configuration of its own."""
    nn = t.nn

    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.tanh, self.fc2 = nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)

        def forward(self, x):
            y = self.tanh(self.fc(x))
            return self.fc2(t.sub(y, x))

    return _filled(t, Chain()), _input(t, 5, 4)


def _words(t):
    nn = t.nn
    return _filled(t, nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3), nn.ReLU())), t.tensor([[1, 5], [0, 6]])


def _dtype(t, *args, **options):
    return _module(t, "ao.quantization.backend_config").DTypeConfig(*args, **options)


def _linear(t, dtypes):
    made = _module(t, "ao.quantization.backend_config").BackendPatternConfig(t.nn.Linear).set_dtype_configs(dtypes)
    made.set_root_module(t.nn.Linear)
    return made.set_reference_quantized_module(_module(t, "ao.nn.quantized.reference").Linear)


def _own(t, *patterns):
    return _module(t, "ao.quantization.backend_config").BackendConfig("own").set_backend_pattern_configs(patterns)


def _named(name):
    return lambda t: getattr(_module(t, f"ao.quantization.backend_config.{name}"), f"get_{name}_backend_config")()


def _shared(t, pattern, kind):
    b = _module(t, "ao.quantization.backend_config")
    made = b.BackendPatternConfig(pattern).set_dtype_configs([_dtype(t, t.quint8, t.quint8)])
    return made.set_observation_type(getattr(b.ObservationType, kind))


OWN, SHARED = "OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT", "OUTPUT_SHARE_OBSERVER_WITH_INPUT"


def _weighted(t):
    return _dtype(t, t.quint8, t.quint8, t.qint8, t.float32)


def _dynamic(t):
    return _dtype(t, t.quint8, t.float32, t.qint8, t.float32, is_dynamic=True)


# name -> (model, configuration, mapping of qconfigs)
FLOWS = {
    **{f"{name} net": (_net, _named(name), "static") for name in BACKENDS if name != "x86"},
    "linear maps alone": (_net, lambda t: _own(t, _linear(t, [_weighted(t)])), "static"),
    "another dtype of weights": (
        _net, lambda t: _own(t, _linear(t, [_dtype(t, t.qint8, t.qint8, t.qint8, t.float32)])), "static"),
    "flatten with a scale of its own": (_net, lambda t: _own(t, _shared(t, t.flatten, OWN)), "static"),
    "differences": (_chain, lambda t: _own(t, _linear(t, [_weighted(t)]), _shared(t, t.sub, OWN)), "static"),
    "differences that share": (
        _chain, lambda t: _own(t, _linear(t, [_weighted(t)]), _shared(t, t.sub, SHARED)), "static"),
    "static where calls scale": (_chain, lambda t: _own(t, _linear(t, [_dynamic(t)])), "static"),
    "calls that scale": (_chain, lambda t: _own(t, _linear(t, [_dynamic(t)])), "dynamic"),
    "calls where it is static": (_chain, lambda t: _own(t, _linear(t, [_weighted(t)])), "dynamic"),
    "constrained": (
        _chain,
        lambda t: _own(t, _linear(t, [_dtype(
            t, _module(t, "ao.quantization.backend_config").DTypeWithConstraints(t.quint8, scale_min_lower_bound=1.0),
            t.quint8, t.qint8, t.float32)])),
        "static"),
}  # fmt: skip


def prepared(t, name, trained=False):
    """A model that has seen an example, the example, and the configuration."""
    tq, fx = _module(t, "ao.quantization"), _module(t, "ao.quantization.quantize_fx")
    t.backends.quantized.engine = "qnnpack"
    make, config, way = FLOWS[name]
    model, x = make(t)
    config = config(t)
    if way == "dynamic":
        mapping = tq.QConfigMapping().set_global(tq.default_dynamic_qconfig)
    else:
        mapping = (tq.get_default_qat_qconfig_mapping if trained else tq.get_default_qconfig_mapping)("qnnpack")
    prepare = fx.prepare_qat_fx if trained else fx.prepare_fx
    made = prepare(model.train() if trained else model.eval(), mapping, (x,), backend_config=config)
    made(x)
    return made.eval(), x, config


TRAINED = ("native net", "qnnpack net", "linear maps alone")


def flow(t, name, trained=False):
    """What the quantized and the reference model compute, and how many observers there were."""
    fx = _module(t, "ao.quantization.quantize_fx")
    made, x, config = prepared(t, name, trained)
    observers = sum(n.op == "call_module" and "post_process" in n.target for n in made.graph.nodes)
    results = []
    for convert in (fx.convert_fx, fx.convert_to_reference_fx):
        results.append(convert(copy.deepcopy(made), backend_config=config)(x).reshape(-1).tolist())
    return {"observers": observers, "quantized": results[0], "reference": results[1]}
