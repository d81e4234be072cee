// Weights in the blocks of GGUF files: packed for products, multiplied with real numbers, and read back.
#include <algorithm>

#include "layouts/quantized/block_types.h"
#include "mica/backend/layer_backend.h"
#include "mica/core/grad_mode.h"
#include "mica/custom_function.h"
#include "mica/ops.h"
#include "mica/parallel.h"
#include "mica/weight_only.h"

namespace mica {

namespace {

constexpr int64_t kColumnBlock = 16;  // few_bits_pack rounds rows up to a multiple of it

Tensor new_tensor(IntArrayRef sizes, DType dtype) { return empty(sizes, TensorOptions(dtype)); }

// The real numbers that a block stands for.
void read_floats(const BlockType& type, const uint8_t* block, float* to) {
  constexpr int64_t kMostNumbers = 256, kMostGroups = 16;
  uint8_t numbers[kMostNumbers];
  uint16_t halves[kMostGroups];
  float scales[2 * kMostGroups];
  type.read(block, {numbers, type.halves ? halves : nullptr, type.halves ? nullptr : scales, type.width});
  for (int64_t i = 0; i < type.numbers; ++i) {
    const int64_t g = i / type.group;
    const float scale = type.halves ? half_to_float(halves[g]) : scales[g * type.width];
    const float scaled = static_cast<float>(numbers[i] - (type.bits == 4 ? 8 : 128)) * scale;
    to[i] = type.width == 2 ? scaled + scales[2 * g + 1] : scaled;
  }
}

const BlockType& checked_type(const char* op, const BlockWeight& w) {
  const BlockType* type = find_block_type(w.type);
  MICA_CHECK(type, op, ": no block type ", w.type, "; there are Q4_0, Q8_0, Q4_K and Q6_K");
  MICA_CHECK(w.rows > 0 && w.columns > 0 && w.columns % type->numbers == 0, op, ": ", w.rows, " rows of ", w.columns,
             " numbers are not made of blocks of ", type->numbers);
  int64_t wanted = 0;
  MICA_CHECK(!__builtin_mul_overflow(w.rows, w.columns / type->numbers * type->bytes, &wanted) && w.bytes.is_cpu() &&
                 w.bytes.dtype() == DType::UInt8 && w.bytes.dim() == 1 && w.bytes.numel() == wanted,
             op, ": ", w.rows, " x ", w.columns, " numbers of ", w.type, " have ", wanted, " bytes of uint8, got ",
             w.bytes.dtype(), " ", w.bytes.sizes());
  return *type;
}

// A weight may come from anywhere, such as from Python, so everything is checked before it is read.
void check_packed(const char* op, const BlockWeight& w, const BlockType& type) {
  const Tensor &numbers = w.numbers, &scales = w.scales;
  const int64_t padded = (w.rows + kColumnBlock - 1) / kColumnBlock * kColumnBlock, blocks = padded / kColumnBlock;
  const int64_t width = w.columns * type.bits / 8, groups = w.columns / type.group;
  MICA_CHECK(numbers.is_cpu() && scales.is_cpu() && numbers.is_contiguous() && scales.is_contiguous(), op,
             ": the weight must be contiguous and on the CPU");
  MICA_CHECK(w.group == type.group && numbers.dtype() == DType::UInt8 && numbers.dim() == 2 &&
                 numbers.size(0) == padded && numbers.size(1) == width,
             op, ": the numbers of a weight of ", w.rows, " x ", w.columns, " must be uint8, ", padded, " x ", width,
             ", but are ", numbers.dtype(), " ", numbers.sizes());
  const bool fits = scales.dim() == (type.width == 2 ? 4 : 3) && scales.size(0) == blocks && scales.size(1) == groups &&
                    scales.size(2) == kColumnBlock && (type.width == 1 || scales.size(3) == 2);
  MICA_CHECK(fits && scales.dtype() == (type.halves ? DType::Float16 : DType::Float32), op, ": the scales must be ",
             blocks, " x ", groups, " x ", kColumnBlock, ", but are ", scales.dtype(), " ", scales.sizes());
}

Tensor block_product(const Tensor& x, const BlockWeight& weight) {
  DimVector sizes(x.sizes());
  sizes.back() = weight.rows;
  const Tensor flat =
      x.dim() == 2 && x.is_contiguous() ? x : x.reshape({x.numel() / weight.columns, weight.columns}).contiguous();
  const Tensor out = new_tensor({flat.size(0), weight.rows}, x.dtype());
  if (out.numel() > 0) MICA_LAYER_KERNEL(kCPU, int4_mm)
  (out.view_of(), flat.view_of(), weight.numbers.view_of(), weight.scales.view_of(), weight.group);
  return x.dim() == 2 ? out : out.view(sizes);
}

struct BlockProduct : autograd::Function<BlockProduct> {
  static Tensor forward(autograd::AutogradContext* context, const Tensor& x, const BlockWeight& weight) {
    context->saved_data["weight"] = weight;
    return block_product(x, weight);
  }

  // The gradient treats the rounding of activations as the identity, as training with rounded numbers does.
  static TensorVec backward(autograd::AutogradContext* context, TensorVec grads) {
    const auto weight = context->saved_data["weight"].to<BlockWeight>();
    const Tensor all = arange(0, weight.rows, 1, TensorOptions(DType::Int64));
    return {grads[0].matmul(block_rows(weight, all).to(grads[0].dtype())), Tensor()};
  }
};

}  // namespace

BlockWeight pack_blocks(const std::string& name, const Tensor& bytes, int64_t rows, int64_t columns) {
  NoGradGuard below;
  BlockWeight weight{name, bytes, Tensor(), Tensor(), rows, columns, 0};
  const BlockType& type = checked_type("pack_blocks", weight);
  const int64_t padded = (rows + kColumnBlock - 1) / kColumnBlock * kColumnBlock, column_blocks = padded / kColumnBlock;
  weight.bytes = bytes.contiguous();
  weight.group = type.group;
  weight.numbers = new_tensor({padded, columns * type.bits / 8}, DType::UInt8);
  const int64_t groups = columns / type.group;
  const TensorOptions of_scales(type.halves ? DType::Float16 : DType::Float32);
  weight.scales = type.width == 2 ? zeros({column_blocks, groups, kColumnBlock, 2}, of_scales)
                                  : zeros({column_blocks, groups, kColumnBlock}, of_scales);
  // Works on a slice of rows at a time, so that the numbers take little memory beside the packed ones.
  const int64_t slice = std::max<int64_t>(1, (int64_t{4} << 20) / columns / kColumnBlock) * kColumnBlock;
  const Tensor numbers = new_tensor({std::min(slice, rows), columns}, DType::UInt8);
  const int64_t blocks = columns / type.numbers, in_block = type.numbers / type.group;
  const uint8_t* const from = weight.bytes.data_ptr<uint8_t>();
  uint8_t* const to = numbers.data_ptr<uint8_t>();
  char* const scales = static_cast<char*>(weight.scales.data_ptr());
  for (int64_t first = 0; first < rows; first += slice) {
    const int64_t here = std::min(slice, rows - first);
    parallel_for(0, here, 1 + 32768 / columns, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t b = 0; b < blocks; ++b) {
          const int64_t row = first + r, block = row / kColumnBlock;
          const int64_t at = ((block * groups + b * in_block) * kColumnBlock + row % kColumnBlock) * type.width;
          const BlockPlaces places{
              to + r * columns + b * type.numbers, type.halves ? reinterpret_cast<uint16_t*>(scales) + at : nullptr,
              type.halves ? nullptr : reinterpret_cast<float*>(scales) + at, kColumnBlock * type.width};
          type.read(from + (row * blocks + b) * type.bytes, places);
        }
    });
    const Tensor packed = weight.numbers.narrow(0, first, std::min(slice, padded - first));
    MICA_LAYER_KERNEL(kCPU, int4_pack)(packed.view_of(), numbers.narrow(0, 0, here).view_of());
  }
  return weight;
}

Tensor block_linear(const Tensor& x, const BlockWeight& weight) {
  constexpr const char* kOp = "block_linear";
  check_packed(kOp, weight, checked_type(kOp, weight));
  const bool known = x.dtype() == DType::Float32 || x.dtype() == DType::BFloat16 || x.dtype() == DType::Float16;
  MICA_CHECK(known && x.is_cpu(), kOp, ": expected float32, bfloat16 or float16 numbers on the CPU, got ", x.dtype(),
             " on ", x.device());
  MICA_CHECK(x.dim() > 0 && x.size(-1) == weight.columns, kOp, ": expected numbers of shape (..., ", weight.columns,
             "), got ", x.sizes());
  // A product without a gradient needs no record of it, which would take longer than the product of a small weight.
  if (!grad_enabled() || !x.requires_grad()) return block_product(x, weight);
  return BlockProduct::apply(x, weight);
}

Tensor block_rows(const BlockWeight& weight, const Tensor& indices) {
  constexpr const char* kOp = "block_rows";
  const BlockType& type = checked_type(kOp, weight);
  const bool integral = indices.dtype() == DType::Int64 || indices.dtype() == DType::Int32;
  MICA_CHECK(integral && indices.is_cpu(), kOp, ": expected indices of int64 or int32 on the CPU, got ",
             indices.dtype(), " on ", indices.device());
  NoGradGuard below;
  const Tensor rows = indices.to(DType::Int64).contiguous(), whole = weight.bytes.contiguous();
  const int64_t count = rows.numel(), blocks = weight.columns / type.numbers;
  DimVector sizes(indices.sizes());
  sizes.push_back(weight.columns);
  const Tensor out = new_tensor(sizes, DType::Float32);
  if (count == 0) return out;
  const int64_t* const each = rows.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i)
    MICA_CHECK_KIND(each[i] >= 0 && each[i] < weight.rows, Index, kOp, ": index ", each[i],
                    " is out of range of a weight with ", weight.rows, " rows");
  float* const to = out.data_ptr<float>();
  const uint8_t* const from = whole.data_ptr<uint8_t>();
  parallel_for(0, count, 1 + 32768 / weight.columns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t b = 0; b < blocks; ++b)
        read_floats(type, from + (each[i] * blocks + b) * type.bytes, to + i * weight.columns + b * type.numbers);
  });
  return out;
}

}  // namespace mica
