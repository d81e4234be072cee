// sum: a first, plain version.
#include "backends/cpu/visit_dtype.h"
#include "mica/array_ref.h"

namespace mica::cpu {

namespace {

template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<Half> {
  using type = double;
};
template <>
struct Accumulator<BFloat16> {
  using type = double;
};
template <>
struct Accumulator<float> {
  using type = double;
};

void sum_kernel(const TensorView& out, const TensorView& self, uint64_t) {
  visit_number_bool("sum", self.dtype, [&]<class T>(Tag<T>) {
    using A = typename Accumulator<T>::type;
    const int n = self.ndim;
    DimVector index(n, 0);
    auto* result = out.ptr<T>();
    // Walk the outputs; for each, all inputs of its reduced dimensions.
    for (int64_t o = 0; o < out.numel; ++o) {
      int64_t rest = o, in = 0, at = 0;
      for (int d = n - 1; d >= 0; --d) {
        const int64_t i = rest % out.sizes[d];
        rest /= out.sizes[d];
        in += i * self.strides[d];
        at += i * out.strides[d];
      }
      A total{};
      for (int d = 0; d < n; ++d) index[d] = 0;
      bool more = self.numel > 0;
      while (more) {
        int64_t p = in;
        for (int d = 0; d < n; ++d) p += index[d] * self.strides[d];
        total = static_cast<A>(total + static_cast<A>(self.ptr<T>()[p]));
        int d = n - 1;
        for (; d >= 0; --d) {
          if (out.sizes[d] != 1) continue;
          if (++index[d] < self.sizes[d]) break;
          index[d] = 0;
        }
        more = d >= 0;
      }
      result[at] = static_cast<T>(total);
    }
  });
}

MICA_REGISTER_CPU(reduce_sum, sum_kernel);

}  // namespace
}  // namespace mica::cpu
