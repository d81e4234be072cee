"""Joining layers with the batch normalization and the activation that follow them."""

import copy

from mica import nn
from mica.ao.nn import intrinsic as nni
from mica.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = [
    "fuse_conv_bn", "fuse_conv_bn_relu", "fuse_convtranspose_bn", "fuse_known_modules", "fuse_linear_bn",
    "fuse_modules", "fuse_modules_qat", "get_fuser_method",
]  # fmt: skip

_WITH_RELU = {
    nn.Conv1d: nni.ConvReLU1d,
    nn.Conv2d: nni.ConvReLU2d,
    nn.Conv3d: nni.ConvReLU3d,
    nn.Linear: nni.LinearReLU,
    nn.BatchNorm2d: nni.BNReLU2d,
    nn.BatchNorm3d: nni.BNReLU3d,
}


def _check_modes(first, second):
    if first.training != second.training:
        raise AssertionError("Conv and BN both must be in the same mode (train or eval).")


def _check_trained(layer, bn, outputs):
    """Whether a layer and batch normalization can be trained as one."""
    if not layer.training:
        raise AssertionError("qat is only supported for models in training mode")
    if bn.num_features != outputs:
        raise AssertionError("Output channel of Conv2d must match num_features of BatchNorm2d")
    if not bn.affine:
        raise AssertionError("Only support fusing BatchNorm2d with affine set to True")
    if not bn.track_running_stats:
        raise AssertionError("Only support fusing BatchNorm2d with tracking_running_stats set to True")


def fuse_conv_bn(is_qat, conv, bn):
    """A convolution with the batch normalization behind it folded into its weight; for training, joined with it."""
    _check_modes(conv, bn)
    if is_qat:
        _check_trained(conv, bn, conv.out_channels)
        return getattr(nni, type(conv).__name__.replace("Conv", "ConvBn"))(conv, bn)
    mode = conv.training
    return fuse_conv_bn_eval(conv.eval(), bn.eval()).train(mode)


def fuse_conv_bn_relu(is_qat, conv, bn, relu):
    """Join a convolution, a batch normalization and a relu."""
    _check_modes(conv, bn)
    if is_qat:
        _check_trained(conv, bn, conv.out_channels)
        return getattr(nni, type(conv).__name__.replace("Conv", "ConvBnReLU"))(conv, bn, relu)
    return _WITH_RELU[type(conv)](fuse_conv_bn(is_qat, conv, bn), relu)


def fuse_linear_bn(is_qat, linear, bn):
    """A linear map with the batch normalization behind it folded into its weight; for training, joined with it."""
    _check_modes(linear, bn)
    if is_qat:
        _check_trained(linear, bn, linear.out_features)
        return nni.LinearBn1d(linear, bn)
    mode = linear.training
    return fuse_linear_bn_eval(linear.eval(), bn.eval()).train(mode)


def fuse_convtranspose_bn(is_qat, convt, bn):
    """A transposed convolution with the batch normalization behind it folded into its weight."""
    _check_modes(convt, bn)
    if is_qat:
        raise Exception("Fusing ConvTranspose+BatchNorm not yet supported in QAT.")
    return fuse_conv_bn_eval(convt, bn, transpose=True)


def _joined(is_qat, first, relu):
    return _WITH_RELU[type(first)](first, relu)


_METHODS = {(first, nn.ReLU): _joined for first in _WITH_RELU}
for _d in (1, 2, 3):
    _conv, _bn = getattr(nn, f"Conv{_d}d"), getattr(nn, f"BatchNorm{_d}d")
    _METHODS |= {
        (_conv, _bn): fuse_conv_bn,
        (_conv, _bn, nn.ReLU): fuse_conv_bn_relu,
        (getattr(nn, f"ConvTranspose{_d}d"), _bn): fuse_convtranspose_bn,
    }
_METHODS[nn.Linear, nn.BatchNorm1d] = fuse_linear_bn


def get_fuser_method(op_list, additional_fuser_method_mapping=None):
    """The function that joins modules of these classes."""
    found = {**_METHODS, **(additional_fuser_method_mapping or {})}.get(tuple(op_list))
    if found is None:
        raise AssertionError(f"did not find fuser method for: {tuple(op_list)} ")
    return found


def fuse_known_modules(mod_list, is_qat, additional_fuser_method_mapping=None):
    """The joined module in the place of the first, and nothing in the places of the others."""
    method = get_fuser_method([type(m) for m in mod_list], additional_fuser_method_mapping)
    fused = method(is_qat, *mod_list)
    for hook in mod_list[0]._forward_pre_hooks.values():
        fused.register_forward_pre_hook(hook)
    for hook in mod_list[-1]._forward_hooks.values():
        fused.register_forward_hook(hook)
    rest = [nn.Identity() for _ in mod_list[1:]]
    for each in rest:
        each.training = mod_list[0].training
    return [fused, *rest]


def _fuse(model, modules_to_fuse, is_qat, inplace, fuser_func, config):
    model = model if inplace else copy.deepcopy(model)
    groups = [modules_to_fuse] if all(isinstance(name, str) for name in modules_to_fuse) else modules_to_fuse
    more = (config or {}).get("additional_fuser_method_mapping", {})
    for names in groups:
        made = fuser_func([model.get_submodule(name) for name in names], is_qat, more)
        for name, module in zip(names, made, strict=True):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent) if parent else model, last, module)
    return model


def fuse_modules(
    model, modules_to_fuse, inplace=False, fuser_func=fuse_known_modules, fuse_custom_config_dict=None
):  # fmt: skip
    """Join the modules of these names: convolution or linear map, batch normalization, relu. For models that are in use.

    Batch normalization is folded into the weight before it; relu joins the layer, so that its result is rounded once.
    """
    return _fuse(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model, modules_to_fuse, inplace=False, fuser_func=fuse_known_modules, fuse_custom_config_dict=None
):  # fmt: skip
    """As fuse_modules, for models in training. Batch normalization joins the layer, and is trained with it."""
    return _fuse(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
