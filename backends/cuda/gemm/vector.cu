// One row times matrices. A few warps multiply the row with a few columns: their lanes read pieces of 16 bytes, several
// of which are under way at a time. In a compiled function the row may be normalised first, by each block for itself,
// and a loop over the columns may follow.
//
// A lane adds the products of its pieces one after the other, then the lanes of a warp and then the warps are added.
// That order, and so the bits of a result, depend on the length of the row only.
#include "backends/cuda/gemm/vector.h"

#include <algorithm>
#include <utility>

#include "backends/cuda/fused/codes.h"
#include "backends/cuda/gemm/row_norm.cuh"
#include "backends/cuda/gemm/row_tails.cuh"
#include "backends/cuda/gemm/tails.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/pieces.cuh"
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
  bool paired;
  bool early;  // FusedProducts::early
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

// kWarps warps have kColumns columns together, and a lane has kAtOnce pieces of each under way. Threads bring kOwn
// pieces of the row each to shared memory; if that is none, it is read where it lies. A multiprocessor has room for
// kResident blocks: of four, two wait while two others compute.
template <class T, class N, class F, int kWarps, int kColumns, int kAtOnce, int kOwn, int kResident>
__global__ void __launch_bounds__(kThreads, kResident)
    rows_kernel(const __grid_constant__ Rows<T> p, const __grid_constant__ N norm, const __grid_constant__ F tail) {
  constexpr bool kSum = std::is_same_v<F, SumTail<T>>, kSilu = std::is_same_v<F, SiluTail<T>>,
                 kHeads = std::is_same_v<F, HeadsTail<T>>;
  constexpr int kStep = 32 * kWarps, kTeams = kWarpsOfBlock / kWarps;
  constexpr int kPairs = kColumns / 2;  // where columns of a team belong together by twos
  __shared__ alignas(16) T brought[kOwn ? kOwn * kThreads * kPiece : kPiece];
  __shared__ float of_warps[kWarpsOfBlock][kColumns];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, team = warp / kWarps;
  int block = static_cast<int>(blockIdx.x), k = 0;
  if constexpr (std::is_same_v<F, NoTail> || kHeads) {
#pragma unroll
    for (int i = 1; i < kFusedProducts; ++i)
      if (i < p.count && block >= p.first_block[i]) k = i;
    block -= p.first_block[k];
  }
  const bool paired = kSilu && p.paired;
  const int of_each = paired ? kPairs : kColumns;
  int first = (block * kTeams + team) * of_each;
  // Of heads that are rotated, a team has the same columns of both halves, which lie `half` columns apart.
  int half = 0;
  if constexpr (kHeads)
    if (tail.products[k].rotated) {
      half = tail.products[k].width;
      const int pair = (block * kTeams + team) * kPairs;
      first = pair + pair / half * half;
    }
  // The product of the c-th column, and the column's number there.
  const auto product = [&](int c) -> const Operands<T>& { return p.products[paired ? c / kPairs : k]; };
  const auto column = [&](int c) {
    if (kHeads && half) return first + c / kPairs * half + c % kPairs;
    return first + (paired ? c % kPairs : c);
  };
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
  const bool finishes = lane < of_each && warp % kWarps == 0 && column(lane) < product(0).columns;
  typename F::Beside beside;
  float sums[kColumns] = {};
  const auto add = [&] {
    const auto* row = reinterpret_cast<const int4*>(kOwn ? brought : product(0).row);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (i + u * kStep >= pieces) break;
      const Piece<T> of_row = kOwn ? as_piece<T>(row[i + u * kStep]) : read<T>(row + i + u * kStep);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[c] = plus_product(sums[c], as_piece<T>(under_way[c][u]), of_row);
    }
    i += kAtOnce * kStep;
  };
  // What is under way differs, and paths that are joined would wait for it: so all of it is written twice. Blocks that
  // begin while the kernels before this one still run ask for their columns first. Others ask for the row first, which
  // would come behind the columns and is needed before them.
  const auto multiply = [&](auto early) {
    typename N::template Own<kOwn ? kOwn : 1> own;
    if constexpr (early) ask(), own.ask_weight(norm);
    wait_then_let_follow();
    if constexpr (kOwn) own.ask_row(norm);
    if (finishes) beside.ask(tail, k, column(lane));
    if constexpr (!early) own.ask_weight(norm), ask();
    if constexpr (kOwn) bring(norm, own, brought);
    add();
    while (i < pieces) ask(), add();
  };
  if (p.early) {
    multiply(std::true_type());
  } else {
    multiply(std::false_type());
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], mask);
  if (lane == 0)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) of_warps[warp][c] = sums[c];
  __syncthreads();
  if (!finishes) return;
  const auto result = [&](int c) {
    const Operands<T>& of = product(c);
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += of_warps[warp + w][c];
    sum *= of.alpha;
    if (of.bias) sum += convert<float>(of.bias[column(c)]);
    return convert<T>(sum);
  };
  const auto keep = [&](int c, T rounded) {
    if (T* out = product(c).out) out[column(c)] = rounded;
    return convert<float>(rounded);
  };
  const float value = keep(lane, result(lane));
  if constexpr (kSum) tail.finish(beside, column(lane), value);
  if constexpr (kSilu) {
    if (paired) {
      tail.finish(column(lane), value, keep(lane + kPairs, result(lane + kPairs)));
    } else {
      tail.finish(column(lane), value);
    }
  }
  if constexpr (kHeads) {
    const float other = half ? convert<float>(result(lane ^ kPairs)) : 0;
    tail.finish(beside, k, column(lane), value, other);
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
// are there at once. On an H200, for 2048 x 2048 in a chain of such products: 3.1 us by four columns, 3.6 by two.
constexpr int kFewestByFour = 1024, kMostByFour = 4096;

template <class T, class N, class F>
void start(Rows<T>& p, const N& norm, const F& tail, int device) {
  constexpr bool kNorm = !std::is_same_v<N, NoNorm>;
  const auto run = [&]<int kWarps, int kColumns, int kAtOnce, int kOwn, int kResident = 4>() {
    constexpr int kOfBlock = kWarpsOfBlock / kWarps * kColumns;
    int blocks = 0;
    for (int i = 0; i < p.count; ++i) {
      p.first_block[i] = blocks;
      blocks += static_cast<int>(blocks_for(p.products[i].columns, kOfBlock));
    }
    if (p.paired) blocks = static_cast<int>(blocks_for(p.products[0].columns, kOfBlock / 2));
    constexpr auto kKernel = rows_kernel<T, N, F, kWarps, kColumns, kAtOnce, kOwn, kResident>;
    launch<kKernel>(device, blocks, kThreads, p, norm, tail);
  };
  int columns = 0;
  for (int i = 0; i < p.count; ++i) columns += p.products[i].columns;
  // So many warps share a column that each has work. They have the row, and so its length, in common.
  const int pieces = p.products[0].pieces;
  if constexpr (std::is_same_v<F, NoTail>) {
    if constexpr (!kNorm)
      if (pieces <= 32) return run.template operator()<1, 2, 2, 0>();
    if (pieces <= 64) return run.template operator()<2, 2, 2, kNorm>();
  }
  // Products with a loop behind them stand in a chain. They do best with little under way, which leaves room for blocks
  // of the next kernel: these ask for their matrices early. On an H200, a token of a Llama takes 0.003 ms more where
  // sums have four columns with two pieces each, 0.025 more where gates have them, too, and 0.025 more where heads have
  // them, for which the registers do not suffice.
  if (pieces > kFewPieces) {
    if constexpr (kNorm) {
      run.template operator()<4, 2, 6, 2, 2>();
    } else if constexpr (std::is_same_v<F, NoTail>) {
      run.template operator()<4, 2, 6, 0, 3>();
    } else {
      run.template operator()<4, 2, 2, 0>();
    }
  } else if constexpr (std::is_same_v<F, SiluTail<T>>) {
    run.template operator()<4, 4, 1, kNorm>();
  } else if constexpr (std::is_same_v<F, SumTail<T>>) {
    run.template operator()<4, 2, 2, kNorm>();
  } else if (columns >= kFewestByFour && columns <= kMostByFour) {
    if constexpr (std::is_same_v<F, HeadsTail<T>>) {
      run.template operator()<4, 4, 1, kNorm, 3>();
    } else {
      run.template operator()<4, 4, 2, kNorm>();
    }
  } else {
    run.template operator()<4, 2, 2, kNorm>();
  }
}

template <class T>
HeadsTail<T> heads_tail(const FusedProducts& products, int device) {
  HeadsTail<T> made{};
  bool placed = false;
  for (int i = 0; i < products.ntails; ++i) {
    const FusedLoop& loop = *products.tails[i].loop;
    const KnownTail tail = known_tail(products, products.tails[i]);
    typename HeadsTail<T>::Product& to = made.products[tail.product];
    to.rotated = tail.rotates;
    to.width = static_cast<int>(tail.rotates ? tail.width / 2 : tail.width);
    const auto address = [&](int operand) { return reinterpret_cast<T*>(loop.operands[operand].data); };
    for (int half = 0; half <= to.rotated; ++half) {
      typename HeadsTail<T>::Part& part = to.parts[half];
      part.out = address(tail.out[half]);
      part.index = loop.operands[tail.out[half]].index;
      if (tail.rotates) part.cos = address(tail.cos[half]), part.sin = address(tail.sin[half]);
    }
    const FusedLoop::Operand& out = loop.operands[tail.out[0]];
    constexpr int64_t kBytes = sizeof(T);
    if (loop.ndim > 1) to.pitch = out.strides[0] / kBytes;
    to.step = out.step / kBytes, to.places = out.size, to.dim = out.dim;
    placed |= out.index != nullptr;
  }
  // A product that no loop follows has one head.
  for (int i = 0; i < products.count; ++i)
    if (!made.products[i].width) made.products[i].width = static_cast<int>(products.products[i].out.sizes[2]);
  if (placed) made.bounds = Bounds::of(kIndexedOperation, device);
  return made;
}

template <class T>
void run(const FusedProducts& products, int device) {
  Rows<T> p{};
  p.count = products.count;
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
  if (products.ntails == 0) return with_norm(NoTail{});
  const KnownTail tail = known_tail(products, products.tails[0]);
  const auto address = [&](int k) { return reinterpret_cast<T*>(products.tails[0].loop->operands[k].data); };
  if (tail.kind == KnownTail::Kind::Sum)
    return start(p, NoNorm{}, SumTail<T>{address(tail.row), address(tail.out[0])}, device);
  if (tail.kind == KnownTail::Kind::Heads) return with_norm(heads_tail<T>(products, device));
  p.paired = products.count == 2;
  if (tail.product == 1) std::swap(p.products[0], p.products[1]);
  with_norm(SiluTail<T>{address(tail.out[0])});
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
  // which cuBLASLt takes 5.8, 14 and 12.8. A token of a Llama whose last layer is 2048 x 32000 (131 MB) took 0.815
  // ms instead of 0.838. Of matrices that are much larger both read at the memory's speed.
  constexpr int64_t kMostBytes = 160 << 20;
  return inner * out.sizes[2] * 2 <= kMostBytes;
}

// Rows that the kernel for few rows normalises (run_forward in normalization/layer_norm.cu).
bool takes_row_norm(DType dtype, int64_t count) {
  return (dtype == DType::BFloat16 || dtype == DType::Float16) && count % kPiece == 0 && count > 32 * kPiece &&
         count <= kMostOfNorm;
}

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
  run_fused_products({&call, 1, nullptr, nullptr, 0, false});
  return true;
}

}  // namespace mica::cuda
