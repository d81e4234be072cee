// Transforms of overlapping pieces of a signal, and the windows that the pieces are weighted with.
#include <cmath>
#include <numbers>

#include "autograd/formulas/formulas.h"
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "mica/generated/layers/fft.h"
#include "mica/generated/layers/fft_implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::composite {

namespace {

// A window for pieces of n_fft elements: the given window in the middle, or ones where none is given.
Tensor whole_window(const Tensor& window, int64_t length, int64_t n_fft, const TensorOptions& options) {
  Tensor result = window.defined() ? window : ones({length}, options);
  if (length == n_fft) return result;
  const int64_t left = (n_fft - length) / 2;
  return constant_pad_nd(result, {left, n_fft - length - left});
}

void check_window(const Tensor& window, int64_t win_length, const char* op) {
  MICA_CHECK(!window.defined() || (window.dim() == 1 && window.size(0) == win_length), op,
             ": expected a 1D window tensor of size equal to win_length=", win_length, ", but got window with size ",
             window.defined() ? window.sizes() : IntArrayRef());
}

}  // namespace

Tensor stft(const Tensor& self, int64_t n_fft, std::optional<int64_t> hop_length, std::optional<int64_t> win_length,
            const Tensor& window, bool center, std::string_view pad_mode, bool normalized, std::optional<bool> onesided,
            std::optional<bool> return_complex, std::optional<bool> align_to_window) {
  MICA_CHECK(self.is_floating_point() || self.is_complex(),
             "stft: expected a tensor of floating point or complex values");
  MICA_CHECK(self.dim() == 1 || self.dim() == 2, "stft: expected a 1D or 2D tensor, but got ", self);
  MICA_CHECK(!center || !align_to_window, "stft align_to_window should only be set when center = false.");
  const int64_t hop = hop_length.value_or(n_fft / 4), length = win_length.value_or(n_fft);
  const bool complex_input = self.is_complex() || (window.defined() && window.is_complex());
  MICA_CHECK(return_complex || complex_input,
             "stft requires the return_complex parameter be given for real inputs, and will further require that "
             "return_complex=True in a future PyTorch release.");
  if (!window.defined())
    MICA_WARN_ONCE(
        "A window was not provided. A rectangular window will be applied,which is known to cause spectral leakage. "
        "Other windows such as torch.hann_window or torch.hamming_window are recommended to reduce spectral leakage."
        "To suppress this warning and use a rectangular window, explicitly set `window=torch.ones(n_fft, "
        "device=<device>)`.");
  if (!return_complex.value_or(true))
    MICA_WARN_ONCE(
        "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex tensors "
        "for all inputs, and return_complex=False will raise an error.\nNote: you can still call torch.view_as_real on "
        "the complex output to recover the old return format.");
  Tensor x = self.dim() == 1 ? self.unsqueeze(0) : self;
  if (center) {
    const int64_t each = n_fft / 2, both[] = {each, each};
    const Tensor planes = x.unsqueeze(0);
    x = pad(planes, IntArrayRef(both), pad_mode).squeeze(0);
  }
  const int64_t count = x.size(1);
  MICA_CHECK(n_fft > 0 && n_fft <= count, "stft: expected 0 < n_fft <= ", count, ", but got n_fft=", n_fft);
  MICA_CHECK(hop > 0, "stft: expected hop_length > 0, but got hop_length=", hop);
  MICA_CHECK(length > 0 && length <= n_fft, "stft: expected 0 < win_length <= n_fft, but got win_length=", length);
  check_window(window, length, "stft");
  Tensor weights;
  if (window.defined() || length < n_fft) weights = whole_window(window, length, n_fft, x.options());
  if (align_to_window && *align_to_window && length < n_fft) {
    const int64_t left = (n_fft - length) / 2;
    x = constant_pad_nd(x, {left, left});
  }
  Tensor pieces = x.unfold(-1, n_fft, hop);
  if (weights.defined()) pieces = pieces * weights;
  const bool is_complex = pieces.is_complex();
  const bool half = onesided.value_or(!is_complex);
  MICA_CHECK(!half || !is_complex, "Cannot have onesided output if window or input is complex");
  const int64_t along = 2, mode = normalized ? 1 : 0;
  Tensor result =
      is_complex ? _fft_c2c(pieces, IntArrayRef(along), mode, true) : _fft_r2c(pieces, IntArrayRef(along), mode, half);
  result = result.transpose(1, 2);
  if (self.dim() == 1) result = result.squeeze(0);
  return return_complex.value_or(true) ? result : view_as_real(result);
}

Tensor istft(const Tensor& self, int64_t n_fft, std::optional<int64_t> hop_length, std::optional<int64_t> win_length,
             const Tensor& window, bool center, bool normalized, std::optional<bool> onesided_given,
             std::optional<int64_t> length, bool return_complex) {
  MICA_CHECK(self.is_complex(),
             "istft requires a complex-valued input tensor matching the output from stft with return_complex=True.");
  const int64_t hop = hop_length.value_or(n_fft / 4), width = win_length.value_or(n_fft);
  if (!window.defined())
    MICA_WARN_ONCE(
        "A window was not provided. A rectangular window will be applied.Please provide the same window used by stft "
        "to "
        "make the inversion lossless.To suppress this warning and use a rectangular window, explicitly set "
        "`window=torch.ones(n_fft, device=<device>)`.");
  MICA_CHECK(self.numel() > 0, "istft: input tensor cannot be empty.");
  MICA_CHECK(self.dim() == 2 || self.dim() == 3,
             "istft: expected a tensor with 3 or 4 dimensions when viewed as real, but got ", self.dim() + 1);
  Tensor x = self.dim() == 2 ? self.unsqueeze(0) : self;
  const int64_t bins = x.size(1), frames = x.size(2);
  const bool onesided = onesided_given.value_or(bins != n_fft);
  MICA_CHECK(
      !onesided || n_fft / 2 + 1 == bins,
      "istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 when "
      "onesided=True, but got ",
      bins);
  MICA_CHECK(onesided || n_fft == bins,
             "istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft when "
             "onesided=False, but got ",
             bins);
  MICA_CHECK(0 < hop && hop <= width, "istft: expected 0 < hop_length <= win_length");
  MICA_CHECK(0 < width && width <= n_fft, "istft: expected 0 < win_length <= n_fft");
  check_window(window, width, "istft");
  MICA_CHECK(!return_complex || !onesided, "Cannot have onesided input if return_complex is true");
  MICA_CHECK(return_complex || !window.defined() || !window.is_complex(),
             "Complex windows are incompatible with return_complex=False");
  const int64_t total = n_fft + hop * (frames - 1);
  const TensorOptions plain = self.options().dtype(to_real(self.dtype()));
  Tensor weights = whole_window(window, width, n_fft, plain);
  if (weights.dtype() == DType::Bool) weights = weights.to(plain);  // its squares are summed, which bools cannot be
  x = x.transpose(1, 2);
  const int64_t along = 2, mode = normalized ? 1 : 2;
  Tensor pieces;
  if (return_complex) {
    pieces = _fft_c2c(x, IntArrayRef(along), mode, false);
  } else {
    pieces = _fft_c2r(onesided ? x : x.narrow(2, 0, n_fft / 2 + 1), IntArrayRef(along), mode, n_fft);
  }
  const Tensor weighted = pieces * weights.view({1, 1, n_fft});
  const int64_t sizes[] = {x.size(0), total}, one[] = {1, total};
  Tensor y = formulas::unfold_backward(weighted, IntArrayRef(sizes), 1, n_fft, hop);
  Tensor envelope =
      formulas::unfold_backward((weights * weights).expand({1, frames, n_fft}), IntArrayRef(one), 1, n_fft, hop);
  const int64_t start = center ? n_fft / 2 : 0;
  int64_t wanted = 0;
  MICA_CHECK(!length || !__builtin_add_overflow(start, *length, &wanted), "istft: a length of ", *length,
             " is more than there can be");
  const int64_t end = length ? wanted : center ? total - n_fft / 2 : total;
  const int64_t stop = std::min(end, total);
  y = y.narrow(1, start, stop - start);
  envelope = envelope.narrow(1, start, stop - start);
  if (!self.is_meta()) {
    const double least = envelope.abs().min().item().to<double>();
    MICA_CHECK(least > 1e-11, "istft: window overlap add min: ", least,
               " must be above 1e-11: the window must overlap itself");
  }
  y = y / envelope;
  if (end > total) {
    warn(
        "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. "
        "Please check your center and hop_length settings.");
    y = constant_pad_nd(y, {0, end - total});
  }
  return self.dim() == 2 ? y.squeeze(0) : y;
}

// ---- windows

namespace {

// `length` weights of a symmetric window. A periodic window is a symmetric one of one element more, without its last.
template <class Weights>
Tensor make_window(const char* name, int64_t length, bool periodic, const TensorOptions& options,
                   const Weights& weights) {
  const DType dtype = options.dtype();
  MICA_CHECK(options.layout() == Layout::Strided, name,
             " is not implemented for sparse types, got: ", options.layout());
  MICA_CHECK(is_floating(dtype), name, " expects floating point dtypes, got: ", info(dtype).legacy);
  MICA_CHECK(length >= 0, name, " requires non-negative window_length, got window_length=", length);
  const TensorOptions own = options.dtype(dtype);
  if (length == 0) return empty({0}, own);
  if (length == 1) return ones({1}, own);
  const int64_t whole = periodic ? length + 1 : length;
  const DType working = is_narrow(dtype) ? DType::Float32 : dtype;
  const Tensor places = arange(Scalar(whole), own.dtype(working));
  const Tensor window = weights(places, static_cast<double>(whole - 1));
  return (periodic ? window.narrow(0, 0, length) : window).to(dtype);
}

}  // namespace

Tensor bartlett_window(int64_t window_length, bool periodic, const TensorOptions& options) {
  return make_window("bartlett_window", window_length, periodic, options, [](const Tensor& n, double last) {
    const Tensor rising = n * Scalar(2.0 / last);
    return minimum(rising, Scalar(2) - rising);
  });
}
Tensor bartlett_window(int64_t window_length, const TensorOptions& options) {
  return composite::bartlett_window(window_length, true, options);
}

Tensor blackman_window(int64_t window_length, bool periodic, const TensorOptions& options) {
  return make_window("blackman_window", window_length, periodic, options, [](const Tensor& n, double last) {
    const Tensor angle = n * Scalar(std::numbers::pi / last);
    return cos(angle * Scalar(4)) * Scalar(0.08) - cos(angle * Scalar(2)) * Scalar(0.5) + Scalar(0.42);
  });
}
Tensor blackman_window(int64_t window_length, const TensorOptions& options) {
  return composite::blackman_window(window_length, true, options);
}

Tensor hamming_window(int64_t window_length, bool periodic, double alpha, double beta, const TensorOptions& options) {
  return make_window("hamming_window", window_length, periodic, options, [&](const Tensor& n, double last) {
    return cos(n * Scalar(std::numbers::pi * 2.0 / last)) * Scalar(-beta) + Scalar(alpha);
  });
}
Tensor hamming_window(int64_t window_length, bool periodic, double alpha, const TensorOptions& options) {
  return composite::hamming_window(window_length, periodic, alpha, 0.46, options);
}
Tensor hamming_window(int64_t window_length, bool periodic, const TensorOptions& options) {
  return composite::hamming_window(window_length, periodic, 0.54, 0.46, options);
}
Tensor hamming_window(int64_t window_length, const TensorOptions& options) {
  return composite::hamming_window(window_length, true, options);
}

Tensor hann_window(int64_t window_length, bool periodic, const TensorOptions& options) {
  return make_window("hann_window", window_length, periodic, options, [](const Tensor& n, double last) {
    return cos(n * Scalar(std::numbers::pi * 2.0 / last)) * Scalar(-0.5) + Scalar(0.5);
  });
}
Tensor hann_window(int64_t window_length, const TensorOptions& options) {
  return composite::hann_window(window_length, true, options);
}

Tensor kaiser_window(int64_t window_length, bool periodic, double beta, const TensorOptions& options) {
  return make_window("kaiser_window", window_length, periodic, options, [&](const Tensor& n, double last) {
    const Tensor ratio = n * Scalar(2.0 / last) - Scalar(1);
    const Tensor top = full({}, Scalar(beta), n.options());
    return i0(sqrt((Scalar(1) - ratio * ratio).clamp_min(Scalar(0))) * Scalar(beta)) / i0(top);
  });
}
Tensor kaiser_window(int64_t window_length, bool periodic, const TensorOptions& options) {
  return composite::kaiser_window(window_length, periodic, 12.0, options);
}
Tensor kaiser_window(int64_t window_length, const TensorOptions& options) {
  return composite::kaiser_window(window_length, true, 12.0, options);
}

}  // namespace mica::composite
