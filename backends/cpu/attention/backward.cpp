// The gradients of attention. For a block of keys and a block of queries the weights are made again from the scores and
// the logarithms of their sums, and all three gradients take their share of the block.
#include <algorithm>
#include <cmath>
#include <memory>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/attention/backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/attention/operands.h"
#include "backends/cpu/attention/scores-inl.h"
#include "backends/cpu/scratch.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace {

using gemm_impl::MicroTile;
using gemm_impl::Store;

struct BackwardCall : CallSizes<BackwardCall> {
  const TensorView &grad_query, &grad_key, &grad_value, &grad_out, &out, &logsumexp, &query, &key, &value, &mask;
  bool is_causal;
  double scale;
};

// c[rows x cols] (+)= a @ b, in tiles. `b` is in panels of `panel_stride` elements where that is given.
template <class T>
struct BlockProduct {
  const T* a;
  int64_t a_row_stride, a_k_stride;
  const T* b;
  int64_t b_k_stride;
  int64_t panel_stride;  // 0: columns of b are adjacent throughout
  T* c;
  int64_t c_row_stride;
  int64_t rows, cols, k;
  bool accumulate;
};

template <class T>
void multiply(const gemm_impl::MicroKernel& kernel, const BlockProduct<T>& p) {
  if (p.k <= 0) return;
  MicroTile tile{};
  tile.a_row_stride = p.a_row_stride;
  tile.a_k_stride = p.a_k_stride;
  tile.b_k_stride = p.b_k_stride;
  tile.c_row_stride = p.c_row_stride;
  tile.k = p.k;
  tile.b_padded = p.panel_stride > 0;
  tile.store = p.accumulate ? Store::Accumulate : Store::Overwrite;
  for (int64_t r = 0; r < p.rows; r += kernel.rows) {
    tile.rows = static_cast<int>(std::min<int64_t>(kernel.rows, p.rows - r));
    tile.a = p.a + r * p.a_row_stride;
    for (int64_t c = 0; c < p.cols; c += kernel.cols) {
      tile.cols = static_cast<int>(std::min<int64_t>(kernel.cols, p.cols - c));
      tile.b = p.b + (p.panel_stride ? c / kernel.cols * p.panel_stride : c);
      tile.c = p.c + r * p.c_row_stride + c;
      kernel.run(tile);
    }
  }
}

// A thread's work: one run of keys after another, each of one head of keys and values together with all heads of the
// query that share it.
template <class T>
class BackwardWorker {
 public:
  // Multiples of the rows and columns of the kernels' tiles.
  static constexpr int64_t kKeys = HWY_ARCH_ARM_A64 ? 216 : 224, kQueries = HWY_ARCH_ARM_A64 ? 108 : 112;

  explicit BackwardWorker(const BackwardCall& call)
      : call_(call),
        kernel_(attention_micro_kernel<T>()),
        packer_(call.query.dtype),
        depth_(call.depth()),
        width_(call.width()),
        length_(call.length()),
        query_(call.group() * length_ * depth_),
        grad_out_(call.group() * length_ * width_),
        logs_(call.group() * length_),
        delta_(call.group() * length_),
        keys_(kKeys * depth_),
        key_panels_(packer_.panels(kKeys) * packer_.panel_width() * depth_),
        value_panels_(packer_.panels(kKeys) * packer_.panel_width() * width_),
        grad_key_(kKeys * depth_),
        grad_value_(kKeys * width_),
        weights_(std::max(kQueries * kStride, width_)),
        grad_scores_(kQueries * kStride) {}

  // Keys [first_key, last_key). `grad_query` receives their part of the gradient of all queries of the group.
  void run(int64_t batch, int64_t kv_head, int64_t first_key, int64_t last_key, T* grad_query) {
    const int64_t group = call_.group();
    for (int64_t g = 0; g < group; ++g) read_queries(batch, kv_head * group + g, g);
    grad_query_ = grad_query;
    std::fill_n(grad_query, group * length_ * depth_, T(0));
    const Head key(call_.key, batch, kv_head), value(call_.value, batch, kv_head);
    const Head grad_key(call_.grad_key, batch, kv_head), grad_value(call_.grad_value, batch, kv_head);
    for (int64_t begin = first_key; begin < last_key; begin += kKeys) {
      const int64_t keys = std::min(kKeys, last_key - begin);
      packer_.rows(key, begin, keys, depth_, keys_.data(), depth_);
      packer_.panels_of_rows(key, begin, keys, depth_, key_panels_.data());
      packer_.panels_of_rows(value, begin, keys, width_, value_panels_.data());
      std::fill_n(grad_key_.data(), keys * depth_, T(0));
      std::fill_n(grad_value_.data(), keys * width_, T(0));
      for (int64_t g = 0; g < group; ++g) {
        const HeadMask mask(call_.mask, batch, kv_head * group + g);
        const int64_t first = call_.is_causal ? begin / kQueries * kQueries : 0;
        for (int64_t q = first; q < length_; q += kQueries)
          add_block(mask, g, q, std::min(kQueries, length_ - q), begin, keys);
      }
      for (int64_t i = 0; i < keys; ++i) {
        // The copies of the queries are multiplied by log2(e) too, so ln 2 takes that back.
        write_row(grad_key_.data() + i * depth_, depth_, T(kLn2), call_.key.dtype, grad_key.row(begin + i));
        write_row(grad_value_.data() + i * width_, width_, T(1), call_.key.dtype, grad_value.row(begin + i));
      }
    }
  }

 private:
  static constexpr int64_t kStride = kKeys + 16;

  void read_queries(int64_t batch, int64_t head, int64_t g) {
    T *query = query_.data() + g * length_ * depth_, *grad = grad_out_.data() + g * length_ * width_;
    packer_.rows(Head(call_.query, batch, head), 0, length_, depth_, query, depth_);
    scale_run(query, length_ * depth_, static_cast<T>(call_.scale * kLog2E));
    packer_.rows(Head(call_.grad_out, batch, head), 0, length_, width_, grad, width_);
    const Head out(call_.out, batch, head);
    const T* logs = call_.logsumexp.ptr<T>() + (batch * call_.heads() + head) * length_;
    for (int64_t i = 0; i < length_; ++i) {
      // A query that saw no key has minus infinity here. Its weights have to be zero.
      const bool empty = logs[i] == -std::numeric_limits<T>::infinity();
      logs_[g * length_ + i] = empty ? std::numeric_limits<T>::infinity() : static_cast<T>(logs[i] * kLog2E);
      packer_.rows(out, i, 1, width_, weights_.data(), width_);
      delta_[g * length_ + i] = dot_run(weights_.data(), grad + i * width_, width_);
    }
  }

  void add_block(const HeadMask& mask, int64_t g, int64_t q, int64_t count, int64_t begin, int64_t keys) {
    const int64_t at = g * length_ + q;
    const T *query = query_.data() + at * depth_, *grad = grad_out_.data() + at * width_;
    const int64_t panel = packer_.panel_width();
    for (int64_t r = 0; r < count; r += kernel_.in_place_rows) {
      const int64_t rows = std::min<int64_t>(kernel_.in_place_rows, count - r);
      const int64_t seen = call_.is_causal ? std::clamp<int64_t>(q + r + rows - begin, 0, keys) : keys;
      T *weights = weights_.data() + r * kStride, *grads = grad_scores_.data() + r * kStride;
      const int64_t columns = std::min(keys, (seen + panel - 1) / panel * panel);
      multiply<T>(kernel_, {query + r * depth_, depth_, 1, key_panels_.data(), panel, depth_ * panel, weights, kStride,
                            rows, columns, depth_, false});
      multiply<T>(kernel_, {grad + r * width_, width_, 1, value_panels_.data(), panel, width_ * panel, grads, kStride,
                            rows, columns, width_, false});
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t n = call_.is_causal ? std::clamp<int64_t>(q + r + i + 1 - begin, 0, keys) : keys;
        if (mask) mask.add_to(weights + i * kStride, q + r + i, begin, n);
        powers_and_gradients(weights + i * kStride, grads + i * kStride, n, keys, logs_[at + r + i],
                             delta_[at + r + i]);
      }
      multiply<T>(kernel_, {grads, kStride, 1, keys_.data(), depth_, 0, grad_query_ + (at + r) * depth_, depth_, rows,
                            depth_, seen, true});
    }
    for (int64_t k = 0; k < keys; k += kernel_.rows) {
      const int64_t rows = std::min<int64_t>(kernel_.rows, keys - k);
      // Under a causal mask queries before the first of these keys do not see them.
      const int64_t skip = call_.is_causal ? std::clamp<int64_t>(begin + k - q, 0, count) : 0;
      multiply<T>(kernel_, {weights_.data() + skip * kStride + k, 1, kStride, grad + skip * width_, width_, 0,
                            grad_value_.data() + k * width_, width_, rows, width_, count - skip, true});
      multiply<T>(kernel_, {grad_scores_.data() + skip * kStride + k, 1, kStride, query + skip * depth_, depth_, 0,
                            grad_key_.data() + k * depth_, depth_, rows, depth_, count - skip, true});
    }
  }

  const BackwardCall& call_;
  const gemm_impl::MicroKernel& kernel_;
  Packer<T> packer_;
  int64_t depth_, width_, length_;
  T* grad_query_ = nullptr;
  Scratch<T> query_, grad_out_, logs_, delta_, keys_, key_panels_, value_panels_, grad_key_, grad_value_, weights_,
      grad_scores_;
};

// Writes the gradient of the queries of one head, summed over `parts` that lie `part_size` apart.
template <class T>
void write_queries(const BackwardCall& call, int64_t batch, int64_t head, T* parts, int64_t count, int64_t part_size) {
  const Head grad_query(call.grad_query, batch, head);
  const int64_t depth = call.depth();
  for (int64_t i = 0; i < call.length(); ++i) {
    T* row = parts + i * depth;
    for (int64_t p = 1; p < count; ++p)
      std::transform(row, row + depth, row + p * part_size, row, [](T a, T b) { return a + b; });
    write_row(row, depth, static_cast<T>(call.scale), call.query.dtype, grad_query.row(i));
  }
}

// Heads of keys are shared among the threads. Where there are too few heads, runs of their keys are shared, and the
// parts that the runs add to the gradients of the queries are summed at the end.
template <class T>
void run_backward(const BackwardCall& call) {
  constexpr int64_t kKeys = BackwardWorker<T>::kKeys;
  const int64_t kv_heads = call.key.size(1), heads = call.key.size(0) * kv_heads, group = call.group();
  const int64_t blocks = (call.source() + kKeys - 1) / kKeys, threads = get_num_threads();
  const bool shares_evenly = heads >= 4 * threads || heads % threads == 0;
  const int64_t runs = shares_evenly ? 1 : std::min(blocks, (4 * threads + heads - 1) / heads);
  const int64_t head_size = call.length() * call.depth(), part_size = group * head_size;
  const double cost = 5 * score_cost(call.query, call.key);
  if (runs == 1) {
    share_tasks(heads, cost, [&] {
      auto worker = std::make_unique<BackwardWorker<T>>(call);
      auto grads = std::make_unique<Scratch<T>>(part_size);
      return [&, worker = std::move(worker), grads = std::move(grads)](int64_t task) {
        const int64_t batch = task / kv_heads, kv_head = task % kv_heads;
        worker->run(batch, kv_head, 0, call.source(), grads->data());
        for (int64_t g = 0; g < group; ++g)
          write_queries(call, batch, kv_head * group + g, grads->data() + g * head_size, 1, 0);
      };
    });
    return;
  }
  const Scratch<T> parts(heads * runs * part_size);
  share_tasks(heads * runs, cost, [&] {
    auto worker = std::make_unique<BackwardWorker<T>>(call);
    return [&, worker = std::move(worker)](int64_t task) {
      const int64_t head = task / runs, run = task % runs;
      worker->run(head / kv_heads, head % kv_heads, blocks * run / runs * kKeys,
                  std::min(call.source(), blocks * (run + 1) / runs * kKeys), parts.data() + task * part_size);
    };
  });
  parallel_for(0, heads * group, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / group, g = i % group;
      write_queries(call, head / kv_heads, head % kv_heads * group + g,
                    parts.data() + head * runs * part_size + g * head_size, runs, part_size);
    }
  });
}

void attention_backward_kernel(const TensorView& grad_query, const TensorView& grad_key, const TensorView& grad_value,
                               const TensorView& grad_out, const TensorView& out, const TensorView& logsumexp,
                               const TensorView& query, const TensorView& key, const TensorView& value,
                               const TensorView& mask, bool is_causal, double scale) {
  const BackwardCall call{{},    grad_query, grad_key, grad_value, grad_out,  out,  logsumexp,
                          query, key,        value,    mask,       is_causal, scale};
  if (query.dtype == DType::Float64) {
    run_backward<double>(call);
  } else {
    run_backward<float>(call);
  }
}

}  // namespace
}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(attention_backward_kernel);
MICA_REGISTER_SIMD(attention_backward, attention_backward_kernel);
}  // namespace mica::cpu
#endif
