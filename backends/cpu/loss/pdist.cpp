// Distances of all pairs of rows, and their gradient. Every row sums over its own pairs, so that threads never write to
// the same row.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

// Where the pair (i, j), i < j, of n rows stands.
int64_t pair_place(int64_t i, int64_t j, int64_t n) { return i * n - i * (i + 1) / 2 + j - i - 1; }

template <class T>
T distance(const T* a, const T* b, int64_t n, double p) {
  double total = 0;
  if (p == 2) {
    for (int64_t k = 0; k < n; ++k) {
      const double d = static_cast<double>(a[k]) - static_cast<double>(b[k]);
      total += d * d;
    }
    return static_cast<T>(std::sqrt(total));
  }
  for (int64_t k = 0; k < n; ++k) {
    const double d = std::abs(static_cast<double>(a[k]) - static_cast<double>(b[k]));
    if (p == 0) {
      total += std::isnan(d) ? d : d != 0;
    } else if (p == 1) {
      total += d;
    } else if (std::isinf(p)) {
      total = d > total || std::isnan(d) ? d : total;
    } else {
      total += std::pow(d, p);
    }
  }
  return static_cast<T>(p == 0 || p == 1 || std::isinf(p) ? total : std::pow(total, 1 / p));
}

// The derivative of a distance by one of its differences. The distance has been rounded to T, and so is the largest
// difference that it is compared with.
template <class T>
double slope(double difference, double distance, double p) {
  const double size = std::abs(difference), sign = (difference > 0) - (difference < 0);
  if (p == 0 || distance == 0) return 0;
  if (p == 1) return sign;
  if (p == 2) return difference / distance;
  if (std::isinf(p)) return static_cast<double>(static_cast<T>(size)) == distance ? sign : 0;
  return size == 0 ? 0 : sign * std::pow(size / distance, p - 1);
}

template <class F>
void visit_wide(DType dtype, const F& f) {
  if (dtype == DType::Float32) return f(Tag<float>());
  if (dtype == DType::Float64) return f(Tag<double>());
  unsupported_dtype("pdist", dtype);
}

void pdist_kernel(const TensorView& out, const TensorView& self, double p) {
  const int64_t n = self.sizes[0], width = self.sizes[1];
  visit_wide(self.dtype, [&]<class T>(Tag<T>) {
    const T* x = self.ptr<const T>();
    // Row i has n - 1 - i pairs: the i-th rows from both ends together make equal portions.
    parallel_for(0, (n + 1) / 2, std::max<int64_t>(1, 16384 / (n * width + 1)), [&](int64_t begin, int64_t end) {
      const auto row = [&](int64_t i) {
        for (int64_t j = i + 1; j < n; ++j)
          out.ptr<T>()[pair_place(i, j, n)] = distance(x + i * width, x + j * width, width, p);
      };
      for (int64_t i = begin; i < end; ++i) {
        row(i);
        if (n - 1 - i != i) row(n - 1 - i);
      }
    });
  });
}

void pdist_backward_kernel(const TensorView& grad_self, const TensorView& grad, const TensorView& self,
                           const TensorView& distances, double p) {
  const int64_t n = self.sizes[0], width = self.sizes[1];
  visit_wide(self.dtype, [&]<class T>(Tag<T>) {
    const T* x = self.ptr<const T>();
    parallel_for(0, n, std::max<int64_t>(1, 16384 / (n * width + 1)), [&](int64_t begin, int64_t end) {
      std::vector<double> sums(static_cast<size_t>(width));
      for (int64_t i = begin; i < end; ++i) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (int64_t j = 0; j < n; ++j) {
          if (i == j) continue;
          const int64_t at = pair_place(std::min(i, j), std::max(i, j), n);
          const double g = static_cast<double>(grad.ptr<const T>()[at]);
          const double d = static_cast<double>(distances.ptr<const T>()[at]);
          for (int64_t k = 0; k < width; ++k)
            sums[static_cast<size_t>(k)] +=
                g * slope<T>(static_cast<double>(x[i * width + k]) - static_cast<double>(x[j * width + k]), d, p);
        }
        for (int64_t k = 0; k < width; ++k)
          grad_self.ptr<T>()[i * width + k] = static_cast<T>(sums[static_cast<size_t>(k)]);
      }
    });
  });
}

void cdist_kernel(const TensorView& out, const TensorView& x1, const TensorView& x2, double p) {
  const int64_t rows1 = x1.sizes[1], rows2 = x2.sizes[1], width = x1.sizes[2];
  visit_wide(x1.dtype, [&]<class T>(Tag<T>) {
    const int64_t grain = std::max<int64_t>(1, 16384 / (rows2 * width + 1));
    parallel_for(0, x1.sizes[0] * rows1, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* a = x1.ptr<const T>() + i * width;
        const T* b = x2.ptr<const T>() + i / rows1 * rows2 * width;
        for (int64_t j = 0; j < rows2; ++j) out.ptr<T>()[i * rows2 + j] = distance(a, b + j * width, width, p);
      }
    });
  });
}

void cdist_backward_kernel(const TensorView& grad_x1, const TensorView& grad, const TensorView& x1,
                           const TensorView& x2, const TensorView& distances, double p) {
  const int64_t rows1 = x1.sizes[1], rows2 = x2.sizes[1], width = x1.sizes[2];
  visit_wide(x1.dtype, [&]<class T>(Tag<T>) {
    const int64_t grain = std::max<int64_t>(1, 16384 / (rows2 * width + 1));
    parallel_for(0, x1.sizes[0] * rows1, grain, [&](int64_t begin, int64_t end) {
      std::vector<double> sums(static_cast<size_t>(width));
      for (int64_t i = begin; i < end; ++i) {
        std::fill(sums.begin(), sums.end(), 0.0);
        const T* a = x1.ptr<const T>() + i * width;
        for (int64_t j = 0; j < rows2; ++j) {
          const T* b = x2.ptr<const T>() + (i / rows1 * rows2 + j) * width;
          const double g = static_cast<double>(grad.ptr<const T>()[i * rows2 + j]);
          const double d = static_cast<double>(distances.ptr<const T>()[i * rows2 + j]);
          for (int64_t k = 0; k < width; ++k)
            sums[static_cast<size_t>(k)] += g * slope<T>(static_cast<double>(a[k]) - static_cast<double>(b[k]), d, p);
        }
        for (int64_t k = 0; k < width; ++k)
          grad_x1.ptr<T>()[i * width + k] = static_cast<T>(sums[static_cast<size_t>(k)]);
      }
    });
  });
}

MICA_REGISTER_CPU(pdist, pdist_kernel);
MICA_REGISTER_CPU(pdist_backward, pdist_backward_kernel);
MICA_REGISTER_CPU(cdist, cdist_kernel);
MICA_REGISTER_CPU(cdist_backward, cdist_backward_kernel);

}  // namespace
}  // namespace mica::cpu
