"""Operators of torchvision's and torchaudio's libraries, which are defined over Mica's when a program loads those."""

import json
import math
from pathlib import Path

import mica
import pytest
from mica._operators import libraries as _operator_libraries

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "torchvision_operators.json").read_text())


@pytest.fixture(scope="module", autouse=True)
def libraries():
    assert _operator_libraries.load("/somewhere/torchvision/_C.so")
    assert _operator_libraries.load("/somewhere/torchaudio/lib/libtorchaudio.abi3.so")
    assert not _operator_libraries.load("/somewhere/other/_C.so")


def wave(*shape, k=1.0):
    return (mica.arange(float(mica.Size(shape).numel())) * 0.7 * k).sin().reshape(shape)


def sums(t):
    t = t.detach().double()
    return [t.sum().item(), (t * wave(*t.shape, k=0.3)).sum().item()]


def with_gradients(out, *inputs):
    y = out[0] if isinstance(out, tuple) else out
    gradients = mica.autograd.grad((y * wave(*y.shape, k=0.9)).sum(), inputs)
    return sums(y) + [value for gradient in gradients for value in sums(gradient)]


ROIS = mica.tensor([[0, -2, 1, 9, 14.5], [1, 3, 2.5, 20, 9], [1, 5, 5, 5.5, 6], [0, 12, 8, 30, 22]])


def test_suppression():
    xy = (wave(24, 2, k=1.3) + 1) * 12
    boxes = mica.cat([xy, xy + (wave(24, 2, k=2.1) + 1.2) * 6], 1)
    scores = wave(24, k=3.7)
    nms = mica.ops.torchvision.nms
    assert [nms(boxes, scores, threshold).tolist() for threshold in (0.1, 0.4, 0.7)] == RECORDED["nms"]
    assert nms(mica.zeros(0, 4), mica.zeros(0), 0.5).shape == (0,)
    with pytest.raises(RuntimeError, match="boxes should be a 2d tensor, got 1D"):
        nms(mica.zeros(4), mica.zeros(1), 0.5)
    with pytest.raises(RuntimeError, match="same number of elements"):
        nms(boxes, scores[:3], 0.5)


def test_rotated_boxes():
    first = mica.tensor([[5, 5, 4, 2, 30.0], [8, 6, 3, 3, 0], [5, 5, 4, 2, 30]])
    second = mica.tensor([[5.5, 5, 4, 2, 45.0], [8, 7, 3, 2, 90]])
    found = mica.ops.torchvision.box_iou_rotated(first, second)
    assert mica.allclose(found, mica.tensor(RECORDED["box_iou_rotated"]), atol=1e-4)


@pytest.mark.parametrize("samples", [-1, 2])
def test_regions_by_interpolation(samples):
    ops = mica.ops.torchvision
    x = wave(2, 12, 16, 20).requires_grad_()
    for aligned in (False, True):
        found = with_gradients(ops.roi_align(x, ROIS, 0.8, 3, 2, samples, aligned), x)
        assert found == pytest.approx(RECORDED[f"roi_align {samples} {aligned}"], abs=2e-4)
    found = with_gradients(ops.ps_roi_align(x, ROIS, 0.8, 3, 2, samples), x)
    assert found == pytest.approx(RECORDED[f"ps_roi_align {samples}"], abs=2e-4)


def test_regions_by_cells():
    ops = mica.ops.torchvision
    x = wave(2, 12, 16, 20).requires_grad_()
    assert with_gradients(ops.roi_pool(x, ROIS, 0.8, 3, 2), x) == pytest.approx(RECORDED["roi_pool"], abs=2e-4)
    assert sums(ops.ps_roi_pool(x, ROIS, 0.8, 3, 2)[0]) == pytest.approx(RECORDED["ps_roi_pool"], abs=2e-4)
    exact = wave(1, 6, 5, 6).double().requires_grad_()
    rois = mica.tensor([[0, 0, 0, 5, 4.0]], dtype=mica.float64)
    assert mica.autograd.gradcheck(lambda t: ops.ps_roi_pool(t, rois, 1.0, 3, 2)[0], (exact,))


def test_regions_refuse_what_torchvision_refuses():
    ops = mica.ops.torchvision
    with pytest.raises(RuntimeError, match="rois must have shape"):
        ops.roi_align(mica.zeros(1, 2, 4, 4), mica.zeros(1, 4), 1.0, 2, 2, 2, False)
    with pytest.raises(RuntimeError, match="multiple of pooling height"):
        ops.ps_roi_pool(mica.zeros(1, 3, 4, 4), mica.zeros(1, 5), 1.0, 2, 2)
    assert ops.roi_align(mica.zeros(1, 2, 4, 4), mica.zeros(0, 5), 1.0, 2, 2, 2, False).shape == (0, 2, 2, 2)


def test_deformable_convolution():
    x, weight = wave(2, 12, 16, 20).requires_grad_(), wave(4, 6, 3, 3, k=1.7).requires_grad_()
    bias, mask = wave(4).requires_grad_(), wave(2, 18, 8, 10, k=0.77).requires_grad_()
    offset = (wave(2, 36, 8, 10, k=5.3) * 3).requires_grad_()
    y = mica.ops.torchvision.deform_conv2d(x, weight, offset, mask, bias, 2, 2, 1, 1, 1, 1, 2, 2, True)
    found = with_gradients(y, x, weight, offset, mask, bias)
    # Gradients by places are sums of differences of size 10 to 100.
    assert found == pytest.approx(RECORDED["deform_conv2d"], rel=1e-4, abs=2e-3)
    still = mica.zeros(2, 36, 8, 10)
    y = mica.ops.torchvision.deform_conv2d(x, weight, still, mica.zeros(2, 1), bias, 2, 2, 1, 1, 1, 1, 2, 2, False)
    assert mica.allclose(y, mica.nn.functional.conv2d(x, weight, bias, 2, 1, groups=2), atol=1e-4)


def test_recursive_filter():
    signal, a = wave(2, 3, 300).double(), mica.tensor([[0.2, -0.9, 1.0], [0.0, 0.5, 1.0], [-0.3, 0.1, 1.0]]).double()
    padded = mica.zeros(2, 3, 302, dtype=mica.float64)
    mica.ops.torchaudio._lfilter_core_loop(signal, a, padded)
    wanted = mica.zeros(2, 3, 302, dtype=mica.float64)
    for i in range(300):
        wanted[:, :, i + 2] = signal[:, :, i] - a[:, 1] * wanted[:, :, i + 1] - a[:, 0] * wanted[:, :, i]
    assert mica.allclose(padded, wanted, atol=1e-9)


def test_transducer_loss():
    logits = wave(2, 3, 3, 4).requires_grad_()
    targets = mica.tensor([[1, 2], [3, 0]], dtype=mica.int32)
    lengths = mica.tensor([3, 2], dtype=mica.int32), mica.tensor([2, 1], dtype=mica.int32)
    costs, gradient = mica.ops.torchaudio.rnnt_loss_forward(logits, targets, *lengths, 0, -1.0, True)
    log_probs = logits.detach().log_softmax(-1)

    def total(i, t, u):
        """All paths from a place of the lattice, added up."""
        times, labels = int(lengths[0][i]), int(lengths[1][i])
        if t == times - 1 and u == labels:
            return math.exp(log_probs[i, t, u, 0])
        waited = math.exp(log_probs[i, t, u, 0]) * total(i, t + 1, u) if t < times - 1 else 0
        said = math.exp(log_probs[i, t, u, int(targets[i, u])]) * total(i, t, u + 1) if u < labels else 0
        return waited + said

    assert costs.tolist() == pytest.approx([-math.log(total(i, 0, 0)) for i in range(2)], abs=1e-5)
    assert gradient.shape == logits.shape and gradient[1, 2].abs().sum() == 0 and gradient.sum(-1).abs().max() < 1e-5


def test_alignment():
    probabilities = mica.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]]).log()[None]
    targets = mica.tensor([[1, 2]], dtype=mica.int32)
    lengths = mica.tensor([4]), mica.tensor([2])
    paths, scores = mica.ops.torchaudio.forced_align(probabilities, targets, *lengths, 0)
    assert paths.tolist() == [[0, 1, 0, 2]]
    assert scores.equal(probabilities)
    with pytest.raises(RuntimeError, match="targets length is too long for CTC"):
        mica.ops.torchaudio.forced_align(probabilities, mica.tensor([[1, 1, 1, 1]]), *lengths, 0)
