#include "backends/cpu/linalg/lapack.h"

#include <dlfcn.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include "mica/backend/linalg_library.h"
#include "mica/error.h"
#include "mica/parallel.h"

namespace mica {

namespace {
std::string (*path_finder)() = nullptr;
}

void set_lapack_path_finder(std::string (*finder)()) { path_finder = finder; }

namespace cpu::lapack {
namespace {

constexpr const char* kRoutineNames[][2] = {
#define MICA_LAPACK_NAME(name, real, complex) {real, complex},
    MICA_LAPACK_ROUTINES(MICA_LAPACK_NAME)
#undef MICA_LAPACK_NAME
};

// OpenBLAS from PyPI has its names prefixed, so that it can live beside another one.
constexpr const char* kPrefixes[] = {"", "scipy_"};

// When OpenBLAS is opened, it starts a thread with memory of its own for every processor that it sees. While this
// object lives it sees one; threads come when a large matrix is shared among them, as many as Mica has. Otherwise,
// where memory is limited and processors are many, it would look for memory without end.
class OneProcessor {
 public:
  OneProcessor() : known_(sched_getaffinity(0, sizeof before_, &before_) == 0) {
    const int here = sched_getcpu();
    if (!known_ || here < 0 || !CPU_ISSET(here, &before_)) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    changed_ = sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~OneProcessor() {
    if (changed_) sched_setaffinity(0, sizeof before_, &before_);
  }
  OneProcessor(const OneProcessor&) = delete;
  OneProcessor& operator=(const OneProcessor&) = delete;

 private:
  cpu_set_t before_;
  bool known_ = false;
  bool changed_ = false;
};

struct Library {
  void* handle = nullptr;
  std::string prefix;
  std::string tried;  // where a library was looked for, and with what result
  void (*set_num_threads)(int) = nullptr;
  std::array<std::array<std::atomic<void*>, 4>, static_cast<size_t>(Routine::kCount)> routines{};

  void* symbol(const std::string& name) const { return dlsym(handle, (prefix + name).c_str()); }

  bool open(const std::string& path) {
    if (path.empty()) return false;
    {
      const OneProcessor while_it_opens;
      handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (!handle) {
      const char* why = dlerror();
      tried += "\n  " + path + ": " + (why ? why : "cannot be opened");
      return false;
    }
    for (const char* candidate : kPrefixes) {
      prefix = candidate;
      if (symbol("dgesdd_") && symbol("dtrsm_")) return true;
    }
    tried += "\n  " + path + ": has no LAPACK routines of 32-bit integers";
    dlclose(handle);
    handle = nullptr;
    return false;
  }

  explicit Library(const std::string& installed) {
    const char* chosen = std::getenv("MICA_LAPACK");
    if (chosen && *chosen) {
      open(chosen);
    } else {
      open(installed);
      for (const char* path : {"libopenblas.so.0", "libopenblas.so", "liblapack.so.3"})
        if (!handle) open(path);
    }
    if (!handle) return;
    set_num_threads = reinterpret_cast<void (*)(int)>(symbol("openblas_set_num_threads"));
    if (set_num_threads) set_num_threads(1);
    take_locks_before_known_fork_handlers();  // OpenBLAS has fork handlers, which must not run beside a call
  }
};

MadeOnce<Library> opened_library;  // never closed: its threads may outlive static objects

Library& library() {
  if (Library* known = opened_library.known()) return *known;
  // This may run Python, so it comes before any lock is taken.
  const std::string installed = path_finder ? path_finder() : "";
  return opened_library.get([&] { return new Library(installed); });
}

ForkGate gate(LockOrder::Lapack);

// One large matrix at a time is shared among the threads of OpenBLAS. The jobs that it makes of a matrix wait for each
// other, so that our pool, which may run them one after the other, cannot run them. Their number is a setting of the
// whole library.
std::mutex sharing;
HeldOverFork sharing_held(sharing, LockOrder::LapackThreads);

}  // namespace

void* find(Routine routine, int type) {
  Library& opened = library();
  std::atomic<void*>& place = opened.routines[static_cast<size_t>(routine)][static_cast<size_t>(type)];
  if (void* known = place.load(std::memory_order_acquire)) return known;
  const std::string name = std::string(1, "sdcz"[type]) + kRoutineNames[static_cast<size_t>(routine)][type >= 2] + "_";
  MICA_CHECK(opened.handle, "linear algebra needs a LAPACK library, and none was found. Install one (`pip install ",
             "scipy-openblas32`, or Debian's libopenblas0), or name its file in MICA_LAPACK. Tried:", opened.tried);
  void* found = opened.symbol(name);
  MICA_CHECK(found, "the LAPACK library has no routine ", name, "; name another one in MICA_LAPACK");
  place.store(found, std::memory_order_release);
  return found;
}

bool is_there() { return library().handle != nullptr; }

// The library is opened before the gate is passed, since that may run Python.
Calls::Calls() : pass_((library(), gate)) {}

Threads::Threads(bool many) : many_(many && get_num_threads() > 1 && !in_parallel_region()) {
  Library& opened = library();
  many_ = many_ && opened.set_num_threads && sharing.try_lock();
  if (many_) opened.set_num_threads(get_num_threads());
}

Threads::~Threads() {
  if (!many_) return;
  library().set_num_threads(1);
  sharing.unlock();
}

}  // namespace cpu::lapack
}  // namespace mica
