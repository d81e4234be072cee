// The register tiles of direct convolutions, chosen once per CPU.
#pragma once

#include <cstdint>

namespace mica::cpu::convolution {

// The sums of `rows` positions and `cols` filters. The factors of a position lie in runs of `run_length` adjacent
// floats, at the same offsets for every position. The panel has a vector of weights, as wide as itself, for each
// factor.
struct DirectTile {
  const float* source;  // what the offsets of the first position's runs count from
  int64_t position_stride;
  const int64_t* runs;  // offsets of the runs
  int64_t run_count, run_length;
  const float* panel;
  const float* bias;  // as many numbers as the panel is wide, or null
  float* target;
  int64_t target_stride;
  int rows, cols;
  const char* soon = nullptr;  // memory that later tiles read, to be fetched: `soon_step` bytes with every factor
  int64_t soon_step = 0;
};

struct DirectKernel {
  int rows;   // the most positions of a tile
  int width;  // the filters of a panel
  void (*run)(const DirectTile&);
  int long_run_rows;  // the same where runs are long
  static constexpr int64_t kLongRun = 32;
  int rows_of(int64_t run_length) const { return run_length >= kLongRun ? long_run_rows : rows; }
};
const DirectKernel& direct_kernel();

}  // namespace mica::cpu::convolution
