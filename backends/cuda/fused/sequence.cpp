#include "backends/cuda/fused/sequence.h"

#include <cstdlib>
#include <cstring>
#include <numeric>

#include "backends/cuda/fused/text.h"
#include "mica/error.h"

namespace mica::cuda {

namespace {

// What an operand of a loop may touch: bytes from the first to the last. They are runs of `run` bytes that begin at
// `at` and multiples of `pitch` from there; where the pitch is zero, there is one run.
struct Extent {
  uintptr_t first, last, at;
  int64_t run, pitch;
  bool written;
};

// Runs of both may lie between each other, as the halves of rows do.
bool collide(const Extent& a, const Extent& b) {
  if (!(a.written || b.written) || a.last < b.first || b.last < a.first) return false;
  const int64_t pitch = std::gcd(a.pitch, b.pitch);
  if (pitch == 0) return true;
  const int64_t distance = static_cast<int64_t>(b.at - a.at) % pitch,
                from_a = distance < 0 ? distance + pitch : distance;
  return from_a < a.run || from_a + b.run > pitch;
}

std::vector<Extent> extents(const FusedLoop& loop) {
  std::vector<Extent> found;
  for (int k = 0; k < loop.noperands; ++k) {
    const FusedLoop::Operand& o = loop.operands[k];
    const auto at = reinterpret_cast<uintptr_t>(o.data);
    const int64_t size = element_size(o.dtype);
    Extent e{at, at + static_cast<uintptr_t>(size) - 1, at, size, 0, false};
    const auto widen = [&e](int64_t stride, int64_t steps) {
      const int64_t by = stride * steps;
      (by < 0 ? e.first : e.last) += static_cast<uintptr_t>(by);
      if (by != 0) e.pitch = std::gcd(e.pitch, stride);
    };
    for (int d = 0; d + 1 < loop.ndim; ++d) widen(o.strides[d], loop.shape[d] - 1);
    if (o.index) {
      widen(o.step, o.size - 1);
      const auto index = reinterpret_cast<uintptr_t>(o.index);
      constexpr int64_t kIndex = sizeof(int64_t);
      found.push_back({index, index + kIndex - 1, index, kIndex, 0, false});
    }
    if (loop.ndim > 0) {  // the fastest dimension
      const int64_t by = o.strides[loop.ndim - 1] * (loop.shape[loop.ndim - 1] - 1);
      (by < 0 ? e.first : e.last) += static_cast<uintptr_t>(by);
      if (by < 0) e.at += static_cast<uintptr_t>(by);
      e.run += std::abs(by);
    }
    for (int i = 0; i < loop.ninstructions; ++i) {
      const FusedInstruction& step = loop.instructions[i];
      e.written |= step.code == FusedInstruction::kStore && step.operand == k;
    }
    found.push_back(e);
  }
  return found;
}

// The pieces of a loop, by the threads of one block.
std::string whole_loop(const LoopText& loop, int begin, int instance, int first_thread) {
  const std::string again = cat("$P", instance, "_again"), done = cat("$P", instance, "_done");
  const std::string turned =
      first_thread ? cat("sub.u32 %i, %i, ", first_thread, ";\nand.b32 %i, %i, ", kSequenceThreads - 1, ";\n") : "";
  return cat("{\n", loop.registers, ".reg .b32 %items;\nmov.u32 %i, %tid.x;\n", turned, "ld.param.u32 %items, [p+",
             begin, "];\n", again, ":\nsetp.ge.u32 %q0, %i, %items;\n@%q0 bra ", done, ";\n", loop.body,
             "add.u32 %i, %i, ", kSequenceThreads, ";\nbra ", again, ";\n", done, ":\n}\n");
}

// What a sum takes from the argument.
struct SumPlaces {
  explicit SumPlaces(int begin) : row(begin), out(begin + 8), count(begin + 16), divisor(begin + 20), end(begin + 24) {}
  int row, out, count, divisor, end;
};

// The sum of a row in the order of reduce_rows (reduce/reduce.cuh): each thread adds up pieces of four by their places,
// then lanes meet, then warps.
std::string sum_text(const SumPlaces& at, int instance) {
  std::string text;
  const auto line = [&text](const auto&... parts) { text += cat(parts..., "\n"); };
  const std::string label = cat("$P", instance, "_");
  const auto meet = [&line](int lanes) {
    for (int distance = lanes / 2; distance > 0; distance /= 2)
      line("shfl.sync.down.b32 %x0, %s0, ", distance, ", 31, -1;\nadd.rn.f32 %s0, %s0, %x0;");
  };
  line("{\n.reg .pred %q0;\n.reg .b32 %i, %u<4>;\n.reg .b64 %row, %b0;\n.reg .f32 %s<4>, %x<4>;");
  line("ld.param.u64 %row, [p+", at.row, "];\ncvta.to.global.u64 %row, %row;\nld.param.u32 %u0, [p+", at.count, "];");
  line("shr.u32 %u1, %u0, 2;\nmov.u32 %i, %tid.x;");
  for (int j = 0; j < 4; ++j) line("mov.f32 %s", j, ", 0f00000000;");
  line(label, "again:\nsetp.ge.u32 %q0, %i, %u1;\n@%q0 bra ", label, "rest;");
  line("mad.wide.u32 %b0, %i, 16, %row;\nld.global.v4.f32 {%x0, %x1, %x2, %x3}, [%b0];");
  for (int j = 0; j < 4; ++j) line("add.rn.f32 %s", j, ", %s", j, ", %x", j, ";");
  line("add.u32 %i, %i, ", kSequenceThreads, ";\nbra ", label, "again;");
  line(label, "rest:\nmov.u32 %i, %tid.x;\nshl.b32 %u1, %u1, 2;\nadd.u32 %i, %i, %u1;");
  line(label, "one:\nsetp.ge.u32 %q0, %i, %u0;\n@%q0 bra ", label, "done;");
  line("mad.wide.u32 %b0, %i, 4, %row;\nld.global.f32 %x0, [%b0];\nadd.rn.f32 %s0, %s0, %x0;");
  line("add.u32 %i, %i, ", kSequenceThreads, ";\nbra ", label, "one;\n", label, "done:");
  for (int j = 1; j < 4; ++j) line("add.rn.f32 %s0, %s0, %s", j, ";");
  meet(32);
  line("mov.u32 %i, %tid.x;\nand.b32 %u0, %i, 31;\nsetp.eq.u32 %q0, %u0, 0;\nmov.u32 %u2, sums;");
  line("shr.u32 %u1, %i, 5;\nshl.b32 %u1, %u1, 2;\nadd.u32 %u1, %u1, %u2;\n@%q0 st.shared.f32 [%u1], %s0;");
  line("bar.sync 0;\nand.b32 %u1, %i, ", kSequenceWarps - 1, ";\nshl.b32 %u1, %u1, 2;\nadd.u32 %u1, %u1, %u2;");
  line("ld.shared.f32 %s0, [%u1];");
  meet(kSequenceWarps);
  line("ld.param.f32 %x0, [p+", at.divisor, "];\ndiv.rn.f32 %s0, %s0, %x0;\nsetp.eq.u32 %q0, %i, 0;");
  line("ld.param.u64 %b0, [p+", at.out, "];\ncvta.to.global.u64 %b0, %b0;\n@%q0 st.global.f32 [%b0], %s0;\n}");
  return text;
}

}  // namespace

void set_side_by_side(std::vector<SequencePart>& parts) {
  std::vector<Extent> others;  // of the loops since all threads met
  int next = 0;                // the first thread that has no piece of them
  for (size_t i = 0; i < parts.size(); ++i) {
    SequencePart& part = parts[i];
    part.waits = true;
    const std::vector<Extent> own = part.loop ? extents(*part.loop) : std::vector<Extent>();
    if (part.loop && i > 0 && parts[i - 1].loop) {
      part.waits = false;
      for (const Extent& a : own)
        for (const Extent& b : others) part.waits |= collide(a, b);
    }
    if (part.waits) others.clear(), next = 0;
    part.first_thread = next;
    others.insert(others.end(), own.begin(), own.end());
    // Whole warps, so that a warp has one loop's pieces.
    next = static_cast<int>((next + (part.layout.items + 31) / 32 * 32) % kSequenceThreads);
  }
}

std::string signature(const std::vector<SequencePart>& parts) {
  std::string key;
  for (const SequencePart& part : parts) {
    const std::string one = part.loop ? signature(*part.loop, part.layout) : "";
    key += cat(part.waits ? "[" : "|", part.first_thread, ":", one.size(), ":", one);
  }
  return key;
}

std::string ptx_of(const std::vector<SequencePart>& parts, int capability) {
  SharedText shared;
  std::string text = cat(".shared .align 4 .b8 sums[", 4 * kSequenceWarps, "];\n");
  int end = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && parts[i].waits) text += "bar.sync 0;\n";
    const int begin = padded(end), instance = static_cast<int>(i);
    if (parts[i].loop) {
      const LoopText loop = loop_text(*parts[i].loop, parts[i].layout, shared, begin);
      text += whole_loop(loop, begin, instance, parts[i].first_thread);
      end = loop.end;
    } else {
      const SumPlaces places(begin);
      text += sum_text(places, instance);
      end = places.end;
    }
  }
  return kernel_text(capability, shared, end, kSequenceThreads, text);
}

void pack_arguments(const std::vector<SequencePart>& parts, std::vector<char>& bytes) {
  for (const SequencePart& part : parts) {
    if (part.loop) {
      pack_arguments(*part.loop, part.layout, bytes);
      continue;
    }
    const SumPlaces places(padded(static_cast<int>(bytes.size())));
    bytes.resize(places.end);
    const auto put = [&bytes](int at, const auto& value) { std::memcpy(bytes.data() + at, &value, sizeof(value)); };
    put(places.row, part.sum.row);
    put(places.out, part.sum.out);
    put(places.count, static_cast<uint32_t>(part.sum.count));
    put(places.divisor, part.sum.divisor);
  }
}

}  // namespace mica::cuda
