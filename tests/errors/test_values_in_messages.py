"""Errors of operations, layers, optimizers, data and masks begin with torch's words, and go on with the values that came."""

import mica as torch
import pytest
from mica import nn
from mica.masked import masked_tensor
from mica.utils.data import ChainDataset, ConcatDataset, DataLoader, IterableDataset, StackDataset, TensorDataset


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


def some_parameters():
    return [torch.zeros(2, requires_grad=True)]


def of_a_graph():
    return [torch.zeros(2, 3, requires_grad=True) * 2]


class Foreign(nn.Module):
    def forward(self, x):
        return nn.Linear(2, 2)(x)


CASES = {
    "groups": (lambda: nn.Conv2d(4, 4, 3, groups=0), "groups must be a positive integer", "got 0"),
    "in_channels": (lambda: nn.Conv1d(4, 6, 3, groups=3), "in_channels must be divisible by groups", "4 is not by 3"),
    "out_channels": (lambda: nn.Conv3d(3, 4, 3, groups=3), "out_channels must be divisible by groups", "4 is not by 3"),
    "lazy_channels": (
        lambda: nn.LazyConv1d(4, 3, groups=2)(torch.zeros(1, 3, 8)),
        "in_channels must be divisible by groups",
        "the input has 3 channels and groups is 2",
    ),
    "heads": (
        lambda: nn.MultiheadAttention(10, 3),
        "embed_dim must be divisible by num_heads",
        "10 is not by 3",
    ),
    "layers": (lambda: nn.LSTM(2, 3, num_layers=0), "num_layers must be greater than zero", "got 0"),
    "hidden": (lambda: nn.GRU(2, 0), "hidden_size must be greater than zero", "got 0"),
    "projection": (
        lambda: nn.LSTM(2, 3, proj_size=3),
        "proj_size has to be smaller than hidden_size",
        "3 is not below 3",
    ),
    "padding_idx": (
        lambda: nn.Embedding(4, 2, padding_idx=7),
        "Padding_idx must be within num_embeddings",
        "7 for 4 embeddings",
    ),
    "bag_padding_idx": (
        lambda: nn.EmbeddingBag(4, 2, padding_idx=-5),
        "padding_idx must be within num_embeddings",
        "-5 for 4 embeddings",
    ),
    "batches": (
        lambda: nn.Transformer(4, 2, 1, 1, 8)(torch.zeros(5, 2, 4), torch.zeros(5, 3, 4)),
        "the batch number of src and tgt must be equal",
        "2 and 3: batch_first is False",
    ),
    "features": (
        lambda: nn.Transformer(4, 2, 1, 1, 8)(torch.zeros(5, 2, 6), torch.zeros(5, 2, 4)),
        "the feature number of src and tgt must be equal to d_model",
        "6 and 4 for a d_model of 4",
    ),
    "training_mode": (lambda: nn.ReLU().train("yes"), "training mode is expected to be boolean", "got str"),
    "rows": (lambda: TensorDataset(torch.zeros(3), torch.zeros(4)), "Size mismatch between tensors", "[3, 4] rows"),
    "samples": (lambda: StackDataset([1, 2], [3]), "Size mismatch between datasets", "[2, 1] samples"),
    "joined_streams": (
        lambda: ConcatDataset([Stream()]),
        "ConcatDataset does not support IterableDataset",
        "ChainDataset",
    ),
    "chained_lists": (lambda: list(ChainDataset([[1]])), "ChainDataset only supports IterableDataset", "got list"),
    "timeout": (lambda: DataLoader([1], timeout=-1), "timeout option should be non-negative", "got -1"),
    "not_a_leaf": (
        lambda: torch.optim.SGD(of_a_graph(), lr=0.1),
        "can't optimize a non-leaf Tensor",
        "shape (2, 3) was computed from others",
    ),
    "rates": (
        lambda: torch.optim.Adam(some_parameters(), lr=torch.ones(2)),
        "Tensor lr must be 1-element",
        "2 elements",
    ),
    "cycles": (
        lambda: torch.optim.lr_scheduler.CyclicLR(torch.optim.SGD(some_parameters(), lr=0.1), 0.1, 0.2, mode="square"),
        "mode is invalid and scale_fn is None",
        "'square'",
    ),
    "plateau": (
        lambda: torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(some_parameters(), lr=0.1), factor=2.0),
        "Factor should be < 1.0.",
        "2.0",
    ),
    "mask_sizes": (
        lambda: masked_tensor(torch.zeros(2, 3), torch.ones(3, 2, dtype=torch.bool)),
        "data.size() must equal mask.size()",
        "(2, 3) and (3, 2)",
    ),
    "mask_dtype": (
        lambda: masked_tensor(torch.zeros(2), torch.ones(2)),
        "mask must have dtype bool.",
        "torch.float32",
    ),
    "growth": (
        lambda: torch.amp.GradScaler("cpu", growth_factor=0.5),
        "The growth factor must be > 1.0.",
        "0.5",
    ),
    "batches_of_matrices": (
        lambda: torch.bmm(torch.ones(2, 3), torch.ones(2, 3, 4)),
        "batch1 must be a 3D tensor",
        "the shape [2, 3]",
    ),
    "strides": (
        lambda: nn.functional.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2), stride=0),
        "non-positive stride is not supported",
        "[0, 0]",
    ),
    "counts": (
        lambda: torch.bincount(torch.tensor([3, -1])),
        "bincount only supports 1-d non-negative integral inputs.",
        "The least element is -1",
    ),
    "draws": (
        lambda: torch.multinomial(torch.ones(3), 5),
        "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
        "5 were asked for, and there are 3",
    ),
    "integers_with_gradients": (
        lambda: torch.ones(2, dtype=torch.int32).requires_grad_(),
        "only Tensors of floating point dtype can require gradients",
        "torch.int32",
    ),
    "steps": (lambda: torch.linspace(0, 1, -2), "number of steps must be non-negative", "got -2"),
    "classes": (
        lambda: nn.functional.multi_margin_loss(torch.ones(2, 3), torch.tensor([0, 7])),
        "target out of range",
        "0 to 2",
    ),
    "pairs": (
        lambda: torch.view_as_complex(torch.ones(3)),
        "Tensor must have a last dimension of size 2",
        "its shape is [3]",
    ),
    "dimensions": (
        lambda: torch.flatten(torch.ones(2, 2), 1, 0),
        "flatten() has invalid args: start_dim cannot come after end_dim",
        "they are 1 and 0",
    ),
    "contracted": (
        lambda: torch.tensordot(torch.ones(2), torch.ones(2), ([0], [])),
        "both dimension lists should have same length",
        "1 and 0 dimensions",
    ),
    "wrapped": (
        lambda: nn.functional.pad(torch.ones(1, 1, 3), (4, 0), mode="circular"),
        "Padding value causes wrapping around more than once.",
        "the dimension has 3 elements",
    ),
    "fusion": (
        lambda: nn.utils.fuse_linear_bn_eval(nn.Linear(2, 2), nn.BatchNorm1d(2)),
        "Fusion only for eval!",
        "eval() on both",
    ),
    "cache": (
        lambda: torch.distributions.ExpTransform(cache_size=2),
        "cache_size must be 0 or 1",
        "got 2",
    ),
    "square": (
        lambda: torch.distributions.CorrCholeskyTransform().inverse_shape((2, 3)),
        "Input is not square",
        "2 x 3",
    ),
    "vector": (
        lambda: torch.distributions.StickBreakingTransform().forward_shape(()),
        "Too few dimensions on input",
        "it has 0 of 1",
    ),
    "reinterpreted": (
        lambda: torch.distributions.IndependentTransform(torch.distributions.ExpTransform(), 1)(torch.tensor(1.0)),
        "Too few dimensions on input",
        "it has 0 of 1",
    ),
    "argnums": (
        lambda: torch.func.grad(torch.sin, argnums=())(torch.tensor(1.0)),
        "argnums must be non-empty",
        "0 for",
    ),
    "no coefficients": (lambda: torch.signal.windows.general_cosine(4, a=[]), "Coefficients cannot be empty", "one"),
    "coefficients": (
        lambda: torch.signal.windows.general_cosine(4, a=2.0),
        "Coefficients must be a list/tuple",
        "float",
    ),
    "message": (lambda: torch._check(False, "words"), "message must be a callable", "got str"),
    "futures": (
        lambda: torch.futures.collect_all([torch.futures.Future(), None]),
        "Future can't be None",
        "number 1 of 2",
    ),
    "grouped": (
        lambda: nn.functional.grouped_mm(torch.ones(2, 3, 4), torch.ones(2, 5, 4)),
        "contraction dimension of mat_a and mat_b must match",
        "4 columns and mat_b 5 rows",
    ),
    "traced": (
        lambda: torch.fx.symbolic_trace(Foreign()),
        "module Linear is not installed as a submodule",
        "in __init__",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_a_message_has_torchs_words_and_the_values(name):
    call, words, values = CASES[name]
    with pytest.raises((ValueError, RuntimeError, AssertionError, TypeError, NameError)) as error:
        call()
    text = str(error.value)
    assert text.startswith(words), text
    assert values in text, text


def test_numbers_beyond_64_bits():
    x = torch.ones(3)
    for call in (
        lambda: x / 10**20,
        lambda: x.int() * -(10**20),
        lambda: x.fill_(10**20),
        lambda: torch.arange(10**20),
    ):
        with pytest.raises(OverflowError, match="int too big to convert"):
            call()
    with pytest.raises(ValueError, match="Overflow when unpacking long long"):
        x.sum(10**20)
