"""skorch: a net as an estimator of scikit-learn: fit, scores, a search over parameters, a checkpoint."""

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import EarlyStopping, EpochScoring, LRScheduler

x, y = make_classification(200, 10, n_informative=5, random_state=0)
x = x.astype(np.float32)


class Net(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(10, width), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(width, 2)
        )

    def forward(self, x):
        return self.layers(x).softmax(-1)


torch.manual_seed(0)
net = NeuralNetClassifier(
    Net, max_epochs=4, lr=0.1, verbose=0,
    callbacks=[EpochScoring("roc_auc", lower_is_better=False), LRScheduler("StepLR", step_size=2), EarlyStopping(patience=3)],
)  # fmt: skip
net.fit(x, y)
for row in net.history:
    print("epoch", row["epoch"], row["train_loss"], row["valid_loss"], row["roc_auc"])
print("score", net.score(x, y), net.predict_proba(x[:3]).round(4).tolist())
torch.manual_seed(0)
search = GridSearchCV(
    NeuralNetClassifier(Net, max_epochs=2, verbose=0, train_split=None),
    {"lr": [0.01, 0.1], "module__width": [4, 8]},
    cv=2,
)
search.fit(x, y)
print("search", search.best_params_, search.best_score_)
torch.manual_seed(0)
regressor = NeuralNetRegressor(
    torch.nn.Linear, module__in_features=10, module__out_features=1, max_epochs=3, lr=0.01, verbose=0
)
regressor.fit(x, y.astype(np.float32)[:, None])
print("regression", regressor.history[-1]["train_loss"])
