// scatter: every element of a source to the place that its index names, alone or combined with what is there.
#include <string_view>

#include "backends/cpu/index/element_bytes.h"
#include "backends/cpu/index/element_nest.h"
#include "backends/cpu/visit_dtype.h"
#include "backends/shared/read_element.h"
#include "mica/error.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

// 16-bit floats combine in float.
template <class T>
auto widened(T v) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return static_cast<float>(v);
  } else {
    return v;
  }
}

struct Set {
  template <class T>
  T operator()(T, T source) const {
    return source;
  }
};
struct Sum {
  template <class T>
  T operator()(T old, T source) const {
    if constexpr (std::is_same_v<T, bool>) {
      return old || source;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(old) + static_cast<uint64_t>(source));
    } else {
      return T(widened(old) + widened(source));
    }
  }
};
struct Product {
  template <class T>
  T operator()(T old, T source) const {
    if constexpr (std::is_same_v<T, bool>) {
      return old && source;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(old) * static_cast<uint64_t>(source));
    } else {
      return T(widened(old) * widened(source));
    }
  }
};
// A NaN stays, whichever side it comes from.
struct Largest {
  template <class T>
  T operator()(T old, T source) const {
    const auto a = widened(old), b = widened(source);
    return a != a || a > b ? old : source;
  }
};
struct Smallest {
  template <class T>
  T operator()(T old, T source) const {
    const auto a = widened(old), b = widened(source);
    return a != a || a < b ? old : source;
  }
};

// The run is copied: a store of a byte could change one that others see.
template <class T, class F>
void scatter_run(const ElementRun& given) {
  const F combine;
  const ElementRun r = given;
  auto* source = reinterpret_cast<const T*>(r.dense);
  auto* table = reinterpret_cast<T*>(r.table);
  if (r.index_stride == 1 && r.dense_stride == 1 && r.table_stride == 0 && r.dim_stride == 1) {
    for (int64_t j = 0; j < r.count; ++j) {
      T& to = table[r.index[j]];
      to = combine(read_element(to), read_element(source[j]));
    }
    return;
  }
  for (int64_t j = 0; j < r.count; ++j) {
    T& to = table[r.index[j * r.index_stride] * r.dim_stride + j * r.table_stride];
    to = combine(read_element(to), read_element(source[j * r.dense_stride]));
  }
}

// Visits only the elements whose index lies in [low, low + span).
template <class T, class F>
void scatter_some(const ElementRun& given, int64_t low, uint64_t span) {
  const F combine;
  const ElementRun r = given;
  auto* source = reinterpret_cast<const T*>(r.dense);
  auto* table = reinterpret_cast<T*>(r.table);
  constexpr int64_t kBlock = 1024;
  int64_t chosen[kBlock];
  for (int64_t begin = 0; begin < r.count; begin += kBlock) {
    // Branches would be mispredicted here, so the elements are listed without one.
    int64_t count = 0;
    for (int64_t j = begin; j < begin + kBlock && j < r.count; ++j) {
      chosen[count] = j;
      count += static_cast<uint64_t>(r.index[j * r.index_stride]) - static_cast<uint64_t>(low) < span;
    }
    for (int64_t k = 0; k < count; ++k) {
      const int64_t j = chosen[k];
      T& to = table[r.index[j * r.index_stride] * r.dim_stride + j * r.table_stride];
      to = combine(read_element(to), read_element(source[j * r.dense_stride]));
    }
  }
}

struct Loops {
  void (*all)(const ElementRun&) = nullptr;
  void (*some)(const ElementRun&, int64_t low, uint64_t span) = nullptr;
};
template <class T, class F>
constexpr Loops kLoops{scatter_run<T, F>, scatter_some<T, F>};

Loops loops_for(DType dtype, std::string_view reduce) {
  if (reduce.empty()) return visit_element_size(element_size(dtype), []<class T>(Tag<T>) { return kLoops<T, Set>; });
  Loops loops;
  if (reduce == "sum") visit_number_bool("scatter_add", dtype, [&]<class T>(Tag<T>) { loops = kLoops<T, Sum>; });
  if (reduce == "prod") visit_number_bool("scatter_prod", dtype, [&]<class T>(Tag<T>) { loops = kLoops<T, Product>; });
  if (reduce == "amax") visit_real_bool("scatter_amax", dtype, [&]<class T>(Tag<T>) { loops = kLoops<T, Largest>; });
  if (reduce == "amin") visit_real_bool("scatter_amin", dtype, [&]<class T>(Tag<T>) { loops = kLoops<T, Smallest>; });
  MICA_CHECK(loops.all, "scatter: no such reduction: ", reduce);
  return loops;
}

void scatter_kernel(const TensorView& self, int64_t dim, const TensorView& index, const TensorView& src,
                    std::string_view reduce) {
  const ElementNest nest(self, dim, index, src);
  const Loops loops = loops_for(self.dtype, reduce);
  constexpr int64_t kGrain = 16384;
  const int threads = nest.numel < 2 * kGrain ? 1 : get_num_threads();
  auto run = [&](const ElementNest& n) { n.for_range(0, n.numel, loops.all); };
  if (threads == 1) return run(nest);
  // Lines along `dim` are independent of each other: the longest other dimension is split. Where there is none, the
  // places are.
  size_t widest = nest.loops.size();
  for (size_t k = 0; k < nest.loops.size(); ++k)
    if (!nest.loops[k].is_dim && (widest == nest.loops.size() || nest.loops[k].size > nest.loops[widest].size))
      widest = k;
  if (widest < nest.loops.size() && nest.loops[widest].size >= threads) {
    return parallel_for(0, nest.loops[widest].size, 1,
                        [&](int64_t begin, int64_t end) { run(nest.part(widest, begin, end)); });
  }
  parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    const int64_t low = nest.dim_size * begin / threads, high = nest.dim_size * end / threads;
    nest.for_range(0, nest.numel, [&](const ElementRun& r) { loops.some(r, low, static_cast<uint64_t>(high - low)); });
  });
}

MICA_REGISTER_CPU(scatter, scatter_kernel);

}  // namespace
}  // namespace mica::cpu
