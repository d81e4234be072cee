// The products of attention's forward pass by the kernels of matrix products.

#if defined(MICA_CPU_ATTENTION_VECTOR_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_ATTENTION_VECTOR_TILES_INL_H_
#undef MICA_CPU_ATTENTION_VECTOR_TILES_INL_H_
#else
#define MICA_CPU_ATTENTION_VECTOR_TILES_INL_H_
#endif

#include "backends/cpu/attention/operands.h"
#include "backends/cpu/attention/scores-inl.h"
#include "backends/cpu/gemm/across.h"
#include "backends/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace {

template <class T>
class VectorTiles {
 public:
  using Element = T;
  // Keys whose scores are held at a time, a multiple of the panels' width.
  static constexpr int64_t kKeys = (HWY_ARCH_ARM_A64 ? 504 : 256) / (sizeof(T) / 4);

  VectorTiles(DType dtype, int64_t depth, int64_t width, int64_t queries)
      : kernel_(attention_micro_kernel<T>()),
        packer_(dtype),
        depth_(depth),
        width_(width),
        query_((queries + kernel_.rows - 1) / kernel_.rows * kernel_.rows * depth),
        sums_(queries * width),
        keys_(packer_.panels(kKeys) * packer_.panel_width() * depth),
        values_(packer_.panels(width) * packer_.panel_width() * kKeys),
        scores_(kernel_.rows * kStride),
        weights_(kernel_.packs_rows_adjacent ? kernel_.rows * kKeys : 0) {}

  bool fits() const { return true; }
  static int64_t rows() { return attention_micro_kernel<T>().rows; }  // queries of a tile
  T* scores(int64_t i) const { return scores_.data() + i * kStride; }
  T* sums(int64_t r) const { return sums_.data() + r * width_; }

  void read_queries(const Head& query, int64_t first, int64_t count, T factor) {
    factor_ = factor;
    longest_query_ = 0;
    if (kernel_.packs_rows_adjacent) {
      for (int64_t r = 0; r < count; r += kernel_.rows) {
        const int64_t rows = std::min<int64_t>(kernel_.rows, count - r);
        packer_.transposed_rows(query, first + r, rows, depth_, query_.data() + r * depth_, kernel_.rows);
      }
      scale_run(query_.data(), (count + kernel_.rows - 1) / kernel_.rows * kernel_.rows * depth_, factor);
      for (int64_t r = 0; r < count; r += kernel_.rows) {
        const int64_t rows = std::min<int64_t>(kernel_.rows, count - r);
        keep_largest(longest_query_, largest_column<true>(query_.data() + r * depth_, rows, depth_, kernel_.rows));
      }
      return;
    }
    // Short rows are used where they lie. The keys are scaled in their place.
    if (is_near(query)) {
      queries_ = {reinterpret_cast<const T*>(query.row(first)), query.row_stride};
    } else {
      packer_.rows(query, first, count, depth_, query_.data(), depth_);
      queries_ = {query_.data(), depth_};
    }
    for (int64_t i = 0; i < count; ++i) keep_largest(longest_query_, dot_run(queries_.row(i), queries_.row(i), depth_));
  }
  void read_keys(const Head& key, const Head& value, int64_t begin, int64_t count) {
    packer_.panels_of_rows(key, begin, count, depth_, keys_.data());
    if (!kernel_.packs_rows_adjacent)
      scale_run(keys_.data(), packer_.panels(count) * packer_.panel_width() * depth_, factor_);
    count_ = count;
    // Short rows that are whole panels are used as panels.
    if (is_near(value) && width_ % packer_.panel_width() == 0) {
      value_ = {reinterpret_cast<const T*>(value.row(begin)), value.row_stride};
    } else {
      value_ = {values_.data(), 0};
      for (int64_t c = 0, columns = 0; c < width_; c += columns) {
        columns = value_columns(c);
        packer_.columns(value, begin, count, c, std::min(columns, width_ - c), values_.data() + c * count, columns);
      }
    }
  }

  // Whether all scores of the queries with these keys are so near zero that their powers need no shift. The lengths of
  // the vectors tell that; the sums of values must be in range too.
  bool scores_are_small() const {
    const int64_t panel = packer_.panel_width();
    T longest_key = 0, most_of_values = 0;
    for (int64_t c = 0; c < count_; c += panel)
      keep_largest(longest_key,
                   largest_column<true>(keys_.data() + c * depth_, std::min(panel, count_ - c), depth_, panel));
    if (!(longest_query_ * longest_key <= kSmallScore * kSmallScore)) return false;
    for (int64_t c = 0, columns = 0; c < width_; c += columns) {
      columns = value_columns(c);
      keep_largest(most_of_values,
                   largest_column<false>(values_from(c), std::min(columns, width_ - c), count_, value_step(columns)));
    }
    return most_of_values <= T(0x1p90);
  }

  // The scores of `rows` queries from r with at least the first `seen` keys.
  void score(int64_t r, int64_t rows, int64_t seen) const {
    const T* queries = kernel_.packs_rows_adjacent ? query_.data() + r * depth_ : queries_.row(r);
    gemm_impl::MicroTile tile = tile_of(rows, queries, queries_.row_step, depth_);
    tile.c_row_stride = kStride;
    tile.c_near = true;
    tile.b_k_stride = packer_.panel_width();
    tile.store = gemm_impl::Store::Overwrite;
    int64_t c = 0;
    if (const gemm_impl::AcrossFn run_across = across(); run_across && rows == kernel_.rows) {
      const int64_t whole = seen / kernel_.cols;
      tile.b = keys_.data();
      tile.c = scores_.data();
      if (whole > 0) run_across(tile, whole);
      c = whole * kernel_.cols;
    }
    for (; c < seen; c += kernel_.cols) {
      const int64_t wanted = (seen - c + kNarrowest - 1) / kNarrowest * kNarrowest;
      tile.cols = static_cast<int>(std::min<int64_t>({kernel_.cols, wanted, count_ - c}));
      tile.b = keys_.data() + c * depth_;
      tile.next_b = c + kernel_.cols < seen ? keys_.data() + (c + kernel_.cols) * depth_ : value_.data;
      tile.c = scores_.data() + c;
      kernel_.run(tile);
    }
  }
  // Turns the first n scores of row i into weights, 2^(score - shift), with zeros up to `seen`; returns their sums by
  // lanes.
  hn::VFromD<hn::ScalableTag<T>> weigh(int64_t i, int64_t n, int64_t seen, T shift) const {
    return powers_and_sums(scores(i), n, seen, shift);
  }
  // The same without a shift, where scores_are_small().
  hn::VFromD<hn::ScalableTag<T>> weigh_small(int64_t i, int64_t n, int64_t seen) const {
    return powers_and_sums<true>(scores(i), n, seen, T(0));
  }
  // The same for all rows of a tile, each of which sees `seen` keys. Adds their sums to `totals`, a vector for each
  // row. Returns true if the weights were written directly where add_values() would bring them.
  bool weigh_all_small(int64_t rows, int64_t seen, T* totals) const {
    const hn::ScalableTag<T> d;
    constexpr int64_t kLanes = hn::MaxLanes(d);
    if constexpr (kTurns) {
      if (kernel_.packs_rows_adjacent && rows % 4 == 0 && seen % 4 == 0) {
        for (int64_t r = 0; r < rows; r += 4)
          turned_powers<false>(scores(r), kStride, 0, seen, seen, seen, weights_.data() + r, kernel_.rows,
                               totals + r * kLanes);
        return true;
      }
    }
    for (int64_t i = 0; i < rows; ++i)
      hn::Store(hn::Add(hn::Load(d, totals + i * kLanes), weigh_small(i, seen, seen)), d, totals + i * kLanes);
    return false;
  }
  // The same where row i sees `first + i` keys of `seen`, or none, or all.
  bool weigh_steps_small(int64_t rows, int64_t first, int64_t seen, T* totals) const {
    const hn::ScalableTag<T> d;
    constexpr int64_t kLanes = hn::MaxLanes(d);
    if constexpr (kTurns) {
      if (kernel_.packs_rows_adjacent && rows % 4 == 0) {
        const int64_t end = (seen + 3) / 4 * 4;  // scores and weights have room for the keys beyond those seen
        for (int64_t r = 0; r < rows; r += 4) {
          const int64_t whole = std::clamp<int64_t>(first + r, 0, seen) / 4 * 4;
          T* const to = weights_.data() + r;
          T* const sums = totals + r * kLanes;
          turned_powers<false>(scores(r), kStride, 0, whole, whole, whole, to, kernel_.rows, sums);
          turned_powers<true>(scores(r), kStride, whole, end, first + r, seen, to, kernel_.rows, sums);
        }
        return true;
      }
    }
    const int64_t whole = std::clamp<int64_t>(first, 0, seen) / (2 * kLanes) * (2 * kLanes);
    for (int64_t i = 0; i < rows; ++i, totals += kLanes) {
      const auto sums = MICA_SIMD_AVX512 ? powers_and_sums_to_end(scores(i), whole, std::min(first + i, seen), seen)
                                         : weigh_small(i, std::clamp<int64_t>(first + i, 0, seen), seen);
      hn::Store(hn::Add(hn::Load(d, totals), sums), d, totals);
    }
    return false;
  }
  // Adds the weighted values of `seen` keys.
  void add_values(int64_t r, int64_t rows, int64_t seen, bool first, bool turned = false) const {
    const T* weights = scores_.data();
    if (kernel_.packs_rows_adjacent) {
      if (!turned) turn_(weights, weights_.data(), {rows, seen, kStride, 1, 1, kernel_.rows});
      weights = weights_.data();
    }
    gemm_impl::MicroTile tile = tile_of(rows, weights, kStride, seen);
    tile.c_row_stride = width_;
    tile.store = first ? gemm_impl::Store::Overwrite : gemm_impl::Store::Accumulate;
    for (int64_t c = 0, columns = 0; c < width_; c += columns) {
      columns = value_columns(c);
      tile.cols = static_cast<int>(std::min(columns, width_ - c));
      tile.b = values_from(c);
      tile.b_k_stride = value_step(columns);
      tile.next_b = c + columns < width_ ? values_from(c + columns) : keys_.data();
      tile.c = sums(r) + c;
      kernel_.run(tile);
    }
  }

 private:
  static constexpr int64_t kStride = kKeys + 16;  // rows of scores start in different cache sets
  static constexpr int64_t kNearRowBytes = 512;
  // Columns by which a tile may be narrower and take less time. x86-64 knows whole tiles only: there they are in
  // assembly, and others are not.
  static constexpr int64_t kNarrowest = (HWY_ARCH_ARM_A64 ? 1 : 2) * hn::MaxLanes(hn::ScalableTag<T>());
  // Whether weights are transposed in registers on their way to the rows of a tile.
  static constexpr bool kTurns = hn::MaxLanes(hn::ScalableTag<T>()) == 4 && sizeof(T) == 4;
  static constexpr T kSmallScore = 24;  // in units of log 2: sums stay below 2^90 times the values

  // The columns of values from c that a tile takes. A last tile of one vector has too few sums to keep the units busy:
  // where that would be left over, two tiles of two vectors take the place of the last three vectors and of it.
  int64_t value_columns(int64_t c) const {
    const int64_t whole = packer_.panel_width(), rest = width_ - c;
    return whole == 3 * kNarrowest && (rest == 4 * kNarrowest || rest == 2 * kNarrowest) ? 2 * kNarrowest : whole;
  }
  // The values from column c on: a panel of the columns that a tile takes, or rows where they lie.
  const T* values_from(int64_t c) const { return value_.data + c * (value_.row_step ? 1 : count_); }
  int64_t value_step(int64_t columns) const { return value_.row_step ? value_.row_step : columns; }

  // Rows of queries or values where they lie. Without a step, values are in panels.
  struct Rows {
    const T* data = nullptr;
    int64_t row_step = 0;

    const T* row(int64_t r) const { return data + r * row_step; }
  };
  static bool is_near(const Head& head) {
    const int64_t row_bytes = std::abs(head.row_stride) * static_cast<int64_t>(sizeof(T));
    return head.element_size == sizeof(T) && row_bytes <= kNearRowBytes;
  }

  static gemm_impl::AcrossFn across() {
    if constexpr (sizeof(T) == sizeof(float)) return gemm_impl::float_across();
    return nullptr;
  }

  // A NaN stays.
  static void keep_largest(T& largest, T x) {
    if (x > largest || x != x) largest = x;
  }

  gemm_impl::MicroTile tile_of(int64_t rows, const T* a, int64_t a_row_stride, int64_t k) const {
    gemm_impl::MicroTile tile{};
    tile.rows = static_cast<int>(rows);
    tile.a = a;
    tile.a_row_stride = kernel_.packs_rows_adjacent ? 1 : a_row_stride;
    tile.a_k_stride = kernel_.packs_rows_adjacent ? kernel_.rows : 1;
    tile.a_padded = tile.b_padded = true;
    tile.k = k;
    return tile;
  }

  const gemm_impl::MicroKernel& kernel_;
  Packer<T> packer_;
  gemm_impl::CopyFn turn_ = gemm_impl::copy_to_sums(dtype_v<T>);
  int64_t depth_, width_, count_ = 0;
  T longest_query_ = 0;  // the squared length
  Rows queries_, value_;
  T factor_ = 1;  // the factor of all scores
  Scratch<T> query_, sums_, keys_, values_, scores_;
  Scratch<T> weights_;  // the scores with rows adjacent, where the kernel wants that
};

}  // namespace
}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_ATTENTION_VECTOR_TILES_INL_H_
