// Distances of all pairs of rows and their gradients: every row gathers from its own pairs.
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

// Where the pair (i, j), i < j, of n rows stands.
__device__ int64_t pair_place(int64_t i, int64_t j, int64_t n) { return i * n - i * (i + 1) / 2 + j - i - 1; }

template <class T>
__device__ T distance(const T* a, const T* b, int64_t n, double p) {
  double total = 0;
  for (int64_t k = 0; k < n; ++k) {
    const double d = ::fabs(static_cast<double>(a[k]) - static_cast<double>(b[k]));
    if (p == 2) {
      total += d * d;
    } else if (p == 0) {
      total += d != 0;
    } else if (p == 1) {
      total += d;
    } else if (::isinf(p)) {
      total = d > total || d != d ? d : total;
    } else {
      total += ::pow(d, p);
    }
  }
  if (p == 2) return static_cast<T>(::sqrt(total));
  return static_cast<T>(p == 0 || p == 1 || ::isinf(p) ? total : ::pow(total, 1 / p));
}

// The derivative of a distance by one of its differences.
__device__ double slope(double difference, double distance, double p) {
  const double size = ::fabs(difference), sign = (difference > 0) - (difference < 0);
  if (p == 0 || distance == 0) return 0;
  if (p == 1) return sign;
  if (p == 2) return difference / distance;
  if (::isinf(p)) return size == distance ? sign : 0;
  return size == 0 ? 0 : sign * ::pow(size / distance, p - 1);
}

template <class T>
struct PairDistance {
  const T* x;
  T* out;
  int64_t n, width;
  double p;
  __device__ void operator()(int64_t k) const {
    const int64_t i = k / n, j = k % n;
    if (i < j) out[pair_place(i, j, n)] = distance(x + i * width, x + j * width, width, p);
  }
};
template <class T>
struct PairDistanceBackward {
  T* out;
  const T *grad, *x, *distances;
  int64_t n, width;
  double p;
  __device__ void operator()(int64_t k) const {
    const int64_t i = k / width, c = k % width;
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      if (i == j) continue;
      const int64_t at = i < j ? pair_place(i, j, n) : pair_place(j, i, n);
      sum += static_cast<double>(grad[at]) *
             slope(static_cast<double>(x[i * width + c]) - static_cast<double>(x[j * width + c]),
                   static_cast<double>(distances[at]), p);
    }
    out[k] = static_cast<T>(sum);
  }
};
template <class T>
struct CrossDistance {
  const T *x1, *x2;
  T* out;
  int64_t rows1, rows2, width;
  double p;
  __device__ void operator()(int64_t k) const {
    const int64_t i = k / rows2, j = k % rows2;
    out[k] = distance(x1 + i * width, x2 + (i / rows1 * rows2 + j) * width, width, p);
  }
};
template <class T>
struct CrossDistanceBackward {
  T* out;
  const T *grad, *x1, *x2, *distances;
  int64_t rows1, rows2, width;
  double p;
  __device__ void operator()(int64_t k) const {
    const int64_t i = k / width, c = k % width;
    double sum = 0;
    for (int64_t j = 0; j < rows2; ++j)
      sum += static_cast<double>(grad[i * rows2 + j]) *
             slope(static_cast<double>(x1[k]) - static_cast<double>(x2[(i / rows1 * rows2 + j) * width + c]),
                   static_cast<double>(distances[i * rows2 + j]), p);
    out[k] = static_cast<T>(sum);
  }
};

template <class F>
void visit_wide(DType dtype, const F& f) {
  if (dtype == DType::Float32) return f(Tag<float>{});
  if (dtype == DType::Float64) return f(Tag<double>{});
  unsupported_dtype("pdist", dtype);
}

}  // namespace

void pdist(const TensorView& out, const TensorView& self, double p) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  const int64_t n = self.sizes[0], width = self.sizes[1];
  visit_wide(self.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), n * n, PairDistance<T>{self.ptr<const T>(), out.ptr<T>(), n, width, p});
  });
}
void pdist_backward(const TensorView& grad_self, const TensorView& grad, const TensorView& self,
                    const TensorView& distances, double p) {
  if (grad_self.numel == 0) return;
  DeviceGuard guard(grad.device.index());
  visit_wide(self.dtype, [&]<class T>(Tag<T>) {
    for_each(grad.device.index(), self.numel,
             PairDistanceBackward<T>{grad_self.ptr<T>(), grad.ptr<const T>(), self.ptr<const T>(),
                                     distances.ptr<const T>(), self.sizes[0], self.sizes[1], p});
  });
}
void cdist(const TensorView& out, const TensorView& x1, const TensorView& x2, double p) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  visit_wide(x1.dtype, [&]<class T>(Tag<T>) {
    for_each(
        out.device.index(), out.numel,
        CrossDistance<T>{x1.ptr<const T>(), x2.ptr<const T>(), out.ptr<T>(), x1.sizes[1], x2.sizes[1], x1.sizes[2], p});
  });
}
void cdist_backward(const TensorView& grad_x1, const TensorView& grad, const TensorView& x1, const TensorView& x2,
                    const TensorView& distances, double p) {
  if (grad_x1.numel == 0) return;
  DeviceGuard guard(grad.device.index());
  visit_wide(x1.dtype, [&]<class T>(Tag<T>) {
    for_each(grad.device.index(), x1.numel,
             CrossDistanceBackward<T>{grad_x1.ptr<T>(), grad.ptr<const T>(), x1.ptr<const T>(), x2.ptr<const T>(),
                                      distances.ptr<const T>(), x1.sizes[1], x2.sizes[1], x1.sizes[2], p});
  });
}

}  // namespace mica::cuda
