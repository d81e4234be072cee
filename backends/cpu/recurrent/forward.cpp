// One direction of a recurrent layer, run over time.
#include <algorithm>
#include <cstring>
#include <optional>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/recurrent/forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/recurrent/cells-inl.h"
#include "backends/cpu/recurrent/packed_weight.h"
#include "backends/cpu/scratch.h"
#include "backends/shared/time_steps.h"
#include "backends/cpu/simd_register.h"
#include "mica/parallel.h"
#include "mica/backend/tensor_view.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace {

template <class T>
struct ForwardRun {
  CellKind kind;
  // `state` is the width of h, which is smaller than the cell's where there is a projection.
  int64_t units, gate_width, state;
  T *output, *gates, *cells;
  int64_t output_stride;
  const T *h0, *c0, *b_hh;
  T* hidden = nullptr;       // GRU: one step's products with the state
  T* unprojected = nullptr;  // with a projection: one step's h before it
  DType stored;              // states are rounded to this dtype after every step, as separate cells would do

  // Fills the rows that the products of panel p are added to.
  void begin_panel(const TimeStep& s, int64_t begin, int64_t end) const {
    if (!hidden) return;
    for (int64_t i = 0; i < s.count; ++i) {
      for (int64_t g = 0; g < 3; ++g) {
        T* to = hidden + i * gate_width + g * units;
        if (b_hh) {
          std::copy(b_hh + g * units + begin, b_hh + g * units + end, to + begin);
        } else {
          std::fill(to + begin, to + end, T(0));
        }
      }
    }
  }

  void round_to_stored(T* values, int64_t count) const {
    if constexpr (sizeof(T) == 4) {
      if (stored == DType::BFloat16) round_run<BFloat16Bits>(values, count);
      if (stored == DType::Float16) round_run<HalfBits>(values, count);
    }
  }

  T* products(const TimeStep& s) const { return hidden ? hidden : gates + s.offset * gate_width; }

  void cells_of(const TimeStep& s, int64_t begin, int64_t end) const {
    const int64_t count = end - begin;
    for (int64_t i = 0; i < s.count; ++i) {
      const int64_t row = s.offset + i;
      const bool first = i >= s.before_count;
      T* h = unprojected ? unprojected + i * units + begin : output + row * output_stride + begin;
      T* gate = gates + row * gate_width + begin;
      switch (kind) {
        case CellKind::Relu:
          elman_forward<false>(gate, h, count);
          break;
        case CellKind::Tanh:
          elman_forward<true>(gate, h, count);
          break;
        case CellKind::Lstm:
          lstm_forward(gate, units, first ? c0 + i * units + begin : cells + (s.before_offset + i) * units + begin,
                       cells + row * units + begin, h, count);
          break;
        case CellKind::Gru:
          gru_forward(gate, hidden + i * gate_width + begin, units,
                      first ? h0 + i * state + begin : output + (s.before_offset + i) * output_stride + begin,
                      cells + row * units + begin, h, count);
          break;
      }
      round_to_stored(h, count);
      if (kind == CellKind::Lstm) round_to_stored(cells + row * units + begin, count);
    }
  }
};

// A single step is not worth packing the weight for.
template <class T>
void multiply_once(const T* from, int64_t from_stride, const T* weight, int64_t columns, int64_t depth, T* to,
                   int64_t to_stride, int64_t rows, bool accumulate) {
  GemmCall call;
  call.dtype = dtype_v<T>;
  call.m = rows;
  call.n = columns;
  call.k = depth;
  call.a = {from, from_stride, 1, 0};
  call.b = {weight, 1, depth, 0};
  call.c = to;
  call.c_row_stride = to_stride;
  call.c_col_stride = 1;
  call.beta = accumulate ? 1 : 0;
  gemm(call);
}

template <class T>
void run_forward(const TensorView& output, const TensorView& hy, const TensorView& cy, const TensorView& gates,
                 const TensorView& cells, const TensorView& h0, const TensorView& c0, const TensorView& w_hh,
                 const TensorView& b_hh, const TensorView& w_hr, IntArrayRef batch_sizes, CellKind kind, bool reverse,
                 DType stored) {
  ForwardRun<T> run;
  run.kind = kind;
  run.stored = stored;
  run.gate_width = gates.size(1);
  run.units = run.gate_width / gates_of(kind);
  run.state = h0.size(1);
  run.output = output.ptr<T>();
  run.output_stride = output.stride(0);
  run.gates = gates.ptr<T>();
  run.cells = cells.ptr<T>();
  run.h0 = h0.ptr<T>();
  run.c0 = c0.defined() ? c0.ptr<T>() : nullptr;
  run.b_hh = b_hh.defined() ? b_hh.ptr<T>() : nullptr;
  const int64_t batch = h0.size(0);
  Scratch<T> hidden(kind == CellKind::Gru ? batch * run.gate_width : 0);
  Scratch<T> unprojected(w_hr.defined() ? batch * run.units : 0);
  if (kind == CellKind::Gru) run.hidden = hidden.data();
  if (w_hr.defined()) run.unprojected = unprojected.data();

  const std::vector<TimeStep> steps = time_steps(batch_sizes, reverse);
  if (steps.size() == 1) {
    const TimeStep& s = steps[0];
    run.begin_panel(s, 0, run.units);
    multiply_once(run.h0, run.state, w_hh.ptr<T>(), run.gate_width, run.state, run.products(s), run.gate_width, s.count,
                  true);
    parallel_for(0, run.units, std::max<int64_t>(64, 4096 / s.count),
                 [&](int64_t begin, int64_t end) { run.cells_of(s, begin, end); });
    if (run.unprojected)
      multiply_once(run.unprojected, run.units, w_hr.ptr<T>(), run.state, run.units, run.output, run.output_stride,
                    s.count, false);
  } else {
    const PackedWeight<T> weight(w_hh.ptr<T>(), run.state, gates_of(kind), run.units, 1, run.state);
    std::optional<PackedWeight<T>> projection;
    if (run.unprojected) projection.emplace(w_hr.ptr<T>(), run.units, 1, run.state, 1, run.units);
    for (const TimeStep& s : steps) {
      parallel_for(0, weight.panels(), weight.grain(s.count), [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p) {
          const int64_t begin = weight.begin_of(p), end = weight.end_of(p), before = s.before_count;
          T* to = run.products(s);
          run.begin_panel(s, begin, end);
          weight.multiply(p, run.output + s.before_offset * run.output_stride, run.output_stride, to, run.gate_width,
                          before, true);
          weight.multiply(p, run.h0 + before * run.state, run.state, to + before * run.gate_width, run.gate_width,
                          s.count - before, true);
          run.cells_of(s, begin, end);
        }
      });
      if (!projection) continue;
      parallel_for(0, projection->panels(), projection->grain(s.count), [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p) {
          projection->multiply(p, run.unprojected, run.units, run.output + s.offset * run.output_stride,
                               run.output_stride, s.count, false);
          for (int64_t i = 0; i < s.count; ++i)
            run.round_to_stored(run.output + (s.offset + i) * run.output_stride + projection->begin_of(p),
                                projection->end_of(p) - projection->begin_of(p));
        }
      });
    }
  }

  std::vector<int64_t> last_row(static_cast<size_t>(batch));
  for (const TimeStep& s : steps)
    for (int64_t i = 0; i < s.count; ++i) last_row[i] = s.offset + i;
  for (int64_t i = 0; i < batch; ++i) {
    std::memcpy(hy.ptr<T>() + i * run.state, run.output + last_row[i] * run.output_stride, run.state * sizeof(T));
    if (kind == CellKind::Lstm)
      std::memcpy(cy.ptr<T>() + i * run.units, run.cells + last_row[i] * run.units, run.units * sizeof(T));
  }
}

void forward_kernel(const TensorView& output, const TensorView& hy, const TensorView& cy, const TensorView& gates,
                    const TensorView& cells, const TensorView& h0, const TensorView& c0, const TensorView& w_hh,
                    const TensorView& b_hh, const TensorView& w_hr, IntArrayRef batch_sizes, int64_t mode, bool reverse,
                    DType stored) {
  const auto run = gates.dtype == DType::Float64 ? &run_forward<double> : &run_forward<float>;
  run(output, hy, cy, gates, cells, h0, c0, w_hh, b_hh, w_hr, batch_sizes, static_cast<CellKind>(mode), reverse,
      stored);
}

}  // namespace
}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(forward_kernel);
MICA_REGISTER_SIMD(recurrent_forward, forward_kernel);
}  // namespace mica::cpu
#endif
