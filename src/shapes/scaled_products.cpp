// Products of 8-bit and 4-bit floats with scales. Where the device has a kernel that takes the call, it runs;
// everything else is a product in float32.
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/out.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/scaled_products_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"
#include "shapes/scaled_blocks.h"

namespace mica::shapes {

namespace {

// The part of a matrix to which a scale belongs. The numbers are those of torch.nn.functional.ScalingType.
enum class Recipe { TensorWise = 0, RowWise = 1, Blocks1x16 = 2, Blocks1x32 = 3, Blocks1x128 = 4, Blocks128x128 = 5 };

constexpr int64_t kBlock = 128;
int64_t blocks(int64_t size) { return (size + kBlock - 1) / kBlock; }

// The sizes of an operand's scales. `outer` is its number of rows or columns, `inner` the length that is summed over.
DimVector scale_sizes(Recipe recipe, int64_t outer, int64_t inner) {
  switch (recipe) {
    case Recipe::RowWise:
      return {outer, 1};
    case Recipe::Blocks1x128:
      return {outer, blocks(inner)};
    case Recipe::Blocks128x128:
      return {blocks(outer), blocks(inner)};
    default:
      return {1};
  }
}

// The length of a small block, 16 or 32 numbers of a row; 0 for recipes of other kinds.
int64_t small_block(Recipe recipe) { return recipe == Recipe::Blocks1x16 ? 16 : recipe == Recipe::Blocks1x32 ? 32 : 0; }

bool is_float_matrix(const Tensor& scale, IntArrayRef sizes) {
  return scale.dtype() == DType::Float32 && scale.dim() == 2 && scale.sizes() == sizes;
}

// One operand with its scale. It is summed along its last dimension, so the second operand comes transposed.
struct Operand {
  const Tensor &matrix, &scale;  // as the caller gave them
  int64_t outer, inner;
  bool transposed;
  Swizzle swizzle = Swizzle::Tiles32x4x4;  // the order of the scales of small blocks
  Tensor whole = {};                       // the second scale of NVFP4, for the whole matrix; undefined otherwise

  DimVector sizes_of(Recipe recipe) const {
    DimVector sizes = scale_sizes(recipe, outer, inner);
    if (transposed && sizes.size() == 2) std::swap(sizes[0], sizes[1]);
    return sizes;
  }
  // Whether the recipe's small blocks fit the dtype of the scales: MXFP8 and MXFP4 have powers of two, NVFP4 has 8-bit
  // floats.
  bool is_small_blocks(Recipe recipe) const {
    const DType dtype = matrix.dtype();
    const bool pairs = dtype == DType::Float4_e2m1fn_x2;
    if (recipe == Recipe::Blocks1x16) return pairs && scale.dtype() == DType::Float8_e4m3fn;
    return (pairs || dtype == DType::Float8_e4m3fn || dtype == DType::Float8_e5m2) &&
           scale.dtype() == DType::Float8_e8m0fnu;
  }
  bool is(Recipe recipe) const {
    if (const int64_t block = small_block(recipe))
      return is_small_blocks(recipe) && scale.is_contiguous() &&
             scale.numel() == count_block_scales(outer, inner, block, swizzle);
    if (!is_float8(matrix.dtype()) || scale.dtype() != DType::Float32) return false;
    if (recipe == Recipe::TensorWise) return scale.numel() == 1;
    if (recipe == Recipe::RowWise && !scale.is_contiguous()) return false;
    return is_float_matrix(scale, sizes_of(recipe));
  }
  // The operand in float32, multiplied by its scale.
  Tensor scaled(Recipe recipe) const {
    if (recipe == Recipe::TensorWise) return matrix.to(DType::Float32).mul(scale.reshape({}));
    if (const int64_t block = small_block(recipe)) {
      const Tensor decoded = decode_blocks(transposed ? matrix.t() : matrix, scale, block, swizzle);
      return transposed ? decoded.t() : decoded;
    }
    Tensor factor = scale;
    const int64_t row = transposed ? 1 : 0;
    if (recipe == Recipe::Blocks128x128) factor = factor.repeat_interleave(kBlock, row).narrow(row, 0, outer);
    if (recipe != Recipe::RowWise) factor = factor.repeat_interleave(kBlock, 1 - row).narrow(1 - row, 0, inner);
    return matrix.to(DType::Float32).mul(factor);
  }
};

// Throws an error of `kind` in torch's words. torch's operations and devices disagree about the kinds.
template <class... Parts>
void require(bool condition, ErrorKind kind, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(kind, cat(parts...));
}

void check_matrices(const Tensor& a, const Tensor& b, ErrorKind kind, const char* a_name, const char* b_name) {
  require(a.dim() == 2, kind, a_name, " must be a matrix");
  require(b.dim() == 2, kind, b_name, " must be a matrix");
}
void check_inner(const Tensor& a, const Tensor& b, ErrorKind kind, const char* names) {
  require(a.size(1) == b.size(0), kind, names, " shapes cannot be multiplied (", a.size(0), "x", a.size(1), " and ",
          b.size(0), "x", b.size(1), ")");
}

bool has_core_rules(Device device) { return capabilities_of(device).tensor_core_rules; }

// The kind of error that _scaled_mm has for a wrong value where there are no tensor cores.
ErrorKind value_kind(const Tensor& a) { return has_core_rules(a.device()) ? ErrorKind::Runtime : ErrorKind::Value; }

[[noreturn]] void fail_scaling(const Operand& a, const Operand& b, ErrorKind kind) {
  std::string text =
      cat("Invalid scaling configuration.\n"
          "- For TensorWise scaling, a and b should be float8, scales should be float and singletons.\n"
          "- For RowWise scaling, a and b should be float8, scales should be float, scale_a should be (",
          a.outer, ", 1) and scale_b should be (1, ", b.outer, "), and both should be contiguous.\n");
  if (is_float8(a.scale.dtype()) || is_float8(b.scale.dtype())) {
    text +=
        cat("- For MXFP8 scaling (BlockWise 1x32), a and b should be float8, scales should be float8_e8m0fnu and "
            "contiguous, with ",
            count_block_scales(a.outer, a.inner, 32, Swizzle::Tiles32x4x4), " and ",
            count_block_scales(b.outer, b.inner, 32, Swizzle::Tiles32x4x4), " elements.\n",
            "- For MXFP4 and NVFP4 scaling, a and b should be float4 (packed 2x), scales should be float8_e8m0fnu for "
            "blocks of 32 or float8_e4m3fn for blocks of 16.\n");
  }
  if (!a.matrix.device().is_cpu()) {
    text +=
        cat("- For BlockWise 1x128 scaling, a and b should be float8, scales should be float, scale_a should be (",
            a.outer, ", ", blocks(a.inner), ") and scale_b should be (", blocks(b.inner), ", ", b.outer, ").\n",
            "- For BlockWise 128x128 scaling, a and b should be float8, scales should be float, scale_a should be (",
            blocks(a.outer), ", ", blocks(a.inner), ") and scale_b should be (", blocks(b.inner), ", ", blocks(b.outer),
            ").\n");
  }
  auto got = [](const char* name, const Operand& x) {
    return cat("mat_", name, ".dtype()=", info(x.matrix.dtype()).legacy, ", scale_", name,
               ".dtype()=", info(x.scale.dtype()).legacy, ", scale_", name, ".size()=", x.scale.sizes());
  };
  fail(kind, cat(text, "Got ", got("a", a), ", scale_a.stride()=", a.scale.strides(), ", ", got("b", b),
                 " and scale_b.stride()=", b.scale.strides()));
}

// Whether two kinds of blocks can be multiplied: either kind with either, but not two of 128 x 128. The CPU has none,
// as in torch.
bool may_meet(Recipe a, Recipe b, Device device) {
  if (a == Recipe::TensorWise || a == Recipe::RowWise || small_block(a)) return a == b;
  const auto is_block = [](Recipe r) { return r == Recipe::Blocks1x128 || r == Recipe::Blocks128x128; };
  return is_block(a) && is_block(b) && !(a == Recipe::Blocks128x128 && b == Recipe::Blocks128x128) && !device.is_cpu();
}

// The recipe of _scaled_mm's scales, found by their sizes, the simplest first.
std::pair<Recipe, Recipe> recipes_of(const Operand& a, const Operand& b) {
  using enum Recipe;
  for (auto [first, second] :
       {std::pair(TensorWise, TensorWise), std::pair(RowWise, RowWise), std::pair(Blocks128x128, Blocks1x128),
        std::pair(Blocks1x128, Blocks128x128), std::pair(Blocks1x128, Blocks1x128), std::pair(Blocks1x32, Blocks1x32),
        std::pair(Blocks1x16, Blocks1x16)})
    if (may_meet(first, second, a.matrix.device()) && a.is(first) && b.is(second)) return {first, second};
  fail_scaling(a, b, value_kind(a.matrix));
}

bool has_contiguous_rows(const Tensor& t) { return t.stride(1) == 1 && t.stride(0) >= t.size(1); }

// The rules of torch's CUDA kernels for operands that the CPU does not have. The meta device follows them too.
void check_device_rules(const Tensor& a, const Tensor& b) {
  if (a.is_meta()) {
    const auto ordered = [](const Tensor& t) { return (t.stride(0) > t.stride(1) && t.stride(1) == 1) || !t.numel(); };
    const auto strides = [](const Tensor& t) { return cat("(", t.stride(0), ", ", t.stride(1), ")"); };
    MICA_CHECK(ordered(a), "self must be row_major, got stride ", strides(a));
    MICA_CHECK(ordered(b.t()), "mat2 must be col_major, got stride ", strides(b));
    MICA_CHECK(a.size(1) % 16 == 0, "Expected self.size(1) to be divisible by 16, but got self.size(1)=", a.size(1));
    MICA_CHECK(b.size(1) % 16 == 0, "Expected both dimensions of mat2 to be divisible by 16 but got ", b.sizes());
    return;
  }
  MICA_CHECK(a.size(1) % 16 == 0, "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: (",
             a.size(0), "x", a.size(1), ").");
  MICA_CHECK(b.size(1) % 16 == 0, "mat2 shape (", b.size(0), "x", b.size(1), ") must be divisible by 16");
  // Rows with other strides are copied.
  const auto has_contiguous_columns = [](const Tensor& t) { return has_contiguous_rows(t.t()); };
  MICA_CHECK(
      (has_contiguous_rows(a) || !has_contiguous_columns(a)) && (has_contiguous_columns(b) || !has_contiguous_rows(b)),
      "Only multiplication of row-major and column-major matrices is supported by cuBLASLt, but got ", "strides ",
      a.strides(), " and ", b.strides());
  MICA_CHECK_KIND(a.dtype() != DType::Float8_e5m2 || b.dtype() != DType::Float8_e5m2, Value,
                  "Multiplication of two Float8_e5m2 matrices is not supported");
}

void check_bias_on_device(const Tensor& bias, DType out) {
  MICA_CHECK(out != DType::Float32, "Bias is not supported when out_dtype is set to Float32");
  const DType dtype = bias.dtype();
  const auto called = [](DType t) { return info(t).legacy; };
  MICA_CHECK(dtype == DType::BFloat16 || dtype == DType::Float16, "Bias must be BFloat16 or Half, but got ",
             called(dtype));
  MICA_CHECK(out != DType::BFloat16 || dtype == DType::BFloat16, "Bias must be BFloat16 to compute ", called(out),
             " output, but got ", called(dtype));
  MICA_CHECK(out != DType::Float16 || dtype == DType::Float16, "Bias must be Float16 to compute ", called(out),
             " output, but got ", called(dtype));
}

struct Call {
  const Tensor &a, &b, &scale_a, &scale_b, &bias, &scale_result;
  std::optional<DType> out_dtype;
  bool use_fast_accum;
};

// The product in float32. For an 8-bit result, torch divides by scale_result on the CPU, and ignores it on CUDA.
Tensor composed(const Call& call, const Operand& a, const Operand& b, std::pair<Recipe, Recipe> recipes, DType out) {
  Tensor product = mm(a.scaled(recipes.first), b.scaled(recipes.second));
  for (const Operand* x : {&a, &b})
    if (x->whole.defined()) product.mul_(x->whole.reshape({}));
  if (call.bias.defined()) product.add_(call.bias.to(DType::Float32));
  if (call.scale_result.defined() && call.out_dtype && is_float8(out) && call.a.device().is_cpu())
    product.mul_(call.scale_result.reshape({}).reciprocal());
  return product;
}

void multiply(Out& output, const Call& call, const Operand& a, const Operand& b, std::pair<Recipe, Recipe> recipes,
              ErrorKind kind) {
  const Device device = call.a.device();
  const int64_t rows = call.a.size(0), columns = call.b.size(1);
  require(!call.bias.defined() || call.bias.numel() == columns, kind, "Bias must be size ", columns, " but got ",
          call.bias.defined() ? call.bias.numel() : 0);
  require(
      !call.scale_result.defined() || (call.scale_result.numel() == 1 && call.scale_result.dtype() == DType::Float32),
      kind, "scale_result must be a float scalar");
  const DType dtype = output.given_dtype().value_or(call.out_dtype.value_or(call.a.dtype()));
  require(!call.out_dtype || *call.out_dtype == dtype, value_kind(call.a), "out_dtype must match output matrix type");
  const bool small = small_block(recipes.first) != 0;
  require(!is_storage_only(dtype), kind, "scaled_mm: a result cannot be of ", dtype, ": give the dtype of the output");
  if ((has_core_rules(device) || device.is_meta()) && !small) check_device_rules(call.a, call.b);
  if (has_core_rules(device) && call.bias.defined()) check_bias_on_device(call.bias, dtype);
  check_one_device("_scaled_mm", {&call.a, &call.b, &call.scale_a, &call.scale_b, &call.bias, &call.scale_result});

  const Tensor& out = output.set({rows, columns}, dtype, device);
  if (!output.needs_kernel()) return;
  const Tensor left = has_contiguous_rows(call.a) ? call.a : call.a.contiguous();
  const Tensor right = has_contiguous_rows(call.b.t()) ? call.b : call.b.t().contiguous().t();
  const Tensor dense_bias = call.bias.defined() ? call.bias.reshape({columns}).contiguous() : call.bias;
  const TensorView bias = view_or_none(dense_bias);
  if (!small && call.a.size(1) > 0 &&
      MICA_LAYER_TAKES(device, scaled_matmul, &out.view_of(), &left.view_of(), &right.view_of(),
                       &call.scale_a.view_of(), &call.scale_b.view_of(), &bias)) {
    MICA_LAYER_KERNEL(device, scaled_matmul)
    (out.view_of(), left.view_of(), right.view_of(), call.scale_a.view_of(), call.scale_b.view_of(), bias,
     call.use_fast_accum);
    return;
  }
  out.copy_(composed(call, a, b, recipes, dtype));
}

// How many numbers an element of the matrix holds.
int64_t numbers_in(const Tensor& matrix) { return matrix.dtype() == DType::Float4_e2m1fn_x2 ? 2 : 1; }

Operand first(const Tensor& a, const Tensor& scale) { return {a, scale, a.size(0), a.size(1) * numbers_in(a), false}; }
Operand second(const Tensor& b, const Tensor& scale) { return {b, scale, b.size(1), b.size(0) * numbers_in(b), true}; }

// MXFP8, MXFP4 and NVFP4 as the caller described them. A second scale, of the whole matrix, goes with blocks of 16.
void describe_small_blocks(Operand& x, Recipe recipe, TensorList scales, IntArrayRef recipes, IntArrayRef swizzles,
                           const char* name) {
  constexpr ErrorKind kind = ErrorKind::Value;
  const int64_t swizzle = swizzles.empty() ? 0 : swizzles[0];
  require(swizzle == 0 || swizzle == 1, kind, name, ": there is no order of scales ", swizzle);
  x.swizzle = static_cast<Swizzle>(swizzle);
  if (scales.size() == 2) {
    require(recipe == Recipe::Blocks1x16 && recipes[1] == 0, kind, name,
            ": a second scale is that of the whole matrix (TensorWise), beside those of blocks of 16");
    require(scales[1].dtype() == DType::Float32 && scales[1].numel() == 1, kind, name, "[1] must have 1 Float element");
    x.whole = scales[1];
  }
  const int64_t wanted = count_block_scales(x.outer, x.inner, small_block(recipe), x.swizzle);
  require(x.scale.numel() == wanted, kind, "For Blockwise scaling ", name, " should have ", wanted,
          " elements, got: ", x.scale.numel());
  require(x.scale.is_contiguous(), kind, "For Blockwise scaling ", name, " should be contiguous");
}

}  // namespace

void _scaled_mm(Out& out, const Tensor& self, const Tensor& mat2, const Tensor& scale_a, const Tensor& scale_b,
                const Tensor& bias, const Tensor& scale_result, std::optional<DType> out_dtype, bool use_fast_accum) {
  constexpr ErrorKind kind = ErrorKind::Runtime;
  check_matrices(self, mat2, kind, "mat1", "mat2");
  check_inner(self, mat2, kind, has_core_rules(self.device()) ? "mat1 and mat2" : "mat_a and mat_b");
  const Operand a = first(self, scale_a), b = second(mat2, scale_b);
  multiply(out, {self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum}, a, b, recipes_of(a, b),
           kind);
}

void _scaled_mm_v2(Out& out, const Tensor& self, const Tensor& mat2, TensorList scale_a, IntArrayRef recipe_a,
                   IntArrayRef swizzle_a, TensorList scale_b, IntArrayRef recipe_b, IntArrayRef swizzle_b,
                   const Tensor& bias, std::optional<DType> out_dtype, IntArrayRef contraction_dim,
                   bool use_fast_accum) {
  constexpr ErrorKind kind = ErrorKind::Value;
  check_matrices(self, mat2, kind, "mat_a", "mat_b");
  if (!contraction_dim.empty()) {
    require(contraction_dim.size() == 2, kind, "contraction_dim must have exactly 2 elements");
    const int64_t along_a = contraction_dim[0], along_b = contraction_dim[1];
    require(self.size(along_a) == mat2.size(along_b), kind, "mat_a and mat_b shapes cannot be multiplied (",
            self.size(0), "x", self.size(1), " and ", mat2.size(0), "x", mat2.size(1),
            ") with contraction dims mat_a: ", along_a, ", mat_b: ", along_b);
  }
  check_inner(self, mat2, kind, "mat_a and mat_b");
  require(
      !scale_a.empty() && !scale_b.empty() && recipe_a.size() == scale_a.size() && recipe_b.size() == scale_b.size(),
      kind, "_scaled_mm_v2: expected a recipe for each scale, but got ", scale_a.size(), " scales with ",
      recipe_a.size(), " recipes and ", scale_b.size(), " scales with ", recipe_b.size(), " recipes");
  Operand a = first(self, scale_a[0]), b = second(mat2, scale_b[0]);
  const auto recipe = std::pair(static_cast<Recipe>(recipe_a[0]), static_cast<Recipe>(recipe_b[0]));
  const Device device = self.device();
  if (small_block(recipe.first) && recipe.first == recipe.second) {
    if (!a.is_small_blocks(recipe.first) || !b.is_small_blocks(recipe.second) || scale_a.size() > 2 ||
        scale_b.size() > 2)
      fail_scaling(a, b, kind);
    describe_small_blocks(a, recipe.first, scale_a, recipe_a, swizzle_a, "scale_a");
    describe_small_blocks(b, recipe.second, scale_b, recipe_b, swizzle_b, "scale_b");
    multiply(out, {self, mat2, a.scale, b.scale, bias, Tensor(), out_dtype, use_fast_accum}, a, b, recipe, kind);
    return;
  }
  for (IntArrayRef swizzle : {swizzle_a, swizzle_b})
    for (int64_t s : swizzle)
      require(device.is_cpu() || s == 0, kind, "scaled_mm: scales of these recipes are not swizzled, but got ", s);
  if (scale_a.size() != 1 || scale_b.size() != 1 || !may_meet(recipe.first, recipe.second, device))
    fail_scaling(a, b, kind);
  for (const Operand* x : {&a, &b})
    if (!is_float8(x->matrix.dtype()) || x->scale.dtype() != DType::Float32) fail_scaling(a, b, kind);
  const auto check_scale = [&](const char* name, const Operand& x, Recipe r) {
    if (r == Recipe::TensorWise) {
      require(x.scale.numel() == 1, kind, name, " must have 1 Float element");
    } else {
      require(is_float_matrix(x.scale, x.sizes_of(r)), kind, name, " must have shape ", IntArrayRef(x.sizes_of(r)),
              ", got ", x.scale.sizes());
    }
  };
  check_scale("scale_a", a, recipe.first);
  check_scale("scale_b", b, recipe.second);
  // Kernels read the scales of rows one after the other, so they are made contiguous.
  const Tensor dense_a = recipe.first == Recipe::RowWise ? a.scale.contiguous() : a.scale;
  const Tensor dense_b = recipe.second == Recipe::RowWise ? b.scale.contiguous() : b.scale;
  multiply(out, {self, mat2, dense_a, dense_b, bias, Tensor(), out_dtype, use_fast_accum}, first(self, dense_a),
           second(mat2, dense_b), recipe, kind);
}

}  // namespace mica::shapes
