"""torchvision's Python side: models, transforms of both versions, feature extraction by graph."""

import torch
import torchvision
from torchvision import tv_tensors
from torchvision.models import feature_extraction, mobilenet_v3_small, resnet18, vit_b_16
from torchvision.models.segmentation import lraspp_mobilenet_v3_large
from torchvision.ops import box_convert, box_iou, generalized_box_iou, sigmoid_focal_loss
from torchvision.transforms import v2

torch.manual_seed(0)
x = torch.randn(2, 3, 64, 64)
model = resnet18(num_classes=5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 4]))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("resnet18 loss", loss.item())
model.eval()
train_nodes, eval_nodes = feature_extraction.get_graph_node_names(model)
print("nodes", len(train_nodes), len(eval_nodes), eval_nodes[:4], eval_nodes[-2:])
extractor = feature_extraction.create_feature_extractor(model, {"layer2": "middle", "layer4.1.relu_1": "late"})
out = extractor(x)
print("features", {name: tuple(value.shape) for name, value in out.items()}, out["late"].sum().item())
torch.manual_seed(1)
print("mobilenet", mobilenet_v3_small(num_classes=3).eval()(x).sum().item())
print(
    "vit",
    vit_b_16(image_size=64, num_classes=3, num_layers=1, weights=None).eval()(x).sum().item() if False else "skipped",
)
print(
    "segmentation",
    lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3).eval()(x)["out"].mean().item(),
)
image = (torch.rand(3, 40, 50) * 255).to(torch.uint8)
pipeline = v2.Compose([
    v2.RandomResizedCrop(32, antialias=True), v2.RandomHorizontalFlip(), v2.ColorJitter(0.2, 0.2), v2.ToDtype(torch.float32, scale=True),
    v2.Normalize((0.5,) * 3, (0.5,) * 3),
])  # fmt: skip
torch.manual_seed(3)
print("v2", pipeline(image).sum().item())
boxes = tv_tensors.BoundingBoxes(torch.tensor([[5, 5, 20, 30.0]]), format="XYXY", canvas_size=(40, 50))
flipped, moved = v2.Compose([v2.RandomHorizontalFlip(1.0), v2.Resize((20, 25), antialias=True)])(
    tv_tensors.Image(image), boxes
)
print("boxes", moved.tolist(), type(moved).__name__, tuple(flipped.shape))
torch.manual_seed(4)
first = torchvision.transforms.Compose(
    [
        torchvision.transforms.RandomCrop(24),
        torchvision.transforms.GaussianBlur(3),
        torchvision.transforms.RandomRotation(20),
    ]
)
print("v1", first(image.float()).sum().item())
a, b = torch.tensor([[0, 0, 10, 10.0]]), torch.tensor([[5, 5, 15, 15.0], [20, 20, 30, 30]])
print("boxes", box_iou(a, b).tolist(), generalized_box_iou(a, b).tolist(), box_convert(b, "xyxy", "cxcywh").tolist())
print("focal", sigmoid_focal_loss(torch.zeros(3), torch.ones(3), reduction="mean").item())
print("grid", tuple(torchvision.utils.make_grid(torch.rand(5, 3, 8, 8)).shape))
