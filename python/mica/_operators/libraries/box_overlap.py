"""Boxes that overlap: non-maximum suppression, and the overlap of rotated boxes."""

import mica


def nms(dets, scores, iou_threshold):
    """Indices of the boxes that no better box overlaps by more than the threshold, the best first."""
    if dets.dim() != 2:
        raise RuntimeError(f"boxes should be a 2d tensor, got {dets.dim()}D")
    if dets.size(1) != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {dets.size(1)}")
    if scores.dim() != 1:
        raise RuntimeError(f"scores should be a 1d tensor, got {scores.dim()}D")
    if dets.size(0) != scores.size(0):
        raise RuntimeError(
            "boxes and scores should have same number of elements in dimension 0, got "
            f"{dets.size(0)} and {scores.size(0)}"
        )
    if dets.dtype != scores.dtype:
        raise RuntimeError("dets should have the same type as scores")
    with mica.no_grad():
        order = scores.detach().sort(descending=True, stable=True).indices
        x1, y1, x2, y2 = dets.detach().float().index_select(0, order).unbind(1) if dets.dtype in _SHORT else (
            dets.detach().index_select(0, order).unbind(1)
        )  # fmt: skip
        area = (x2 - x1) * (y2 - y1)
        alive = mica.ones(len(order), dtype=mica.bool, device=dets.device)
        kept, start = [], 0
        while start < len(order):
            kept.append(start)
            later = slice(start + 1, None)
            width = mica.minimum(x2[later], x2[start]).sub_(mica.maximum(x1[later], x1[start])).clamp_(min=0)
            height = mica.minimum(y2[later], y2[start]).sub_(mica.maximum(y1[later], y1[start])).clamp_(min=0)
            shared = width.mul_(height)
            overlap = shared / (area[later] + area[start] - shared)
            alive[later] &= overlap.le_(iou_threshold).bool() | overlap.isnan()
            rest = alive[later].nonzero()
            start = start + 1 + rest[0].item() if len(rest) else len(order)
        return order[mica.tensor(kept, dtype=mica.int64, device=dets.device)]


_SHORT = (mica.float16, mica.bfloat16)


def _corners(boxes):
    """The four corners of boxes (centre, size, angle in degrees), counterclockwise."""
    x, y, width, height, angle = boxes.double().unbind(-1)
    angle = mica.deg2rad(angle)
    cosine, sine = angle.cos() / 2, -angle.sin() / 2  # the y axis points down, angles turn against the clock
    first = mica.stack([x - sine * height - cosine * width, y + cosine * height - sine * width], -1)
    second = mica.stack([x + sine * height - cosine * width, y - cosine * height - sine * width], -1)
    centre = mica.stack([x, y], -1)
    return mica.stack([first, second, 2 * centre - first, 2 * centre - second], -2)


def _clipped_area(polygon, clip):
    """The area that two convex polygons share, by clipping the first at every edge of the second."""
    if _signed_area(clip) < 0:
        clip = clip[::-1]
    for i, (ax, ay) in enumerate(clip):
        bx, by = clip[(i + 1) % len(clip)]
        sides = [(bx - ax) * (py - ay) - (by - ay) * (px - ax) for px, py in polygon]
        inside = []
        for j, (px, py) in enumerate(polygon):
            qx, qy = polygon[(j + 1) % len(polygon)]
            here, there = sides[j], sides[(j + 1) % len(polygon)]
            if here >= 0:
                inside.append((px, py))
            if (here > 0 > there) or (here < 0 < there):
                part = here / (here - there)
                inside.append((px + part * (qx - px), py + part * (qy - py)))
        polygon = inside
        if len(polygon) < 3:
            return 0.0
    return abs(_signed_area(polygon))


def _signed_area(polygon):
    following = polygon[1:] + polygon[:1]
    return sum(px * qy - qx * py for (px, py), (qx, qy) in zip(polygon, following, strict=True)) / 2


def box_iou_rotated(boxes1, boxes2):
    """The intersection over the union of every box of the first with every box of the second."""
    first, second = _corners(boxes1).tolist(), _corners(boxes2).tolist()
    areas1 = (boxes1[:, 2].double() * boxes1[:, 3].double()).tolist()
    areas2 = (boxes2[:, 2].double() * boxes2[:, 3].double()).tolist()
    rows = []
    for corners, area in zip(first, areas1, strict=True):
        row = []
        for others, other_area in zip(second, areas2, strict=True):
            if area < 1e-14 or other_area < 1e-14:
                row.append(0.0)
                continue
            shared = _clipped_area([tuple(p) for p in corners], [tuple(p) for p in others])
            row.append(shared / (area + other_area - shared))
        rows.append(row)
    made = mica.tensor(rows, dtype=mica.float32, device=boxes1.device)
    return made.reshape(len(boxes1), len(boxes2))
