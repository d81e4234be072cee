// The negative log-likelihood of labels: one element is read of each row, and one written in its gradient.
#include <algorithm>
#include <vector>

#include "backends/cpu/loss/labels.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/backend/pair_loss.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int64_t kRowsPerBlock = 4096;  // rows that are summed together; it does not depend on the threads

template <class T>
double weight_of(const TensorView& weight, int64_t label) {
  return weight.defined() ? static_cast<double>(weight.ptr<const T>()[label]) : 1;
}

void nll_loss_kernel(const TensorView& out, const TensorView& total_weight, const TensorView& input,
                     const TensorView& target, const TensorView& weight, int64_t reduction, int64_t ignore_index) {
  const int64_t inner = input.sizes[2], rows = input.sizes[0] * inner;
  const Labels labels(target, input.sizes[1], ignore_index);
  visit_floating("nll_loss_out_frame", input.dtype, [&]<class T>(Tag<T>) {
    const int64_t blocks = (rows + kRowsPerBlock - 1) / kRowsPerBlock;
    std::vector<double> sums(static_cast<size_t>(2 * blocks));
    parallel_for(0, blocks, 4, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        double loss = 0, weights = 0;
        for (int64_t r = b * kRowsPerBlock; r < std::min(rows, (b + 1) * kRowsPerBlock); ++r) {
          const int64_t label = labels[r];
          double element = 0;
          if (label >= 0) {
            const double w = weight_of<T>(weight, label);
            const int64_t at = r / inner * input.strides[0] + label * input.strides[1] + r % inner * input.strides[2];
            element = -w * static_cast<double>(input.ptr<const T>()[at]);
            weights += w;
          }
          loss += element;
          if (reduction == kNone) out.ptr<T>()[r] = static_cast<T>(element);
        }
        sums[static_cast<size_t>(2 * b)] = loss;
        sums[static_cast<size_t>(2 * b + 1)] = weights;
      }
    });
    double loss = 0, weights = 0;
    for (size_t i = 0; i < sums.size(); i += 2) {
      loss += sums[i];
      weights += sums[i + 1];
    }
    if (reduction != kNone) *out.ptr<T>() = static_cast<T>(reduction == kMean ? loss / weights : loss);
    *total_weight.ptr<T>() = static_cast<T>(weights);
  });
}

void nll_loss_backward_kernel(const TensorView& grad_input, const TensorView& grad, const TensorView& target,
                              const TensorView& weight, const TensorView& total_weight, int64_t reduction,
                              int64_t ignore_index) {
  const int64_t classes = grad_input.sizes[1], inner = grad_input.sizes[2], rows = grad_input.sizes[0] * inner;
  const Labels labels(target, classes, ignore_index);
  visit_floating("nll_loss_backward", grad_input.dtype, [&]<class T>(Tag<T>) {
    const T* g = grad.ptr<const T>();
    const double all = reduction == kNone ? 0
                       : reduction == kMean
                           ? static_cast<double>(*g) / static_cast<double>(*total_weight.ptr<const T>())
                           : static_cast<double>(*g);
    parallel_for(0, rows, 4 * kRowsPerBlock, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t label = labels[r];
        if (label < 0) continue;
        const double factor = reduction == kNone ? static_cast<double>(g[r]) : all;
        grad_input.ptr<T>()[(r / inner * classes + label) * inner + r % inner] =
            static_cast<T>(-factor * weight_of<T>(weight, label));
      }
    });
  });
}

MICA_REGISTER_CPU(nll_loss, nll_loss_kernel);
MICA_REGISTER_CPU(nll_loss_backward, nll_loss_backward_kernel);

}  // namespace
}  // namespace mica::cpu
