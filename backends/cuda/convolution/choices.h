// Which engine a convolution was given in earlier runs of programs on this machine, kept in a file.
#pragma once

#include <optional>

#include "backends/cuda/convolution/plan.h"

namespace mica::cuda {

// A place in the list of engines that cuDNN's heuristic names, and how many of the list were compared to find it.
struct EngineChoice {
  int engine, compared;
};

// What the file says of a convolution. The file belongs to one version of cuDNN and one kind of GPU, for another names
// other engines.
std::optional<EngineChoice> remembered_choice(const ConvolutionKey& key);

// Adds a line to the file. Where none can be written, nothing happens: the next run compares again.
void remember_choice(const ConvolutionKey& key, EngineChoice choice);

}  // namespace mica::cuda
