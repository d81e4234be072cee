// Cholesky and LU decompositions, inverses, and what is solved with them: by teams of threads where matrices are small
// or many, else by cuSOLVER and cuBLAS.
#include "backends/cuda/linalg/algorithms.cuh"
#include "backends/cuda/linalg/kernels.h"
#include "backends/cuda/linalg/library_calls.cuh"

namespace mica::cuda {

using namespace linalg;  // NOLINT

namespace {

template <class T>
struct CholeskyBody {
  T* data;
  int n;
  int* info;
  bool upper;  // then the conjugate transpose of the lower factor is meant
  template <class Team>
  __device__ void operator()(const Team& team, unsigned char* memory, int64_t i) const {
    T *const a = reinterpret_cast<T*>(memory), *const out = data + i * n * n;
    for (int e = team.rank; e < n * n; e += team.size) {
      const int row = e % n, column = e / n;
      a[upper ? row * n + column : e] = upper ? conj_of(out[e]) : out[e];
    }
    team.sync();
    const int code = cholesky(team, a, n, n);
    if (team.rank == 0) info[i] = code;
    for (int e = team.rank; e < n * n; e += team.size) {
      const int row = e % n, column = e / n;
      const bool kept = upper ? row <= column : row >= column;
      out[e] = !kept ? T(0) : upper ? conj_of(a[row * n + column]) : a[e];
    }
  }
};

template <class T>
struct LuBody {
  T* data;
  int m, n, steps;
  int *pivots, *info;
  template <class Team>
  __device__ void operator()(const Team& team, unsigned char* memory, int64_t i) const {
    T *const a = reinterpret_cast<T*>(memory), *const out = data + i * m * n;
    for (int e = team.rank; e < m * n; e += team.size) a[e] = out[e];
    team.sync();
    const int code = lu(team, a, m, n, m, pivots ? pivots + i * steps : nullptr);
    if (team.rank == 0) info[i] = code;
    for (int e = team.rank; e < m * n; e += team.size) out[e] = a[e];
  }
};

template <class T>
struct InverseBody {
  T* data;
  int n;
  int* info;
  template <class Team>
  __device__ void operator()(const Team& team, unsigned char* memory, int64_t i) const {
    T *const a = reinterpret_cast<T*>(memory), *const out = data + i * n * n;
    int* const places = reinterpret_cast<int*>(memory + round_up(sizeof(T) * n * n));
    for (int e = team.rank; e < n * n; e += team.size) a[e] = out[e];
    team.sync();
    const int code = invert(team, a, n, places);
    if (team.rank == 0) info[i] = code;
    for (int e = team.rank; e < n * n; e += team.size) out[e] = a[e];
  }
};

// Teams share the right-hand sides of a matrix: `parts` of them, of `width` columns each.
template <class T>
struct SolveBody {
  const T* factors;
  int n;
  Sides<T> sides;  // of the first matrix
  int64_t step;    // to the next matrix's
  int parts, width;
  const int* pivots;  // null where only a triangle is solved
  Triangle first;     // solved with first, and, with pivots, `second` after it
  Triangle second;
  bool exchange_last;
  template <class Team>
  __device__ void operator()(const Team& team, unsigned char* memory, int64_t index) const {
    const int64_t i = index / parts;
    const int begin = static_cast<int>(index % parts) * width;
    T* const a = reinterpret_cast<T*>(memory);
    const T* const from = factors + i * n * n;
    for (int e = team.rank; e < n * n; e += team.size) a[e] = from[e];
    team.sync();
    Sides<T> b = sides;
    b.data += i * step + begin * sides.column;
    b.count = sides.count - begin < width ? sides.count - begin : width;
    if (pivots && !exchange_last) exchange_rows(team, b, n, pivots + i * n, false);
    solve_triangle(team, a, n, n, first, b);
    if (!pivots) return;
    solve_triangle(team, a, n, n, second, b);
    if (exchange_last) exchange_rows(team, b, n, pivots + i * n, true);
  }
};

template <class T>
bool solve_by_teams(int device, SolveBody<T> body, int64_t count) {
  const size_t bytes = static_cast<size_t>(body.n) * body.n * sizeof(T);
  if (!suits_teams(device, body.n, bytes, count)) return false;
  body.width = 32;
  body.parts = (body.sides.count + body.width - 1) / body.width;
  if (body.parts) each_matrix(device, count * body.parts, body.n, bytes, body);
  return true;
}

// Pivots that name no row stand for no exchange.
struct KnownPivots {
  int* to;
  const int* from;
  int n;
  __device__ void operator()(int64_t i) const {
    to[i] = from[i] < 1 || from[i] > n ? static_cast<int>(i % n + 1) : from[i];
  }
};
template <class T>
struct KeepTriangle {
  T* data;
  int64_t n;
  bool upper;
  __device__ void operator()(int64_t e) const {
    const int64_t row = e % n, column = e / n % n;
    if (upper ? row > column : row < column) data[e] = T(0);
  }
};
template <class T>
struct Identity {
  T* data;
  int64_t n;
  __device__ void operator()(int64_t e) const { data[e] = T(e % n == e / n % n ? 1 : 0); }
};
template <class T>
struct ZeroOnDiagonal {
  const T* data;
  int64_t n, lead, step;
  int* info;
  __device__ void operator()(int64_t i) const {
    info[i] = 0;
    for (int64_t k = n - 1; k >= 0; --k)
      if (data[i * step + k * lead + k] == T(0)) info[i] = static_cast<int>(k + 1);
  }
};

int checked_int(int64_t n) {
  MICA_CHECK(n <= 2147483647, "linear algebra on CUDA takes matrices of up to 2147483647 rows, but got ", n);
  return static_cast<int>(n);
}

}  // namespace

void linalg_cholesky(const TensorView& a, const TensorView& info, bool upper) {
  const int device = a.device.index();
  DeviceGuard guard(device);
  visit_matrix("cholesky_cuda", a.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> all(a);
    const int n = checked_int(all.rows);
    if (suits_teams(device, n, all.bytes(), all.count))
      return each_matrix(device, all.count, n, all.bytes(), CholeskyBody<T>{all.data, n, info.ptr<int>(), upper});
    const cusolver::Api& api = cusolver::api();
    const cusolver::Session session(device);
    const cusolver::Type type = cusolver::type_of(a.dtype);
    const auto triangle = upper ? cusolver::kUpper : cusolver::kLower;
    size_t on_device = 0, on_host = 0;
    MICA_CUSOLVER(api.cholesky_size(session.solver, session.parameters, triangle, n, type, all.data, n, type,
                                    &on_device, &on_host));
    const Workspaces work(on_device, on_host, device);
    for (int64_t i = 0; i < all.count; ++i)
      MICA_CUSOLVER(api.cholesky(session.solver, session.parameters, triangle, n, type, all[i], n, type, work.device(),
                                 on_device, work.host(), on_host, info.ptr<int>() + i));
    for_each(device, a.numel, KeepTriangle<T>{all.data, n, upper});
  });
}

void linalg_lu_factor(const TensorView& a, const TensorView& pivots, const TensorView& info) {
  const int device = a.device.index();
  DeviceGuard guard(device);
  visit_matrix("lu_cuda", a.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> all(a);
    const int m = checked_int(all.rows), n = checked_int(all.columns), steps = std::min(m, n);
    int* const rows = pivots.data ? pivots.ptr<int>() : nullptr;
    if (suits_teams(device, all.side(), all.bytes(), all.count))
      return each_matrix(device, all.count, all.side(), all.bytes(),
                         LuBody<T>{all.data, m, n, steps, rows, info.ptr<int>()});
    const cusolver::Api& api = cusolver::api();
    const cusolver::Session session(device);
    const int place = cusolver::place_of(a.dtype);
    int length = 0;
    MICA_CUSOLVER(api.lu_size.of[place](session.solver, m, n, all.data, m, &length));
    const Workspace work(static_cast<size_t>(std::max(length, 1)) * sizeof(T), device);
    for (int64_t i = 0; i < all.count; ++i)
      MICA_CUSOLVER(api.lu.of[place](session.solver, m, n, all[i], m, work.data(), rows ? rows + i * steps : nullptr,
                                     info.ptr<int>() + i));
  });
}

void linalg_lu_solve(const TensorView& lu, const TensorView& pivots, const TensorView& b, int64_t transpose) {
  const int device = b.device.index();
  DeviceGuard guard(device);
  visit_matrix("lu_solve_cuda", b.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> factors(lu), solutions(b);
    const int n = checked_int(factors.rows), columns = checked_int(solutions.columns);
    const bool turned = transpose != 0, conjugated = transpose == 2;
    const Triangle lower{false, turned, conjugated, true}, upper{true, turned, conjugated, false};
    SolveBody<T> body{factors.data,
                      n,
                      {solutions.data, 1, n, columns},
                      int64_t{n} * columns,
                      0,
                      0,
                      pivots.ptr<const int>(),
                      turned ? upper : lower,
                      turned ? lower : upper,
                      turned};
    if (solve_by_teams(device, body, factors.count)) return;
    const cusolver::Api& api = cusolver::api();
    const cusolver::Session session(device);
    const int place = cusolver::place_of(b.dtype);
    const Workspace known(static_cast<size_t>(n) * sizeof(int), device), code(sizeof(int), device);
    auto* const rows = static_cast<int*>(known.data());
    for (int64_t i = 0; i < factors.count; ++i) {
      for_each(device, n, KnownPivots{rows, pivots.ptr<const int>() + i * n, n});
      MICA_CUSOLVER(api.lu_solve.of[place](session.solver, static_cast<cusolver::Operation>(transpose), n, columns,
                                           factors[i], n, rows, solutions[i], n, static_cast<int*>(code.data())));
    }
  });
}

void linalg_inverse(const TensorView& a, const TensorView& info) {
  const int device = a.device.index();
  DeviceGuard guard(device);
  visit_matrix("linalg_inv_cuda", a.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> all(a);
    const int n = checked_int(all.rows);
    const size_t bytes = round_up(all.bytes()) + static_cast<size_t>(n) * sizeof(int);
    if (suits_teams(device, n, bytes, all.count))
      return each_matrix(device, all.count, n, bytes, InverseBody<T>{all.data, n, info.ptr<int>()});
    // The solution for the columns of the identity.
    const Workspace factors(static_cast<size_t>(a.numel) * sizeof(T), device),
        rows(static_cast<size_t>(all.count * n) * sizeof(int), device);
    MICA_CUDA(cudaMemcpyAsync(factors.data(), all.data, static_cast<size_t>(a.numel) * sizeof(T),
                              cudaMemcpyDeviceToDevice, current_stream(device)));
    TensorView lu = a, pivots = info;
    lu.data = factors.data();
    pivots.data = rows.data();
    linalg_lu_factor(lu, pivots, info);
    for_each(device, a.numel, Identity<T>{all.data, n});
    linalg_lu_solve(lu, pivots, a, 0);
  });
}

namespace linalg {

void solve_triangular(const TensorView& a, int64_t n, int64_t lead, int64_t a_step, const TensorView& b, int64_t b_rows,
                      int64_t b_lead, int64_t b_step, bool left, bool upper, int64_t transpose, bool unit) {
  const int device = b.device.index();
  visit_matrix("triangular_solve_cuda", b.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> sides(b);
    const T one(1);
    const cusolver::Api& api = cusolver::api();
    const cusolver::Session session(device);
    const auto solve = api.triangular_solve.of[cusolver::place_of(b.dtype)];
    for (int64_t i = 0; i < sides.count; ++i)
      MICA_CUSOLVER(solve(session.blas, left ? cusolver::kLeft : cusolver::kRight,
                          upper ? cusolver::kUpper : cusolver::kLower, static_cast<cusolver::Operation>(transpose),
                          unit, checked_int(left ? n : b_rows), checked_int(left ? sides.columns : n), &one,
                          a.ptr<const T>() + i * a_step, checked_int(lead), b.ptr<T>() + i * b_step,
                          checked_int(b_lead)));
  });
}

void zero_on_diagonal(const TensorView& a, int64_t n, const TensorView& info) {
  visit_matrix("linalg", a.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> all(a);
    for_each(a.device.index(), all.count,
             ZeroOnDiagonal<T>{all.data, n, all.rows, all.rows * all.columns, info.ptr<int>()});
  });
}

}  // namespace linalg

void linalg_triangular_solve(const TensorView& a, const TensorView& b, bool left, bool upper, int64_t transpose,
                             bool unit) {
  const int device = b.device.index();
  DeviceGuard guard(device);
  visit_matrix("triangular_solve_cuda", b.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> triangles(a), sides(b);
    const int n = checked_int(triangles.rows), rows = checked_int(sides.rows);
    // X a = b is a^T X^T = b^T.
    const Triangle how{upper, (transpose != 0) == left, transpose == 2, unit};
    const Sides<T> places =
        left ? Sides<T>{sides.data, 1, rows, checked_int(sides.columns)} : Sides<T>{sides.data, rows, 1, rows};
    SolveBody<T> body{triangles.data, n, places, sides.rows * sides.columns, 0, 0, nullptr, how, how, false};
    if (solve_by_teams(device, body, triangles.count)) return;
    linalg::solve_triangular(a, n, n, int64_t{n} * n, b, rows, rows, sides.rows * sides.columns, left, upper, transpose,
                             unit);
  });
}

void linalg_cholesky_solve(const TensorView& factor, const TensorView& b, bool upper) {
  linalg_triangular_solve(factor, b, true, upper, upper ? 2 : 0, false);
  linalg_triangular_solve(factor, b, true, upper, upper ? 0 : 2, false);
}

void linalg_cholesky_inverse(const TensorView& a, const TensorView& info, bool upper) {
  const int device = a.device.index();
  DeviceGuard guard(device);
  visit_matrix("cholesky_inverse_cuda", a.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> all(a);
    linalg::zero_on_diagonal(a, all.rows, info);
    const size_t bytes = static_cast<size_t>(a.numel) * sizeof(T);
    const Workspace factors(bytes, device);
    MICA_CUDA(cudaMemcpyAsync(factors.data(), all.data, bytes, cudaMemcpyDeviceToDevice, current_stream(device)));
    TensorView factor = a;
    factor.data = factors.data();
    for_each(device, a.numel, Identity<T>{all.data, all.rows});
    linalg_cholesky_solve(factor, a, upper);
  });
}

}  // namespace mica::cuda
