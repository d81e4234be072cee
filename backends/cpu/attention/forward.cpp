// Attention by tiles of scores, with running maxima and sums.
#include <algorithm>
#include <cmath>
#include <memory>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/attention/forward.cpp"
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

struct ForwardCall {
  const TensorView &out, &logsumexp, &query, &key, &value, &mask;
  bool is_causal;
  double scale;

  int64_t heads() const { return query.size(1); }
  int64_t length() const { return query.size(2); }
  int64_t source() const { return key.size(2); }
  int64_t depth() const { return query.size(3); }
  int64_t width() const { return value.size(3); }
  int64_t group() const { return query.size(1) / key.size(1); }
};

// A thread's work on one run of queries of one head after another.
template <class T>
class ForwardWorker {
 public:
  // Keys whose scores are held at a time, a multiple of every panel's width.
  static constexpr int64_t kKeys = sizeof(T) == 4 ? 256 : 128;

  ForwardWorker(const ForwardCall& call, int64_t rows)
      : call_(call),
        kernel_(attention_micro_kernel<T>()),
        packer_(call.query.dtype),
        depth_(call.depth()),
        width_(call.width()),
        query_(rows * depth_),
        sums_(rows * width_),
        keys_(packer_.panels(kKeys) * packer_.panel_width() * depth_),
        values_(packer_.panels(width_) * packer_.panel_width() * kKeys),
        scores_(kernel_.rows * kStride),
        maximum_(rows),
        totals_(rows * kLanes) {}

  // Queries [first, first + count) of one head of the batch.
  void run(int64_t batch, int64_t head, int64_t first, int64_t count) {
    const Head query(call_.query, batch, head), key(call_.key, batch, head / call_.group()),
        value(call_.value, batch, head / call_.group());
    const HeadMask mask(call_.mask, batch, head);
    packer_.rows(query, first, count, depth_, query_.data(), depth_);
    scale_run(query_.data(), count * depth_, static_cast<T>(call_.scale * kLog2E));
    std::fill_n(maximum_.data(), count, -std::numeric_limits<T>::infinity());
    std::fill_n(totals_.data(), count * kLanes, T(0));
    const int64_t source = call_.is_causal ? std::min(call_.source(), first + count) : call_.source();
    for (int64_t begin = 0; begin < source; begin += kKeys) {
      const int64_t keys = std::min(kKeys, source - begin);
      packer_.panels_of_rows(key, begin, keys, depth_, keys_.data());
      packer_.panels_of_columns(value, begin, keys, width_, values_.data());
      for (int64_t r = 0; r < count; r += kernel_.rows) {
        fetch_ahead(key, value, begin + kKeys, std::min(source, begin + 2 * kKeys), r, count);
        const int64_t rows = std::min<int64_t>(kernel_.rows, count - r);
        const int64_t seen = call_.is_causal ? std::min(keys, first + r + rows - begin) : keys;
        if (seen > 0) add_tile(mask, first, r, rows, begin, keys, seen);
      }
    }
    write(batch, head, first, count);
  }

 private:
  static constexpr int64_t kStride = kKeys + 16;  // rows of scores start in different cache sets
  static constexpr int64_t kMostRows = 32;        // no kernel has taller tiles
  static constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());

  // Brings part of the keys and values [begin, end) nearer, so that packing them does not wait for memory: the part
  // that falls to the rows from r of `count`.
  void fetch_ahead(const Head& key, const Head& value, int64_t begin, int64_t end, int64_t r, int64_t count) const {
    if (begin >= end) return;
    const int64_t from = begin + (end - begin) * r / count;
    const int64_t to = begin + (end - begin) * std::min<int64_t>(r + kernel_.rows, count) / count;
    for (int64_t i = from; i < to; ++i) {
      for (int64_t at = 0; at < depth_ * key.element_size; at += 64) __builtin_prefetch(key.row(i) + at, 0, 2);
      for (int64_t at = 0; at < width_ * value.element_size; at += 64) __builtin_prefetch(value.row(i) + at, 0, 2);
    }
  }

  // Adds what `seen` keys from `begin` contribute to `rows` queries from r.
  void add_tile(const HeadMask& mask, int64_t first, int64_t r, int64_t rows, int64_t begin, int64_t keys,
                int64_t seen) {
    MicroTile tile{};
    tile.rows = static_cast<int>(rows);
    tile.a = query_.data() + r * depth_;
    tile.a_row_stride = depth_;
    tile.a_k_stride = 1;
    tile.b_k_stride = packer_.panel_width();
    tile.c_row_stride = kStride;
    tile.k = depth_;
    tile.store = Store::Overwrite;
    for (int64_t c = 0; c < seen; c += kernel_.cols) {
      tile.cols = static_cast<int>(std::min<int64_t>(kernel_.cols, keys - c));
      tile.b = keys_.data() + c * depth_;
      tile.c = scores_.data() + c;
      kernel_.run(tile);
    }
    // All maxima first: their latencies then hide behind one another.
    T now[kMostRows];
    int64_t counts[kMostRows];
    for (int64_t i = 0; i < rows; ++i) {
      T* row = scores_.data() + i * kStride;
      counts[i] = call_.is_causal ? std::clamp<int64_t>(first + r + i + 1 - begin, 0, seen) : seen;
      if (mask) mask.add_to(row, first + r + i, begin, counts[i]);
      now[i] = std::max(maximum_[r + i], largest(row, counts[i]));
    }
    for (int64_t i = 0; i < rows; ++i) exponentiate(scores_.data() + i * kStride, r + i, counts[i], seen, now[i]);
    tile.a = scores_.data();
    tile.a_row_stride = kStride;
    tile.c_row_stride = width_;
    tile.k = seen;
    tile.store = begin == 0 ? Store::Overwrite : Store::Accumulate;
    for (int64_t c = 0; c < width_; c += kernel_.cols) {
      tile.cols = static_cast<int>(std::min<int64_t>(kernel_.cols, width_ - c));
      tile.b = values_.data() + c * keys;
      tile.c = sums_.data() + r * width_ + c;
      kernel_.run(tile);
    }
  }

  // Turns a row of scores into weights relative to `now`, the largest score so far, and brings what was summed to it.
  void exponentiate(T* row, int64_t r, int64_t n, int64_t end, T now) {
    const hn::ScalableTag<T> d;
    const T before = maximum_[r];
    T* totals = totals_.data() + r * kLanes;
    if (now == -std::numeric_limits<T>::infinity()) {  // nothing seen yet (or NaN, which the powers below keep)
      hn::Store(hn::Add(hn::Load(d, totals), powers_and_sums(row, n, end, T(0))), d, totals);
      return;
    }
    auto sums = powers_and_sums(row, n, end, now);
    if (now != before) {
      const T factor = std::exp2(before - now);
      if (before != -std::numeric_limits<T>::infinity()) scale_run(sums_.data() + r * width_, width_, factor);
      hn::Store(hn::Mul(hn::Load(d, totals), hn::Set(d, factor)), d, totals);
      maximum_[r] = now;
    }
    hn::Store(hn::Add(hn::Load(d, totals), sums), d, totals);
  }

  void write(int64_t batch, int64_t head, int64_t first, int64_t count) {
    const Head out(call_.out, batch, head);
    T* logs = call_.logsumexp.ptr<T>() + (batch * call_.heads() + head) * call_.length();
    for (int64_t r = 0; r < count; ++r) {
      const hn::ScalableTag<T> d;
      const T total = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, totals_.data() + r * kLanes)));
      logs[first + r] = static_cast<T>((maximum_[r] + std::log2(total)) * kLn2);
      write_row(sums_.data() + r * width_, width_, total == T(0) ? T(0) : T(1) / total, call_.out.dtype,
                out.row(first + r));
    }
  }

  const ForwardCall& call_;
  const gemm_impl::MicroKernel& kernel_;
  Packer<T> packer_;
  int64_t depth_, width_;
  Scratch<T> query_, sums_, keys_, values_, scores_, maximum_, totals_;
};

// Queries of a head that one task takes: all, unless heads are too few to keep the threads busy.
template <class T>
int64_t rows_per_task(const ForwardCall& call) {
  const int64_t heads = call.query.size(0) * call.heads(), rows = attention_micro_kernel<T>().rows;
  const int64_t fewest = 8 * rows;  // or packing the keys anew for every task would show
  const int64_t most = 128 * rows;  // bounds the work space
  const int64_t tasks = 4 * get_num_threads();
  const int64_t wanted = heads >= tasks ? call.length() : call.length() * heads / tasks;
  return std::min(call.length(), (std::clamp(wanted, fewest, most) + rows - 1) / rows * rows);
}

template <class T>
void run_forward(const ForwardCall& call) {
  const int64_t rows = rows_per_task<T>(call), runs = (call.length() + rows - 1) / rows;
  const int64_t tasks = call.query.size(0) * call.heads() * runs;
  share_tasks(tasks, 2 * score_cost(call.query, call.key), [&] {
    auto worker = std::make_unique<ForwardWorker<T>>(call, rows);
    return [&call, rows, runs, worker = std::move(worker)](int64_t task) {
      const int64_t head = task / runs,
                    first = (runs - 1 - task % runs) * rows;  // under a causal mask the last are longest
      worker->run(head / call.heads(), head % call.heads(), first, std::min(rows, call.length() - first));
    };
  });
}

void attention_forward_kernel(const TensorView& out, const TensorView& logsumexp, const TensorView& query,
                              const TensorView& key, const TensorView& value, const TensorView& mask, bool is_causal,
                              double scale) {
  const ForwardCall call{out, logsumexp, query, key, value, mask, is_causal, scale};
  if (query.dtype == DType::Float64) {
    run_forward<double>(call);
  } else {
    run_forward<float>(call);
  }
}

}  // namespace
}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(attention_forward_kernel);
MICA_REGISTER_SIMD(attention_forward, attention_forward_kernel);
}  // namespace mica::cpu
#endif
