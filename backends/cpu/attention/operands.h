// Heads of attention's tensors as matrices, and their packing for the kernels of matrix products.
#pragma once

#include <algorithm>
#include <atomic>

#include "backends/cpu/gemm/kernels.h"
#include "mica/backend/tensor_view.h"
#include "mica/parallel.h"

namespace mica::cpu {

// The sizes of a call, which has a query, a key and a value.
template <class Call>
struct CallSizes {
  int64_t heads() const { return call().query.size(1); }
  int64_t length() const { return call().query.size(2); }
  int64_t source() const { return call().key.size(2); }
  int64_t depth() const { return call().query.size(3); }
  int64_t width() const { return call().value.size(3); }
  int64_t group() const { return call().query.size(1) / call().key.size(1); }

 private:
  const Call& call() const { return static_cast<const Call&>(*this); }
};

template <class T>
const gemm_impl::MicroKernel& attention_micro_kernel() {
  if constexpr (sizeof(T) == 8) {
    return gemm_impl::micro_kernel_f64();
  } else {
    return gemm_impl::micro_kernel_f32();
  }
}

// One head of a (batch, heads, rows, width) tensor whose last stride is 1.
struct Head {
  char* data;
  int64_t row_stride;  // elements
  int64_t element_size;

  Head(const TensorView& t, int64_t batch, int64_t head)
      : row_stride(t.stride(2)), element_size(mica::element_size(t.dtype)) {
    data = t.ptr<char>() + (batch * t.stride(0) + head * t.stride(1)) * element_size;
  }
  char* row(int64_t r) const { return data + r * row_stride * element_size; }
};

// Copies of parts of a head in the type T of the sums.
template <class T>
class Packer {
 public:
  explicit Packer(DType dtype) : copy_(gemm_impl::copy_to_sums(dtype)), width_(attention_micro_kernel<T>().cols) {}

  int64_t panel_width() const { return width_; }
  int64_t panels(int64_t columns) const { return (columns + width_ - 1) / width_; }

  void rows(const Head& head, int64_t first, int64_t count, int64_t columns, T* to, int64_t to_stride) const {
    copy_(head.row(first), to, {count, columns, head.row_stride, 1, to_stride, 1});
  }
  // Element k of row r at to[k * to_stride + r].
  void transposed_rows(const Head& head, int64_t first, int64_t count, int64_t columns, T* to,
                       int64_t to_stride) const {
    copy_(head.row(first), to, {count, columns, head.row_stride, 1, 1, to_stride});
  }
  // `count` columns from c of some rows.
  void columns(const Head& head, int64_t first, int64_t rows, int64_t c, int64_t count, T* to,
               int64_t to_stride) const {
    copy_(head.row(first) + c * head.element_size, to, {rows, count, head.row_stride, 1, to_stride, 1});
  }
  // Rows in panels, transposed: row p * panel_width + c at to[(p * columns + k) * panel_width + c] for its element k.
  void panels_of_rows(const Head& head, int64_t first, int64_t count, int64_t columns, T* to) const {
    for (int64_t p = 0; p * width_ < count; ++p) {
      transposed_rows(head, first + p * width_, std::min(width_, count - p * width_), columns,
                      to + p * columns * width_, width_);
    }
  }

 private:
  gemm_impl::CopyFn copy_;
  int64_t width_;
};

// Calls worker(task) for every task. Each thread takes the next task as it becomes free. `make_worker()` is called once
// in each thread and returns the worker, which owns that thread's work space. `cost` is the number of multiplications
// of all tasks.
template <class MakeWorker>
void share_tasks(int64_t tasks, double cost, const MakeWorker& make_worker) {
  constexpr double kWorthAThread = 1 << 18;
  const double worth = std::clamp(cost / kWorthAThread, 1.0, static_cast<double>(tasks));
  const int64_t threads = std::min<int64_t>(static_cast<int64_t>(worth), get_num_threads());
  std::atomic<int64_t> next{0};
  parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    auto worker = make_worker();
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) worker(task);
  });
}

// The multiplications of one product of queries with keys, or of weights with values, over all heads.
inline double score_cost(const TensorView& query, const TensorView& key) {
  return static_cast<double>(query.numel) * static_cast<double>(key.size(2));
}

}  // namespace mica::cpu
