"""torch.ops.quantized: operators of quantized tensors, and weights packed for them."""

import functools

from mica import _C
from mica._library.schema import parse_schema
from mica._operators import packed_rows
from mica.nn import functional as F

__all__ = ["ConvPackedParams", "LinearPackedParams", "names", "overloads"]


# ---- sums and products


def _again(values, scale, zero_point, like):
    return _C.quantize_per_tensor(values, float(scale), int(zero_point), like.dtype)


def _limits(x):
    return {_C.quint8: (0, 255), _C.qint8: (-128, 127)}.get(x.dtype, (-(2**31), 2**31 - 1))


def _add_number(x, number):
    """x + number: the zero point moves, and the integers stay; where it cannot move that far the scale grows."""
    low, high = _limits(x)
    scale, moved = x.q_scale(), x.q_zero_point() - round(number / x.q_scale())
    if low <= moved <= high:
        return _C._make_per_tensor_quantized_tensor(x.int_repr(), scale, moved)
    reach, zero_point = (high - moved, low) if moved < low else (moved - low, high)
    return _again(x.dequantize() + number, reach / (high - low) * scale, zero_point, x)


def _mul_number(x, number):
    """x * number: the scale is multiplied; a negative one turns the integers around."""
    low, high = _limits(x)
    if number == 0:
        return _again(_C.zeros(x.shape), 1.0, 0, x)
    if number > 0:
        return _C._make_per_tensor_quantized_tensor(x.int_repr(), x.q_scale() * number, x.q_zero_point())
    turned = (high + low - x.int_repr().to(_C.int32)).to(x.int_repr().dtype)
    return _C._make_per_tensor_quantized_tensor(turned, x.q_scale() * -number, high + low - x.q_zero_point())


def _same(values):
    return values


def _pairwise(of_tensors, of_number, relu):
    """add(qa, qb, scale, zero_point), add(qa, number), add(number, qa), each with out=."""

    def operator(qa, qb=None, scale=None, zero_point=None, *, b=None, out=None):
        qb = b if qb is None else qb
        if not isinstance(qa, _C.Tensor):
            qa, qb = qb, qa
        if isinstance(qb, _C.Tensor) and qb.is_quantized:
            if out is not None:
                scale, zero_point = out.q_scale(), out.q_zero_point()
            if scale is None or zero_point is None:
                raise RuntimeError("quantized::add and its like take the scale and the zero point of their result")
            if qa.qscheme() != qb.qscheme() or qa.dtype != qb.dtype:
                raise RuntimeError("Both inputs to Add must have the same quantization scheme and dtype")
            result = _again(relu(of_tensors(qa.dequantize(), qb.dequantize())), scale, zero_point, qa)
        else:
            result = of_number(qa, qb.item() if isinstance(qb, _C.Tensor) else qb)
            result = result if relu is _same else result.relu()
        return result if out is None else out.copy_(result)

    return operator


def _scalar(of_number, relu):
    def operator(qa, b, *, out=None):
        result = of_number(qa, b.item() if isinstance(b, _C.Tensor) else b)
        result = result.relu() if relu else result
        return result if out is None else out.copy_(result)

    return operator


def _matmul(qa, qb, scale, zero_point):
    return _again(qa.dequantize() @ qb.dequantize(), scale, zero_point, qa)


def _cat(relu, qx, dim, scale=None, zero_point=None, *, out=None):
    if out is not None:
        scale, zero_point = out.q_scale(), out.q_zero_point()
    scale = qx[0].q_scale() if scale is None else scale
    zero_point = qx[0].q_zero_point() if zero_point is None else zero_point
    result = _again(relu(_C.cat([x.dequantize() for x in qx], dim)), scale, zero_point, qx[0])
    return result if out is None else out.copy_(result)


# ---- packed weights


class LinearPackedParams:
    """A quantized weight and a bias, as linear_prepack makes them."""

    def __init__(self, weight, bias):
        self._weight, self._bias = weight, bias

    def unpack(self):
        """The weight and the bias."""
        return self._weight, self._bias


class ConvPackedParams(LinearPackedParams):
    """The packed weight and bias of a convolution, with its geometry."""

    def __init__(self, weight, bias, stride, padding, dilation, groups):
        super().__init__(weight, bias)
        self._geometry = tuple(map(tuple, (stride, padding, dilation)))
        self._groups = groups

    def weight(self):
        return self._weight

    def bias(self):
        return self._bias

    def stride(self):
        return self._geometry[0]

    def padding(self):
        return self._geometry[1]

    def dilation(self):
        return self._geometry[2]

    def groups(self):
        return self._groups


def _check_weight(w):
    if not w.is_quantized:
        raise RuntimeError(f"the weight of a packed layer is a quantized tensor, got {w.dtype}")
    return w


def _linear_prepack(W, B=None):
    return LinearPackedParams(_check_weight(W), B)


def _linear(relu, X, W_prepack, Y_scale_i, Y_zero_point_i):
    from mica.ao.nn.quantized import functional

    weight, bias = W_prepack.unpack()
    if relu:
        return _again(functional.linear(X, weight, bias).relu(), Y_scale_i, Y_zero_point_i, X)
    return functional.linear(X, weight, bias, Y_scale_i, Y_zero_point_i)


def _linear_dynamic(relu, X, W_prepack, reduce_range=False):
    from mica.ao.nn.quantized.dynamic import product

    result = product(X, *W_prepack.unpack(), reduce_range)
    return result.relu() if relu else result


def _conv_prepack(dims, weight, bias, stride, padding, dilation, groups):
    if weight.dim() != dims + 2:
        raise RuntimeError(f"a weight of {dims + 2} dimensions was expected, got {list(weight.shape)}")
    return ConvPackedParams(_check_weight(weight), bias, stride, padding, dilation, groups)


def _conv(dims, relu, qx, packed_weight, output_scale, output_zero_point):
    from mica.ao.nn.quantized import functional

    weight, bias = packed_weight.unpack()
    given = (qx, weight, bias, *packed_weight._geometry, packed_weight._groups)
    function = getattr(functional, f"conv{dims}d")
    if relu:
        return _again(function(*given).relu(), output_scale, output_zero_point, qx)
    return function(*given, output_scale, output_zero_point)


# ---- normalization and activations, in a scale of their own


def _batch_norm(relu, qx, weight, bias, mean, var, eps, output_scale, output_zero_point):
    values = F.batch_norm(qx.dequantize(), mean, var, weight, bias, False, 0.0, eps)
    return _again(values.relu() if relu else values, output_scale, output_zero_point, qx)


def _layer_norm(input, normalized_shape, weight, bias, eps, output_scale, output_zero_point):
    return _again(
        F.layer_norm(input.dequantize(), normalized_shape, weight, bias, eps), output_scale, output_zero_point, input
    )


def _group_norm(qx, num_groups, weight, bias, eps, output_scale, output_zero_point):
    return _again(F.group_norm(qx.dequantize(), num_groups, weight, bias, eps), output_scale, output_zero_point, qx)


def _instance_norm(qx, weight, bias, eps, output_scale, output_zero_point):
    return _again(
        F.instance_norm(qx.dequantize(), weight=weight, bias=bias, eps=eps), output_scale, output_zero_point, qx
    )


def _scaled(function):
    def operator(qx, *options):
        *options, scale, zero_point = options
        return _again(function(qx.dequantize(), *options), scale, zero_point, qx)

    return operator


def _in_its_scale(function):
    def operator(qx, *options, **named):
        return _again(function(qx.dequantize(), *options, **named), qx.q_scale(), qx.q_zero_point(), qx)

    return operator


def _leaky_relu(qx, negative_slope, inplace, output_scale, output_zero_point):
    return _again(F.leaky_relu(qx.dequantize(), negative_slope), output_scale, output_zero_point, qx)


def _elu(qx, output_scale, output_zero_point, alpha=1, scale=1, input_scale=1):
    values = qx.dequantize()
    values = _C.where(values > 0, scale * values, scale * alpha * _C.expm1(values * input_scale))
    return _again(values, output_scale, output_zero_point, qx)


def _celu(self, output_scale, output_zero_point, alpha=1.0):
    return _again(F.celu(self.dequantize(), alpha), output_scale, output_zero_point, self)


def _prelu(qx, weight, output_scale, output_zero_point):
    weight = weight.dequantize() if weight.is_quantized else weight
    return _again(F.prelu(qx.dequantize(), weight), output_scale, output_zero_point, qx)


def _dropout(self, output_scale, output_zero_point, p=0.5, training=False):
    return _again(F.dropout(self.dequantize(), p, training), output_scale, output_zero_point, self)


# ---- the table: name -> (function, schemas)

_P = "__torch__.torch.classes.quantized."


def _table():
    table = {}

    def put(function, *schemas):
        table[schemas[0].partition("(")[0].partition(".")[0]] = (function, schemas)

    for name, of_tensors, of_number in (("add", _C.add, _add_number), ("mul", _C.mul, _mul_number)):
        for suffix, relu in (("", _same), ("_relu", _C.relu)):
            full = name + suffix
            put(
                _pairwise(of_tensors, of_number, relu),
                f"{full}(Tensor qa, Tensor qb, float scale, int zero_point) -> Tensor qc",
                f"{full}.out(Tensor qa, Tensor qb, Tensor(a!) out) -> Tensor(a!) out",
                f"{full}.Scalar(Tensor qa, Scalar b) -> Tensor qc",
                f"{full}.Scalar2(Scalar b, Tensor qa) -> Tensor qc",
                f"{full}.Scalar_out(Tensor qa, Scalar b, Tensor(a!) out) -> Tensor(a!) out",
            )
            put(
                _scalar(of_number, relu is not _same),
                f"{name}_scalar{suffix}(Tensor qa, Scalar b) -> Tensor qc",
                f"{name}_scalar{suffix}.Tensor(Tensor qa, Tensor b) -> Tensor qc",
            )
    put(_matmul, "matmul(Tensor qa, Tensor qb, float scale, int zero_point) -> Tensor qc")
    for suffix, relu in (("", _same), ("_relu", _C.relu)):
        put(
            functools.partial(_cat, relu),
            f"cat{suffix}(Tensor[] qx, int dim, float? scale, int? zero_point) -> Tensor",
        )
        put(
            functools.partial(_batch_norm, relu is not _same),
            f"batch_norm{suffix}(Tensor qx, Tensor? weight, Tensor? bias, Tensor mean, Tensor var, float eps, "
            "float output_scale, int output_zero_point) -> Tensor",
        )
        put(
            functools.partial(_linear, relu is not _same),
            f"linear{suffix}(Tensor X, {_P}LinearPackedParamsBase W_prepack, float Y_scale_i, int Y_zero_point_i) -> "
            "Tensor Y",
        )
        put(
            functools.partial(_linear_dynamic, relu is not _same),
            f"linear{suffix}_dynamic(Tensor X, {_P}LinearPackedParamsBase W_prepack, bool reduce_range=False) -> "
            "Tensor Y",
        )
        for d in (1, 2, 3):
            base = f"{_P}Conv{max(d, 2)}dPackedParamsBase"
            put(
                functools.partial(_conv, d, relu is not _same),
                f"conv{d}d{suffix}(Tensor qx, {base} packed_weight, float output_scale, int output_zero_point) -> "
                "Tensor",
            )
    put(_linear_prepack, f"linear_prepack(Tensor W, Tensor? B=None) -> {_P}LinearPackedParamsBase W_prepack")
    unpacked = "(Tensor W_origin, Tensor? B_origin)"
    put(LinearPackedParams.unpack, f"linear_unpack({_P}LinearPackedParamsBase W_prepack) -> {unpacked}")
    for d in (1, 2, 3):
        base = f"{_P}Conv{max(d, 2)}dPackedParamsBase"
        put(
            functools.partial(_conv_prepack, d),
            f"conv{d}d_prepack(Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups) "
            f"-> {base}",
        )
        put(ConvPackedParams.unpack, f"conv{d}d_unpack({base} packed_weights) -> (Tensor unpacked, Tensor? B_origin)")
    put(
        _layer_norm,
        "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps, float output_scale, "
        "int output_zero_point) -> Tensor",
    )
    put(
        _group_norm,
        "group_norm(Tensor qx, int num_groups, Tensor? weight, Tensor? bias, float eps, float output_scale, "
        "int output_zero_point) -> Tensor",
    )
    put(
        _instance_norm,
        "instance_norm(Tensor qx, Tensor? weight, Tensor? bias, float eps, float output_scale, int output_zero_point) "
        "-> Tensor",
    )
    put(_scaled(F.hardswish), "hardswish(Tensor input, float output_scale, int output_zero_point) -> Tensor")
    put(_scaled(_C.sigmoid), "sigmoid(Tensor qx, float output_scale, int output_zero_point) -> Tensor")
    put(_scaled(_C.softmax), "softmax(Tensor qx, int dim, float output_scale, int output_zero_point) -> Tensor")
    put(
        _leaky_relu,
        "leaky_relu(Tensor qx, Scalar negative_slope, bool inplace, float output_scale, int output_zero_point) -> "
        "Tensor",
    )
    put(
        _elu,
        "elu(Tensor self, float output_scale, int output_zero_point, Scalar alpha=1, Scalar scale=1, "
        "Scalar input_scale=1) -> Tensor",
    )
    put(_celu, "celu(Tensor self, float output_scale, int output_zero_point, Scalar alpha=1) -> Tensor")
    put(_prelu, "prelu(Tensor qx, Tensor weight, float output_scale, int output_zero_point) -> Tensor")
    put(
        _dropout,
        "dropout(Tensor self, float output_scale, int output_zero_point, Scalar p=0.5, bool training=False) -> Tensor",
    )
    put(_in_its_scale(F.relu6), "relu6(Tensor qx, bool inplace=False) -> Tensor")
    put(_in_its_scale(_C.clamp), "clamp(Tensor qx, Scalar? min=None, Scalar? max=None) -> Tensor qy")
    put(_in_its_scale(F.threshold), "threshold(Tensor qx, Scalar threshold, Scalar value) -> Tensor qy")
    sizes = "int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode"
    put(F.max_pool1d, f"max_pool1d(Tensor qx, {sizes}) -> Tensor")
    put(F.max_pool2d, f"max_pool2d(Tensor qx, {sizes}) -> Tensor")
    packed_rows.operators(put, _P)
    return table


_table = functools.cache(_table)


def names():
    """What torch.ops.quantized has here."""
    return sorted(_table())


def overloads(name):
    """(function, {overload: schema}) of an operator, or None."""
    if name not in _table():
        return None
    function, texts = _table()[name]
    schemas = [parse_schema(f"quantized::{text}") for text in texts]
    return function, {schema.overload_name or "default": schema for schema in schemas}
