"""The operators of torchvision's library: schemas as torchvision declares them."""

from mica._operators.libraries.box_overlap import box_iou_rotated, nms
from mica._operators.libraries.deformable import deform_conv2d
from mica._operators.libraries.region_align import PositionAlign, RegionAlign, quantized_roi_align
from mica._operators.libraries.region_pool import PositionPool, RegionPool
from mica.library import Library

_library = Library("torchvision", "FRAGMENT")


def _define(schema, function):
    _library.impl(_library.define(schema), function, "CompositeImplicitAutograd")


def _quantized_nms(dets, scores, iou_threshold):
    # The scale and the zero point of all boxes are one, and overlaps do not depend on them.
    return nms(dets.int_repr().float(), scores.dequantize(), iou_threshold)


def _refuse_backward(name):
    def refuse(*args):
        raise NotImplementedError(f"torchvision::{name}: the gradient is a part of the forward operator in Mica")

    return refuse


_REGION = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", nms)
_define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", _quantized_nms)
_define("box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor", box_iou_rotated)
_define(f"roi_align({_REGION}, int sampling_ratio, bool aligned) -> Tensor", RegionAlign.apply)
_define(f"ps_roi_align({_REGION}, int sampling_ratio) -> (Tensor, Tensor)", PositionAlign.apply)
_define(f"roi_pool({_REGION}) -> (Tensor, Tensor)", RegionPool.apply)
_define(f"ps_roi_pool({_REGION}) -> (Tensor, Tensor)", PositionPool.apply)
_define(
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, int rois_zero_point, "
    "float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    quantized_roi_align,
)
_define(
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
    "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, "
    "bool use_mask) -> Tensor",
    deform_conv2d,
)
_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_PLACES = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
for _schema in (
    f"_roi_align_backward(Tensor grad, Tensor rois, {_PLACES}, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_PLACES}, {_SIZES}) -> Tensor",
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_PLACES}, int sampling_ratio, {_SIZES}) -> Tensor",
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_PLACES}, {_SIZES}) -> Tensor",
    "_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
):
    _define(_schema, _refuse_backward(_schema.partition("(")[0]))
# -1: torchvision is told that no CUDA is compiled in, and compares no versions.
_define("_cuda_version() -> int", lambda: -1)
