// Losses that ask for a margin, and the CTC loss of whole sequences.
#include <cmath>

#include "composite/reduce_loss.h"
#include "core/geometry.h"
#include "core/host_data.h"
#include "mica/generated/layers/distance.h"
#include "mica/generated/layers/loss.h"
#include "mica/generated/layers/loss_implementations.h"

namespace mica::composite {

Tensor hinge_embedding_loss(const Tensor& self, const Tensor& target, double margin, int64_t reduction) {
  // Numbers and no tensors of zeros: modes do not see what the engine makes for itself.
  const Tensor rest = clamp_min((Scalar(margin) - self).to(self.dtype()), Scalar(0));
  const Tensor lacking = where(target.ne(Scalar(1)), rest, Scalar(0));
  return reduced(lacking + where(target.ne(Scalar(-1)), self, Scalar(0)), reduction);
}

Tensor functional_hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin,
                                       std::optional<bool> size_average, std::optional<bool> reduce,
                                       std::string_view reduction) {
  return mica::hinge_embedding_loss(input, target, margin, reduction_of(size_average, reduce, reduction));
}

Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                             int64_t reduction) {
  MICA_CHECK(target.dim() <= 1, "0D or 1D target tensor expected, multi-target not supported");
  const int64_t ndim = target.dim() + 1;
  MICA_CHECK(input1.dim() == ndim && input2.dim() == ndim, target.dim(), "D target tensor expects ", ndim,
             "D input tensors, but found inputs with sizes ", input1.sizes(), " and ", input2.sizes(), ".");
  const int64_t dim = target.dim();
  constexpr double kTiny = 1e-12;  // keeps the quotient of null vectors finite
  const Tensor product = sum(input1 * input2, dim);
  const Tensor square1 = sum(input1 * input1, dim) + Scalar(kTiny), square2 = sum(input2 * input2, dim) + Scalar(kTiny);
  const Tensor cosine = product / sqrt(square1 * square2);
  const Tensor alike = where(target.eq(Scalar(1)), Scalar(1) - cosine, Scalar(0));
  const Tensor apart = where(target.eq(Scalar(-1)), clamp_min(cosine - Scalar(margin), Scalar(0)), Scalar(0));
  return reduced(alike + apart, reduction);
}

Tensor functional_cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                                        std::optional<bool> size_average, std::optional<bool> reduce,
                                        std::string_view reduction) {
  return mica::cosine_embedding_loss(input1, input2, target, margin, reduction_of(size_average, reduce, reduction));
}

Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                           int64_t reduction) {
  return reduced(clamp_min(-target * (input1 - input2) + Scalar(margin), Scalar(0)), reduction);
}

Tensor functional_margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                                      std::optional<bool> size_average, std::optional<bool> reduce,
                                      std::string_view reduction) {
  const int64_t how = reduction_of(size_average, reduce, reduction);
  MICA_CHECK(input1.dim() == input2.dim() && input1.dim() == target.dim(),
             "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: torch.Size(",
             input1.sizes(), "), input2: torch.Size(", input2.sizes(), "), target: torch.Size(", target.sizes(), ") ");
  return mica::margin_ranking_loss(input1, input2, target, margin, how);
}

namespace {

// Takes a number, a vector or a matrix of rows, and the same number of rows of targets.
void check_rows(const Tensor& self) {
  MICA_CHECK(self.dim() == 0 || (self.dim() == 1 && self.size(0) > 0) || (self.dim() == 2 && self.size(1) > 0),
             "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ", self.sizes());
}

int64_t classes_of(const Tensor& self) { return self.dim() == 0 ? 1 : self.size(-1); }

void check_labels(const Tensor& target) {
  MICA_CHECK(target.dtype() == DType::Int64, "expected scalar type Long but found ", info(target.dtype()).legacy,
             ": the target numbers classes; convert it with .long()");
}

}  // namespace

Tensor multi_margin_loss(const Tensor& self, const Tensor& target, const Scalar& p, const Scalar& margin,
                         const Tensor& weight, int64_t reduction) {
  check_rows(self);
  const double power = p.to<double>();
  MICA_CHECK(power == 1 || power == 2, "only p == 1 and p == 2 supported");
  const int64_t rows = self.dim() == 2 ? self.size(0) : 1, classes = classes_of(self);
  MICA_CHECK(target.dim() <= 1 && target.numel() == rows,
             "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch "
             "size). Expected target size [",
             rows, "], but got ", target.sizes(), ". Input has shape ", self.sizes(), ".");
  MICA_CHECK(!weight.defined() || (weight.dim() == 1 && weight.numel() == classes),
             "inconsistent weight size, expected ", classes, " but got ",
             weight.defined() ? weight.sizes() : IntArrayRef());
  check_labels(target);
  const Tensor labels = target.reshape({rows, 1}), x = self.reshape({rows, classes});
  const Tensor outside = labels.lt(Scalar(0)).logical_or(labels.ge(Scalar(classes)));
  MICA_CHECK(labels.is_meta() || !any(outside).item<bool>(), "target out of range: the classes are 0 to ", classes - 1);
  // Computed by relu, not by a bound: a class that is exactly at the margin has no slope.
  Tensor lacking = relu(Scalar(margin) - x.gather(1, labels) + x);
  if (power == 2) lacking = square(lacking);
  if (weight.defined()) lacking = lacking * weight.index_select(0, labels.view({rows})).unsqueeze(1);
  const Tensor losses = sum(lacking.scatter(1, labels, Scalar(0)), 1) / Scalar(classes);
  return reduction == kNone ? losses.reshape(target.sizes()) : reduced(losses, reduction);
}

Tensor functional_multi_margin_loss(const Tensor& input, const Tensor& target, int64_t p, double margin,
                                    const Tensor& weight, std::optional<bool> size_average, std::optional<bool> reduce,
                                    std::string_view reduction) {
  const int64_t how = reduction_of(size_average, reduce, reduction);
  MICA_CHECK_KIND(p == 1 || p == 2, Value, "only p == 1 and p == 2 supported");
  MICA_CHECK_KIND(!weight.defined() || weight.dim() == 1, Value, "weight must be one-dimensional");
  return mica::multi_margin_loss(input, target, Scalar(p), Scalar(margin), weight, how);
}

Tensor multilabel_margin_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  check_rows(self);
  const int64_t rows = self.dim() == 2 ? self.size(0) : 1, classes = classes_of(self);
  const bool one_each = self.dim() <= 1 && target.dim() <= 1 && target.numel() == classes;
  MICA_CHECK(one_each || target.sizes() == self.sizes(), "inconsistent target size: ", target.sizes(),
             " for input of size: ", self.sizes());
  check_labels(target);
  const Tensor x = self.reshape({rows, classes}), labels = target.reshape({rows, classes});
  const Tensor outside = labels.lt(Scalar(-1)).logical_or(labels.ge(Scalar(classes)));
  MICA_CHECK(labels.is_meta() || !any(outside).item<bool>(),
             "argument #2 'target' is out of range: the classes are 0 to ", classes - 1, ", and -1 ends a row");
  // A row of targets ends at its first -1.
  const Tensor valid = cumprod(labels.ge(Scalar(0)).to(DType::Int64), 1);
  const Tensor places = labels * valid, flags = valid.to(self.dtype());
  const int64_t longest = labels.is_meta() || rows == 0 ? classes : amax(sum(valid, 1)).item<int64_t>();
  const Tensor others =
      zeros_like(x).scatter_add(1, places, flags).eq(Scalar(0)).to(self.dtype());  // classes that are not targets
  const Tensor chosen = x.gather(1, places.narrow(1, 0, longest)).unsqueeze(2);
  const Tensor lacking =
      relu(Scalar(1) - chosen + x.unsqueeze(1)) * flags.narrow(1, 0, longest).unsqueeze(2) * others.unsqueeze(1);
  const Tensor losses = sum(lacking, IntArrayRef{1, 2}) / Scalar(classes);
  if (reduction != kNone) return reduced(losses, reduction);
  return self.dim() == 2 ? losses : losses.reshape({});
}

Tensor functional_multilabel_margin_loss(const Tensor& input, const Tensor& target, std::optional<bool> size_average,
                                         std::optional<bool> reduce, std::string_view reduction) {
  return mica::multilabel_margin_loss(input, target, reduction_of(size_average, reduce, reduction));
}

Tensor functional_multilabel_soft_margin_loss(const Tensor& input, const Tensor& target, const Tensor& weight,
                                              std::optional<bool> size_average, std::optional<bool> reduce,
                                              std::string_view reduction) {
  const int64_t how = reduction_of(size_average, reduce, reduction);
  Tensor loss = -(target * log_sigmoid(input) + (Scalar(1) - target) * log_sigmoid(-input));
  if (weight.defined()) loss = loss * weight;
  const int64_t classes = input.dim() - 1;
  return reduced(sum(loss, classes) / Scalar(input.size(classes)), how);
}

Tensor soft_margin_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  return reduced(log1p(exp(-self * target)).to(self.dtype()), reduction);
}

Tensor functional_soft_margin_loss(const Tensor& input, const Tensor& target, std::optional<bool> size_average,
                                   std::optional<bool> reduce, std::string_view reduction) {
  return mica::soft_margin_loss(input, target, reduction_of(size_average, reduce, reduction));
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin,
                           double p, double eps, bool swap, int64_t reduction) {
  MICA_CHECK(anchor.dim() == positive.dim() && positive.dim() == negative.dim(),
             "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
             "anchor ",
             anchor.dim(), "D, positive ", positive.dim(), "D, and negative ", negative.dim(), "D inputs");
  const Tensor near = pairwise_distance(anchor, positive, p, eps);
  Tensor far = pairwise_distance(anchor, negative, p, eps);
  if (swap) far = minimum(far, pairwise_distance(positive, negative, p, eps));
  return reduced(clamp_min(near - far + Scalar(margin), Scalar(0)), reduction);
}

Tensor functional_triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                      double margin, double p, double eps, bool swap, std::optional<bool> size_average,
                                      std::optional<bool> reduce, std::string_view reduction) {
  const int64_t how = reduction_of(size_average, reduce, reduction);
  MICA_CHECK_KIND(margin > 0, Value, "margin must be greater than 0, got ", margin);
  return mica::triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, how);
}

// ---- CTC

namespace {

std::vector<int64_t> lengths_of(const char* name, const Tensor& lengths) {
  MICA_CHECK(!lengths.is_floating_point() && !lengths.is_complex() && lengths.dtype() != DType::Bool, name,
             " must be integral");
  const Tensor flat = lengths.to(Device(), DType::Int64).contiguous();
  const int64_t* data = host_data<int64_t>(flat);
  return {data, data + flat.numel()};
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
                int64_t blank, int64_t reduction, bool zero_infinity) {
  const bool batched = log_probs.dim() == 3;
  const Tensor lp = batched || log_probs.dim() != 2 ? log_probs : log_probs.unsqueeze(1);
  const Tensor labels = batched || targets.dim() != 1 ? targets : targets.unsqueeze(0);
  Tensor loss = std::get<0>(mica::_ctc_loss(lp, labels, input_lengths, target_lengths, blank, zero_infinity));
  if (zero_infinity) loss = where(loss.eq(Scalar(INFINITY)), zeros_like(loss), loss);
  if (reduction == kMean) {
    std::vector<double> divisors;
    for (int64_t n : target_lengths) divisors.push_back(static_cast<double>(std::max<int64_t>(n, 1)));
    Tensor lengths = empty({static_cast<int64_t>(divisors.size())}, TensorOptions(DType::Float64).device(kCPU));
    std::copy(divisors.begin(), divisors.end(), host_data<double>(lengths));
    return mean(loss / lengths.to(loss.device(), loss.dtype()));
  }
  if (reduction == kSum) return sum(loss);
  return batched ? loss : loss.squeeze(0);
}

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank, int64_t reduction, bool zero_infinity) {
  return composite::ctc_loss(log_probs, targets, lengths_of("input_lengths", input_lengths),
                             lengths_of("target_lengths", target_lengths), blank, reduction, zero_infinity);
}

Tensor functional_ctc_loss(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                           IntArrayRef target_lengths, int64_t blank, std::string_view reduction, bool zero_infinity) {
  return mica::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction_of(reduction),
                        zero_infinity);
}

Tensor functional_ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                           const Tensor& target_lengths, int64_t blank, std::string_view reduction,
                           bool zero_infinity) {
  return mica::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction_of(reduction),
                        zero_infinity);
}

}  // namespace mica::composite
