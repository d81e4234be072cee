// Fewer numbers, or smaller ones: dense against COO and CSR, and quantization.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "instruments.h"
#include "mica/layers.h"

namespace mica::lab {

namespace {

using Clock = std::chrono::steady_clock;

// A browser's clock goes in steps of up to 0.1 ms: what is shorter than a few of them is done several times for one
// look at it.
constexpr double kLeastMeasured = 5e-4;

template <class Work>
double least_of_three(Work work) {
  work();  // memory is touched, threads are awake
  double best = INFINITY;
  for (int i = 0, times = 1; i < 3;) {
    const auto begin = Clock::now();
    for (int k = 0; k < times; ++k) work();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (seconds < kLeastMeasured && times < 4096) {
      times *= 4;
      continue;
    }
    best = std::min(best, seconds / times);
    ++i;
  }
  return best;
}

// How many numbers a layout keeps, and how many bytes each of its indices takes.
struct SparseLayout {
  const char* name;
  double per_nonzero, per_row;  // numbers that are indices
  double index_bytes;
  const char* formula;
};
constexpr SparseLayout kSparseLayouts[] = {
    {"COO", 2, 0, 8, "3 \u00d7 nnz numbers: row, column, value"},
    {"CSR", 1, 1, 8, "2 \u00d7 nnz + rows + 1 numbers: column, value; row starts"},
    {"CSR, int32 indices", 1, 1, 4, "the same, with indices of 4 bytes"}};

// Exactly where a layout of float32 becomes smaller than the dense matrix: bytes are a straight line in the number of
// nonzeros.
Json sparse_layouts(int64_t n) {
  Json list = Json::array();
  const double rows = static_cast<double>(n), dense = 4 * rows * rows;
  for (const SparseLayout& l : kSparseLayouts) {
    const double fixed = l.per_row > 0 ? (rows + 1) * l.index_bytes : 0, each = l.per_nonzero * l.index_bytes + 4;
    list.push_back({{"name", l.name},
                    {"formula", l.formula},
                    {"bytes_full", fixed + each * rows * rows},
                    {"bytes_empty", fixed},
                    {"crossover", 1 - (dense - fixed) / each / (rows * rows)}});
  }
  return list;
}

}  // namespace

Json sparse(const Json& question) {
  NoGradGuard below;
  const auto n = question.value("n", int64_t{256}), width = question.value("columns", int64_t{32});
  MICA_CHECK(n >= 8 && n <= 1024 && width >= 1 && width <= 256, "a matrix of 8 to 1024 rows, times 1 to 256 columns");
  if (question.value("layouts", false)) return {{"n", n}, {"layouts", sparse_layouts(n)}, {"dense_bytes", 4 * n * n}};
  std::lock_guard lock(measuring);
  const Tensor weight = mica::rand({n, n}, Generator(0)), right = mica::randn({n, width}, Generator(1));
  // All rows, or the one that is asked for: the page draws each as it comes.
  static constexpr double kSparsities[] = {0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99};
  constexpr auto kCount = static_cast<int64_t>(std::size(kSparsities));
  const auto one = question.value("row", int64_t{-1});
  MICA_CHECK(one >= -1 && one < kCount, "there are ", kCount, " rows, from 0 on");
  Json rows = Json::array();
  for (int64_t row = std::max<int64_t>(one, 0); row < (one < 0 ? kCount : one + 1); ++row) {
    const double sparsity = kSparsities[row];
    const Tensor dense = mica::where(weight.ge(sparsity), weight, Scalar(0.0));
    const Tensor coo = mica::to_sparse(dense, 2), csr = mica::to_sparse_csr(dense);
    const Tensor out = mica::empty({n, width});
    Tensor by_coordinates, by_rows;
    const double dense_time = least_of_three([&] { mica::matmul_out(out, dense, right); });
    const double coo_time = least_of_three([&] { by_coordinates = mica::_sparse_mm(coo, right); });
    const double csr_time = least_of_three([&] { by_rows = mica::_sparse_mm(csr, right); });
    const double error =
        std::max(by_rows.sub(out).abs().max().item<double>(), by_coordinates.sub(out).abs().max().item<double>());
    const Tensor indices = mica::_indices(coo), numbers = mica::_values(coo);
    const int64_t csr_bytes =
        mica::crow_indices(csr).nbytes() + mica::col_indices(csr).nbytes() + csr.values().nbytes();
    rows.push_back({{"sparsity", sparsity},
                    {"nonzero", numbers.numel()},
                    {"dense_bytes", dense.nbytes()},
                    {"coo_bytes", indices.nbytes() + numbers.nbytes()},
                    {"csr_bytes", csr_bytes},
                    {"dense_time", dense_time},
                    {"coo_time", coo_time},
                    {"csr_time", csr_time},
                    {"difference", number(error)}});
  }
  return {{"n", n}, {"columns", width}, {"rows", rows}, {"count", kCount}};
}

Json quantize(const Json& question) {
  NoGradGuard below;
  const auto bits = question.value("bits", int64_t{8});
  MICA_CHECK(bits >= 2 && bits <= 8, "the integers have 2 to 8 bits here, not ", bits);
  const double outlier = question.value("outlier", 0.0);
  MICA_CHECK(std::isfinite(outlier), "the outlier is a finite number");
  const bool symmetric = question.value("symmetric", false);
  Tensor x = mica::randn({4096}, Generator(0));
  if (outlier != 0) x.select(0, 0).fill_(outlier);
  const double levels = static_cast<double>((int64_t{1} << bits) - 1);
  const double low = x.min().item<double>(), high = x.max().item<double>();
  double scale, zero;
  if (symmetric) {
    scale = 2 * std::max(std::abs(low), std::abs(high)) / levels;
    zero = std::floor((levels + 1) / 2);
  } else {
    scale = (high - low) / levels;
    zero = std::round(-low / scale);
  }
  // Eight bits are a quantized tensor of the engine's; fewer are the same arithmetic with fewer levels.
  Tensor q, back;
  if (bits == 8) {
    const Tensor quantized = mica::quantize_per_tensor(x, scale, static_cast<int64_t>(zero), DType::UInt8);
    q = mica::int_repr(quantized);
    back = mica::dequantize(quantized);
  } else {
    q = x.div(scale).add(zero).round().clamp(Scalar(0), Scalar(levels)).to(DType::UInt8);
    back = q.to(DType::Float32).sub(zero).mul(scale);
  }
  const Tensor error = back.sub(x);
  Json levels_hit = Json::array();
  const Tensor hits = mica::histc(q.to(DType::Float32), static_cast<int64_t>(levels) + 1, 0, levels);
  for (int64_t i = 0; i <= static_cast<int64_t>(levels); ++i)
    levels_hit.push_back({(static_cast<double>(i) - zero) * scale, hits[i].item<double>()});
  const int64_t bins = 64;
  const Tensor counts = mica::histc(x, bins, low, high);
  Json before = Json::array();
  for (int64_t i = 0; i < bins; ++i) before.push_back(number(counts[i].item()));
  return {{"scale", scale},
          {"zero_point", zero},
          {"low", low},
          {"high", high},
          {"levels", levels + 1},
          {"levels_used", std::get<0>(mica::_unique2(q)).numel()},
          {"bytes", x.numel() * bits / 8},
          {"float_bytes", x.nbytes()},
          {"worst", error.abs().max().item<double>()},
          {"rms", error.pow(2).mean().sqrt().item<double>()},
          {"histogram", before},
          {"hits", levels_hit}};
}

}  // namespace mica::lab
