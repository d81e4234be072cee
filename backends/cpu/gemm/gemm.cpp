// The entry of matrix products: checks, and the choice between small, vector, batched and packed products.
#include "backends/cpu/gemm/gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/cpu/gemm/product.h"
#include "backends/cpu/share_runs.h"
#include "mica/error.h"
#include "mica/parallel.h"

namespace mica::cpu {
namespace gemm_impl {
namespace {

// The multiply-adds below which another thread costs more than it brings.
constexpr double kWorkPerThread = 1 << 18;
constexpr double kVectorWorkPerThread = 1 << 15;
constexpr double kFormattedWorkPerThread = 1 << 21;  // the same for kernels with a panel format, which are much faster
constexpr double kLeastWork = 1 << 11;               // what even the smallest product of a batch costs
constexpr int64_t kThinDepth = 64;
constexpr int64_t kThinMatrix = 1 << 16;
// Threads take whole products of a batch where that keeps them busy at least this part of the time.
constexpr double kBatchBalance = 0.8;

template <class T>
void put(char* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

void put_scalar(DType dtype, const GemmScalar& scalar, char* to) {
  switch (dtype) {
    case DType::Float64:
      return put(to, scalar.value.real());
    case DType::Complex64:
      return put(to, complex64(scalar.value));
    case DType::Complex128:
      return put(to, scalar.value);
    case DType::Int64:
    case DType::UInt64:
      return put(to, scalar.integer);
    default:
      return is_floating(dtype) ? put(to, static_cast<float>(scalar.value.real()))
                                : put(to, static_cast<int32_t>(scalar.integer));
  }
}

// Whether few rows or columns meet a large matrix: copying it into panels would cost as much as the product.
bool is_thin(const Product& p) {
  const int64_t few = std::min(p.m, p.n), many = std::max(p.m, p.n);
  return few <= kThinExtent && 4 * few <= many && p.k >= kThinDepth && many * p.k >= kThinMatrix;
}

// Fills C where there is nothing to sum: with beta * C + bias.
void run_without_depth(const Scheme& s, const Product& p) {
  constexpr int64_t kChunk = 128;
  alignas(64) const char zeros[kChunk * 4 * sizeof(double)] = {};
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; j += kChunk) {
      const int64_t cols = std::min(kChunk, p.n - j);
      s.finish(zeros, p.c_at(s, i, j), {1, cols, kChunk * s.parts, 0, p.c_col_stride}, p.epilogue_at(s, j));
    }
  }
}

Product transposed(const Product& p) {
  Product t = p;
  std::swap(t.m, t.n);
  t.a = {p.b.data, p.b.col_stride, p.b.row_stride, 0};
  t.b = {p.a.data, p.a.col_stride, p.a.row_stride, 0};
  std::swap(t.c_row_stride, t.c_col_stride);
  t.blocks = nullptr;
  return t;
}

// Reads the large matrix in place: along its long side where the elements of that are adjacent, else along the depth.
bool run_thin(const Scheme& s, const Product& p, int threads) {
  const bool tall = p.m > p.n;
  const int64_t stride = tall ? p.a.row_stride : p.b.col_stride;
  if (!s.sums_are_elements || stride != 1 || std::min(p.m, p.n) <= 2 || (tall && p.epilogue.bias))
    return run_vector(s, p, threads);
  run_packed(s, tall ? transposed(p) : p, threads);
  return true;
}

void run(const Scheme& s, const Product& p, int threads) {
  if (p.k == 0) return run_without_depth(s, p);
  if (p.b_factors.data) return run_packed(s, p, threads);
  const bool vector = p.m == 1 || p.n == 1;
  if (vector && (run_vector(s, p, threads) || run_complex_dot(s, p, threads))) return;
  if (fits_small(s, p)) return run_small(s, p);
  if (!vector && is_thin(p) && run_thin(s, p, threads)) return;
  if (p.k == 1 && run_outer(s, p, threads)) return;
  if (threads > 1 && run_deep(s, p, threads)) return;
  run_packed(s, p, threads);
}

// The stride of an extent of 1 is arbitrary. It is set so that all ways see adjacent elements.
void normalise(GemmCall& call) {
  if (call.k == 1) call.a.col_stride = 1;
  if (call.n == 1) call.b.col_stride = call.c_col_stride = 1;
  // If all products of a batch have the same B and the rows of one follow those of another, they are one tall product.
  if (call.batch > 1 && call.b.batch_stride == 0 && call.a.batch_stride == call.m * call.a.row_stride &&
      call.c_batch_stride == call.m * call.c_row_stride) {
    call.m *= call.batch;
    call.batch = 1;
    call.blocks = nullptr;
  }
  // The micro-kernels write rows. Where columns of C are adjacent instead, its transpose is computed as the product of
  // the transposes.
  if (call.c_col_stride != 1 && (call.c_row_stride == 1 || call.m == 1) && !call.bias) {
    std::swap(call.a, call.b);
    std::swap(call.a.row_stride, call.a.col_stride);
    std::swap(call.b.row_stride, call.b.col_stride);
    std::swap(call.m, call.n);
    std::swap(call.c_row_stride, call.c_col_stride);
    call.blocks = nullptr;
    if (call.n == 1) call.b.col_stride = call.c_col_stride = 1;
  }
}

int threads_for(double work, double per_thread) {
  if (work < 2 * per_thread || in_parallel_region()) return 1;
  return static_cast<int>(std::min<double>(get_num_threads(), work / per_thread));
}

}  // namespace
}  // namespace gemm_impl

void gemm(const GemmCall& original) {
  using namespace gemm_impl;
  const Scheme& s = scheme_of(original.dtype);
  MICA_CHECK(original.batch >= 0 && original.m >= 0 && original.n >= 0 && original.k >= 0,
             "matmul: negative extent in batch ", original.batch, ", m ", original.m, ", n ", original.n, ", k ",
             original.k);
  if (original.batch == 0 || original.m == 0 || original.n == 0) return;
  GemmCall call = original;
  normalise(call);

  Product p;
  p.m = call.m;
  p.n = call.n;
  p.k = call.k;
  p.a = call.a;
  p.b = call.b;
  p.c = static_cast<char*>(call.c);
  p.c_row_stride = call.c_row_stride;
  p.c_col_stride = call.c_col_stride;
  const bool integral = is_integral(call.dtype);
  put_scalar(call.dtype, call.alpha, p.epilogue.alpha);
  put_scalar(call.dtype, call.beta, p.epilogue.beta);
  put_scalar(call.dtype, 1, p.one);
  p.epilogue.reads_c = integral ? call.beta.integer != 0 : call.beta.value != 0.0;
  p.epilogue.bias = call.bias;
  p.unit_alpha = integral ? call.alpha.integer == 1 : call.alpha.value == 1.0;
  p.plain = p.unit_alpha && !p.epilogue.reads_c && !call.bias;
  p.blocks = call.blocks;
  p.b_factors = call.b_factors;

  const bool vector = call.m == 1 || call.n == 1;
  const double per_thread = vector ? kVectorWorkPerThread : s.format ? kFormattedWorkPerThread : kWorkPerThread;
  const double work =
      static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) * s.parts * s.parts;
  if (call.batch == 1) return run(s, p, threads_for(work, per_thread));

  const auto run_batch = [&](int64_t begin, int64_t end, int threads) {
    Product one = p;
    for (int64_t i = begin; i < end; ++i) {
      one.a.data = static_cast<const char*>(p.a.data) + i * call.a.batch_stride * s.element_size;
      one.b.data = static_cast<const char*>(p.b.data) + i * call.b.batch_stride * s.element_size;
      one.c = p.c + i * call.c_batch_stride * s.element_size;
      one.index = i;
      run(s, one, threads);
    }
  };
  const double work_each = std::max(work, kLeastWork);
  const int threads = threads_for(work_each * static_cast<double>(call.batch), per_thread);
  if (threads == 1) return run_batch(0, call.batch, 1);
  const int64_t rounds = (call.batch + threads - 1) / threads;
  const double balance = static_cast<double>(call.batch) / static_cast<double>(rounds * threads);
  if (balance >= kBatchBalance || work < 2 * threads * per_thread) {
    const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(per_thread / work_each));
    share_runs(threads, call.batch, grain, call.batch, [&](int64_t begin, int64_t end) { run_batch(begin, end, 1); });
  } else {
    run_batch(0, call.batch, threads_for(work, per_thread));
  }
}

}  // namespace mica::cpu
