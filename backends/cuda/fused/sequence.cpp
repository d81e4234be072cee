#include "backends/cuda/fused/sequence.h"

#include <cstring>

#include "backends/cuda/fused/text.h"
#include "mica/error.h"

namespace mica::cuda {

namespace {

// The pieces of a loop, by the threads of one block.
std::string whole_loop(const LoopText& loop, int begin, int instance) {
  const std::string again = cat("$P", instance, "_again"), done = cat("$P", instance, "_done");
  return cat("{\n", loop.registers, ".reg .b32 %items;\nmov.u32 %i, %tid.x;\nld.param.u32 %items, [p+", begin, "];\n",
             again, ":\nsetp.ge.u32 %q0, %i, %items;\n@%q0 bra ", done, ";\n", loop.body, "add.u32 %i, %i, ",
             kSequenceThreads, ";\nbra ", again, ";\n", done, ":\n}\n");
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

std::string signature(const std::vector<SequencePart>& parts) {
  std::string key;
  for (const SequencePart& part : parts) {
    const std::string one = part.loop ? signature(*part.loop, part.layout) : "";
    key += cat("[", one.size(), ":", one);
  }
  return key;
}

std::string ptx_of(const std::vector<SequencePart>& parts, int capability) {
  SharedText shared;
  std::string text = cat(".shared .align 4 .b8 sums[", 4 * kSequenceWarps, "];\n");
  int end = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += "bar.sync 0;\n";
    const int begin = padded(end), instance = static_cast<int>(i);
    if (parts[i].loop) {
      const LoopText loop = loop_text(*parts[i].loop, parts[i].layout, shared, begin);
      text += whole_loop(loop, begin, instance);
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
