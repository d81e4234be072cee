"""What is written for TensorBoard: one function for each kind of value."""

import io
import json
import logging

from mica.utils.tensorboard._convert_np import make_np

__all__ = ["histogram", "histogram_raw", "hparams", "image", "scalar", "text"]

logger = logging.getLogger(__name__)


def _proto():
    from tensorboard.compat.proto import summary_pb2

    return summary_pb2


def _metadata(plugin, content=b""):
    proto = _proto().SummaryMetadata
    return proto(plugin_data=proto.PluginData(plugin_name=plugin, content=content))


def scalar(name, tensor, collections=None, new_style=False, double_precision=False):
    """A number."""
    from tensorboard.compat.proto.tensor_pb2 import TensorProto

    value = make_np(tensor).squeeze()
    if value.ndim != 0:
        raise AssertionError(
            f"Tensor should contain one element (0 dimensions). Was given size: {value.size} and {value.ndim} dimensions."
        )
    proto = _proto()
    if new_style or double_precision:
        kind = (
            {"dtype": "DT_DOUBLE", "double_val": [float(value)]}
            if double_precision
            else {"dtype": "DT_FLOAT", "float_val": [float(value)]}
        )
        entry = proto.Summary.Value(tag=name, tensor=TensorProto(**kind), metadata=_metadata("scalars"))
        return proto.Summary(value=[entry])
    return proto.Summary(value=[proto.Summary.Value(tag=name, simple_value=float(value))])


def histogram_raw(name, min, max, num, sum, sum_squares, bucket_limits, bucket_counts):
    """A histogram whose buckets are counted."""
    from tensorboard.compat.proto.summary_pb2 import HistogramProto

    proto = _proto()
    made = HistogramProto(
        min=min, max=max, num=num, sum=sum, sum_squares=sum_squares, bucket_limit=bucket_limits, bucket=bucket_counts
    )
    return proto.Summary(value=[proto.Summary.Value(tag=name, histo=made)])


def histogram(name, values, bins, max_bins=None):
    """A histogram of values."""
    import numpy

    values = make_np(values).astype(float).reshape(-1)
    if values.size == 0:
        raise ValueError("The input has no element. A histogram counts one at least")
    counts, limits = numpy.histogram(values, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        step = len(counts) // max_bins
        counts = numpy.add.reduceat(counts, numpy.arange(0, len(counts), step))
        limits = numpy.append(limits[:-1:step], limits[-1])
    if not counts.any():
        raise ValueError("The histogram is empty, please file a bug report.")
    used = numpy.flatnonzero(counts)
    first, last = used[0], used[-1]
    # An empty bucket before the first one that counts, where it begins.
    shown = counts[first - 1 : last + 1] if first > 0 else numpy.concatenate([[0], counts[: last + 1]])
    ends = limits[first : last + 2]
    return histogram_raw(
        name, values.min(), values.max(), len(values), values.sum(), values.dot(values), ends.tolist(), shown.tolist()
    )


def image(tag, tensor, rescale=1, dataformats="NCHW"):
    """A picture, or several in a grid."""
    import numpy

    array = _height_width_channels(make_np(tensor), dataformats)
    array = array.astype(float) * (1 if array.dtype == numpy.uint8 else 255)
    return _picture_summary(tag, numpy.clip(array * rescale, 0, 255).astype(numpy.uint8))


def _height_width_channels(array, dataformats):
    import numpy

    if array.ndim != len(dataformats):
        raise AssertionError(
            f"size of input tensor and input format are different. tensor shape: {array.shape}, input_format: {dataformats}"
        )
    formats = dataformats.upper()
    if "N" in formats:
        array = array.transpose([formats.index(c) for c in "NCHW"])
        count, channels, height, width = array.shape
        columns = min(count, 8)
        rows = -(-count // columns)
        grid = numpy.zeros((channels, rows * height, columns * width), array.dtype)
        for i in range(count):
            y, x = (i // columns) * height, (i % columns) * width
            grid[:, y : y + height, x : x + width] = array[i]
        array = grid.transpose(1, 2, 0)
    elif "C" in formats:
        array = array.transpose([formats.index(c) for c in "HWC"])
    else:
        array = array.transpose([formats.index(c) for c in "HW"])[..., None]
    return numpy.concatenate([array] * 3, 2) if array.shape[2] == 1 else array


def _picture_summary(tag, array):
    from PIL import Image

    height, width, channels = array.shape
    file = io.BytesIO()
    Image.fromarray(array).save(file, format="PNG")
    proto = _proto()
    made = proto.Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue())
    return proto.Summary(value=[proto.Summary.Value(tag=tag, image=made)])


def text(tag, text):
    """A text."""
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode("utf8")], tensor_shape=shape)
    metadata = _metadata("text", TextPluginData(version=0).SerializeToString())
    proto = _proto()
    return proto.Summary(value=[proto.Summary.Value(tag=tag + "/text_summary", metadata=metadata, tensor=tensor)])


def pr_curve_raw(tag, tp, fp, tn, fn, precision, recall, num_thresholds):
    """A curve of precision over recall whose points are counted."""
    import numpy
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData

    rows = numpy.stack((tp, fp, tn, fn, precision, recall))
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in rows.shape])
    tensor = TensorProto(dtype="DT_FLOAT", float_val=rows.reshape(-1).tolist(), tensor_shape=shape)
    metadata = _metadata("pr_curves", PrCurvePluginData(version=0, num_thresholds=num_thresholds).SerializeToString())
    proto = _proto()
    return proto.Summary(value=[proto.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def _hparams_metadata(content):
    from tensorboard.plugins.hparams.metadata import PLUGIN_DATA_VERSION, PLUGIN_NAME

    content.version = PLUGIN_DATA_VERSION
    return _metadata(PLUGIN_NAME, content.SerializeToString())


def _domain(values):
    """The values that a setting may have, as a list of the protocol's; None where they are not said."""
    if values is None:
        return None
    from google.protobuf.struct_pb2 import ListValue

    made = ListValue()
    made.extend(values)
    return made


def hparams(hparam_dict=None, metric_dict=None, hparam_domain_discrete=None):
    """The settings of an experiment and its measures: three summaries, of the experiment, its start and its end."""
    from tensorboard.plugins.hparams.api_pb2 import Experiment, HParamInfo, MetricInfo, MetricName, Status
    from tensorboard.plugins.hparams.metadata import EXPERIMENT_TAG, SESSION_END_INFO_TAG, SESSION_START_INFO_TAG
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

    for given, name in ((hparam_dict, "hparam_dict"), (metric_dict, "metric_dict")):
        if not isinstance(given, dict):
            logger.warning("parameter: %s should be a dictionary, nothing logged.", name)
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    domains = hparam_domain_discrete or {}
    if not isinstance(domains, dict):
        raise TypeError("parameter: hparam_domain_discrete should be a dictionary, nothing logged.")
    for key, values in domains.items():
        known = key in hparam_dict and isinstance(values, list)
        if not known or not all(isinstance(each, type(hparam_dict[key])) for each in values):
            raise TypeError(
                f"parameter: hparam_domain_discrete[{key}] should be a list of same type as hparam_dict[{key}]."
            )
    start, infos = SessionStartInfo(), []
    for key, value in hparam_dict.items():
        if value is None:
            continue
        if isinstance(value, bool):
            start.hparams[key].bool_value, kind = value, "DATA_TYPE_BOOL"
        elif isinstance(value, (int, float)):
            start.hparams[key].number_value, kind = value, "DATA_TYPE_FLOAT64"
        elif isinstance(value, str):
            start.hparams[key].string_value, kind = value, "DATA_TYPE_STRING"
        else:
            start.hparams[key].number_value, kind = float(make_np(value).reshape(-1)[0]), "DATA_TYPE_FLOAT64"
        infos.append(HParamInfo(name=key, type=kind, domain_discrete=_domain(domains.get(key))))
    metrics = [MetricInfo(name=MetricName(tag=key)) for key in metric_dict]
    proto = _proto()
    made = []
    for tag, content in (
        (EXPERIMENT_TAG, HParamsPluginData(experiment=Experiment(hparam_infos=infos, metric_infos=metrics))),
        (SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start)),
        (
            SESSION_END_INFO_TAG,
            HParamsPluginData(session_end_info=SessionEndInfo(status=Status.Value("STATUS_SUCCESS"))),
        ),
    ):
        made.append(proto.Summary(value=[proto.Summary.Value(tag=tag, metadata=_hparams_metadata(content))]))
    return tuple(made)


def custom_scalars(layout):
    raise NotImplementedError(f"custom layouts are not written by Mica: {json.dumps(layout, default=str)}")
