// Attention by tiles of scores, with running maxima and sums.
#include <algorithm>
#include <cmath>
#include <memory>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/attention/forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/attention/forward_tiles-inl.h"
#include "backends/cpu/simd/log-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace {

struct ForwardCall : CallSizes<ForwardCall> {
  const TensorView &out, &logsumexp, &query, &key, &value, &mask;
  bool is_causal;
  double scale;
};

// A thread's work on one run of queries of one head after another.
template <class Tiles>
class ForwardWorker {
 public:
  using T = typename Tiles::Element;

  ForwardWorker(const ForwardCall& call, int64_t rows)
      : call_(call),
        depth_(call.depth()),
        width_(call.width()),
        tiles_(call.query.dtype, depth_, width_, rows),
        maximum_(rows),
        totals_(rows * kLanes) {}

  // Queries [first, first + count) of one head of the batch; false if the tiles could not take some input. `next`: the
  // number of a head of the batch that this thread may take next, or -1.
  bool run(int64_t batch, int64_t head, int64_t first, int64_t count, int64_t next) {
    const Head query(call_.query, batch, head), key(call_.key, batch, head / call_.group()),
        value(call_.value, batch, head / call_.group());
    const HeadMask mask(call_.mask, batch, head);
    tiles_.read_queries(query, first, count, static_cast<T>(call_.scale * kLog2E));
    bool small = !mask;  // whether no score has needed a shift so far
    std::fill_n(totals_.data(), count * kLanes, T(0));
    const int64_t source = call_.is_causal ? std::min(call_.source(), first + count) : call_.source();
    for (int64_t begin = 0; begin < source; begin += Tiles::kKeys) {
      const int64_t keys = std::min(Tiles::kKeys, source - begin);
      tiles_.read_keys(key, value, begin, keys);
      if constexpr (kKnowsSmall) {
        small = small && tiles_.scores_are_small();
      } else {
        small = false;
      }
      // The first keys of the next head are fetched beside the last long block, a short one has no time for them.
      const int64_t later = source - begin - keys;
      const bool fetches_next = next >= 0 && later < Tiles::kKeys / 2 && (begin == 0 || keys >= Tiles::kKeys / 2);
      // Without shifts, sums are relative to 2^0, so that a later shift can begin there.
      if (begin == 0) std::fill_n(maximum_.data(), count, small ? T(0) : -std::numeric_limits<T>::infinity());
      for (int64_t r = 0; r < count; r += Tiles::rows()) {
        fetch_ahead(key, value, begin + keys, std::min(source, begin + 2 * Tiles::kKeys), r, count);
        if (fetches_next) fetch_first_keys(next, r, count);
        const int64_t rows = std::min<int64_t>(Tiles::rows(), count - r);
        const int64_t seen = call_.is_causal ? std::min(keys, first + r + rows - begin) : keys;
        if (seen <= 0) continue;
        // Queries that have seen all their keys are written at once, while the next tile is computed.
        const bool ends = begin + keys == source || (call_.is_causal && first + r + rows <= begin + keys);
        if (ends) fetch_rows<1>(Head(call_.out, batch, head), width_, first + r, first + r + rows);
        add_tile(mask, first, r, rows, begin, seen, small);
        if (ends) write(batch, head, first, r, rows);
      }
    }
    if (source == 0) write(batch, head, first, 0, count);
    return tiles_.fits();
  }

 private:
  static constexpr int64_t kMostRows = 32;  // no kernel has taller tiles
  static constexpr bool kKnowsSmall = requires(const Tiles& tiles) { tiles.scores_are_small(); };
  static constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());

  // Prefetches part of the keys and values [begin, end), so that packing them does not wait for memory: the part that
  // belongs to the rows from r of `count`.
  void fetch_ahead(const Head& key, const Head& value, int64_t begin, int64_t end, int64_t r, int64_t count) const {
    if (begin >= end) return;
    const int64_t from = begin + (end - begin) * r / count;
    const int64_t to = begin + (end - begin) * std::min<int64_t>(r + Tiles::rows(), count) / count;
    fetch_rows<0>(key, depth_, from, to);
    fetch_rows<0>(value, width_, from, to);
  }
  void fetch_first_keys(int64_t head_of_batch, int64_t r, int64_t count) const {
    const int64_t batch = head_of_batch / call_.heads(), head = head_of_batch % call_.heads() / call_.group();
    fetch_ahead(Head(call_.key, batch, head), Head(call_.value, batch, head), 0, std::min(Tiles::kKeys, call_.source()),
                r, count);
  }
  // Prefetches into the second cache; kWrite says that the line will be written.
  template <int kWrite>
  static void fetch_rows(const Head& head, int64_t columns, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t at = 0; at < columns * head.element_size; at += 64) __builtin_prefetch(head.row(i) + at, kWrite, 2);
    }
  }

  // Adds the contribution of `seen` keys from `begin` on to `rows` queries from r on.
  void add_tile(const HeadMask& mask, int64_t first, int64_t r, int64_t rows, int64_t begin, int64_t seen, bool small) {
    tiles_.score(r, rows, seen);
    if constexpr (kKnowsSmall) {
      if (small) {
        T* totals = totals_.data() + r * kLanes;
        bool turned = false;
        if (!call_.is_causal || first + r + 1 - begin >= seen) {  // every query sees all of these keys
          turned = tiles_.weigh_all_small(rows, seen, totals);
        } else {
          turned = tiles_.weigh_steps_small(rows, first + r + 1 - begin, seen, totals);
        }
        tiles_.add_values(r, rows, seen, begin == 0, turned);
        return;
      }
    }
    // All maxima first: their latencies then hide behind one another.
    T now[kMostRows];
    int64_t counts[kMostRows];
    for (int64_t i = 0; i < rows; ++i) {
      T* row = tiles_.scores(i);
      counts[i] = call_.is_causal ? std::clamp<int64_t>(first + r + i + 1 - begin, 0, seen) : seen;
      if (mask) mask.add_to(row, first + r + i, begin, counts[i]);
      now[i] = std::max(maximum_[r + i], largest(row, counts[i]));
    }
    for (int64_t i = 0; i < rows; ++i) exponentiate(i, r + i, counts[i], seen, now[i]);
    tiles_.add_values(r, rows, seen, begin == 0);
  }

  // Turns row i of the scores into the weights of query r relative to `now`, the largest score so far, and rescales its
  // sums to that.
  void exponentiate(int64_t i, int64_t r, int64_t n, int64_t seen, T now) {
    const hn::ScalableTag<T> d;
    const T before = maximum_[r];
    T* totals = totals_.data() + r * kLanes;
    if (now == -std::numeric_limits<T>::infinity()) {  // nothing seen yet (or NaN, which the powers below keep)
      hn::Store(hn::Add(hn::Load(d, totals), tiles_.weigh(i, n, seen, T(0))), d, totals);
      return;
    }
    const auto sums = tiles_.weigh(i, n, seen, now);
    if (now != before) {
      const T factor = std::exp2(before - now);
      if (before != -std::numeric_limits<T>::infinity()) scale_run(tiles_.sums(r), width_, factor);
      hn::Store(hn::Mul(hn::Load(d, totals), hn::Set(d, factor)), d, totals);
      maximum_[r] = now;
    }
    hn::Store(hn::Add(hn::Load(d, totals), sums), d, totals);
  }

  // Writes the results of `count` queries from `start` on, in the run that begins with `first`.
  void write(int64_t batch, int64_t head, int64_t first, int64_t start, int64_t count) {
    const Head out(call_.out, batch, head);
    T* logs = call_.logsumexp.ptr<T>() + (batch * call_.heads() + head) * call_.length();
    const hn::ScalableTag<T> d;
    for (int64_t r = start; r < start + count; r += kLanes) {
      const int64_t rows = std::min(kLanes, start + count - r);
      HWY_ALIGN T total[kLanes] = {};
      for (int64_t i = 0; i < rows; ++i)
        total[i] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, totals_.data() + (r + i) * kLanes)));
      // Read before the rows are written: a vector load of single numbers waits until all earlier stores have left.
      HWY_ALIGN T log[kLanes];
      hn::Store(log2(d, hn::Load(d, total)), d, log);
      for (int64_t i = 0; i < rows; ++i) {
        logs[first + r + i] = static_cast<T>((maximum_[r + i] + log[i]) * kLn2);
        const T factor = total[i] == T(0) ? T(0) : T(1) / total[i];
        write_row(tiles_.sums(r + i), width_, factor, call_.out.dtype, out.row(first + r + i));
      }
    }
  }

  const ForwardCall& call_;
  int64_t depth_, width_;
  Tiles tiles_;
  Scratch<T> maximum_, totals_;
};

// How many queries of a head one task takes: all, unless there are too few heads to keep the threads busy.
int64_t rows_per_task(const ForwardCall& call, int64_t tile_rows) {
  const int64_t heads = call.query.size(0) * call.heads(), tasks = 4 * get_num_threads();
  const int64_t fewest = 8 * tile_rows;  // with fewer, packing the keys anew for every task would take noticeable time
  const int64_t most = std::max<int64_t>(fewest, 2048);  // bounds the work space
  const int64_t wanted = heads >= tasks ? call.length() : call.length() * heads / tasks;
  return std::min(call.length(), (std::clamp(wanted, fewest, most) + tile_rows - 1) / tile_rows * tile_rows);
}

template <class Tiles>
bool run_forward(const ForwardCall& call) {
  const int64_t rows = rows_per_task(call, Tiles::rows()), runs = (call.length() + rows - 1) / rows;
  const int64_t heads = call.query.size(0) * call.heads(), tasks = heads * runs, threads = get_num_threads();
  std::atomic<bool> complete{true};
  share_tasks(tasks, 2 * score_cost(call.query, call.key), [&] {
    auto worker = std::make_unique<ForwardWorker<Tiles>>(call, rows);
    return [&, worker = std::move(worker)](int64_t task) {
      const int64_t head = task / runs;
      const int64_t first = (runs - 1 - task % runs) * rows;  // under a causal mask the last are longest
      const int64_t later = (task + threads) / runs;          // the head of the thread's next task, if all take turns
      const int64_t next = later != head && later < heads ? later : -1;
      if (!worker->run(head / call.heads(), head % call.heads(), first, std::min(rows, call.length() - first), next))
        complete = false;
    };
  });
  return complete;
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
template <int64_t kLeft, int64_t kRight>
bool run_split(const ForwardCall& call) {
  using Tiles = SplitTiles<kLeft, kRight>;
  return Tiles::suit(call.length(), call.source(), call.depth(), call.width()) && has_split_tiles() &&
         run_forward<Tiles>(call);
}
#endif

void attention_forward_kernel(const TensorView& out, const TensorView& logsumexp, const TensorView& query,
                              const TensorView& key, const TensorView& value, const TensorView& mask, bool is_causal,
                              double scale) {
  const ForwardCall call{{}, out, logsumexp, query, key, value, mask, is_causal, scale};
  const bool wide = query.dtype == DType::Float64;
  if (call.length() <= InPlaceTiles<float>::kMostQueries) {
    wide ? run_forward<InPlaceTiles<double>>(call) : run_forward<InPlaceTiles<float>>(call);
    return;
  }
  if (wide) {
    run_forward<VectorTiles<double>>(call);
    return;
  }
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if (query.dtype == DType::BFloat16 ? run_split<2, 1>(call) : run_split<3, 3>(call)) return;
#endif
  run_forward<VectorTiles<float>>(call);
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
