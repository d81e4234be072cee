// Work on what a kernel computes, block by block: a compiled function's calls that read a convolution's result run on
// each block as soon as that is finished, while it is in a cache (src/compiler/epilogue.h). The kernel decides which
// blocks there are; where none of its ways tells of them, whoever gave the work runs it afterwards.
#pragma once

#include <atomic>
#include <cstdint>

namespace mica::recording {

// Some channels of an image, and of each the same positions one after the other. The result is dense, with channels
// first or interleaved.
struct Block {
  int64_t image, channel, channels, position, positions;
};

class BlockWork {
 public:
  BlockWork() = default;
  virtual ~BlockWork() = default;
  BlockWork(const BlockWork&) = delete;
  BlockWork& operator=(const BlockWork&) = delete;

  // Of a block that is finished, in the thread that has finished it. Doing it again after the block was computed again
  // gives the same.
  virtual void run(const Block& block) = 0;
  void set_done() { done_.store(true, std::memory_order_relaxed); }  // it has run on all blocks
  bool is_done() const { return done_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> done_{false};
};

// Numbers that the kernel multiplies its input by, one for each channel of each image, as it reads it. Steps in floats.
struct ChannelFactors {
  const float* data;
  int64_t image_step, channel_step;
};

// The kernel that this thread calls next takes the work, if it can, and the factors, if there are any. `interleaved`
// says that its result, and its input where that says so, have their channels side by side (core/interleaved.h).
class BlockWorkScope {
 public:
  BlockWorkScope(BlockWork* work, const ChannelFactors* factors, bool interleaved);
  BlockWorkScope(const BlockWorkScope&) = delete;
  BlockWorkScope& operator=(const BlockWorkScope&) = delete;
  ~BlockWorkScope();
};
BlockWork* take_block_work();  // null: there is none
const ChannelFactors* take_channel_factors();
bool take_interleaved();

}  // namespace mica::recording
