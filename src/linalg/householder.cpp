// Columns are reflected one by one within narrow panels; everything right of a panel is updated at once, by products of
// matrices: a panel's reflections H1 H2 ... = I - V T V^T, V's columns being their vectors and T triangular.
#include "linalg/householder.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/host_data.h"
#include "mica/error.h"
#include "mica/ops.h"

namespace mica {

namespace {

constexpr int64_t kPanel = 32;

// Four sums, so that one addition need not wait for the other.
double dot(const double* a, const double* b, int64_t n) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int lane = 0; lane < 4; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Makes x the vector v of the reflection I - tau v v^T that takes x to (beta, 0, ..., 0), v[0] = 1. Returns tau and
// beta. A vector that has that form already is left as it is: tau = 0.
struct Reflection {
  double tau, beta;
};
Reflection reflect(double* x, int64_t n) {
  const double tail = std::sqrt(dot(x + 1, x + 1, n - 1));
  if (tail == 0) return {0, x[0]};
  const double beta = -std::copysign(std::hypot(x[0], tail), x[0]);
  const Reflection found{(beta - x[0]) / beta, beta};
  const double scale = 1 / (x[0] - beta);
  for (int64_t i = 1; i < n; ++i) x[i] *= scale;
  return found;
}

struct Panel {
  int64_t first;  // row and column of its upper left corner
  Tensor v, t;
};

// Factors columns [first, first + width) of `columns` (column-major, `rows` long) from row `first` on: the diagonal and
// what is above it become r's, the vectors of the reflections go to V.
Panel factor_panel(double* columns, int64_t rows, int64_t first, int64_t width) {
  const int64_t height = rows - first;
  const Tensor v_columns = zeros({width, height}, TensorOptions(DType::Float64).device(kCPU));
  const Tensor t = zeros({width, width}, TensorOptions(DType::Float64).device(kCPU));
  double* const v = host_data<double>(v_columns);
  double* const triangle = host_data<double>(t);
  for (int64_t j = 0; j < width; ++j) {
    double* const column = columns + (first + j) * rows + first + j;
    const int64_t n = height - j;
    const auto [tau, beta] = reflect(column, n);
    double* const vector = v + j * height + j;
    std::copy(column, column + n, vector);
    vector[0] = 1;
    column[0] = beta;
    std::fill(column + 1, column + n, 0.0);
    for (int64_t k = j + 1; k < width; ++k) {
      double* const other = columns + (first + k) * rows + first + j;
      const double by = tau * dot(vector, other, n);
      for (int64_t i = 0; i < n; ++i) other[i] -= by * vector[i];
    }
    // T's new column: -tau T (V^T v), and tau on the diagonal.
    std::vector<double> products(static_cast<size_t>(j));
    for (int64_t k = 0; k < j; ++k) products[k] = dot(v + k * height + j, vector, n);
    for (int64_t row = 0; row < j; ++row) {
      double sum = 0;
      for (int64_t k = row; k < j; ++k) sum += triangle[row * width + k] * products[k];
      triangle[row * width + j] = -tau * sum;
    }
    triangle[j * width + j] = tau;
  }
  return {first, v_columns.t(), t};
}

// Panel by panel; `columns` is the matrix column-major, of which r's triangle remains.
std::vector<Panel> factor(const Tensor& columns) {
  const Tensor work = columns.t();
  const int64_t rows = work.size(0), cols = work.size(1);
  MICA_CHECK(rows >= cols, "expected a matrix of at least as many rows as columns, but got ", work.sizes());
  std::vector<Panel> panels;
  for (int64_t first = 0; first < cols; first += kPanel) {
    const int64_t width = std::min(kPanel, cols - first), next = first + width;
    panels.push_back(factor_panel(host_data<double>(columns), rows, first, width));
    if (next == cols) break;
    const auto& [_, v, t] = panels.back();
    const Tensor rest = work.narrow(0, first, rows - first).narrow(1, next, cols - next);
    rest.sub_(mm(v, mm(t.t(), mm(v.t(), rest))));
  }
  return panels;
}

Tensor columns_of(const Tensor& a) {
  MICA_CHECK(a.dim() == 2, "expected a matrix, but got ", a.sizes());
  return a.t().to(kCPU, DType::Float64).clone(MemoryFormat::Contiguous);
}

}  // namespace

Reflections householder_reflections(const Tensor& a) {
  const Tensor columns = columns_of(a);
  const Tensor packed = columns.t(), tau = empty({a.size(1)}, TensorOptions(DType::Float64).device(kCPU));
  for (const auto& [first, v, t] : factor(columns)) {
    const int64_t width = t.size(0);
    packed.narrow(0, first, v.size(0)).narrow(1, first, width).add_(v.tril(-1));
    tau.narrow(0, first, width).copy_(t.diagonal());
  }
  return {packed.to(TensorOptions(a.device())), tau.to(TensorOptions(a.device()))};
}

QrFactors householder_qr(const Tensor& a) {
  const Tensor columns = columns_of(a);
  const std::vector<Panel> panels = factor(columns);
  const int64_t rows = a.size(0), cols = a.size(1);
  const Tensor q = eye(rows, cols, TensorOptions(DType::Float64).device(kCPU));
  for (auto panel = panels.rbegin(); panel != panels.rend(); ++panel) {
    const Tensor part = q.narrow(0, panel->first, rows - panel->first).narrow(1, panel->first, cols - panel->first);
    part.sub_(mm(panel->v, mm(panel->t, mm(panel->v.t(), part))));
  }
  const TensorOptions there(a.device());
  return {q.to(there), columns.t().narrow(0, 0, cols).triu().to(there)};
}

}  // namespace mica
