// A LAPACK library, which is opened when the first decomposition asks for it. Importing the package and programs
// without linear algebra do not touch it. Routines are called by Fortran's convention: every argument is a pointer.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include "mica/backend/kernel_types.h"
#include "mica/core/fork.h"

namespace mica::cpu::lapack {

using Integer = int32_t;  // the library's INTEGER: only builds with 32 bits are taken

// A routine with its names for real and for complex matrices, without the letter of the type.
#define MICA_LAPACK_ROUTINES(X) \
  X(potrf, "potrf", "potrf")    \
  X(potrs, "potrs", "potrs")    \
  X(potri, "potri", "potri")    \
  X(getrf, "getrf", "getrf")    \
  X(getrs, "getrs", "getrs")    \
  X(getri, "getri", "getri")    \
  X(trsm, "trsm", "trsm")       \
  X(geqrf, "geqrf", "geqrf")    \
  X(orgqr, "orgqr", "ungqr")    \
  X(ormqr, "ormqr", "unmqr")    \
  X(syevd, "syevd", "heevd")    \
  X(sytrd, "sytrd", "hetrd")    \
  X(stedc, "stedc", "stedc")    \
  X(laed4, "laed4", "laed4")    \
  X(geev, "geev", "geev")       \
  X(gebal, "gebal", "gebal")    \
  X(gebak, "gebak", "gebak")    \
  X(gehrd, "gehrd", "gehrd")    \
  X(ormhr, "ormhr", "unmhr")    \
  X(lanv2, "lanv2", "lanv2")    \
  X(larf, "larf", "larf")       \
  X(larfg, "larfg", "larfg")    \
  X(trexc, "trexc", "trexc")    \
  X(gesdd, "gesdd", "gesdd")    \
  X(gebrd, "gebrd", "gebrd")    \
  X(bdsdc, "bdsdc", "bdsdc")    \
  X(gels, "gels", "gels")       \
  X(gelsy, "gelsy", "gelsy")    \
  X(gelsd, "gelsd", "gelsd")    \
  X(gelss, "gelss", "gelss")    \
  X(sytrf, "sytrf", "sytrf")    \
  X(sytrs, "sytrs", "sytrs")    \
  X(hetrf, "sytrf", "hetrf")    \
  X(hetrs, "sytrs", "hetrs")

enum class Routine : int {
#define MICA_LAPACK_NAME(name, real, complex) name,
  MICA_LAPACK_ROUTINES(MICA_LAPACK_NAME)
#undef MICA_LAPACK_NAME
      kCount
};

// The address of a routine; `type` is the place of its letter in "sdcz". Throws, saying what to install, where there is
// no library.
void* find(Routine routine, int type);
bool is_there();  // whether a library was found

template <class T>
inline constexpr int type_of = std::is_same_v<T, float>                 ? 0
                               : std::is_same_v<T, double>              ? 1
                               : std::is_same_v<T, std::complex<float>> ? 2
                                                                        : 3;

template <class T>
struct RealOf {
  using type = T;
};
template <class T>
struct RealOf<std::complex<T>> {
  using type = T;
};
template <class T>
using Real = typename RealOf<T>::type;
template <class T>
inline constexpr bool is_complex_v = !std::is_same_v<T, Real<T>>;

template <class T, class... Arguments>
void call(Routine routine, Arguments*... arguments) {
  reinterpret_cast<void (*)(Arguments * ...)>(find(routine, type_of<T>))(arguments...);
}

// An object of this class lives during every call of the library, in the thread that shares the work out. A fork waits
// until there is none.
class Calls {
 public:
  Calls();

 private:
  ForkGate::Pass pass_;
};

// While this lives, the library may use as many threads as the pool has, for one large matrix. Otherwise it runs on the
// caller's thread.
class Threads {
 public:
  explicit Threads(bool many);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  bool many_;
};

}  // namespace mica::cpu::lapack
