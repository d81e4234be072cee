#include "core/block_work.h"

#include <utility>

namespace mica::recording {

static constinit thread_local BlockWork* given_work = nullptr;

BlockWorkScope::BlockWorkScope(BlockWork* work) { given_work = work; }
BlockWorkScope::~BlockWorkScope() { given_work = nullptr; }

BlockWork* take_block_work() { return std::exchange(given_work, nullptr); }

}  // namespace mica::recording
