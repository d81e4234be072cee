// The tile unit of x86-64 (AMX): whether the machine has it, and how a thread enters and leaves it. Functions that use
// its instructions name them as their targets, so that they run nowhere else.
#pragma once

namespace mica::cpu {

// Whether the CPU has it for these products and the kernel has granted its registers to this process.
bool has_bfloat16_tiles();
bool has_int8_tiles();

// Every tile has 16 rows of 64 bytes. A thread leaves the unit before it does something else: otherwise the contents of
// tiles are saved and restored with it.
void enter_tiles();
void leave_tiles();

}  // namespace mica::cpu
