#include "core/block_work.h"

#include <utility>

namespace mica::recording {

static constinit thread_local BlockWork* given_work = nullptr;
static constinit thread_local const ChannelFactors* given_factors = nullptr;

BlockWorkScope::BlockWorkScope(BlockWork* work, const ChannelFactors* factors) {
  given_work = work;
  given_factors = factors;
}
BlockWorkScope::~BlockWorkScope() {
  given_work = nullptr;
  given_factors = nullptr;
}

BlockWork* take_block_work() { return std::exchange(given_work, nullptr); }
const ChannelFactors* take_channel_factors() { return std::exchange(given_factors, nullptr); }

}  // namespace mica::recording
