#include "backends/cuda/recurrent/weights.h"

#include <algorithm>

#include "backends/cuda/launch.cuh"

namespace mica::cuda::recurrent {

namespace {

constexpr int kPieces = 64, kCopyThreads = 256, kMostBlocksOfPiece = 256;

struct Piece {
  const unsigned char* from;
  unsigned char* to;
  int64_t bytes;
};
struct Pieces {
  Piece piece[kPieces];
};

template <class Word>
__device__ void copy_words(const Piece& p) {
  const int64_t words = p.bytes / static_cast<int64_t>(sizeof(Word)), step = int64_t{gridDim.x} * kCopyThreads;
  for (int64_t i = int64_t{blockIdx.x} * kCopyThreads + threadIdx.x; i < words; i += step)
    reinterpret_cast<Word*>(p.to)[i] = reinterpret_cast<const Word*>(p.from)[i];
}

__global__ void __launch_bounds__(kCopyThreads) copy_pieces(Pieces pieces) {
  wait_for_predecessors();
  const Piece& p = pieces.piece[blockIdx.y];
  const auto together =
      reinterpret_cast<uintptr_t>(p.from) | reinterpret_cast<uintptr_t>(p.to) | static_cast<uintptr_t>(p.bytes);
  if (together % 16 == 0)
    copy_words<uint4>(p);
  else if (together % 4 == 0)
    copy_words<uint32_t>(p);
  else
    copy_words<uint16_t>(p);
}

}  // namespace

void gather_weights(void* to, TensorViewList parameters, const std::vector<int64_t>& offsets, int device) {
  for (size_t begin = 0; begin < parameters.size(); begin += kPieces) {
    const size_t count = std::min<size_t>(kPieces, parameters.size() - begin);
    Pieces pieces{};
    int64_t longest = 0;
    for (size_t i = 0; i < count; ++i) {
      const TensorView& t = *parameters[begin + i];
      const auto width = static_cast<int64_t>(element_size(t.dtype));
      pieces.piece[i] = {t.ptr<const unsigned char>(), static_cast<unsigned char*>(to) + offsets[begin + i] * width,
                         t.numel * width};
      longest = std::max(longest, pieces.piece[i].bytes);
    }
    const int64_t blocks = std::clamp<int64_t>(longest / (16 * kCopyThreads), 1, kMostBlocksOfPiece);
    launch<copy_pieces>(device, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(count)), kCopyThreads,
                        pieces);
  }
}

}  // namespace mica::cuda::recurrent
