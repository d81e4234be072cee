#include "core/out_dtype.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error_advice.h"
#include "mica/error.h"
#include "mica/tensor.h"

namespace mica {
namespace {

using Words = std::pair<std::string_view, std::string_view>;

// Operations that torch declares with their meta function: the dtype is the result's.
constexpr std::string_view kStructured[] = {
    "addmm",
    "addmv",
    "baddbmm",
    "bmm",
    "inverse",
    "linalg_cholesky",
    "linalg_cholesky_ex",
    "linalg_cross",
    "linalg_det",
    "linalg_eigh",
    "linalg_eigvalsh",
    "linalg_inv",
    "linalg_inv_ex",
    "linalg_ldl_factor",
    "linalg_ldl_factor_ex",
    "linalg_ldl_solve",
    "linalg_lu",
    "linalg_lu_factor",
    "linalg_lu_factor_ex",
    "linalg_lu_solve",
    "linalg_qr",
    "linalg_slogdet",
    "linalg_solve",
    "linalg_solve_ex",
    "linalg_svd",
    "linalg_svdvals",
    "linalg_vector_norm",
    "lu_solve",
    "lu_unpack",
    "matmul",
    "mm",
    "mv",
    "triangular_solve",
};

// Operations that name themselves and their result where it cannot be cast.
constexpr std::pair<std::string_view, Words> kNamed[] = {
    {"cholesky", {"cholesky", "result"}},
    {"cholesky_inverse", {"cholesky_inverse", "result"}},
    {"cholesky_solve", {"cholesky_solve", "result"}},
    {"geqrf", {"torch.geqrf", "a"}},
    {"linalg_cond", {"linalg.cond", "result"}},
    {"linalg_eig", {"torch.linalg.eig", "eigenvalues"}},
    {"linalg_eigvals", {"torch.linalg.eigvals", "eigenvalues"}},
    {"linalg_householder_product", {"torch.linalg.householder_product", "result"}},
    {"linalg_lstsq", {"torch.linalg.lstsq", "solution"}},
    {"linalg_matrix_power", {"matrix_power", "result"}},
    {"linalg_matrix_rank", {"torch.linalg.matrix_rank", "result"}},
    {"linalg_pinv", {"linalg.pinv", "result"}},
    {"linalg_tensorinv", {"tensorinv", "result"}},
    {"linalg_tensorsolve", {"tensorsolve", "result"}},
    {"orgqr", {"torch.linalg.householder_product", "result"}},
};

}  // namespace

void check_dtype_of_out(const char* op, DType given, DType result) {
  if (given == result) return;
  const std::string_view name = op;
  const std::string_view wanted = info(result).legacy, found = info(given).legacy;
  MICA_CHECK(std::find(std::begin(kStructured), std::end(kStructured), name) == std::end(kStructured),
             "Expected out tensor to have dtype ", cpp_name(result), ", but got ", cpp_name(given), " instead");
  MICA_CHECK(name != "float_power", "the output given to float_power has dtype ", found,
             " but the operation's result requires dtype ", wanted);
  MICA_CHECK(name != "cummax" && name != "cummin" && name != "logcumsumexp", "expected scalar_type ", wanted,
             " but found ", found);
  MICA_CHECK(name != "linalg_solve_triangular", "expected scalar type ", wanted, " but found ", found);
  MICA_CHECK(name != "linalg_multi_dot" && name != "chain_matmul", "multi_dot(): expected out tensor to have dtype ",
             cpp_name(result), " but got ", cpp_name(given));
  MICA_CHECK(name != "linalg_norm" && name != "linalg_matrix_norm",
             name == "linalg_norm" ? "linalg.norm" : "linalg.matrix_norm", " expected out tensor dtype ", wanted,
             " but got: ", found);
  MICA_CHECK(name != "dot" && name != "vdot", "result dtype ", found, " does not match input dtype ", wanted);
  MICA_CHECK(name != "linalg_vecdot", "linalg.vecdot: Expected out of dtype", wanted, " but found ", found);
  MICA_CHECK(name != "ormqr", "torch.ormqr: Expected input and result to have the same dtype, but input has dtype",
             wanted, " and result has dtype ", found);
  if (can_cast(result, given) || name == "bernoulli") return;
  for (const auto& [operation, words] : kNamed)
    MICA_CHECK(name != operation, words.first, ": Expected ", words.second, " to be safely castable from ", wanted,
               " dtype, but got ", words.second, " with dtype ", found);
  fail(cat("result type ", wanted, " can't be cast to the desired output type ", found));
}

}  // namespace mica
