// Finds the kernels that a fused loop can replace, and the instruction for each.
#include "backends/cuda/fused/describe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <tuple>

#include "backends/cuda/attention/supports.h"
#include "backends/cuda/fused/codes.h"
#include "backends/cuda/fused/generated.h"
#include "backends/cuda/gemm/tails.h"
#include "backends/cuda/gemm/vector.h"
#include "backends/cuda/normalization/fused_norm.h"
#include "backends/cuda/pointwise/variants.h"
#include "mica/core/scalar.h"

namespace mica::cuda {

namespace {

bool is_fused_float(DType t) { return t == DType::Float32 || t == DType::Float16 || t == DType::BFloat16; }

float number_of(const PointwiseLoop& loop, int k) {
  const char* at = loop.data[k];
  const auto read = [at]<class T>(T value) {
    std::memcpy(static_cast<void*>(&value), at, sizeof(T));
    return static_cast<float>(value);
  };
  switch (loop.dtypes[k]) {
    case DType::Float16:
      return read(mica::Half());
    case DType::BFloat16:
      return read(mica::BFloat16());
    case DType::Bool:
      return read(uint8_t{}) != 0;
    default:
      return read(0.0f);
  }
}

// A kernel's further argument, of which it has one.
template <class T>
const T& argument(const void* arguments) {
  return std::get<0>(*static_cast<const std::tuple<T>*>(arguments));
}

// As number<float>() of element.cuh converts it.
float as_float(const Scalar& s) { return s.cast<float>(); }
bool is_one(const Scalar& s) { return s == Scalar(1) || s == Scalar(1.0) || s == Scalar(true); }
Scalar negated(const Scalar& alpha) { return -(alpha.is_bool() ? Scalar(int64_t{alpha.to_bool()}) : alpha); }

enum class Kind : uint8_t {
  Float,      // all operands and the result are floats
  Compared,   // floats, and a result of bools
  Truth,      // bools
  Selected,   // floats a and b, a condition
  Filled,     // a float, a mask, a value of its dtype
  Masked,     // a float, a mask
  Converted,  // one operand
};
enum class Argument : uint8_t { None, Alpha, NegatedAlpha, Number, ByTanh, Exponent };

struct Row {
  const char* slot;
  FusedCode code;
  Kind kind = Kind::Float;
  Argument argument = Argument::None;
  float parameter = 0;
};

constexpr Row kRows[] = {
#define MICA_ROW(name) {#name, FusedCode::name},
    MICA_FUSED_FUNCTIONS(MICA_ROW)
#undef MICA_ROW
        {"copy", FusedCode::Copy, Kind::Converted},
    {"round", FusedCode::Round},
    {"abs", FusedCode::Abs},
    {"sign", FusedCode::Sign},
    {"sgn", FusedCode::Sign},
    {"neg", FusedCode::Neg},
    {"reciprocal", FusedCode::Reciprocal},
    {"add", FusedCode::AddScaled, Kind::Float, Argument::Alpha},
    {"sub", FusedCode::AddScaled, Kind::Float, Argument::NegatedAlpha},
    {"rsub", FusedCode::AddScaled, Kind::Float, Argument::NegatedAlpha},
    {"mul", FusedCode::Mul},
    {"div", FusedCode::Div},
    {"maximum", FusedCode::Larger},
    {"minimum", FusedCode::Smaller},
    {"clamp_min", FusedCode::Larger},
    {"clamp_max", FusedCode::Smaller},
    {"pow", FusedCode::Pow, Kind::Float, Argument::Exponent},
    {"eq", FusedCode::Compare, Kind::Compared, Argument::None, kEqual},
    {"ne", FusedCode::Compare, Kind::Compared, Argument::None, kLess | kGreater | kUnordered},
    {"lt", FusedCode::Compare, Kind::Compared, Argument::None, kLess},
    {"le", FusedCode::Compare, Kind::Compared, Argument::None, kLess | kEqual},
    {"gt", FusedCode::Compare, Kind::Compared, Argument::None, kGreater},
    {"ge", FusedCode::Compare, Kind::Compared, Argument::None, kGreater | kEqual},
    {"where", FusedCode::Select, Kind::Selected},
    {"masked_fill", FusedCode::SelectValue, Kind::Filled},
    {"masked", FusedCode::Mask, Kind::Masked},
    {"logical_not", FusedCode::LogicalNot, Kind::Truth},
    {"logical_and", FusedCode::LogicalAnd, Kind::Truth},
    {"logical_or", FusedCode::LogicalOr, Kind::Truth},
    {"clamp", FusedCode::Clamp},
    {"addcmul", FusedCode::Addcmul, Kind::Float, Argument::Number},
    {"addcdiv", FusedCode::Addcdiv, Kind::Float, Argument::Number},
    {"relu", FusedCode::Relu},
    {"sigmoid", FusedCode::Sigmoid},
    {"sigmoid_backward", FusedCode::SigmoidBackward},
    {"tanh_backward", FusedCode::TanhBackward},
    {"threshold_backward", FusedCode::ThresholdBackward, Kind::Float, Argument::Number},
    {"leaky_relu", FusedCode::LeakyRelu, Kind::Float, Argument::Number},
    {"leaky_relu_backward", FusedCode::LeakyReluBackward, Kind::Float, Argument::Number},
    {"silu", FusedCode::Silu},
    {"silu_backward", FusedCode::SiluBackward},
    {"gelu", FusedCode::Gelu, Kind::Float, Argument::ByTanh},
    {"gelu_backward", FusedCode::GeluBackward, Kind::Float, Argument::ByTanh},
};

// Whether the operands fit the kernel's kind. Operands of a float kernel have one dtype, except for a sum.
bool takes(const Row& row, const PointwiseLoop& loop) {
  const DType out = loop.dtypes[0];
  const auto all = [&](int from, DType wanted) {
    for (int k = from; k < loop.noperands; ++k)
      if (loop.dtypes[k] != wanted) return false;
    return true;
  };
  const DType first = loop.noperands > 1 ? loop.dtypes[1] : DType::Undefined;
  switch (row.kind) {
    case Kind::Float:
      if (row.code == FusedCode::AddScaled)
        return is_fused_float(out) && out == loop.dtype && is_fused_float(first) && is_fused_float(loop.dtypes[2]);
      return is_fused_float(out) && loop.noperands > 1 && all(1, out);
    case Kind::Compared:
      return out == DType::Bool && is_fused_float(first) && all(1, first);
    case Kind::Truth:
      return all(0, DType::Bool);
    case Kind::Selected:
      return is_fused_float(out) && first == out && loop.dtypes[2] == out && loop.dtypes[3] == DType::Bool;
    case Kind::Filled:
      return is_fused_float(out) && first == out && loop.dtypes[2] == DType::Bool &&
             (loop.dtypes[3] == out || (loop.numbers >> 3 & 1 && is_fused_float(loop.dtypes[3])));
    case Kind::Masked:
      return is_fused_float(out) && first == out && loop.dtypes[2] == DType::Bool;
    default:
      return (is_fused_float(out) && (is_fused_float(first) || first == DType::Bool)) ||
             (out == DType::Bool && first == DType::Bool);
  }
}

// The exponents that have a shorter function, which is the one that pow's own kernel takes then.
void set_exponent(const PointwiseLoop& loop, FusedInstruction& step) {
  if (!(loop.numbers >> 2 & 1)) return;
  const Shortcut shortcut = shortcut_of_exponent(static_cast<double>(number_of(loop, 2)));
  if (shortcut == Shortcut::None) return;
  step.code = static_cast<int16_t>(FusedCode::PowShort);
  step.parameters[0] = static_cast<float>(shortcut);
}

// A slot's name lies at one place: what was found for it is found again by its address.
const Row* row_of(const char* slot) {
  struct Found {
    const char* slot;
    const Row* row;
  };
  static thread_local Found known[256];
  Found& found = known[reinterpret_cast<uintptr_t>(slot) / 4 % 256];
  if (found.slot == slot) return found.row;
  const auto* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return std::strcmp(r.slot, slot) == 0; });
  found = {slot, row == std::end(kRows) ? nullptr : row};
  return found.row;
}

bool describe(const char* slot, const PointwiseLoop& loop, const void* arguments, FusedInstruction& step) {
  const Row* row = row_of(slot);
  if (!row || loop.noutputs != 1 || loop.noperands > 4 || !takes(*row, loop)) return false;
  step.code = static_cast<int16_t>(row->code);
  step.dtype = loop.dtypes[0];
  step.parameters[0] = row->parameter;
  step.parameters[1] = 0;
  step.inputs = static_cast<uint8_t>(loop.noperands - 1);
  for (int i = 0; i < step.inputs; ++i) {
    const bool number = loop.numbers >> (i + 1) & 1;
    step.in[i] = number ? FusedInstruction::kNumber : static_cast<int8_t>(i + 1);
    step.numbers[i] = number ? number_of(loop, i + 1) : 0;
  }
  switch (row->argument) {
    case Argument::None:
      break;
    case Argument::Alpha:
    case Argument::NegatedAlpha: {
      const Scalar& given = argument<Scalar>(arguments);
      const Scalar alpha = row->argument == Argument::Alpha ? given : negated(given);
      step.parameters[0] = as_float(alpha);
      step.parameters[1] = is_one(alpha);
      if (std::strcmp(slot, "rsub") == 0) {
        std::swap(step.in[0], step.in[1]);
        std::swap(step.numbers[0], step.numbers[1]);
      }
      break;
    }
    case Argument::Number:
      step.parameters[0] = as_float(argument<Scalar>(arguments));
      break;
    case Argument::ByTanh: {
      const bool by_tanh = std::string_view(argument<FusedText>(arguments)) == "tanh";
      if (by_tanh || loop.dtype == DType::Float32) {
        step.parameters[0] = by_tanh;
      } else {
        step.code =
            static_cast<int16_t>(row->code == FusedCode::Gelu ? FusedCode::NarrowGelu : FusedCode::NarrowGeluBackward);
      }
      break;
    }
    case Argument::Exponent:
      set_exponent(loop, step);
      break;
  }
  return true;
}

}  // namespace

const Fusion& fusion() {
  static const Fusion api{describe,
                          run_fused,
                          takes_vector,
                          takes_row_norm,
                          takes_tails,
                          run_fused_products,
                          takes_sum,
                          run_sequence,
                          takes_norm,
                          run_fused_norm,
                          run_fused_norm_gradient,
                          takes_few_queries,
                          run_few_queries};
  return api;
}

}  // namespace mica::cuda
