#include "backends/cpu/fft/long_transform.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <type_traits>

#include "backends/cpu/fft/pairs.h"
#include "backends/cpu/fft/plan_cache.h"
#include "backends/cpu/scratch.h"
#include "mica/parallel.h"

namespace mica::cpu::fft {

namespace {

constexpr int64_t kGrain = 16384;

// The divisor of n closest to its root from below.
int64_t balanced_divisor(int64_t n) {
  int64_t best = 1;
  for (int64_t d = static_cast<int64_t>(std::sqrt(static_cast<double>(n))) + 1; d > 1; --d)
    if (d * d <= n && n % d == 0) {
      best = d;
      break;
    }
  return best;
}

template <class T>
void run_batch(const Batch<T>& batch, int64_t count) {
  const auto plan = plan_of<T>(batch.plan_length());
  const int64_t lanes = lane_count(std::is_same_v<T, double>), groups = (count + lanes - 1) / lanes;
  const int64_t grain = std::max<int64_t>(1, 8192 / (plan->working_length() * lanes));
  parallel_for(0, groups, grain, [&](int64_t begin, int64_t end) {
    run_lanes(*plan, static_cast<const T*>(nullptr), batch, begin * lanes, std::min(end * lanes, count));
  });
}

// n = rows * columns: transforms of the columns, products with roots of unity, transforms of the rows, and the result
// read by columns. Each step's sequences lie side by side, so that lanes are full.
template <class T>
void complex_cut(const T* in, int64_t in_stride, T* out, int64_t out_stride, int64_t n, bool backward, T scale) {
  const int64_t rows = balanced_divisor(n), columns = n / rows;
  const Scratch<T> between(2 * n);
  std::vector<int64_t> from(static_cast<size_t>(std::max(rows, columns))), to(from.size());
  Batch<T> batch;
  batch.backward = backward;
  if (rows > 1) {
    for (int64_t c = 0; c < columns; ++c) {
      from[static_cast<size_t>(c)] = c * in_stride;
      to[static_cast<size_t>(c)] = 2 * c;
    }
    const auto roots = cut_roots<T>(rows, columns);
    batch.length = rows;
    batch.in = in;
    batch.in_stride = in_stride * columns;
    batch.out = between.data();
    batch.out_stride = 2 * columns;
    batch.in_offsets = from.data();
    batch.out_offsets = to.data();
    batch.table = roots->data();
    batch.table_columns = columns;
    run_batch(batch, columns);
  }
  for (int64_t r = 0; r < rows; ++r) {
    from[static_cast<size_t>(r)] = 2 * r * columns;
    to[static_cast<size_t>(r)] = r * out_stride;
  }
  batch.length = columns;
  batch.in = rows > 1 ? between.data() : in;
  batch.in_stride = rows > 1 ? 2 : in_stride;
  batch.out = out;
  batch.out_stride = out_stride * rows;
  batch.in_offsets = from.data();
  batch.out_offsets = to.data();
  batch.table = nullptr;
  batch.scale = scale;
  run_batch(batch, rows);
}

template <class T>
void complex_long(const T* in, int64_t in_stride, T* out, int64_t out_stride, int64_t n, bool backward, T scale) {
  if (is_smooth(n)) return complex_cut(in, in_stride, out, out_stride, n, backward, scale);
  const auto plan = plan_of<T>(n);
  const int64_t m = plan->convolution->length;
  const Scratch<T> work(2 * m);
  T* const x = work.data();
  const T *const chirp = plan->factor.chirp.data(), *const spectrum = plan->factor.spectrum.data();
  const auto convolve = [&](T by) {  // returns the sum of the elements
    complex_cut(x, 2, x, 2, m, false, T(1));
    const std::complex<T> sum(x[0], x[1]);
    parallel_for(0, m, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const T re = x[2 * k], im = x[2 * k + 1];
        x[2 * k] = re * spectrum[2 * k] - im * spectrum[2 * k + 1];
        x[2 * k + 1] = re * spectrum[2 * k + 1] + im * spectrum[2 * k];
      }
    });
    complex_cut(x, 2, x, 2, m, true, by);
    return sum;
  };
  if (!plan->factor.from.empty()) {
    const int32_t *const source = plan->factor.from.data(), *const target = plan->factor.to.data();
    // A backward transform is a forward one with the parts exchanged, going in and coming out.
    const int64_t re = backward ? 1 : 0, im = 1 - re;
    const T first_re = in[re] * scale, first_im = in[im] * scale;
    for (int64_t k = 0; k < m; ++k) {
      const T* const from = in + source[k] * in_stride;
      x[2 * k] = from[re];
      x[2 * k + 1] = from[im];
    }
    const std::complex<T> sum = convolve(scale);
    parallel_for(0, m, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        T* const to = out + target[k] * out_stride;
        to[re] = first_re + x[2 * k];
        to[im] = first_im + x[2 * k + 1];
      }
    });
    out[re] = first_re + sum.real() * scale;
    out[im] = first_im + sum.imag() * scale;
    return;
  }
  const T sign = backward ? T(-1) : T(1);  // a backward transform is the conjugate of the conjugate's
  parallel_for(0, m, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const T re = k < n ? in[k * in_stride] : T(0), im = k < n ? sign * in[k * in_stride + 1] : T(0);
      const T c = k < n ? chirp[2 * k] : T(0), s = k < n ? chirp[2 * k + 1] : T(0);
      x[2 * k] = re * c - im * s;
      x[2 * k + 1] = re * s + im * c;
    }
  });
  convolve(T(1));
  parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const T re = x[2 * k], im = x[2 * k + 1], c = chirp[2 * k], s = chirp[2 * k + 1];
      out[k * out_stride] = scale * (re * c - im * s);
      out[k * out_stride + 1] = scale * sign * (re * s + im * c);
    }
  });
}

template <class T>
void from_real(const Batch<T>& batch) {
  const int64_t n = batch.length, half = n / 2;
  if (n % 2) {
    const Scratch<T> whole(4 * n);
    T *const x = whole.data(), *const y = x + 2 * n;
    for (int64_t k = 0; k < n; ++k) {
      x[2 * k] = batch.in[k * batch.in_stride];
      x[2 * k + 1] = 0;
    }
    complex_long(x, 2, y, 2, n, false, batch.scale);
    y[1] = 0;  // a convolution gives it only approximately
    for (int64_t k = 0; k <= half; ++k) {
      batch.out[k * batch.out_stride] = y[2 * k];
      batch.out[k * batch.out_stride + 1] = y[2 * k + 1];
    }
    return;
  }
  const Scratch<T> pairs(2 * n);
  T *const z = pairs.data(), *const copy = z + n;
  const T* x = batch.in;
  if (batch.in_stride != 1) {
    for (int64_t k = 0; k < n; ++k) copy[k] = batch.in[k * batch.in_stride];
    x = copy;
  }
  complex_long(x, 2, z, 2, half, false, batch.scale);
  const auto roots = half_roots<T>(n);
  const T* const w = roots->data();
  const auto put = [&](int64_t k, T re, T im) {
    batch.out[k * batch.out_stride] = re;
    batch.out[k * batch.out_stride + 1] = im;
  };
  put(0, z[0] + z[1], 0);
  put(half, z[0] - z[1], 0);
  parallel_for(1, half / 2 + 1, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t mirror = half - k;
      const auto bins = unfolded(z[2 * k], z[2 * k + 1], z[2 * mirror], z[2 * mirror + 1], w + 2 * k);
      put(k, bins.re, bins.im);
      put(mirror, bins.mirror_re, bins.mirror_im);
    }
  });
}

// The second half of the spectrum of reals: conjugates of the first, in the opposite order.
template <class T>
void mirror(const Batch<T>& batch) {
  parallel_for(1, (batch.length + 1) / 2, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const T* const from = batch.out + k * batch.out_stride;
      T* const to = batch.out + (batch.length - k) * batch.out_stride;
      to[0] = from[0];
      to[1] = -from[1];
    }
  });
}

template <class T>
void to_real(const Batch<T>& batch) {
  const int64_t n = batch.length, half = n / 2;
  const auto bin = [&](int64_t k) { return batch.in + k * batch.in_stride; };
  if (n % 2) {
    const Scratch<T> whole(4 * n);
    T *const x = whole.data(), *const y = x + 2 * n;
    for (int64_t k = 0; k <= half; ++k) {
      const T re = bin(k)[0], im = k ? bin(k)[1] : T(0);
      x[2 * k] = re;
      x[2 * k + 1] = im;
      if (k) {
        x[2 * (n - k)] = re;
        x[2 * (n - k) + 1] = -im;
      }
    }
    complex_long(x, 2, y, 2, n, true, batch.scale);
    for (int64_t k = 0; k < n; ++k) batch.out[k * batch.out_stride] = y[2 * k];
    return;
  }
  const Scratch<T> pairs(2 * n);
  T *const z = pairs.data(), *const y = z + n;
  const auto roots = half_roots<T>(n);
  const T* const w = roots->data();
  const T first = bin(0)[0], last = bin(half)[0];
  z[0] = first + last;
  z[1] = first - last;
  parallel_for(1, half / 2 + 1, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t mirror = half - k;
      const auto bins = folded(bin(k)[0], bin(k)[1], bin(mirror)[0], bin(mirror)[1], w + 2 * k);
      z[2 * k] = bins.re;
      z[2 * k + 1] = bins.im;
      z[2 * mirror] = bins.mirror_re;
      z[2 * mirror + 1] = bins.mirror_im;
    }
  });
  const bool dense = batch.out_stride == 1;
  complex_long(z, 2, dense ? batch.out : y, 2, half, true, batch.scale);
  for (int64_t k = 0; !dense && k < n; ++k) batch.out[k * batch.out_stride] = y[k];
}

}  // namespace

bool prefers_cut(int64_t length, int64_t count, bool is_double) {
  constexpr int64_t kAlone = 512, kTooLong = 32768;  // lanes of longer sequences outgrow the cache
  return (count < lane_count(is_double) && length >= kAlone) || length > kTooLong;
}

template <class T>
void run_long(const Batch<T>& batch) {
  switch (batch.kind) {
    case Kind::Complex:
      return complex_long(batch.in, batch.in_stride, batch.out, batch.out_stride, batch.length, batch.backward,
                          batch.scale);
    case Kind::FromReal:
      from_real(batch);
      if (batch.whole) mirror(batch);
      return;
    case Kind::ToReal:
      return to_real(batch);
  }
}

template <class T>
static Cache<int64_t, std::vector<T>>& half_root_tables = *new Cache<int64_t, std::vector<T>>;

template <class T>
std::shared_ptr<const std::vector<T>> half_roots(int64_t n) {
  return half_root_tables<T>.get(n, [n](int64_t& size) {
    auto table = std::make_shared<std::vector<T>>();
    table->reserve(static_cast<size_t>(n + 2));
    for (int64_t k = 0; k <= n / 2; ++k) {
      const Root w = root_of_unity(k, n);
      table->push_back(static_cast<T>(w.re));
      table->push_back(static_cast<T>(w.im));
    }
    size = n / 2;
    return table;
  });
}

template void run_long(const Batch<float>&);
template void run_long(const Batch<double>&);
template std::shared_ptr<const std::vector<float>> half_roots(int64_t);
template std::shared_ptr<const std::vector<double>> half_roots(int64_t);

}  // namespace mica::cpu::fft
