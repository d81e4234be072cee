// One row times matrices. A few warps multiply the row with a few columns: their lanes read pieces of 16 bytes, several
// of which are under way at a time. In a compiled function the row may be normalised first, by each block for itself,
// and a loop over the columns may follow.
//
// A lane adds the products of its pieces one after the other, then the lanes of a warp and then the warps are added.
// That order, and so the bits of a result, depend on the length of the row only.
#include "backends/cuda/gemm/vector.h"

#include <utility>

#include "backends/cuda/fused/codes.h"
#include "backends/cuda/gemm/row_norm.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/pieces.cuh"
#include "backends/cuda/pointwise/functions.cuh"
#include "backends/cuda/strided.cuh"

namespace mica::cuda {

namespace {

constexpr int kFewPieces = kThreads;                // of a row: a thread normalises one, and of more two
constexpr int kMostOfNorm = 2 * kThreads * kPiece;  // elements of a row that is normalised

template <class T>
struct Operands {
  const T *row, *matrix, *bias;
  T* out;         // null: only the loop behind the products asks for the result
  int64_t pitch;  // from column to column
  int columns, pieces;
  float alpha;
};

// Products side by side, each computed as it is alone; or two whose columns one loop follows, paired: a block has the
// same columns of both.
template <class T>
struct Rows {
  Operands<T> products[kFusedProducts];
  int first_block[kFusedProducts], count;
  bool paired, early;
};

// The loops over the columns that the kernel knows: none; the sum of the result and a row; silu of the result, or
// silu(a) * b of two. They are code. A loop that blocks followed by instructions made a product of 2048 x 11264 take
// 18.8 us instead of 14.7 (H200).
struct NoTail {};
template <class T>
struct SumTail {
  const T* row;
  T* out;
};
template <class T>
struct SiluTail {
  T* out;
};

// Past the first cache, and the other half of its 256 bytes into the second.
__device__ int4 read_once(const int4* from) {
  int4 v;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

template <class T>
__device__ float plus_product(float sum, const Piece<T>& a, const Piece<T>& b) {
#pragma unroll
  for (int i = 0; i < kPiece; ++i) sum = __fmaf_rn(convert<float>(a.item[i]), convert<float>(b.item[i]), sum);
  return sum;
}

// kWarps warps have kColumns columns together, and a lane has kAtOnce pieces of each under way. Whether the columns are
// asked for before the kernels before this one have ended (kEarly) is known when the kernel is compiled: joined paths
// would wait for what is under way.
template <class T, class N, class F, bool kEarly, int kWarps, int kColumns, int kAtOnce>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const __grid_constant__ Rows<T> p, const __grid_constant__ N norm, const __grid_constant__ F tail) {
  constexpr bool kNorm = !std::is_same_v<N, NoNorm>, kSum = std::is_same_v<F, SumTail<T>>,
                 kSilu = std::is_same_v<F, SiluTail<T>>;
  constexpr int kStep = 32 * kWarps, kTeams = kWarpsOfBlock / kWarps;
  constexpr int kOwn = kAtOnce > 2 ? 2 : 1;  // pieces of a row that a thread normalises
  __shared__ alignas(16) T normalised[kNorm ? kOwn * kThreads * kPiece : kPiece];
  __shared__ float of_warps[kWarpsOfBlock][kColumns];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, team = warp / kWarps;
  int block = static_cast<int>(blockIdx.x), k = 0;
  if constexpr (std::is_same_v<F, NoTail>) {
#pragma unroll
    for (int i = 1; i < kFusedProducts; ++i)
      if (i < p.count && block >= p.first_block[i]) k = i;
    block -= p.first_block[k];
  }
  const bool paired = kSilu && p.paired;
  const int of_each = paired ? kColumns / 2 : kColumns;
  const int first = (block * kTeams + team) * of_each;
  // The product of the c-th column, and the column's number there.
  const auto product = [&](int c) -> const Operands<T>& { return p.products[paired ? c / (kColumns / 2) : k]; };
  const auto column = [&](int c) { return first + (paired ? c % (kColumns / 2) : c); };
  const int4* columns[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const Operands<T>& of = product(c);
    columns[c] = reinterpret_cast<const int4*>(of.matrix + min(column(c), of.columns - 1) * of.pitch);
  }
  const int pieces = product(0).pieces;
  int i = warp % kWarps * 32 + lane;
  int4 under_way[kColumns][kAtOnce];
  const auto ask = [&] {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        under_way[c][u] = i + u * kStep < pieces ? read_once(columns[c] + i + u * kStep) : int4{};
  };
  typename N::template Weights<kOwn> weights;
  if constexpr (kEarly) ask(), weights.ask(norm);
  wait_then_let_follow();
  if constexpr (!kEarly) ask(), weights.ask(norm);
  if constexpr (kNorm) normalise(norm, weights, normalised);
  const auto* row = reinterpret_cast<const int4*>(kNorm ? normalised : product(0).row);
  float sums[kColumns] = {};
  const auto add = [&] {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (i + u * kStep >= pieces) break;
      const Piece<T> of_row = kNorm ? as_piece<T>(row[i + u * kStep]) : read<T>(row + i + u * kStep);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[c] = plus_product(sums[c], as_piece<T>(under_way[c][u]), of_row);
    }
    i += kAtOnce * kStep;
  };
  add();
  while (i < pieces) ask(), add();
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], mask);
  if (lane == 0)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) of_warps[warp][c] = sums[c];
  __syncthreads();
  if (lane >= of_each || warp % kWarps != 0 || column(lane) >= product(0).columns) return;
  const auto result = [&](int c) {
    const Operands<T>& of = product(c);
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += of_warps[warp + w][c];
    sum *= of.alpha;
    if (of.bias) sum += convert<float>(of.bias[column(c)]);
    const T rounded = convert<T>(sum);
    if (of.out) of.out[column(c)] = rounded;
    return convert<float>(rounded);
  };
  const float value = result(lane);
  if constexpr (kSum) tail.out[column(lane)] = convert<T>(value + convert<float>(tail.row[column(lane)]));
  if constexpr (kSilu) {
    const T silu = convert<T>(Silu<float>{}(value));
    tail.out[column(lane)] = paired ? convert<T>(convert<float>(silu) * result(lane + of_each)) : silu;
  }
}

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class T>
Operands<T> operands(const MatmulCall& call) {
  return {call.a.ptr<const T>(),
          call.b.ptr<const T>(),
          static_cast<const T*>(call.bias),
          call.out.ptr<T>(),
          call.b.strides[2],
          static_cast<int>(call.out.sizes[2]),
          static_cast<int>(call.a.sizes[2] / kPiece),
          static_cast<float>(call.alpha.cast<double>())};
}

// Many columns share the row's work where that leaves enough blocks for all multiprocessors, and where all of these
// are there at once. On an H200, for 2048 x 2048 in a chain of such products: 3.1 us by four columns, 3.6 by two. Pairs
// of columns that are asked for early gain by four too: 13.7 us instead of 14.7 for 2048 x 11264.
constexpr int kFewestByFour = 1024, kMostByFour = 4096;

template <class T, class N, class F>
void start(Rows<T>& p, const N& norm, const F& tail, int device) {
  const auto run = [&]<int kWarps, int kColumns, int kAtOnce>() {
    constexpr int kOfBlock = kWarpsOfBlock / kWarps * kColumns;
    int blocks = 0;
    for (int i = 0; i < p.count; ++i) {
      p.first_block[i] = blocks;
      blocks += static_cast<int>(blocks_for(p.products[i].columns, kOfBlock));
    }
    if (p.paired) blocks = static_cast<int>(blocks_for(p.products[0].columns, kOfBlock / 2));
    if constexpr (kWarps == 4)
      if (p.early)
        return launch<rows_kernel<T, N, F, true, kWarps, kColumns, kAtOnce>>(device, blocks, kThreads, p, norm, tail);
    launch<rows_kernel<T, N, F, false, kWarps, kColumns, kAtOnce>>(device, blocks, kThreads, p, norm, tail);
  };
  int columns = 0;
  for (int i = 0; i < p.count; ++i) columns += p.products[i].columns;
  // So many warps share a column that each has work. They have the row, and so its length, in common.
  const int pieces = p.products[0].pieces;
  if constexpr (std::is_same_v<F, NoTail>) {
    if constexpr (std::is_same_v<N, NoNorm>)
      if (pieces <= 32) return run.template operator()<1, 2, 2>();
    if (pieces <= 64) return run.template operator()<2, 2, 2>();
  }
  if (pieces > kFewPieces) return run.template operator()<4, 2, 6>();
  if (columns >= kFewestByFour && (columns <= kMostByFour || (std::is_same_v<F, SiluTail<T>> && p.early)))
    return run.template operator()<4, 4, 2>();
  run.template operator()<4, 2, 2>();
}

// Whether an instruction reads what the two before it leave: one in a register, the other as the last result.
bool joins(const FusedInstruction& step, const FusedInstruction& earlier) {
  const bool in_order = step.in[0] == earlier.out && step.in[1] == FusedInstruction::kLast;
  const bool turned = step.in[1] == earlier.out && step.in[0] == FusedInstruction::kLast;
  return earlier.out >= 0 && step.inputs == 2 && (in_order || turned);
}
bool is(const FusedInstruction& step, FusedCode code, DType dtype) {
  return step.code == static_cast<int16_t>(code) && step.dtype == dtype;
}

// What a loop behind products is. `row` is the operand that is added, `out` the one that is stored, `gate` the product
// that silu is computed of.
struct KnownTail {
  enum class Kind { Unknown, Sum, Silu } kind = Kind::Unknown;
  int row = 0, out = 0, gate = 0;
};

KnownTail known_tail(const FusedProducts& products) {
  const FusedLoop& loop = *products.tail;
  const FusedInstruction* steps = loop.instructions;
  const int last = loop.ninstructions - 1;
  const DType dtype = products.products[0].out.dtype;
  if (products.products[0].a.sizes[2] <= 64 * kPiece || last < 2 || !is(steps[0], FusedCode::Load, dtype) ||
      !is(steps[last], FusedCode::Store, dtype) || steps[last].in[0] != FusedInstruction::kLast)
    return {};
  KnownTail tail;
  tail.out = steps[last].operand;
  const auto of_product = [&](int step) { return products.of_product[steps[step].operand]; };
  if (products.count == 1 && !products.norm && last == 3 && is(steps[1], FusedCode::Load, dtype) &&
      is(steps[2], FusedCode::AddScaled, dtype) && steps[2].parameters[1] != 0 && joins(steps[2], steps[0])) {
    const int row = of_product(0) == 0 ? 1 : 0;
    tail.row = steps[row].operand;
    if (of_product(row) < 0 && of_product(1 - row) == 0 && loop.operands[tail.row].strides[0] != 0)
      tail.kind = KnownTail::Kind::Sum;
    return tail;
  }
  tail.gate = of_product(0);
  if (tail.gate < 0 || !is(steps[1], FusedCode::Silu, dtype) || steps[1].in[0] != FusedInstruction::kLast) return {};
  const bool alone = products.count == 1 && last == 2;
  const bool multiplied = products.count == 2 && last == 4 && is(steps[2], FusedCode::Load, dtype) &&
                          of_product(2) == 1 - tail.gate && is(steps[3], FusedCode::Mul, dtype) &&
                          joins(steps[3], steps[1]);
  if (alone || multiplied) tail.kind = KnownTail::Kind::Silu;
  return tail;
}

template <class T>
void run(const FusedProducts& products, int device) {
  Rows<T> p{};
  p.count = products.count;
  p.paired = products.tail && products.count == 2;
  p.early = products.early;
  for (int i = 0; i < p.count; ++i) p.products[i] = operands<T>(products.products[i]);
  const auto with_norm = [&](const auto& tail) {
    if (!products.norm) return start(p, NoNorm{}, tail, device);
    const FusedRowNorm& n = *products.norm;
    const auto* input = static_cast<const T*>(n.input);
    const auto* weight = static_cast<const T*>(n.weight);
    auto* out = static_cast<T*>(n.out);
    const auto count = static_cast<float>(n.count), eps = static_cast<float>(n.eps);
    if (n.as_written)
      return start(p, WrittenNorm<T>{input, weight, out, n.mean, n.shifted, n.rstd, static_cast<int>(n.count), eps},
                   tail, device);
    const int pieces = static_cast<int>(n.count / kPiece);
    start(p, RowNorm<T>{input, weight, out, n.rstd, pieces, 1.0f / count, eps}, tail, device);
  };
  if (!products.tail) return with_norm(NoTail{});
  const KnownTail tail = known_tail(products);
  const auto address = [&](int operand) { return reinterpret_cast<T*>(products.tail->operands[operand].data); };
  if (tail.kind == KnownTail::Kind::Sum)
    return start(p, NoNorm{}, SumTail<T>{address(tail.row), address(tail.out)}, device);
  if (tail.gate == 1) std::swap(p.products[0], p.products[1]);
  with_norm(SiluTail<T>{address(tail.out)});
}

}  // namespace

bool takes_vector(const MatmulCall& call) {
  const TensorView &out = call.out, &a = call.a, &b = call.b;
  if (out.dtype != DType::BFloat16 && out.dtype != DType::Float16) return false;
  if (a.dtype != out.dtype || b.dtype != out.dtype || out.sizes[0] != 1 || out.sizes[1] != 1) return false;
  const int64_t inner = a.sizes[2];
  if (inner == 0 || inner % kPiece || inner > INT32_MAX || out.sizes[2] > INT32_MAX / 32) return false;
  if (a.strides[2] != 1 || b.strides[1] != 1 || (out.sizes[2] > 1 && out.strides[2] != 1)) return false;
  if (b.strides[2] % kPiece || !is_aligned(a.data) || !is_aligned(b.data)) return false;
  if (!(call.beta.to_complex() == complex128(0))) return false;
  // On an H200, as graphs of such products: 3.8 us for 2048 x 2048, 12.6 for 2048 x 11264, 10.3 for 4096 x 4096, for
  // which cuBLASLt takes 5.8, 14 and 12.8. Of matrices that are much larger both read at the memory's speed.
  constexpr int64_t kMostBytes = 64 << 20;
  return inner * out.sizes[2] * 2 <= kMostBytes;
}

// Rows that the kernel for few rows normalises (run_forward in normalization/layer_norm.cu).
bool takes_row_norm(DType dtype, int64_t count) {
  return (dtype == DType::BFloat16 || dtype == DType::Float16) && count % kPiece == 0 && count > 32 * kPiece &&
         count <= kMostOfNorm;
}

bool takes_tail(const FusedProducts& products) { return known_tail(products).kind != KnownTail::Kind::Unknown; }

void run_fused_products(const FusedProducts& products) {
  const TensorView& out = products.products[0].out;
  const int device = out.device.index();
  DeviceGuard guard(device);
  if (out.dtype == DType::BFloat16) {
    run<bfloat16>(products, device);
  } else {
    run<half>(products, device);
  }
}

bool vector_matmul(const MatmulCall& call) {
  if (!takes_vector(call)) return false;
  run_fused_products({&call, 1, nullptr, nullptr, {}, false});
  return true;
}

}  // namespace mica::cuda
