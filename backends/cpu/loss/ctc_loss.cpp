// The CTC loss by the forward-backward algorithm, in logarithms. The labels of a sample with a blank before, between
// and after them are its states; alpha and beta are the logarithms of the probabilities of all paths up to, and from, a
// state at a time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/visit_dtype.h"
#include "mica/error.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

template <class T>
constexpr T kNever = -std::numeric_limits<T>::infinity();

template <class T>
T log_add(T a, T b) {
  const T top = std::max(a, b);
  return top == kNever<T> ? top : top + std::log(std::exp(a - top) + std::exp(b - top));
}

template <class T>
T log_add(T a, T b, T c) {
  const T top = std::max({a, b, c});
  return top == kNever<T> ? top : top + std::log(std::exp(a - top) + std::exp(b - top) + std::exp(c - top));
}

template <class T>
struct Sample {
  Sample(const TensorView& log_probs, const TensorView& targets, IntArrayRef begins, IntArrayRef input_lengths,
         IntArrayRef target_lengths, int64_t blank, int64_t b)
      : labels(targets.ptr<const int64_t>() + begins[b]),
        length(target_lengths[b]),
        time(input_lengths[b]),
        states(2 * length + 1),
        classes(log_probs.sizes[2]),
        time_stride(log_probs.strides[0]),
        class_stride(log_probs.strides[2]),
        blank(blank),
        values(log_probs.ptr<const T>() + b * log_probs.strides[1]) {}

  void check_labels() const {
    for (int64_t i = 0; i < length; ++i)
      MICA_CHECK_KIND(labels[i] >= 0 && labels[i] < classes, Index, "Target ", labels[i],
                      " is out of bounds: ctc_loss() got log-probabilities of ", classes, " classes.");
  }

  int64_t class_of(int64_t state) const { return state % 2 ? labels[state / 2] : blank; }
  // Whether a path may go from state - 2 to this one: not over a blank that keeps two equal labels apart.
  bool may_skip_to(int64_t state) const { return state > 1 && class_of(state) != class_of(state - 2); }
  T log_prob(int64_t t, int64_t c) const { return values[t * time_stride + c * class_stride]; }

  const int64_t* labels;
  int64_t length, time, states, classes, time_stride, class_stride, blank;
  const T* values;
};

template <class T>
T sample_loss(const Sample<T>& s, T* alpha, int64_t width) {
  s.check_labels();
  if (s.time == 0) return s.length == 0 ? T(0) : std::numeric_limits<T>::infinity();
  std::fill_n(alpha, width, kNever<T>);
  alpha[0] = s.log_prob(0, s.blank);
  if (s.length > 0) alpha[1] = s.log_prob(0, s.labels[0]);
  for (int64_t t = 1; t < s.time; ++t) {
    const T* before = alpha + (t - 1) * width;
    T* now = alpha + t * width;
    for (int64_t i = 0; i < s.states; ++i) {
      const T stay = before[i], step = i > 0 ? before[i - 1] : kNever<T>;
      const T skip = s.may_skip_to(i) ? before[i - 2] : kNever<T>;
      now[i] = log_add(stay, step, skip) + s.log_prob(t, s.class_of(i));
    }
  }
  const T* end = alpha + (s.time - 1) * width;
  return s.length == 0 ? -end[0] : -log_add(end[s.states - 1], end[s.states - 2]);
}

void ctc_loss_kernel(const TensorView& loss, const TensorView& alpha, const TensorView& log_probs,
                     const TensorView& targets, IntArrayRef target_begins, IntArrayRef input_lengths,
                     IntArrayRef target_lengths, int64_t blank) {
  visit_floating("ctc_loss_cpu", log_probs.dtype, [&]<class T>(Tag<T>) {
    if constexpr (sizeof(T) >= 4) {
      const int64_t width = alpha.sizes[2];
      parallel_for(0, loss.numel, 1, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          const Sample<T> sample(log_probs, targets, target_begins, input_lengths, target_lengths, blank, b);
          loss.ptr<T>()[b] = sample_loss(sample, alpha.ptr<T>() + b * alpha.strides[0], width);
        }
      });
    } else {
      unsupported_dtype("ctc_loss_cpu", log_probs.dtype);
    }
  });
}

// The gradient with respect to the log-probabilities, in the form that a softmax behind them needs: each row sums to
// zero, so that log_softmax passes it on unchanged.
template <class T>
void sample_gradient(const Sample<T>& s, const T* alpha, int64_t width, T loss, T factor, T* out, int64_t time_stride,
                     int64_t class_stride) {
  if (s.time == 0) return;
  std::vector<T> beta(static_cast<size_t>(s.states), kNever<T>), next, both(static_cast<size_t>(s.classes));
  for (int64_t t = s.time - 1; t >= 0; --t) {
    if (t == s.time - 1) {
      beta.back() = s.log_prob(t, s.blank);
      if (s.length > 0) beta[static_cast<size_t>(s.states - 2)] = s.log_prob(t, s.labels[s.length - 1]);
    } else {
      next = beta;
      for (int64_t i = 0; i < s.states; ++i) {
        const size_t at = static_cast<size_t>(i);
        const T stay = next[at], step = i + 1 < s.states ? next[at + 1] : kNever<T>;
        const T skip = i + 2 < s.states && s.may_skip_to(i + 2) ? next[at + 2] : kNever<T>;
        beta[at] = log_add(stay, step, skip) + s.log_prob(t, s.class_of(i));
      }
    }
    std::fill(both.begin(), both.end(), kNever<T>);
    for (int64_t i = 0; i < s.states; ++i) {
      T& sum = both[static_cast<size_t>(s.class_of(i))];
      sum = log_add(sum, alpha[t * width + i] + beta[static_cast<size_t>(i)]);
    }
    for (int64_t c = 0; c < s.classes; ++c) {
      const T lp = s.log_prob(t, c);
      out[t * time_stride + c * class_stride] =
          (std::exp(lp) - std::exp(both[static_cast<size_t>(c)] + loss - lp)) * factor;
    }
  }
}

void ctc_loss_backward_kernel(const TensorView& grad_input, const TensorView& grad, const TensorView& log_probs,
                              const TensorView& targets, const TensorView& loss, const TensorView& alpha,
                              IntArrayRef target_begins, IntArrayRef input_lengths, IntArrayRef target_lengths,
                              int64_t blank, bool zero_infinity) {
  visit_floating("ctc_loss_backward_cpu", log_probs.dtype, [&]<class T>(Tag<T>) {
    if constexpr (sizeof(T) >= 4) {
      parallel_for(0, loss.numel, 1, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          const T value = loss.ptr<const T>()[b];
          if (zero_infinity && value == std::numeric_limits<T>::infinity()) continue;
          const Sample<T> sample(log_probs, targets, target_begins, input_lengths, target_lengths, blank, b);
          sample_gradient(sample, alpha.ptr<const T>() + b * alpha.strides[0], alpha.sizes[2], value,
                          grad.ptr<const T>()[b], grad_input.ptr<T>() + b * grad_input.strides[1],
                          grad_input.strides[0], grad_input.strides[2]);
        }
      });
    } else {
      unsupported_dtype("ctc_loss_backward_cpu", log_probs.dtype);
    }
  });
}

MICA_REGISTER_CPU(ctc_loss, ctc_loss_kernel);
MICA_REGISTER_CPU(ctc_loss_backward, ctc_loss_backward_kernel);

}  // namespace
}  // namespace mica::cpu
