"""ultralytics: YOLO models from their descriptions train, detect and are fused, in double precision."""

import os

import numpy as np
import torch

# The first program of a user makes a file of settings, and says so.
os.environ["YOLO_VERBOSE"] = "false"
from ultralytics import YOLO
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import DEFAULT_CFG
from ultralytics.utils.nms import non_max_suppression

for description in ("yolov8n.yaml", "yolo11n.yaml"):
    torch.manual_seed(0)
    # In double precision: four places of a small picture leave batch norms few values, and last digits grow.
    model = DetectionModel(description, nc=3, verbose=False).double()
    model.args = DEFAULT_CFG
    print(description, sum(p.numel() for p in model.parameters()), model.stride.tolist())
    x = torch.rand(2, 3, 64, 64).double()
    boxes = torch.tensor([[0.5, 0.5, 0.3, 0.3], [0.2, 0.3, 0.2, 0.2], [0.6, 0.4, 0.5, 0.5]])
    batch = {
        "img": x,
        "cls": torch.tensor([[0.0], [1.0], [2.0]]),
        "bboxes": boxes,
        "batch_idx": torch.tensor([0.0, 0, 1]),
    }
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9, nesterov=True)
    model.train()
    for _ in range(2):
        loss = model(batch)[0].sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("loss", loss.item())
    model.eval()
    with torch.no_grad():
        out = model(x)[0]
    found = non_max_suppression(out, 0.001, 0.6, max_det=5)
    print("out", tuple(out.shape), out.sum().item(), [tuple(each.shape) for each in found])
model = YOLO("yolov8n.yaml", verbose=False)
result = model.predict(np.zeros((64, 64, 3), dtype=np.uint8), imgsz=64, verbose=False, device="cpu")[0]
print(type(result).__name__, result.boxes.shape[1], len(list(model.model.fuse(verbose=False).parameters())) > 0)
