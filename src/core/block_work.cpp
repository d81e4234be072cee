#include "core/block_work.h"

#include <utility>

namespace mica::recording {

static constinit thread_local BlockWork* given_work = nullptr;
static constinit thread_local const ChannelFactors* given_factors = nullptr;
static constinit thread_local bool given_interleaved = false;

BlockWorkScope::BlockWorkScope(BlockWork* work, const ChannelFactors* factors, bool interleaved) {
  given_work = work;
  given_factors = factors;
  given_interleaved = interleaved;
}
BlockWorkScope::~BlockWorkScope() {
  given_work = nullptr;
  given_factors = nullptr;
  given_interleaved = false;
}

BlockWork* take_block_work() { return std::exchange(given_work, nullptr); }
const ChannelFactors* take_channel_factors() { return std::exchange(given_factors, nullptr); }
bool take_interleaved() { return std::exchange(given_interleaved, false); }

}  // namespace mica::recording
