"""LSTM and attention through prepare and convert, as functions of a library that speaks torch; the results are recorded."""

import math

LENGTH, BATCH = 5, 2
# name -> (maker(nn), sizes of the inputs, arguments beside them)
CASES = {
    "LSTM": (lambda nn: nn.LSTM(3, 4), [(LENGTH, BATCH, 3)], {}),
    "LSTM both ways": (
        lambda nn: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), [(BATCH, LENGTH, 3)], {},
    ),
    "LSTM without bias": (lambda nn: nn.LSTM(3, 4, bias=False), [(LENGTH, BATCH, 3)], {}),
    "LSTM of split gates": (lambda nn: nn.LSTM(3, 4, 2), [(LENGTH, BATCH, 3)], {}),
    "attention": (lambda nn: nn.MultiheadAttention(8, 2), [(4, BATCH, 8), (6, BATCH, 8), (6, BATCH, 8)], {}),
    "attention by batches": (
        lambda nn: nn.MultiheadAttention(8, 2, batch_first=True, bias=False),
        [(BATCH, 4, 8), (BATCH, 6, 8), (BATCH, 6, 8)],
        {"average_attn_weights": False},
    ),
    "attention masked": (
        lambda nn: nn.MultiheadAttention(8, 2),
        [(4, BATCH, 8), (4, BATCH, 8), (4, BATCH, 8)],
        {"masked": True},
    ),
    "attention of widths": (
        lambda nn: nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, kdim=6, vdim=5),
        [(4, BATCH, 8), (6, BATCH, 6), (6, BATCH, 5)],
        {"need_weights": False},
    ),
}  # fmt: skip


def _custom(t, tq, name):
    """The dicts of a program that has its LSTMs' gates computed apart."""
    config = tq.get_default_custom_config_dict()
    if not name.endswith("split gates"):
        return config, config

    class Split(t.ao.nn.quantizable.LSTM):
        @classmethod
        def from_float(cls, other):
            return super().from_float(other, split_gates=True)

    return (
        {"float_to_observed_custom_module_class": {t.nn.LSTM: Split}},
        {"observed_to_quantized_custom_module_class": {Split: t.ao.nn.quantized.LSTM}},
    )


def _flat(value):
    if isinstance(value, (tuple, list)):
        return [x for part in value for x in _flat(part)]
    return [] if value is None else [value]


def _listed(x):
    shape = [int(s) for s in x.shape]
    if x.is_quantized:
        return [str(x.dtype), shape, x.q_scale(), x.q_zero_point(), x.int_repr().reshape(-1).tolist()]
    return [str(x.dtype), shape, [v if math.isfinite(v) else str(v) for v in x.reshape(-1).tolist()]]


def run(t, name, keep=None):
    """What the observed and what the converted model give, as lists; `keep` gets the converted module."""
    tq = t.ao.quantization
    maker, sizes, given = CASES[name]

    class Model(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.inner = tq.QuantStub(), maker(t.nn)

        def forward(self, inputs, **kwargs):
            return self.inner(*(self.quant(x) for x in inputs), **kwargs)

    kwargs = dict(given)
    if kwargs.pop("masked", False):
        kwargs["attn_mask"] = t.ones(4, 4, dtype=t.bool).triu(1)
        kwargs["key_padding_mask"] = t.tensor([[False] * 4, [False, False, False, True]])
    t.manual_seed(0)
    model = Model().eval()
    model.qconfig = tq.default_qconfig
    first, second = _custom(t, tq, name)
    observed = tq.prepare(model, prepare_custom_config_dict=first)
    t.manual_seed(1)
    with t.no_grad():
        for _ in range(2):
            inputs = [t.randn(size) for size in sizes]
            seen = observed(inputs, **kwargs)
        converted = tq.convert(observed, convert_custom_config_dict=second)
        got = converted(inputs, **kwargs)
    if keep is not None:
        keep.append(converted)
    return {"observed": [_listed(x) for x in _flat(seen)], "converted": [_listed(x) for x in _flat(got)]}
