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

// What two processes must have in common to see each other's numbers and memory: the kernel and the namespace of
// process numbers.
std::string host_identity();

// What a process does: how it is scheduled ("running", "sleeping", ...) and the processor's seconds that it has used.
struct Activity {
  std::string state;
  double seconds = 0;
};
Activity process_activity(int64_t process);

// A thread of the program says that it waits for other ranks. Where several have done so, one that stands still says
// nothing about the rest.
void note_program_thread();
bool program_has_one_thread();

// Counts the forks of this process: an engine made before the last one belongs to the parent.
uint64_t fork_count();

}  // namespace mica::distributed
