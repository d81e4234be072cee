#include <optional>

#include "core/error_advice.h"
#include "core/geometry.h"
#include "core/kept.h"
#include "core/out.h"
#include "core/recorded_rows.h"
#include "mica/backend.h"
#include "mica/backend/layer_backend.h"
#include "mica/core/recording.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::shapes {

namespace {

// A view of one, two or three dimensions as the (batch, rows, columns) that the kernel wants, without making a tensor.
struct Matrix {
  int64_t sizes[3] = {1, 1, 1}, strides[3] = {0, 0, 0};
  TensorView view;

  enum class Vector { Row, Column };
  explicit Matrix(const Tensor& t, Vector as = Vector::Column) : Matrix(t.view_of(), as) {}
  explicit Matrix(const TensorView& t, Vector as = Vector::Column) : view(t) {
    const int first = 3 - view.ndim;
    for (int d = 0; d < view.ndim; ++d) sizes[first + d] = view.sizes[d], strides[first + d] = view.strides[d];
    if (view.ndim == 1 && as == Vector::Column) std::swap(sizes[1], sizes[2]), std::swap(strides[1], strides[2]);
    view.sizes = sizes;
    view.strides = strides;
    view.ndim = 3;
  }
  Matrix(const Matrix&) = delete;
};

void run(const Matrix& out, const Matrix& a, const Matrix& b, const Scalar& alpha = 1, const Scalar& beta = 0,
         const void* bias = nullptr) {
  MatmulCall call;
  call.out = out.view;
  call.a = a.view;
  call.b = b.view;
  call.alpha = alpha;
  call.beta = beta;
  call.bias = bias;
  MICA_KERNEL(out.view.device, matmul)(call);
}

// Lets a product keep an arrangement of its second matrix, if that is the weight of a layer, which comes transposed,
// and there are enough rows for the weight to be copied.
class WeightScope {
 public:
  WeightScope(const Tensor& a, const Tensor& b) {
    constexpr int64_t kRows = 8, kElements = 1 << 14;
    if (recording::in_function() && b.strides()[0] == 1 && a.sizes()[0] >= kRows && b.numel() >= kElements)
      scope_.emplace(b);
  }

 private:
  std::optional<kept::Scope> scope_;
};

void check_pair(const char* op, const Tensor& a, const Tensor& b) {
  MICA_CHECK(a.dtype() == b.dtype(), "expected m1 and m2 to have the same dtype, but got: ", cpp_name(a.dtype()),
             " != ", cpp_name(b.dtype()), " (in ", op, ")");
  MICA_CHECK(a.device() == b.device(),
             "Expected all tensors to be on the same device, but found at least two devices, ", a.device(), " and ",
             b.device(), "! (in ", op, ")");
}

bool is_zero(const Scalar& s) { return s.to_complex() == complex128(0); }
bool is_one(const Scalar& s) { return s.to_complex() == complex128(1); }

// out <- beta * self, broadcast; returns the beta that the kernel is left to apply.
Scalar begin_with(const Tensor& result, const Tensor& self, const Scalar& beta) {
  if (is_zero(beta)) return 0;
  result.copy_(self.expand(result.sizes()));
  return beta;
}

void check_self(const char* op, const Tensor& self, const Tensor& mat) {
  MICA_CHECK(self.dtype() == mat.dtype(), "self and mat2 must have the same dtype, but got ", info(self.dtype()).legacy,
             " and ", info(mat.dtype()).legacy, " (in ", op, ")");
}

}  // namespace

void mm(Out& out, const Tensor& self, const Tensor& mat2) {
  MICA_CHECK(self.dim() == 2, "self must be a matrix, got ", self);
  MICA_CHECK(mat2.dim() == 2, "mat2 must be a matrix, got ", mat2);
  const int64_t m = self.size(0), k = self.size(1), n = mat2.size(1);
  MICA_CHECK(k == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (", m, "x", k, " and ", mat2.size(0), "x", n,
             ")");
  check_pair("mm", self, mat2);
  const int64_t sizes[2] = {m, n};
  const recording::Promises promised(m == 1 && !self.is_cpu() && recording::rows_may_wait(self));
  const Tensor& result = out.set(sizes, self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  if (k == 0) {  // a sum of no terms is zero in every dtype
    result.zero_();
    return;
  }
  if (recording::put_off_product(result, self, mat2)) return;
  const WeightScope scope(self, mat2);
  run(Matrix(result), Matrix(self), Matrix(kept::view_to_read(mat2)));
}

void bmm(Out& out, const Tensor& self, const Tensor& mat2) {
  MICA_CHECK(self.dim() == 3, "batch1 must be a 3D tensor, but it has the shape ", self.sizes());
  MICA_CHECK(mat2.dim() == 3, "batch2 must be a 3D tensor, but it has the shape ", mat2.sizes());
  check_pair("bmm", self, mat2);
  const int64_t sizes[3] = {self.size(0), self.size(1), mat2.size(2)};
  MICA_CHECK(mat2.size(0) == sizes[0] && mat2.size(1) == self.size(2),
             "Expected size for first two dimensions of batch2 tensor to be: [", sizes[0], ", ", self.size(2),
             "] but got: [", mat2.size(0), ", ", mat2.size(1), "].");
  const Tensor& result = out.set(sizes, self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  run(Matrix(result), Matrix(self), Matrix(mat2));
}

void mv(Out& out, const Tensor& self, const Tensor& vec) {
  MICA_CHECK(self.dim() == 2 && vec.dim() == 1, "vector + matrix @ vector expected, got ", vec.dim(), ", ", self.dim(),
             ", ", vec.dim());
  MICA_CHECK(self.size(1) == vec.size(0), "size mismatch, got input (", self.size(0), "), mat (", self.size(0), "x",
             self.size(1), "), vec (", vec.size(0), ")");
  check_pair("mv", self, vec);
  const Tensor& result = out.set(self.size(0), self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  run(Matrix(result), Matrix(self), Matrix(vec));
}

namespace {

void dot(Out& out, const Tensor& self, const Tensor& tensor, bool conjugates) {
  MICA_CHECK(self.dim() == 1 && tensor.dim() == 1, "1D tensors expected, but got ", self.dim(), "D and ", tensor.dim(),
             "D tensors");
  MICA_CHECK(self.dtype() == tensor.dtype(), "dot : expected both vectors to have same dtype, but found ",
             info(self.dtype()).legacy, " and ", info(tensor.dtype()).legacy);
  MICA_CHECK(self.numel() == tensor.numel(), "inconsistent tensor size, expected tensor [", self.numel(), "] and src [",
             tensor.numel(), "] to have the same number of elements, but got ", self.numel(), " and ", tensor.numel(),
             " elements respectively");
  check_pair("dot", self, tensor);
  const Tensor& result = out.set({}, self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  if (conjugates && MICA_LAYER_TAKES(self.device(), vdot, &self.view_of(), &tensor.view_of())) {
    MICA_LAYER_KERNEL(self.device(), vdot)(result.view_of(), self.view_of(), tensor.view_of());
    return;
  }
  const Tensor row = conjugates ? self.conj().resolve_conj() : self;
  run(Matrix(result), Matrix(row, Matrix::Vector::Row), Matrix(tensor));
}

}  // namespace

void dot(Out& out, const Tensor& self, const Tensor& tensor) { dot(out, self, tensor, false); }
void vdot(Out& out, const Tensor& self, const Tensor& other) { dot(out, self, other, self.is_complex()); }

void addmm(Out& out, const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
           const Scalar& alpha) {
  MICA_CHECK(mat1.dim() == 2 && mat2.dim() == 2, mat1.dim() != 2 ? "mat1" : "mat2", " must be a matrix, got ",
             mat1.dim() != 2 ? mat1.dim() : mat2.dim(), "-D tensor");
  const int64_t m = mat1.size(0), k = mat1.size(1), n = mat2.size(1);
  MICA_CHECK(k == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (", m, "x", k, " and ", mat2.size(0), "x", n,
             ")");
  check_pair("addmm", mat1, mat2);
  check_self("addmm", self, mat1);
  const int64_t sizes[2] = {m, n};
  const Tensor addend = self.expand(sizes);
  const recording::Promises promised(m == 1 && !mat1.is_cpu() && recording::rows_may_wait(mat1));
  const Tensor& result = out.set(sizes, mat1.dtype(), mat1.device());
  if (!out.needs_kernel()) return;
  const bool row = addend.strides()[0] == 0 && (addend.strides()[1] == 1 || n == 1);
  if (row && is_one(beta) && is_one(alpha) && recording::put_off_product(result, mat1, mat2, &addend)) return;
  const WeightScope scope(mat1, mat2);
  if (row && is_one(beta))
    return run(Matrix(result), Matrix(mat1), Matrix(kept::view_to_read(mat2)), alpha, 0, self.data_ptr());
  // Called before the address is asked for, since the copy may be put off.
  const Scalar left = begin_with(result, self, beta);
  run(Matrix(result), Matrix(mat1), Matrix(kept::view_to_read(mat2)), alpha, left);
}

void addmv(Out& out, const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
           const Scalar& alpha) {
  MICA_CHECK(mat.dim() == 2 && vec.dim() == 1 && self.dim() <= 1, "vector + matrix @ vector expected, got ", self.dim(),
             ", ", mat.dim(), ", ", vec.dim());
  MICA_CHECK(mat.size(1) == vec.size(0) && (self.numel() == mat.size(0) || self.numel() == 1),
             "size mismatch, got input (", self.numel(), "), mat (", mat.size(0), "x", mat.size(1), "), vec (",
             vec.size(0), ")");
  check_pair("addmv", mat, vec);
  check_self("addmv", self, mat);
  const Tensor& result = out.set(mat.size(0), mat.dtype(), mat.device());
  if (!out.needs_kernel()) return;
  const Scalar left = begin_with(result, self, beta);
  run(Matrix(result), Matrix(mat), Matrix(vec), alpha, left);
}

void baddbmm(Out& out, const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
             const Scalar& alpha) {
  MICA_CHECK(batch1.dim() == 3, "batch1 must be a 3D tensor, but it has the shape ", batch1.sizes());
  MICA_CHECK(batch2.dim() == 3, "batch2 must be a 3D tensor, but it has the shape ", batch2.sizes());
  check_pair("baddbmm", batch1, batch2);
  MICA_CHECK(self.dtype() == batch1.dtype(), "Input dtypes must be the same, got: input ", info(self.dtype()).legacy,
             ", batch1: ", info(batch1.dtype()).legacy, ", batch2: ", info(batch2.dtype()).legacy);
  const int64_t sizes[3] = {batch1.size(0), batch1.size(1), batch2.size(2)};
  MICA_CHECK(batch2.size(0) == sizes[0] && batch2.size(1) == batch1.size(2),
             "Expected size for first two dimensions of batch2 tensor to be: [", sizes[0], ", ", batch1.size(2),
             "] but got: [", batch2.size(0), ", ", batch2.size(1), "].");
  self.expand(sizes);  // throws torch's error where self does not broadcast
  const Tensor& result = out.set(sizes, batch1.dtype(), batch1.device());
  if (!out.needs_kernel()) return;
  const Scalar left = begin_with(result, self, beta);
  run(Matrix(result), Matrix(batch1), Matrix(batch2), alpha, left);
}

}  // namespace mica::shapes
