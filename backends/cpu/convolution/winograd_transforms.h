// The linear maps of Winograd's F(2x2, 3x3), by which 4 x 4 inputs make 2 x 2 outputs in 16 products instead of 36.
// Vectors run along channels. The 16 coefficients of a tile lie `plane` floats apart.
#pragma once

#include <cstdint>

namespace mica::cpu::convolution {

inline constexpr int64_t kCoefficients = 16;

struct WinogradTransforms {
  int64_t lanes;  // channels are padded to a multiple of this in coefficients

  // Transforms a row of tiles. `source` is the first input of the first tile. Rows of inputs are `row` floats apart, a
  // column has `channels` floats, tiles are `step` floats apart in `to`. Reads up to `lanes` floats behind the last.
  void (*input)(const float* source, int64_t row, int64_t channels, int64_t tiles, float* to, int64_t step,
                int64_t plane);
  // Writes the outputs of a row of tiles: rows of `width` columns, `column` and `row` floats apart. The second row is
  // left out if `rows` is one. `bias` may be null. Returns whether all outputs are finite.
  bool (*output)(const float* from, int64_t step, int64_t plane, int64_t tiles, int64_t filters, const float* bias,
                 float* target, int64_t row, int64_t column, int64_t rows, int64_t width);
  // The adjoint of `output`: the gradients of the coefficients from those of the outputs. Gradients outside of `rows`
  // and `width` are zeros.
  void (*gradient)(const float* source, int64_t row, int64_t column, int64_t rows, int64_t width, int64_t tiles,
                   int64_t filters, float* to, int64_t step, int64_t plane);

  // Transforms filters of 3 x 3 taps to coefficients, and the adjoint. `count` filters lie side by side, a multiple of
  // `lanes`, and taps `step` floats apart. The adjoint first adds up `shares` sets of coefficients, and returns whether
  // all taps are finite.
  void (*filters)(const float* taps, int64_t step, int64_t count, float* to, int64_t plane);
  bool (*filter_gradients)(const float* from, int64_t plane, int64_t shares, int64_t share, int64_t count, float* taps,
                           int64_t step);
};
const WinogradTransforms& winograd_transforms();

}  // namespace mica::cpu::convolution
