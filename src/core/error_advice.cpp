#include "core/error_advice.h"

#include <cctype>
#include <vector>

#include "mica/error.h"

namespace mica {

namespace {

using Numbers = std::vector<long long>;

// The integers of a message, in order; a sign counts where it cannot be a dash between two.
Numbers numbers_in(std::string_view text) {
  Numbers found;
  for (size_t i = 0; i < text.size();) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) {
      ++i;
      continue;
    }
    const bool negative = i > 0 && text[i - 1] == '-';
    long long n = 0;
    while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) && n < (1LL << 58))
      n = n * 10 + (text[i++] - '0');
    found.push_back(negative ? -n : n);
  }
  return found;
}

struct Rule {
  std::string_view begins;
  size_t numbers;                         // the message has at least this many
  std::string (*advice)(const Numbers&);  // of the numbers in the message
};

const Rule kRules[] = {
    {"mat1 and mat2 shapes cannot be multiplied", 4,
     [](const Numbers& n) {
       // "mat1" and "mat2" have a digit each.
       const size_t at = n.size() - 4;
       return cat("The first has ", n[at + 1], " columns and the second ", n[at + 2],
                  " rows, which must be equal: transpose one with .t(), reshape it, or build a Linear layer with "
                  "in_features=",
                  n[at + 1], ".");
     }},
    {"expected m1 and m2 to have the same dtype", 0,
     [](const Numbers&) { return std::string("Convert one of them with .to(dtype), .float() or .double()."); }},
    {"mat1 and mat2 must have the same dtype", 0,
     [](const Numbers&) {
       return std::string("Convert the input with .to(weight.dtype), or the whole model with model.to(dtype).");
     }},
    {"Input type (", 0,
     [](const Numbers&) {
       return std::string("Convert the input with .float(), or the whole model with model.to(dtype).");
     }},
    {"Expected all tensors to be on the same device", 0,
     [](const Numbers&) {
       return std::string("Move one with .to(device); model.to(device) moves a model with all its parameters.");
     }},
    {"inconsistent tensor size, expected tensor [", 2,
     [](const Numbers&) {
       return std::string("A product of two vectors needs as many elements in both: slice the longer one.");
     }},
    {"one_hot is only applicable to index tensor", 0,
     [](const Numbers&) { return std::string("Convert the class numbers with .long()."); }},
    {"Class values must be smaller than num_classes", 0,
     [](const Numbers&) { return std::string("num_classes is the largest class number plus 1, or more."); }},
    {"expected sequence of length ", 2,
     [](const Numbers&) {
       return std::string("All rows of a tensor have one length: pad the shorter ones, or keep a list of tensors.");
     }},
    {"optimizer got an empty parameter list", 0,
     [](const Numbers&) {
       return std::string(
           "A model finds the layers that are its attributes or in an nn.ModuleList, not those in a plain list.");
     }},
    {"a view of a leaf Variable that requires grad is being used", 0,
     [](const Numbers&) { return std::string("Change it under torch.no_grad(), as an optimizer does."); }},
    {"Expected size for first two dimensions of batch2", 4,
     [](const Numbers&) {
       return std::string(
           "bmm multiplies [b, n, m] by [b, m, p]; transpose(1, 2) swaps the last two dimensions, and "
           "matmul broadcasts the batch.");
     }},
    {"Given groups=", 1,
     [](const Numbers& n) {
       return cat("Dimension 1 of the input holds its channels: build the layer with in_channels=", n.back(),
                  ", or bring the channels there with permute(0, 3, 1, 2).");
     }},
    {"Expected 2D (unbatched) or 3D (batched) input to conv1d", 0,
     [](const Numbers&) {
       return std::string("Add what is missing with unsqueeze(0): the channels, then the batch.");
     }},
    {"Expected 3D (unbatched) or 4D (batched) input to conv2d", 0,
     [](const Numbers&) {
       return std::string("Add what is missing with unsqueeze(0): the channels, then the batch.");
     }},
    {"Calculated padded input size per channel", 0,
     [](const Numbers&) {
       return std::string("Use a smaller kernel, more padding, a larger image, or fewer layers that shrink it.");
     }},
    {"Given input size: (", 0,
     [](const Numbers&) {
       return std::string("The window does not fit: use a smaller kernel_size, or padding, or pool less before.");
     }},
    {"Target size (", 0,
     [](const Numbers&) {
       return std::string("Bring them together: target.view_as(input), or input.squeeze(-1) for one output.");
     }},
    {"Using a target size (", 0,
     [](const Numbers&) {
       return std::string("Bring them together: target.view_as(input), or input.squeeze(-1) for one output.");
     }},
    {"Expected input batch_size (", 2,
     [](const Numbers&) {
       return std::string(
           "The first dimension of both counts the samples; for sequences, flatten both: "
           "logits.view(-1, classes) and target.view(-1).");
     }},
    {"Expected more than 1 value per channel when training", 0,
     [](const Numbers&) {
       return std::string("Call model.eval() to use a single sample, or give the DataLoader drop_last=True.");
     }},
    {"Target ", 1,
     [](const Numbers&) {
       return std::string(
           "Labels run from 0 to classes - 1: subtract what they start with, or give the last layer more "
           "outputs.");
     }},
    {"expected target dtype to be Long or Byte", 0,
     [](const Numbers&) {
       return std::string(
           "Class numbers are integers: target.long(). Probabilities of classes need the input's own "
           "shape.");
     }},
    {"0D or 1D target tensor expected", 0,
     [](const Numbers&) {
       return std::string(
           "Drop the extra dimension with target.squeeze(1), or take one-hot labels to numbers with "
           "target.argmax(1).");
     }},
    {"all elements of input should be between 0 and 1", 0,
     [](const Numbers&) {
       return std::string("Apply sigmoid first, or use binary_cross_entropy_with_logits on the raw outputs.");
     }},
    {"shape '[", 1,
     [](const Numbers& n) {
       return cat("The sizes must multiply to ", n.back(), "; one of them may be -1 and is then computed.");
     }},
    {"Sizes of tensors must match except in dimension", 0,
     [](const Numbers&) {
       return std::string("Join them along the dimension in which they differ, or pad or crop them first.");
     }},
    {"stack expects each tensor to be equal size", 0,
     [](const Numbers&) {
       return std::string(
           "Bring them to one size first: nn.utils.rnn.pad_sequence pads, and a DataLoader takes a "
           "collate_fn.");
     }},
    {"index out of range in self", 0,
     [](const Numbers&) { return std::string("num_embeddings must be larger than the largest index."); }},
    {"index ", 3,
     [](const Numbers& n) {
       const long long size = n.back();
       return size > 0 ? cat("Indices run from ", -size, " to ", size - 1, ".") : std::string("It has no elements.");
     }},
    {"Dimension out of range", 3,
     [](const Numbers& n) {
       const long long dims = n[1] + 1;
       return cat("There ", dims == 1 ? "is 1 dimension" : cat("are ", dims, " dimensions"), " to choose from",
                  "; unsqueeze adds one, and -1 is the last.");
     }},
    {"Expected tensor for argument #1 'indices' to have", 0,
     [](const Numbers&) { return std::string("Convert the indices with .long()."); }},
    {"a leaf Variable that requires grad is being used in an in-place operation", 0,
     [](const Numbers&) {
       return std::string("Change it under torch.no_grad(), as an optimizer does, or make a new tensor: w = w + 1.");
     }},
    {"one of the variables needed for gradient computation has been modified", 0,
     [](const Numbers&) {
       return std::string("Write y = y + 1 for y += 1, or clone() the tensor before it is changed.");
     }},
    {"Trying to backward through the graph a second time", 0,
     [](const Numbers&) {
       return std::string(
           "In a loop, compute the loss anew at every step, and detach() what one step hands to the "
           "next.");
     }},
    {"grad can be implicitly created only for scalar outputs", 0,
     [](const Numbers&) {
       return std::string(
           "Reduce it first, as in loss.mean().backward(), or say its gradient: "
           "y.backward(torch.ones_like(y)).");
     }},
    {"element 0 of tensors does not require grad", 0,
     [](const Numbers&) {
       return std::string(
           "Nothing that it was computed from requires grad, or it ran under torch.no_grad() or after "
           "detach(): call requires_grad_() on what is to be learned.");
     }},
    {"Only Tensors of floating point and complex dtype can require gradients", 0,
     [](const Numbers&) { return std::string("Write torch.tensor([1., 2.]), or convert with .float()."); }},
    {"Index put requires the source and destination dtypes match", 0,
     [](const Numbers&) { return std::string("Convert the values: x[index] = values.to(x.dtype)."); }},
    {"Boolean value of Tensor with more than one value is ambiguous", 0,
     [](const Numbers&) {
       return std::string("Say which is meant: x.any(), x.all(), or torch.equal(a, b) for a comparison.");
     }},
    {"a Tensor with ", 1,
     [](const Numbers&) {
       return std::string("Take one element, reduce it with sum() or mean(), or make a list of it with tolist().");
     }},
    {"running_mean should contain ", 2,
     [](const Numbers& n) {
       return cat("The input has ", n[0], " channels in dimension 1: build the layer with num_features=", n[0], ".");
     }},
    {"input.size(-1) must be equal to input_size", 0,
     [](const Numbers&) {
       return std::string("The last dimension holds the features; where the batch comes first, say batch_first=True.");
     }},
    {"Given normalized_shape=", 0,
     [](const Numbers&) { return std::string("normalized_shape is the size of the last dimensions of the input."); }},
    {"The shape of the mask ", 0,
     [](const Numbers&) {
       return std::string(
           "A mask has the sizes of the dimensions that it chooses from, beginning at the one it stands "
           "at.");
     }},
    {"The expanded size of the tensor ", 0,
     [](const Numbers&) {
       return std::string("Only a dimension of size 1 stretches; unsqueeze adds one, repeat copies.");
     }},
    {"mean(): could not infer output dtype", 0,
     [](const Numbers&) { return std::string("Convert first: x.float().mean()."); }},
    {"\"softmax_", 0, [](const Numbers&) { return std::string("Convert first: x.float()."); }},
    {"\"log_softmax_", 0, [](const Numbers&) { return std::string("Convert first: x.float()."); }},
    {"Function '", 0,
     [](const Numbers&) {
       return std::string(
           "Its forward is shown above: a root or a logarithm of a number that is not positive, 0 / 0, or "
           "an overflow. clamp() its input, or add a small number to it.");
     }},
    {"Trying to create tensor with negative dimension", 0,
     [](const Numbers&) {
       return std::string("Sizes are not negative; -1 stands for a size in view and reshape only.");
     }},
};

}  // namespace

const char* cpp_name(DType t) {
  switch (t) {
    case DType::UInt8:
      return "unsigned char";
    case DType::Int8:
      return "signed char";
    case DType::Int16:
      return "short int";
    case DType::Int32:
      return "int";
    case DType::Int64:
      return "long int";
    case DType::UInt16:
      return "short unsigned int";
    case DType::UInt32:
      return "unsigned int";
    case DType::UInt64:
      return "long unsigned int";
    case DType::Float16:
      return "c10::Half";
    case DType::BFloat16:
      return "c10::BFloat16";
    case DType::Float32:
      return "float";
    case DType::Float64:
      return "double";
    case DType::Complex32:
      return "c10::complex<c10::Half>";
    case DType::Complex64:
      return "c10::complex<float>";
    case DType::Complex128:
      return "c10::complex<double>";
    case DType::Bool:
      return "bool";
    default:
      return name(t);
  }
}

std::string advice_for(std::string_view message) {
  for (const Rule& rule : kRules) {
    if (message.substr(0, rule.begins.size()) != rule.begins) continue;
    const Numbers n = numbers_in(message);
    if (n.size() < rule.numbers) continue;
    const bool ended = message.ends_with('.') || message.ends_with('!') || message.ends_with(' ');
    return (message.ends_with(' ') ? "" : ended ? " " : ". ") + rule.advice(n);
  }
  return "";
}

}  // namespace mica
