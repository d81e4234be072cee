// Whether kernels follow each other soon, so that threads which wait for the next one had better not sleep.
#pragma once

namespace mica {

// From expect_work(true) to expect_work(false), threads of the pool that have nothing to do wait longer before they
// sleep: waking one takes as long as a small kernel. Calls may be nested, and come from several threads.
void expect_work(bool on);

}  // namespace mica
