// The linear maps of Winograd's F(2x2, 3x3): tiles of 4 x 4 inputs and 2 x 2 outputs meet in 16 products instead of 36.
// Channels run along vectors; the 16 coefficients of a tile lie `plane` floats apart.
#pragma once

#include <cstdint>

namespace mica::cpu::convolution {

inline constexpr int64_t kCoefficients = 16;

struct WinogradTransforms {
  int64_t lanes;  // padding of channels in coefficients

  // A row of tiles: source is the first input of the first tile, `row` floats from one row of inputs to the next, with
  // `channels` floats per column. Reads up to `lanes` floats behind the last. A tile's coefficients are `step` apart.
  void (*input)(const float* source, int64_t row, int64_t channels, int64_t tiles, float* to, int64_t step,
                int64_t plane);
  // The outputs of a row of tiles into rows of `width` columns, `column` and `row` floats apart; the second row is left
  // out if `rows` is one. `bias` may be null. Returns whether all outputs are finite.
  bool (*output)(const float* from, int64_t step, int64_t plane, int64_t tiles, int64_t filters, const float* bias,
                 float* target, int64_t row, int64_t column, int64_t rows, int64_t width);
  // The adjoint of `output`: what outputs' gradients give to the coefficients. Gradients outside `rows` and `width` are
  // zeros.
  void (*gradient)(const float* source, int64_t row, int64_t column, int64_t rows, int64_t width, int64_t tiles,
                   int64_t filters, float* to, int64_t step, int64_t plane);

  // Filters of 3 x 3 taps to coefficients, and the adjoint; `count` filters side by side, a multiple of `lanes`. Taps
  // lie `step` floats apart, row by row. The adjoint first adds up `shares` sets of coefficients, and returns whether
  // all taps are finite.
  void (*filters)(const float* taps, int64_t step, int64_t count, float* to, int64_t plane);
  bool (*filter_gradients)(const float* from, int64_t plane, int64_t shares, int64_t share, int64_t count, float* taps,
                           int64_t step);
};
const WinogradTransforms& winograd_transforms();

}  // namespace mica::cpu::convolution
