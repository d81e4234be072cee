"""The errors that people search for most: each begins with torch's words and goes on to say what to write instead."""

import copy
import io
import pickle
import warnings

import mica as torch
import pytest
from mica import nn
from mica.nn import functional as F

FAILURES = []


def fails(kind, words, way_out):
    """A minimal program that raises `kind`; the message begins with torch's `words` and has the `way_out`."""

    def keep(program):
        FAILURES.append(pytest.param(program, kind, words, way_out, id=program.__name__))
        return program

    return keep


# ---- shapes


@fails(RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)", "3 columns and the second 2 rows")
def matrix_product():
    torch.randn(2, 3) @ torch.randn(2, 3)


@fails(RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x144 and 100x10)", "in_features=144")
def linear_after_flatten():
    nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(100, 10))(torch.randn(2, 1, 8, 8))


@fails(RuntimeError, "Expected size for first two dimensions of batch2 tensor to be: [2, 4]", "transpose(1, 2)")
def batched_product():
    torch.bmm(torch.randn(2, 3, 4), torch.randn(3, 4, 5))


@fails(RuntimeError, "Given groups=1, weight of size [8, 3, 3, 3], expected input[2, 1, 28, 28]", "in_channels=1")
def convolution_channels():
    nn.Conv2d(3, 8, 3)(torch.randn(2, 1, 28, 28))


@fails(RuntimeError, "Expected 3D (unbatched) or 4D (batched) input to conv2d", "unsqueeze(0)")
def convolution_without_channels():
    nn.Conv2d(3, 8, 3)(torch.randn(28, 28))


@fails(RuntimeError, "Calculated padded input size per channel: (4 x 4). Kernel size: (5 x 5).", "smaller kernel")
def kernel_larger_than_image():
    nn.Conv2d(3, 8, 5)(torch.randn(1, 3, 4, 4))


@fails(RuntimeError, "Given input size: (1x2x2). Calculated output size: (1x0x0).", "smaller kernel_size")
def pooled_too_often():
    nn.MaxPool2d(3)(torch.randn(1, 1, 2, 2))


@fails(RuntimeError, "The size of tensor a (4) must match the size of tensor b (3)", "unsqueeze or expand")
def broadcasting():
    torch.randn(3, 4) + torch.randn(3)


@fails(RuntimeError, "view size is not compatible with input tensor's size and stride", "dimension 0 steps by 1")
def view_of_a_transpose():
    torch.randn(3, 4).t().view(12)


@fails(RuntimeError, "shape '[5, 2]' is invalid for input of size 12", "must multiply to 12")
def view_of_another_size():
    torch.randn(3, 4).view(5, 2)


@fails(RuntimeError, "The expanded size of the tensor (4) must match the existing size (3)", "size 1 stretches")
def expand_a_size_that_is_not_one():
    torch.randn(3).expand(4)


@fails(RuntimeError, "Sizes of tensors must match except in dimension 0. Expected size 3 but got size 4", "pad or crop")
def concatenation():
    torch.cat([torch.randn(2, 3), torch.randn(2, 4)])


@fails(RuntimeError, "stack expects each tensor to be equal size, but got [3] at entry 0", "collate_fn")
def batch_of_different_lengths():
    class Uneven(torch.utils.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return torch.randn(3 + i)

    next(iter(torch.utils.data.DataLoader(Uneven(), batch_size=2)))


@fails(RuntimeError, "input.size(-1) must be equal to input_size. Expected 10, got 9", "batch_first=True")
def recurrent_features():
    nn.LSTM(10, 20)(torch.randn(5, 3, 9))


@fails(RuntimeError, "Given normalized_shape=[8], expected input with shape [*, 8]", "last dimensions")
def layer_norm():
    nn.LayerNorm(8)(torch.randn(2, 4))


@fails(RuntimeError, "running_mean should contain 4 elements not 3", "num_features=4")
def batch_norm_features():
    nn.BatchNorm2d(3)(torch.randn(2, 4, 5, 5))


@fails(ValueError, "Expected more than 1 value per channel when training", "model.eval()")
def batch_norm_of_one_sample():
    nn.BatchNorm1d(3)(torch.randn(1, 3))


@fails(RuntimeError, "Trying to create tensor with negative dimension -1: [-1]", "-1 stands for a size in view")
def negative_size():
    torch.randn(-1)


# ---- losses


@fails(ValueError, "Expected input batch_size (4) to match target batch_size (3).", "target.view(-1)")
def cross_entropy_batch():
    F.cross_entropy(torch.randn(4, 5), torch.tensor([1, 2, 3]))


@fails(RuntimeError, "expected target dtype to be Long or Byte, but got Float", "target.long()")
def cross_entropy_of_floats():
    F.cross_entropy(torch.randn(4, 5), torch.randn(4))


@fails(IndexError, "Target 5 is out of bounds.", "from 0 to classes - 1")
def label_too_large():
    F.cross_entropy(torch.randn(2, 5), torch.tensor([1, 5]))


@fails(RuntimeError, "0D or 1D target tensor expected, multi-target not supported", "squeeze(1)")
def label_with_a_column():
    F.nll_loss(torch.randn(4, 5), torch.zeros(4, 1, dtype=torch.long))


@fails(RuntimeError, "all elements of input should be between 0 and 1", "with_logits")
def probabilities_out_of_range():
    F.binary_cross_entropy(torch.tensor([1.5]), torch.tensor([1.0]))


@fails(
    ValueError, "Target size (torch.Size([4])) must be the same as input size (torch.Size([4, 1]))", "view_as(input)"
)
def logits_with_a_column():
    F.binary_cross_entropy_with_logits(torch.rand(4, 1), torch.rand(4))


@fails(UserWarning, "Using a target size (torch.Size([4])) that is different to the input size", "same size")
def mean_square_that_broadcasts():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.mse_loss(torch.rand(4, 1), torch.rand(4))


@fails(RuntimeError, "Function 'SqrtBackward0' returned nan values in its 0th output.", "clamp() its input")
def nan_in_backward():
    with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.tensor([-1.0], requires_grad=True)
        torch.sqrt(x).sum().backward()


# ---- indices


@fails(IndexError, "index 5 is out of bounds for dimension 0 with size 3", "from -3 to 2")
def index_out_of_bounds():
    torch.randn(3)[5]


@fails(IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 2)", "are 2 dimensions")
def dimension_out_of_range():
    torch.randn(3, 4).sum(2)


@fails(IndexError, "index out of range in self", "num_embeddings")
def embedding_of_a_large_index():
    nn.Embedding(10, 3)(torch.tensor([1, 10]))


@fails(RuntimeError, "Expected tensor for argument #1 'indices' to have one of the following scalar types", ".long()")
def embedding_of_floats():
    nn.Embedding(10, 3)(torch.tensor([1.0]))


@fails(
    IndexError, "The shape of the mask [2] at index 0 does not match the shape of the indexed tensor [3, 4]", "A mask"
)
def mask_of_another_shape():
    torch.randn(3, 4)[torch.tensor([True, False])]


# ---- autograd


@fails(RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation.", "no_grad()")
def leaf_changed_in_place():
    w = torch.randn(3, requires_grad=True)
    w += 1


@fails(RuntimeError, "one of the variables needed for gradient computation has been modified", "y = y + 1")
def saved_tensor_changed_in_place():
    y = torch.randn(3, requires_grad=True).exp()
    y += 1
    y.sum().backward()


@fails(RuntimeError, "Trying to backward through the graph a second time", "detach()")
def backward_twice():
    x = torch.randn(3, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    y.backward()


@fails(RuntimeError, "grad can be implicitly created only for scalar outputs", "loss.mean().backward()")
def backward_of_a_vector():
    (torch.randn(3, requires_grad=True) * 2).backward()


@fails(RuntimeError, "element 0 of tensors does not require grad and does not have a grad_fn", "requires_grad_()")
def backward_without_gradients():
    torch.randn(3).sum().backward()


@fails(RuntimeError, "Can't call numpy() on Tensor that requires grad.", "detach().numpy()")
def numpy_of_a_parameter():
    torch.randn(3, requires_grad=True).numpy()


@fails(RuntimeError, "Only Tensors of floating point and complex dtype can require gradients", "torch.tensor([1., 2.])")
def gradient_of_integers():
    torch.tensor([1, 2], requires_grad=True)


@fails(
    RuntimeError, "Only Tensors created explicitly by the user (graph leaves) support the deepcopy", "detach().clone()"
)
def deep_copy_of_a_result():
    copy.deepcopy(torch.randn(3, requires_grad=True) * 2)


# ---- dtypes and devices


@fails(RuntimeError, "expected m1 and m2 to have the same dtype, but got: float != double", ".to(dtype)")
def product_of_dtypes():
    torch.randn(2, 3) @ torch.randn(3, 2).double()


@fails(RuntimeError, "mat1 and mat2 must have the same dtype, but got Double and Float", ".to(dtype)")
def linear_of_doubles():
    nn.Linear(3, 2)(torch.randn(2, 3).double())


@fails(RuntimeError, "Input type (unsigned char) and bias type (float) should be the same", ".to(dtype)")
def convolution_of_bytes():
    nn.Conv2d(3, 8, 3)(torch.randint(0, 255, (1, 3, 8, 8), dtype=torch.uint8))


@fails(RuntimeError, "Index put requires the source and destination dtypes match", "values.to(x.dtype)")
def assignment_of_doubles():
    x = torch.zeros(3)
    x[torch.tensor([0])] = torch.ones(1, dtype=torch.double)


@fails(RuntimeError, "mean(): could not infer output dtype.", "x.float().mean()")
def mean_of_integers():
    torch.tensor([1, 2]).mean()


@fails(RuntimeError, "Expected all tensors to be on the same device", ".to(device)")
def two_devices():
    torch.randn(3) + torch.randn(3, device="meta")


# ---- models and files


@fails(
    RuntimeError, 'Error(s) in loading state_dict for Linear:\n\tMissing key(s) in state_dict: "bias".', "strict=False"
)
def state_dict_without_a_key():
    nn.Linear(3, 2).load_state_dict({"weight": torch.randn(2, 3)})


@fails(RuntimeError, "Error(s) in loading state_dict for Linear:\n\tMissing key(s)", "removeprefix('module.')")
def state_dict_of_a_wrapper():
    nn.Linear(3, 2).load_state_dict({"module.weight": torch.randn(2, 3), "module.bias": torch.randn(2)})


@fails(
    RuntimeError, "Error(s) in loading state_dict for Linear:\n\tsize mismatch for weight", "sizes it was saved with"
)
def state_dict_of_another_size():
    nn.Linear(3, 2).load_state_dict({"weight": torch.randn(2, 4), "bias": torch.randn(2)})


@fails(RuntimeError, "Boolean value of Tensor with more than one value is ambiguous", "x.any()")
def tensor_as_a_condition():
    bool(torch.tensor([True, False]))


@fails(RuntimeError, "a Tensor with 3 elements cannot be converted to Scalar", "tolist()")
def item_of_three():
    torch.randn(3).item()


@fails(
    torch.OutOfMemoryError,
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1125899906842624",
    "batch",
)
def out_of_memory():
    torch.empty(1 << 50, dtype=torch.uint8)


@fails(ValueError, "Unable to avoid creating a copy while reshaping.", "dimension 0 steps by 1")
def reshape_without_a_copy():
    torch.randn(3, 4).t().reshape(12, copy=False)


@fails(RuntimeError, "inconsistent tensor size, expected tensor [3] and src [4]", "slice the longer one")
def vectors_of_two_lengths():
    torch.randn(3) @ torch.randn(4)


@fails(RuntimeError, "one_hot is only applicable to index tensor of type LongTensor", ".long()")
def one_hot_of_floats():
    F.one_hot(torch.tensor([1.0, 2.0]))


@fails(ValueError, "expected sequence of length 2 at dim 1 (got 1)", "pad the shorter ones")
def rows_of_different_lengths():
    torch.tensor([[1, 2], [3]])


@fails(ValueError, "optimizer got an empty parameter list", "nn.ModuleList")
def optimizer_of_nothing():
    torch.optim.SGD([], lr=0.1)


@fails(TypeError, "'Linear' object is not iterable", "model.parameters()")
def optimizer_of_a_model():
    torch.optim.SGD(nn.Linear(1, 1), lr=0.1)


@fails(pickle.UnpicklingError, "Weights only load failed.", "weights_only=False")
def load_of_a_whole_model():
    file = io.BytesIO()
    torch.save(nn.Linear(2, 2), file)
    file.seek(0)
    torch.load(file)


class Failing(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        raise ValueError("no such picture")


@fails(ValueError, "Caught ValueError in DataLoader worker process 0.", "num_workers=0")
def error_in_a_worker():
    next(iter(torch.utils.data.DataLoader(Failing(), num_workers=1)))


@pytest.mark.parametrize(("program", "kind", "words", "way_out"), FAILURES)
def test_says_what_happened_and_what_to_write(program, kind, words, way_out):
    with pytest.raises(kind) as caught:
        program()
    message = str(caught.value)
    assert message.startswith(words), message
    assert way_out in message[len(words) :] or way_out in message, message
    assert ".." not in message.replace("...", "").replace("(...)", ""), message


def test_there_are_forty():
    assert len(FAILURES) >= 40
