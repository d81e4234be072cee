"""torchmetrics: measures of classification, regression, pictures and text."""

import torch
import torchmetrics
from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure
from torchmetrics.text import BLEUScore, CharErrorRate, WordErrorRate

torch.manual_seed(0)
scores, target = torch.randn(64, 5).softmax(-1), torch.randint(0, 5, (64,))
collection = torchmetrics.MetricCollection({
    "accuracy": torchmetrics.Accuracy(task="multiclass", num_classes=5),
    "f1": torchmetrics.F1Score(task="multiclass", num_classes=5, average="macro"),
    "auroc": torchmetrics.AUROC(task="multiclass", num_classes=5),
    "confusion": torchmetrics.ConfusionMatrix(task="multiclass", num_classes=5),
    "calibration": torchmetrics.CalibrationError(task="multiclass", num_classes=5),
    "precision": torchmetrics.AveragePrecision(task="multiclass", num_classes=5),
})  # fmt: skip
for part, wanted in zip(scores.chunk(4), target.chunk(4), strict=True):
    collection.update(part, wanted)
for name, value in sorted(collection.compute().items()):
    print(name, value.tolist())
x, y = torch.randn(50), torch.randn(50)
for metric in (
    torchmetrics.MeanSquaredError(), torchmetrics.MeanAbsoluteError(), torchmetrics.R2Score(), torchmetrics.PearsonCorrCoef(),
    torchmetrics.SpearmanCorrCoef(), torchmetrics.KendallRankCorrCoef(), torchmetrics.ExplainedVariance(),
):  # fmt: skip
    print(type(metric).__name__, metric(x, x * 0.5 + y).item())
images = torch.rand(2, 3, 32, 32)
print("psnr", PeakSignalNoiseRatio(data_range=1.0)(images, images.flip(-1)).item())
print("ssim", StructuralSimilarityIndexMeasure(data_range=1.0)(images, (images + 0.1).clamp(0, 1)).item())
print("wer", WordErrorRate()(["the cat sat"], ["the cat sat down"]).item(), CharErrorRate()(["abc"], ["abd"]).item())
print("bleu", BLEUScore()(["the cat is on the mat"], [["there is a cat on the mat", "a cat is on the mat"]]).item())
mean = torchmetrics.MeanMetric()
mean.update(torch.tensor([1.0, 3.0]))
print(
    "mean",
    mean.compute().item(),
    mean.state_dict(),
    torchmetrics.functional.pairwise_cosine_similarity(x.view(5, 10)).sum().item(),
)
