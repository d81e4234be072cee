// Other processes of this host: whether they live, and how they ended.
#pragma once

#include <cstdint>
#include <string>

namespace mica::distributed {

// When a process started, in ticks since the machine did; 0 if there is no such process.
uint64_t process_start(int64_t process);

// Empty while the process lives; otherwise how it ended, as far as that can be known: "was killed by signal 9
// (SIGKILL)".
std::string process_end(int64_t process, uint64_t started);

// Two processes can see each other's numbers and memory only if this is the same for both: the kernel and the namespace
// of process numbers.
std::string host_identity();

// How a process is scheduled ("running", "sleeping", ...) and the seconds of processor time that it has used.
struct Activity {
  std::string state;
  double seconds = 0;
};
Activity process_activity(int64_t process);

// Called by a thread of the program that waits for other ranks. Where several threads do, one that waits says nothing
// about the others.
void note_program_thread();
bool program_has_one_thread();

// The number of forks of this process: an engine that was made before the last one belongs to the parent.
uint64_t fork_count();

}  // namespace mica::distributed
