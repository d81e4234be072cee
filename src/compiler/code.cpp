// Makes the code of programs and keeps it by program, in memory that is executed and no longer written.
#include "compiler/code.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/assembler.h"
#include "core/compiler_switch.h"
#include "mica/core/fork.h"
#include "mica/core/recording.h"

#if (defined(__aarch64__) || defined(__x86_64__)) && defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#define MICA_MAKES_CODE 1
#else
#define MICA_MAKES_CODE 0
#endif

namespace mica::recording {

namespace {

constexpr size_t kMostPrograms = 4096;  // each takes a page; for further programs no code is made

bool assemble_here([[maybe_unused]] const Program& program, [[maybe_unused]] std::vector<uint8_t>& code) {
#if !MICA_MAKES_CODE
  return false;
#elif defined(__aarch64__)
  return assemble_arm64(program, code);
#else
  static const bool able = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return able && assemble_x86_64(program, code);
#endif
}

// Puts the code into pages of its own. These are writable first and executable then, never both at a time. Null where
// the system does not allow that.
Code executable([[maybe_unused]] const std::vector<uint8_t>& code) {
#if MICA_MAKES_CODE
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = (code.size() + page - 1) / page * page;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memcpy(memory, code.data(), code.size());
  if (mprotect(memory, bytes, PROT_READ | PROT_EXEC) != 0) {
    munmap(memory, bytes);
    return nullptr;
  }
  __builtin___clear_cache(static_cast<char*>(memory), static_cast<char*>(memory) + code.size());
  return reinterpret_cast<Code>(memory);
#else
  return nullptr;
#endif
}

std::string key_of(const Program& p) {
  std::string key;
  const auto add = [&](const void* data, size_t bytes) { key.append(static_cast<const char*>(data), bytes); };
  const uint8_t sizes[] = {static_cast<uint8_t>(p.streams), static_cast<uint8_t>(p.constants),
                           static_cast<uint8_t>(p.steps), static_cast<uint8_t>(p.stores)};
  add(sizes, sizeof sizes);
  add(p.kinds, static_cast<size_t>(p.streams) * sizeof(p.kinds[0]));
  add(p.code, static_cast<size_t>(p.steps) * sizeof(p.code[0]));
  add(p.stored, static_cast<size_t>(p.stores) * sizeof(p.stored[0]));
  return key;
}

struct Made {
  std::unordered_map<std::string, Code> by_program;
  std::mutex mutex;
  HeldOverFork held{mutex, LockOrder::Plans};
};
Made& made_codes() {
  static auto* made = new Made;  // never destroyed: threads compile until the process ends
  return *made;
}

std::atomic<bool>& generates() {
  static std::atomic<bool> on = is_switched_on("MICA_COMPILER_CODE");
  return on;
}

}  // namespace

bool generate_code(bool on) { return generates().exchange(on); }
bool generates_code() { return generates().load(std::memory_order_relaxed); }

Code code_of(const Program& program) {
  if (!generates_code()) return nullptr;
  Made& made = made_codes();
  const std::string key = key_of(program);
  const std::lock_guard lock(made.mutex);
  if (const auto found = made.by_program.find(key); found != made.by_program.end()) return found->second;
  if (made.by_program.size() >= kMostPrograms) return nullptr;
  std::vector<uint8_t> code;
  return made.by_program[key] = assemble_here(program, code) ? executable(code) : nullptr;
}

}  // namespace mica::recording
