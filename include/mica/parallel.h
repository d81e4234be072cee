// The one pool of threads: every kernel and BLAS run on it. Safe to use after fork (the child starts a pool of its
// own).
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace mica {

// A non-owning reference to a callable: no allocation, one indirect call.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>) FunctionRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))), call_([](void* o, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(o))(static_cast<Args&&>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, static_cast<Args&&>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

int get_num_threads();
void set_num_threads(int n);
bool in_parallel_region();
int thread_index();  // 0 in the calling thread, 1.. in the workers, within parallel_for

// Splits [begin, end) into at most get_num_threads() contiguous chunks of at least `grain` elements and runs `body(b,
// e)` on each, one of them on the calling thread. Runs inline when there is one chunk or when called from inside a
// parallel region. An exception thrown by a chunk is rethrown here after all chunks have ended.
void parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

}  // namespace mica
