#include "process.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

namespace mica::distributed {
namespace {

struct Status {
  char state = 0;  // 0 where there is no such process
  uint64_t started = 0;
  int exit_code = -1;
  uint64_t ticks = 0;  // ticks of the processor that it has used
};

// /proc/<process>/stat has the name in parentheses, which may hold spaces, then fields from the third on.
Status read_status(int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return {};
  std::istringstream rest(line.substr(line.rfind(')') + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  if (fields.size() < 20) return {};
  Status status;
  status.state = fields[0][0];
  status.ticks = std::stoull(fields[11]) + std::stoull(fields[12]);   // the 14th and 15th
  status.started = std::stoull(fields[19]);                           // the 22nd
  if (fields.size() >= 50) status.exit_code = std::stoi(fields[49]);  // the 52nd
  return status;
}

std::string describe_exit(int code) {
  if (code < 0) return "has ended";
  if (WIFSIGNALED(code)) {
    const char* name = sigabbrev_np(WTERMSIG(code));
    return "was killed by signal " + std::to_string(WTERMSIG(code)) + " (SIG" + (name ? name : "?") + ")";
  }
  return "has ended with exit status " + std::to_string(WEXITSTATUS(code));
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

const char* name_of_state(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "waiting for a device";
    case 'T':
    case 't':
      return "stopped";
    default:
      return "ending";
  }
}

std::atomic<int> program_threads{0};
std::atomic<uint64_t> forks{0};
const int watching_forks = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

uint64_t process_start(int64_t process) { return read_status(process).started; }

std::string process_end(int64_t process, uint64_t started) {
  const Status status = read_status(process);
  if (status.state == 0 || status.started != started) {
    return "is gone (its parent has taken its exit status)";
  }
  if (status.state == 'Z' || status.state == 'X') return describe_exit(status.exit_code);
  return "";
}

Activity process_activity(int64_t process) {
  const Status status = read_status(process);
  return {name_of_state(status.state), static_cast<double>(status.ticks) / static_cast<double>(sysconf(_SC_CLK_TCK))};
}

void note_program_thread() {
  thread_local const bool counted = (program_threads.fetch_add(1), true);
  (void)counted;
}

bool program_has_one_thread() { return program_threads.load() <= 1; }

std::string host_identity() {
  char target[128] = "";
  const ssize_t length = readlink("/proc/self/ns/pid", target, sizeof target - 1);
  return first_line("/proc/sys/kernel/random/boot_id") + "/" +
         std::string(target, length > 0 ? static_cast<size_t>(length) : 0);
}

uint64_t fork_count() {
  (void)watching_forks;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace mica::distributed
