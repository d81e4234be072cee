// The kernels that machine code computes, and the steps that each of them becomes.
#include <atomic>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "compiler/segment_builder.h"
#include "mica/core/scalar.h"

namespace mica::recording {

namespace {

// The one further argument of a kernel that has one, as add's alpha.
const Scalar& argument(const Call& call) {
  return std::get<0>(*reinterpret_cast<const std::tuple<Scalar>*>(call.arguments));
}
bool is_one(const Scalar& s) { return s == Scalar(1) || s == Scalar(true); }

// The kernels by name. Each is translated as it is written in backends/cpu/pointwise, so that the bits are the same.
// clang-format off
const std::unordered_map<std::string_view, SimpleKernel>& kernels() {
  using enum SimpleKernel;
  static const auto* all = new std::unordered_map<std::string_view, SimpleKernel>{
      {"add", Add}, {"sub", Sub}, {"rsub", Rsub}, {"mul", Mul}, {"div", Div}, {"neg", Neg}, {"abs", Abs},
      {"sqrt", Sqrt},
#if defined(__aarch64__)  // on x86-64 the bits of rsqrt depend on the vectors that kernels were chosen for
      {"rsqrt", Rsqrt},
#endif
      {"reciprocal", Reciprocal}, {"pow", Pow}, {"maximum", Max}, {"minimum", Min}, {"clamp", Clamp},
      {"clamp_min", Max}, {"clamp_max", Min}, {"relu", Relu}, {"addcmul", Addcmul}, {"addcdiv", Addcdiv},
      {"lerp", Lerp}, {"copy", Copy}, {"sigmoid_backward", SigmoidBackward}, {"tanh_backward", TanhBackward},
      {"threshold_backward", ThresholdBackward}, {"lt", Lt}, {"le", Le}, {"gt", Gt}, {"ge", Ge}, {"eq", Eq},
      {"where", Where}, {"masked_fill", MaskedFill}};
  return *all;
}
// clang-format on

}  // namespace

// Kernels' names are a few literals of the library. Each is looked up once: `seen` keeps the literal's address with the
// answer in the lowest byte.
int simple_kernel_of(const Call& call) {
  static std::atomic<uint64_t> seen[128];
  const auto name = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(call.name));
  std::atomic<uint64_t>& place = seen[name / 4 % std::size(seen)];
  const uint64_t known = place.load(std::memory_order_relaxed);
  if (known >> 8 == name) return static_cast<int>(known & 255) - 1;
  const auto found = kernels().find(call.name);
  const int kernel = found == kernels().end() ? -1 : static_cast<int>(found->second);
  place.store(name << 8 | static_cast<uint64_t>(kernel + 1), std::memory_order_relaxed);
  return kernel;
}

bool is_simple(const Call& call) { return is_pointwise(call) && call.noutputs == 1 && simple_kernel_of(call) >= 0; }

bool factor_of(const Call& call, double& factor) {
  using enum SimpleKernel;
  const int kernel = simple_kernel_of(call);
  for (const SimpleKernel each : {Add, Sub, Rsub, Addcmul, Addcdiv, ThresholdBackward}) {
    if (kernel != static_cast<int>(each) || call.dtype != DType::Float32 || argument(call).is_complex()) continue;
    factor = argument(call).to_double();
    return true;
  }
  return false;
}

// Adds the steps of a kernel. Returns the value of its result, or -1 where they do not fit. `v` has the values of the
// inputs.
int SegmentBuilder::translate(SimpleKernel kernel, const Call& call, const int* v) {
  using enum SimpleKernel;
  const auto scaled = [&](const Scalar& alpha) {
    return step(Op::MulAdd, constant(static_cast<float>(alpha.to_double())), v[1], v[0]);
  };
  switch (kernel) {
    case Add:
      return is_one(argument(call)) ? step(Op::Add, v[0], v[1]) : scaled(argument(call));
    case Sub:
      return is_one(argument(call)) ? step(Op::Sub, v[0], v[1]) : scaled(-argument(call));
    case Rsub:
      return step(Op::NegMulAdd, constant(static_cast<float>(argument(call).to_double())), v[0], v[1]);
    case Mul:
      return step(Op::Mul, v[0], v[1]);
    case Div:
      return step(Op::Div, v[0], v[1]);
    case Neg:
      return step(Op::Neg, v[0]);
    case Abs:
      return step(Op::Abs, v[0]);
    case Sqrt:
      return step(Op::Sqrt, v[0]);
    case Rsqrt:
      return step(Op::Div, constant(1), step(Op::Sqrt, v[0]));
    case Reciprocal:
      return step(Op::Div, constant(1), v[0]);
    case Pow: {
      if (call.operands[2].storage) return -1;
      float exponent;
      std::memcpy(&exponent, call.operands[2].number, sizeof exponent);
      if (exponent == 2) return step(Op::Mul, v[0], v[0]);
      if (exponent == 3) return step(Op::Mul, step(Op::Mul, v[0], v[0]), v[0]);
      if (exponent == 0.5f) return step(Op::Sqrt, v[0]);
      if (exponent == -1) return step(Op::Div, constant(1), v[0]);
      if (exponent == -2) return step(Op::Div, constant(1), step(Op::Mul, v[0], v[0]));
      return -1;
    }
    case Max:
      return step(Op::Max, v[0], v[1]);
    case Min:
      return step(Op::Min, v[0], v[1]);
    case Clamp:
      return step(Op::Min, step(Op::Max, v[0], v[1]), v[2]);
    case Relu:
      return step(Op::Relu, v[0]);
    case Addcmul: {
      if (is_one(argument(call))) return step(Op::MulAdd, v[1], v[2], v[0]);
      const int product = step(Op::Mul, constant(static_cast<float>(argument(call).to_double())), v[1]);
      return step(Op::MulAdd, product, v[2], v[0]);
    }
    case Addcdiv: {
      const int product = step(Op::Mul, constant(static_cast<float>(argument(call).to_double())), v[1]);
      return step(Op::Add, v[0], step(Op::Div, product, v[2]));
    }
    case Lerp: {
      if (call.operands[3].storage) return -1;
      float weight;
      std::memcpy(&weight, call.operands[3].number, sizeof weight);
      const int way = step(Op::Sub, v[1], v[0]);
      if (std::abs(weight) < 0.5f) return step(Op::MulAdd, constant(weight), way, v[0]);
      return step(Op::NegMulAdd, way, constant(1 - weight), v[1]);
    }
    case Copy:
      return v[0];
    case SigmoidBackward:
      return step(Op::Mul, v[0], step(Op::Mul, step(Op::Sub, constant(1), v[1]), v[1]));
    case TanhBackward:
      return step(Op::Mul, v[0], step(Op::NegMulAdd, v[1], v[1], constant(1)));
    case ThresholdBackward: {
      const int bound = constant(static_cast<float>(argument(call).to_double()));
      return step(Op::Select, step(Op::LessEqual, v[1], bound), constant(0), v[0]);
    }
    case Lt:
      return step(Op::Less, v[0], v[1]);
    case Le:
      return step(Op::LessEqual, v[0], v[1]);
    case Gt:
      return step(Op::Less, v[1], v[0]);
    case Ge:
      return step(Op::LessEqual, v[1], v[0]);
    case Eq:
      return step(Op::Equal, v[0], v[1]);
    case Where:
      return step(Op::Select, v[0], v[1], v[2]);
    case MaskedFill:
      return step(Op::Select, v[1], v[2], v[0]);
  }
  return -1;
}

}  // namespace mica::recording
