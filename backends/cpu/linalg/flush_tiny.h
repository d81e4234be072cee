// While an object of this class lives, subnormal results become zero in this thread. On x86-64 such numbers take a
// hundred times as long as others, and iterations that make elements vanish are full of them. Only for matrices whose
// largest element is so much larger that nothing is lost.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mica::cpu {

class FlushTiny {
 public:
#if defined(__x86_64__)
  explicit FlushTiny(bool wanted) : before_(_mm_getcsr()) {
    if (wanted) _mm_setcsr(before_ | kFlushToZero);
  }
  ~FlushTiny() { _mm_setcsr(before_); }

 private:
  static constexpr unsigned kFlushToZero = 0x8000;
  const unsigned before_;

 public:
#else
  explicit FlushTiny(bool) {}
#endif
  FlushTiny(const FlushTiny&) = delete;
  FlushTiny& operator=(const FlushTiny&) = delete;
};

}  // namespace mica::cpu
