// Convolutions of float32 whose result has its channels side by side (core/interleaved.h), as products: positions are
// rows, filters are columns. Their elements have the bits of the ways that compute channels one after the other.
#pragma once

#include <optional>

#include "backends/cpu/convolution/problem.h"

namespace mica::cpu::convolution {

// Whether the problem is such a product: filters of single pixels. Only where the tile suits it.
bool suits_interleaved(const Problem& p);
void convolve_interleaved(const Problem& p);

// The same for larger filters of a problem that is short and does not go by Winograd, over one image.
bool suits_few_positions(const Problem& p);
void convolve_few_positions(const Problem& p);

// Some images, each with its channels one after the other: as they are, or copied to memory that the object has.
class SeparatedImages {
 public:
  SeparatedImages(const Images& images, int64_t batch, int64_t channels);
  const Images& images() const { return images_; }

 private:
  Images images_;
  std::optional<Scratch> memory_;
};

// A problem of few positions whose images are copied, so that a way computes it that has one channel after the other.
class SeparatedProblem {
 public:
  explicit SeparatedProblem(const Problem& p);
  Problem& problem() { return problem_; }  // to be computed before finish()
  void finish() const;                     // copies the result, and runs the work on it

 private:
  const Problem& original_;
  Problem problem_;
  const SeparatedImages input_{original_.input, original_.batch, original_.channels};
  const Scratch output_{static_cast<size_t>(original_.batch * original_.filters * original_.output.positions()) *
                        sizeof(float)};
};

}  // namespace mica::cpu::convolution
