// What src/core has for many threads and processes, for the one thread of a page. Takes the place of parallel.cpp and
// fork.cpp there.
#include <pthread.h>

#include "mica/core/fork.h"
#include "mica/error.h"
#include "mica/parallel.h"

namespace mica {

int get_num_threads() { return 1; }
void set_num_threads(int n) { MICA_CHECK(n > 0, "set_num_threads expects a positive integer, got ", n); }
bool in_parallel_region() { return false; }
int thread_index() { return 0; }

void parallel_for(int64_t begin, int64_t end, int64_t, FunctionRef<void(int64_t, int64_t)> body) {
  if (begin < end) body(begin, end);
}

// Nobody forks.
void detail::ForkParticipant::enrol() {}
void detail::ForkParticipant::withdraw() {}
void ForkGate::enter() {}
void ForkGate::leave() {}
void ForkGate::take() {}
bool ForkGate::try_to_take() { return true; }
void ForkGate::give_back(bool) {}
void take_locks_before_known_fork_handlers() {}
void in_child_of_fork(void (*)()) {}

}  // namespace mica

// emscripten's library for one thread lacks it.
extern "C" int pthread_setname_np(pthread_t, const char*) { return 0; }
