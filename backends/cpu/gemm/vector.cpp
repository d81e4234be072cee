// Products in which one operand is a vector: the matrix is split over the threads by rows, or by depth when there are
// few.
#include <algorithm>
#include <cstring>

#include "backends/cpu/gemm/product.h"
#include "backends/cpu/gemm/workspace.h"
#include "mica/parallel.h"

namespace mica::cpu::gemm_impl {
namespace {

constexpr int64_t kStackSums = 512;
constexpr int64_t kRowsPerThread = 32;
constexpr int64_t kElementsPerThread = 32768;
constexpr int kMaxSlices = 64;

template <class T>
void add_slices(char* sums, int64_t rows, int slices) {
  T* total = reinterpret_cast<T*>(sums);
  for (int slice = 1; slice < slices; ++slice) {
    const T* part = total + slice * rows;
    for (int64_t i = 0; i < rows; ++i) total[i] += part[i];
  }
}

void add_slices(DType dtype, int64_t sum_size, char* sums, int64_t rows, int slices) {
  if (dtype == DType::Float64) return add_slices<double>(sums, rows, slices);
  if (is_floating(dtype)) return add_slices<float>(sums, rows, slices);
  return sum_size == 8 ? add_slices<uint64_t>(sums, rows, slices) : add_slices<uint32_t>(sums, rows, slices);
}

}  // namespace

bool run_vector(const Scheme& s, const Product& p, int threads) {
  const GemvFn kernel = s.parts == 1 ? s.gemv : nullptr;
  if (!kernel || (p.m != 1 && p.n != 1)) return false;
  // The longer side is the matrix: `rows` outputs, each the sum over k of a row times x.
  const bool a_is_matrix = p.n == 1 && (p.m > 1 || p.a.col_stride == 1);
  const GemmOperand& matrix = a_is_matrix ? p.a : p.b;
  const GemmOperand& vector = a_is_matrix ? p.b : p.a;
  GemvShape shape;
  shape.rows = a_is_matrix ? p.m : p.n;
  shape.k = p.k;
  shape.row_stride = a_is_matrix ? matrix.row_stride : matrix.col_stride;
  shape.k_stride = a_is_matrix ? matrix.col_stride : matrix.row_stride;
  if (shape.k_stride != 1 && shape.row_stride != 1) return false;

  const int64_t x_stride = a_is_matrix ? vector.row_stride : vector.col_stride;
  const int64_t per_thread =
      shape.rows > kElementsPerThread ? 1 : (kElementsPerThread + shape.rows - 1) / shape.rows;  // in depth
  threads = static_cast<int>(std::clamp<int64_t>(shape.k / std::max<int64_t>(per_thread, 1), 1, threads));
  const bool by_rows = shape.rows >= threads * kRowsPerThread;
  const int slices = by_rows ? 1 : std::min(threads, kMaxSlices);

  const bool x_in_place = s.sums_are_elements && x_stride == 1;
  const int64_t x_elements = x_in_place ? 0 : shape.k;
  const int64_t sums = shape.rows * slices;
  alignas(64) char stack[2 * kStackSums * 8];
  const bool on_stack = x_elements <= kStackSums && sums <= kStackSums;
  const auto run = [&](char* y, char* x_copy) {
    const char* x = static_cast<const char*>(vector.data);
    if (!x_in_place) {
      s.copy(x, x_copy, {1, shape.k, 0, x_stride, 0, 1});
      x = x_copy;
    }
    const char* data = static_cast<const char*>(matrix.data);
    if (threads == 1) {
      kernel(data, x, y, shape);
    } else if (by_rows) {
      parallel_for(0, shape.rows, kRowsPerThread, [&](int64_t begin, int64_t end) {
        GemvShape part = shape;
        part.rows = end - begin;
        kernel(data + begin * shape.row_stride * s.element_size, x, y + begin * s.sum_size, part);
      });
    } else {
      parallel_for(0, slices, 1, [&](int64_t begin, int64_t end) {
        for (int64_t slice = begin; slice < end; ++slice) {
          const int64_t first = shape.k * slice / slices;
          GemvShape part = shape;
          part.k = shape.k * (slice + 1) / slices - first;
          kernel(data + first * shape.k_stride * s.element_size, x + first * s.sum_size,
                 y + slice * shape.rows * s.sum_size, part);
        }
      });
      add_slices(s.dtype, s.sum_size, y, shape.rows, slices);
    }
    if (a_is_matrix) {
      s.finish(y, p.c, {p.m, 1, 1, p.c_row_stride, 1}, p.epilogue);
    } else {
      s.finish(y, p.c, {1, p.n, p.n, 0, p.c_col_stride}, p.epilogue);
    }
  };
  if (on_stack) {
    run(stack, stack + kStackSums * 8);
  } else {
    const int64_t sums_bytes = (sums * s.sum_size + 63) / 64 * 64;
    const WorkBuffer buffer(Slot::Panels, static_cast<size_t>(sums_bytes + x_elements * s.sum_size));
    run(buffer.data(), buffer.data() + sums_bytes);
  }
  return true;
}

}  // namespace mica::cpu::gemm_impl
