// The engines that earlier runs of programs on this machine chose for convolutions, kept in a file.
#pragma once

#include <optional>

#include "backends/cuda/convolution/plan.h"

namespace mica::cuda {

// A place in the list of engines that cuDNN's heuristic names, and how many of the list were compared to find it.
struct EngineChoice {
  int engine, compared;
};

// The file's choice for a convolution. A file belongs to one version of cuDNN and one kind of GPU, because others name
// other engines.
std::optional<EngineChoice> remembered_choice(const ConvolutionKey& key);

// Adds a line to the file. Where none can be written, nothing happens: the next run compares again.
void remember_choice(const ConvolutionKey& key, EngineChoice choice);

}  // namespace mica::cuda
