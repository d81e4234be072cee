// Runs a fused loop: one kernel that follows a list of instructions, the same for all threads. A thread has a few
// neighbouring elements of every register in shared memory, which nobody else touches, and the last result in its own
// registers. So a loop that was never seen before waits for nothing; one that comes again runs as code that was made
// for it (generated.h). The functions are those of the kernels that the loop takes the place of, so that the numbers
// are the same.
#include <algorithm>

#include "backends/cuda/bounds.h"
#include "backends/cuda/fused/codes.h"
#include "backends/cuda/fused/describe.h"
#include "backends/cuda/fused/generated.h"
#include "backends/cuda/pointwise.cuh"
#include "backends/cuda/pointwise/functions.cuh"

namespace mica::cuda {

namespace {

constexpr int kDims = kFusedDims;
constexpr int kFewRegisters = 4;  // leave room for more threads

// The loop as the kernel sees it, in the constant memory of its arguments.
struct Program {
  uint32_t items;  // pieces of a thread
  int ndim;
  int count;
  Divider sizes[kDims];  // fastest first
  uint32_t dense;        // operands that lie together along the fastest dimension; of the others it has one element
  struct {
    char* data;
    FloatKind kind;
    bool is_bool;
    int64_t strides[kDims];  // from one piece to the next along the fastest dimension
    const int64_t* index;
    int64_t step, size;
    int dim;
  } operands[kFusedOperands];
  Bounds bounds;
  FusedInstruction instructions[kFusedInstructions];
};
static_assert(sizeof(Program) < 4096);  // what every driver passes

template <int V>
struct alignas(V < 4 ? 4 : 16) Values {
  float item[V];
};

template <int V, class T>
__device__ Values<V> widened(const char* at, bool dense) {
  Values<V> v;
  if (dense) {
    // Loads are of 16 bytes at most.
    constexpr int kAtOnce = sizeof(T) * V > 16 ? 16 / sizeof(T) : V;
#pragma unroll
    for (int first = 0; first < V; first += kAtOnce) {
      const auto piece = reinterpret_cast<const Vector<T, kAtOnce>*>(at)[first / kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) v.item[first + j] = convert<float>(piece.item[j]);
    }
  } else {
    const float one = convert<float>(*reinterpret_cast<const T*>(at));
#pragma unroll
    for (int j = 0; j < V; ++j) v.item[j] = one;
  }
  return v;
}

template <int V, class T>
__device__ void store_narrowed(char* at, const Values<V>& v) {
  constexpr int kAtOnce = sizeof(T) * V > 16 ? 16 / sizeof(T) : V;
#pragma unroll
  for (int first = 0; first < V; first += kAtOnce) {
    Vector<T, kAtOnce> piece;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) piece.item[j] = convert<T>(v.item[first + j]);
    reinterpret_cast<Vector<T, kAtOnce>*>(at)[first / kAtOnce] = piece;
  }
}

// A result is what its dtype can hold: the next kernel would read it from memory.
template <int V>
__device__ void round_to(DType dtype, Values<V>& v) {
  if (dtype == DType::BFloat16) {
#pragma unroll
    for (int j = 0; j < V; ++j) v.item[j] = __bfloat162float(__float2bfloat16_rn(v.item[j]));
  } else if (dtype == DType::Float16) {
#pragma unroll
    for (int j = 0; j < V; ++j) v.item[j] = __half2float(__float2half_rn(v.item[j]));
  }
}

template <int V, class F>
__device__ Values<V> each(const F& f, const Values<V>& a) {
  Values<V> out;
#pragma unroll
  for (int j = 0; j < V; ++j) out.item[j] = f(a.item[j]);
  return out;
}
template <int V, class F>
__device__ Values<V> each(const F& f, const Values<V>& a, const Values<V>& b) {
  Values<V> out;
#pragma unroll
  for (int j = 0; j < V; ++j) out.item[j] = f(a.item[j], b.item[j]);
  return out;
}
template <int V, class F>
__device__ Values<V> each(const F& f, const Values<V>& a, const Values<V>& b, const Values<V>& c) {
  Values<V> out;
#pragma unroll
  for (int j = 0; j < V; ++j) out.item[j] = f(a.item[j], b.item[j], c.item[j]);
  return out;
}

// Functions that are long are compiled once and called; short ones are written out for each value.
#define MICA_CALLED(how, name) \
  __device__ how float called_##name(float x) { return ::name(x); }
MICA_CALLED(__noinline__, expm1)
MICA_CALLED(__noinline__, log1p)
MICA_CALLED(__noinline__, sin)
MICA_CALLED(__noinline__, cos)
MICA_CALLED(__noinline__, erf)
MICA_CALLED(inline, exp)
MICA_CALLED(inline, exp2)
MICA_CALLED(inline, log)
MICA_CALLED(inline, log2)
MICA_CALLED(inline, tanh)
MICA_CALLED(inline, sqrt)
MICA_CALLED(inline, rsqrt)
MICA_CALLED(inline, floor)
MICA_CALLED(inline, ceil)
MICA_CALLED(inline, trunc)
#undef MICA_CALLED

template <int V>
__device__ Values<V> compute(const FusedInstruction& step, const Values<V>& a, const Values<V>& b, const Values<V>& c) {
  const float p = step.parameters[0];
  switch (static_cast<FusedCode>(step.code)) {
#define MICA_CASE(name) \
  case FusedCode::name: \
    return each([](float x) { return called_##name(x); }, a);
    MICA_FUSED_FUNCTIONS(MICA_CASE)
#undef MICA_CASE
    case FusedCode::Round:
      return each([](float x) { return ::rint(x); }, a);
    case FusedCode::Abs:
      return each([](float x) { return ::fabsf(x); }, a);
    case FusedCode::Sign:
      return each([](float x) { return static_cast<float>((x > 0) - (x < 0)); }, a);
    case FusedCode::Neg:
      return each([](float x) { return -x; }, a);
    case FusedCode::Reciprocal:
      return each([](float x) { return 1.0f / x; }, a);
    case FusedCode::AddScaled:
      return each(AddScaled<float>{p, step.parameters[1] != 0}, a, b);
    case FusedCode::Mul:
      return each(Mul<float>{}, a, b);
    case FusedCode::Div:
      return each(Div<float>{}, a, b);
    case FusedCode::Larger:
      return each(Extremum<float>{true}, a, b);
    case FusedCode::Smaller:
      return each(Extremum<float>{false}, a, b);
    case FusedCode::PowShort:
      return each(PowShort<float>{static_cast<Shortcut>(static_cast<int>(p))}, a, b);
    case FusedCode::Pow:
      return each([](float x, float y) { return ::pow(x, y); }, a, b);
    case FusedCode::Compare:
      return each(Compare<float>{static_cast<uint32_t>(p)}, a, b);
    case FusedCode::Select:
      return each([](float x, float y, float condition) { return condition != 0 ? x : y; }, a, b, c);
    case FusedCode::SelectValue:
      return each([](float self, float mask, float value) { return mask != 0 ? value : self; }, a, b, c);
    case FusedCode::Mask:
      return each([](float self, float mask) { return mask != 0 ? self : 0.0f; }, a, b);
    case FusedCode::LogicalNot:
      return each([](float x) { return x == 0 ? 1.0f : 0.0f; }, a);
    case FusedCode::LogicalAnd:
      return each([](float x, float y) { return x != 0 && y != 0 ? 1.0f : 0.0f; }, a, b);
    case FusedCode::LogicalOr:
      return each([](float x, float y) { return x != 0 || y != 0 ? 1.0f : 0.0f; }, a, b);
    case FusedCode::Clamp:
      return each(Clamp<float>{}, a, b, c);
    case FusedCode::Addcmul:
      return each(Addcmul<float>{p}, a, b, c);
    case FusedCode::Addcdiv:
      return each(Addcdiv<float>{p}, a, b, c);
    case FusedCode::Relu:
      return each(Relu<float>{}, a);
    case FusedCode::Sigmoid:
      return each(Sigmoid<float>{}, a);
    case FusedCode::SigmoidBackward:
      return each(SigmoidBackward<float>{}, a, b);
    case FusedCode::TanhBackward:
      return each(TanhBackward<float>{}, a, b);
    case FusedCode::ThresholdBackward:
      return each(ThresholdBackward<float>{p}, a, b);
    case FusedCode::LeakyRelu:
      return each(LeakyRelu<float>{p}, a);
    case FusedCode::LeakyReluBackward:
      return each(LeakyReluBackward<float>{p}, a, b);
    case FusedCode::Silu:
      return each(Silu<float>{}, a);
    case FusedCode::SiluBackward:
      return each(SiluBackward<float>{}, a, b);
    case FusedCode::Gelu:
      return each(Called<Gelu<float>>{{p != 0}}, a);
    case FusedCode::GeluBackward:
      return each(Called<GeluBackward<float>>{{p != 0}}, a, b);
    case FusedCode::NarrowGelu:
      return each(NarrowGelu{}, a);
    case FusedCode::NarrowGeluBackward:
      return each(NarrowGeluBackward{}, a, b);
    default:  // a copy
      return a;
  }
}

// Elements of a register that one thread has: pieces of four, so that neighbouring threads read neighbouring ones.
template <int V, int kRegisters>
struct RegisterFile {
  using Piece = Vector < float, V<4 ? V : 4>;
  static constexpr int kPieces = V < 4 ? 1 : V / 4;
  Piece pieces[kRegisters][kPieces][kFusedThreads];

  __device__ Values<V> read(int r) const {
    Values<V> v;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) reinterpret_cast<Piece*>(v.item)[j] = pieces[r][j][threadIdx.x];
    return v;
  }
  __device__ void write(int r, const Values<V>& v) {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) pieces[r][j][threadIdx.x] = reinterpret_cast<const Piece*>(v.item)[j];
  }
};

template <int V, int kRegisters, bool kFlat>
__global__ void __launch_bounds__(kFusedThreads) fused_kernel(const __grid_constant__ Program program) {
  __shared__ RegisterFile<V, kRegisters> registers;
  wait_for_predecessors();
  const uint32_t item = blockIdx.x * kFusedThreads + threadIdx.x;
  if (item >= program.items) return;
  uint32_t at[kDims];
  if constexpr (!kFlat) {
    uint32_t rest = item;
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      const uint32_t next = d + 1 < program.ndim ? program.sizes[d].divide(rest) : 0;
      at[d] = d + 1 < program.ndim ? rest - next * program.sizes[d].divisor : rest;
      rest = next;
    }
  }
  const auto place = [&](int operand) {
    if constexpr (kFlat) return program.operands[operand].data + item * program.operands[operand].strides[0];
    int64_t offset = 0;
#pragma unroll
    for (int d = 0; d < kDims; ++d)
      if (d < program.ndim) offset += at[d] * program.operands[operand].strides[d];
    return program.operands[operand].data + offset;
  };
  Values<V> last{};
  for (int i = 0; i < program.count; ++i) {
    const FusedInstruction& step = program.instructions[i];
    const auto input = [&](int k) {
      const int from = step.in[k];
      if (from == FusedInstruction::kLast) return last;
      if (from >= 0) return registers.read(from);
      Values<V> number;
#pragma unroll
      for (int j = 0; j < V; ++j) number.item[j] = step.numbers[k];
      return number;
    };
    if (step.code == FusedInstruction::kLoad) {
      const int k = step.operand;
      const char* from = place(k);
      const bool dense = program.dense >> k & 1;
      if (program.operands[k].is_bool) {
        last = widened<V, bool>(from, dense);
      } else if (program.operands[k].kind == FloatKind::Single) {
        last = widened<V, float>(from, dense);
      } else if (program.operands[k].kind == FloatKind::Half) {
        last = widened<V, half>(from, dense);
      } else {
        last = widened<V, bfloat16>(from, dense);
      }
    } else if (step.code == FusedInstruction::kStore) {
      const int k = step.operand;
      const Values<V> value = input(0);
      char* to = place(k);
      if (const int64_t* index = program.operands[k].index) {
        const int64_t size = program.operands[k].size,
                      at = program.bounds.checked(*index, size, program.operands[k].dim, true);
        if (at == 0 && *index != 0 && *index != -size) continue;
        to += at * program.operands[k].step;
      }
      if (program.operands[k].is_bool) {
        store_narrowed<V, bool>(to, value);
      } else if (program.operands[k].kind == FloatKind::Single) {
        store_narrowed<V, float>(to, value);
      } else if (program.operands[k].kind == FloatKind::Half) {
        store_narrowed<V, half>(to, value);
      } else {
        store_narrowed<V, bfloat16>(to, value);
      }
      continue;
    } else {
      const Values<V> a = input(0), b = step.inputs > 1 ? input(1) : a, c = step.inputs > 2 ? input(2) : a;
      last = compute<V>(step, a, b, c);
      round_to<V>(step.dtype, last);
    }
    if (step.out >= 0) registers.write(step.out, last);
  }
}

}  // namespace

bool run_fused(const FusedLoop& loop) {
  const FusedLayout layout = lay_out(loop);
  const int device = loop.device.index();
  DeviceGuard guard(device);
  if (run_generated(loop, layout)) return true;
  Program p;
  p.ndim = layout.ndim;
  p.dense = layout.dense;
  p.items = static_cast<uint32_t>(layout.items);
  for (int d = 0; d < p.ndim; ++d) p.sizes[d] = Divider(static_cast<uint32_t>(layout.shape[d]));
  for (int k = 0; k < loop.noperands; ++k) {
    const FusedLoop::Operand& o = loop.operands[k];
    p.operands[k].data = o.data;
    p.operands[k].is_bool = o.dtype == DType::Bool;
    p.operands[k].kind = o.dtype == DType::Float16    ? FloatKind::Half
                         : o.dtype == DType::BFloat16 ? FloatKind::BFloat
                                                      : FloatKind::Single;
    std::copy_n(layout.strides[k], p.ndim, p.operands[k].strides);
    p.operands[k].index = o.index;
    p.operands[k].step = o.step;
    p.operands[k].size = o.size;
    p.operands[k].dim = o.dim;
    if (o.index) p.bounds = Bounds::of(kIndexedOperation, device);
  }
  p.count = loop.ninstructions;
  std::copy_n(loop.instructions, loop.ninstructions, p.instructions);
  int registers = 0;
  for (int i = 0; i < p.count; ++i) registers = std::max<int>(registers, p.instructions[i].out + 1);
  const uint32_t blocks = blocks_for(layout.items, kFusedThreads);
  const bool few = registers <= kFewRegisters, flat = p.ndim == 1;
  if (!layout.pieces) {
    launch<fused_kernel<1, kFusedRegisters, false>>(device, blocks, kFusedThreads, p);
  } else if (few) {
    flat ? launch<fused_kernel<kFusedPiece, kFewRegisters, true>>(device, blocks, kFusedThreads, p)
         : launch<fused_kernel<kFusedPiece, kFewRegisters, false>>(device, blocks, kFusedThreads, p);
  } else {
    flat ? launch<fused_kernel<kFusedPiece, kFusedRegisters, true>>(device, blocks, kFusedThreads, p)
         : launch<fused_kernel<kFusedPiece, kFusedRegisters, false>>(device, blocks, kFusedThreads, p);
  }
  return false;
}

}  // namespace mica::cuda
