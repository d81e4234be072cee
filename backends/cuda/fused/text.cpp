#include "backends/cuda/fused/text.h"

#include <cstddef>
#include <cstring>

#include "backends/cuda/bounds.h"
#include "backends/cuda/divider.h"
#include "backends/cuda/fused/codes.h"
#include "backends/cuda/fused/functions.h"
#include "mica/error.h"

namespace mica::cuda {

namespace {

constexpr const char* kNames[] = {"", "",
#define MICA_NAME(name) #name,
                                  MICA_FUSED_FUNCTIONS(MICA_NAME) MICA_FUSED_OPERATIONS(MICA_NAME)
#undef MICA_NAME
};

bool is_transfer(const FusedInstruction& step) {
  return step.code == FusedInstruction::kLoad || step.code == FusedInstruction::kStore;
}

// Which function an instruction is. Some are functions of their own for each parameter.
std::string function_name(const FusedInstruction& step) {
  switch (static_cast<FusedCode>(step.code)) {
    case FusedCode::AddScaled:
      return step.parameters[1] != 0 ? "f_Add" : "f_AddScaled";
    case FusedCode::PowShort:
    case FusedCode::Compare:
    case FusedCode::Gelu:
    case FusedCode::GeluBackward:
      return cat("f_", kNames[step.code], "_", static_cast<int>(step.parameters[0]));
    default:
      return cat("f_", kNames[step.code]);
  }
}

// The numbers that an instruction is given at run time: inputs, then the parameter where its function takes one.
template <class F>
void visit_numbers(const FusedInstruction& step, const F& visit) {
  for (int k = 0; k < step.inputs; ++k)
    if (step.in[k] == FusedInstruction::kNumber) visit(step.numbers[k]);
  if (!is_transfer(step) && device_function(function_name(step)).arguments > step.inputs) visit(step.parameters[0]);
}

// Where things of a loop are in the kernel's argument, from `items` on, which is a multiple of eight.
struct Places {
  Places(const FusedLoop& loop, const FusedLayout& layout, int begin) : ndim(layout.ndim), items(begin) {
    addresses = padded(size(layout.ndim - 1));
    strides = addresses + 8 * loop.noperands;
    numbers = strides + 8 * loop.noperands * layout.ndim;
    for (int k = 0; k < loop.noperands; ++k)
      if (loop.operands[k].index) indices[k] = numbers, numbers += kIndexBytes;
  }
  int size(int d) const { return items + 4 + 12 * d; }
  int address(int operand) const { return addresses + 8 * operand; }
  int stride(int operand, int d) const { return strides + 8 * (operand * ndim + d); }
  int number(int i) const { return numbers + 4 * i; }

  // For an operand that an index places: the index's address, the bytes from place to place, the number of places,
  // their dimension, where an invalid place is reported, and the operation that it belongs to.
  static constexpr int kStep = 8, kPlaces = 16, kDim = 24, kReport = 32, kOperation = 40, kIndexBytes = 48;
  int indices[kFusedOperands];
  int ndim, items, addresses, strides, numbers;
};

// What a register holds: one 32-bit float for each element of the piece, or one for all of them.
struct Value {
  int first = -1;
  bool uniform = false;
  std::string operator[](int j) const { return cat("%x", uniform ? first : first + j); }
};

// The instructions of a loop for piece number %i.
class Body {
 public:
  Body(const FusedLoop& loop, const FusedLayout& layout, SharedText& shared, int begin)
      : loop_(loop),
        layout_(layout),
        shared_(shared),
        places_(loop, layout, begin),
        count_(layout.pieces ? kFusedPiece : 1) {
    write();
  }
  const std::string& text() const { return body_; }
  std::string registers() const;
  int end() const { return places_.number(numbers_); }  // of what it takes from the argument

 private:
  void write();
  template <class... A>
  void line(const A&... parts) {
    body_ += cat(parts..., "\n");
  }
  Value make(bool uniform) {
    const Value v{floats_, uniform};
    floats_ += uniform ? 1 : count_;
    return v;
  }
  void find_elements();
  void find_place(int operand);
  Value load(int operand);
  void load_pieces(const Value& to, int operand);
  void store(int operand, const Value& v);
  void store_there(int operand, const Value& v);
  Value compute(const FusedInstruction& step, const Value* inputs);
  Value number();
  std::string address(int operand) const { return cat("%a", operand); }

  const FusedLoop& loop_;
  const FusedLayout& layout_;
  SharedText& shared_;
  const Places places_;
  const int count_;
  std::string body_;
  int floats_ = 0, numbers_ = 0;
};

// %i is the piece, %c0 ... its index in each dimension, %a0 ... where each operand's elements are.
void Body::find_elements() {
  line("mov.u32 %n, %i;");
  for (int d = 0; d + 1 < layout_.ndim; ++d) {
    for (int i = 0; i < 3; ++i) line("ld.param.u32 %u", i, ", [p+", places_.size(d) + 4 * i, "];");
    line("mul.hi.u32 %u3, %n, %u0;\nadd.u32 %u3, %u3, %n;\nshr.u32 %u3, %u3, %u1;");
    line("mul.lo.u32 %u2, %u3, %u2;\nsub.u32 %c", d, ", %n, %u2;\nmov.u32 %n, %u3;");
  }
  line("mov.u32 %c", layout_.ndim - 1, ", %n;");
  for (int k = 0; k < loop_.noperands; ++k) {
    line("ld.param.u64 ", address(k), ", [p+", places_.address(k), "];");
    line("cvta.to.global.u64 ", address(k), ", ", address(k), ";");
    for (int d = 0; d < layout_.ndim; ++d) {
      line("cvt.u64.u32 %b0, %c", d, ";\nld.param.u64 %b1, [p+", places_.stride(k, d), "];");
      line("mad.lo.s64 ", address(k), ", %b0, %b1, ", address(k), ";");
    }
    if (loop_.operands[k].index) find_place(k);
  }
}

// Moves an operand to the place that its index names. %k0 ... say whether there is such a place; if not, the first
// thread notes that, as Bounds::checked (bounds.h) does.
void Body::find_place(int k) {
  const int at = places_.indices[k];
  const std::string label = cat("$I", shared_.instances++, "_");
  const auto field = [](size_t offset) { return cat("[%b2+", offset, "]"); };
  line("ld.param.u64 %b2, [p+", at, "];\ncvta.to.global.u64 %b2, %b2;\nld.global.s64 %b0, [%b2];");
  line("ld.param.s64 %b1, [p+", at + Places::kPlaces, "];\nsetp.lt.s64 %q1, %b0, 0;\nmov.s64 %b3, %b0;");
  line("@%q1 add.s64 %b0, %b0, %b1;\nsetp.lt.u64 %k", k, ", %b0, %b1;");
  line("ld.param.s64 %b2, [p+", at + Places::kStep, "];\nmad.lo.s64 ", address(k), ", %b0, %b2, ", address(k), ";");
  line("@%k", k, " bra ", label, "done;\nsetp.ne.u32 %q1, %i, 0;\n@%q1 bra ", label, "done;");
  line("ld.param.u64 %b2, [p+", at + Places::kReport, "];\ncvta.to.global.u64 %b2, %b2;");
  line("ld.volatile.global.u32 %u0, ", field(offsetof(BoundsReport, raised)), ";\nsetp.ne.u32 %q1, %u0, 0;");
  line("@%q1 bra ", label, "done;\nst.volatile.global.s64 ", field(offsetof(BoundsReport, index)), ", %b3;");
  line("st.volatile.global.s64 ", field(offsetof(BoundsReport, size)), ", %b1;");
  line("ld.param.s64 %b1, [p+", at + Places::kDim, "];\nst.volatile.global.s64 ", field(offsetof(BoundsReport, dim)),
       ", %b1;");
  line("ld.param.u32 %u0, [p+", at + Places::kOperation, "];\nst.volatile.global.u32 ",
       field(offsetof(BoundsReport, op)), ", %u0;");
  line("membar.sys;\nmov.u32 %u0, 1;\nst.volatile.global.u32 ", field(offsetof(BoundsReport, raised)), ", %u0;");
  line(label, "done:");
}

Value Body::load(int operand) {
  const bool dense = layout_.dense >> operand & 1;
  const Value v = make(!(dense && layout_.pieces));
  if (layout_.pieces && dense) {
    load_pieces(v, operand);
    return v;
  }
  const std::string to = v[0], from = cat("[", address(operand), "];");
  switch (loop_.operands[operand].dtype) {
    case DType::Bool:
      line("ld.global.u8 %h0, ", from, "\nsetp.ne.u16 %q1, %h0, 0;");
      line("selp.f32 ", to, ", 0f3F800000, 0f00000000, %q1;");
      break;
    case DType::Float16:
      line("ld.global.b16 %h0, ", from, "\ncvt.f32.f16 ", to, ", %h0;");
      break;
    case DType::BFloat16:
      line("ld.global.u16 %h0, ", from, "\ncvt.u32.u16 %u0, %h0;\nshl.b32 %u0, %u0, 16;\nmov.b32 ", to, ", %u0;");
      break;
    default:
      line("ld.global.f32 ", to, ", ", from);
  }
  return v;
}

void Body::load_pieces(const Value& to, int operand) {
  const std::string at = address(operand);
  switch (loop_.operands[operand].dtype) {
    case DType::Bool:
      line("ld.global.v2.b32 {%w0, %w1}, [", at, "];");
      for (int j = 0; j < kFusedPiece; ++j) {
        line("bfe.u32 %u0, %w", j / 4, ", ", j % 4 * 8, ", 8;\nsetp.ne.u32 %q1, %u0, 0;");
        line("selp.f32 ", to[j], ", 0f3F800000, 0f00000000, %q1;");
      }
      break;
    case DType::Float16:
      line("ld.global.v4.b32 {%w0, %w1, %w2, %w3}, [", at, "];");
      for (int j = 0; j < kFusedPiece; j += 2) {
        line("mov.b32 {%h0, %h1}, %w", j / 2, ";");
        line("cvt.f32.f16 ", to[j], ", %h0;\ncvt.f32.f16 ", to[j + 1], ", %h1;");
      }
      break;
    case DType::BFloat16:
      line("ld.global.v4.b32 {%w0, %w1, %w2, %w3}, [", at, "];");
      for (int j = 0; j < kFusedPiece; j += 2) {
        line("shl.b32 %u0, %w", j / 2, ", 16;\nmov.b32 ", to[j], ", %u0;");
        line("and.b32 %u0, %w", j / 2, ", 0xffff0000;\nmov.b32 ", to[j + 1], ", %u0;");
      }
      break;
    default:
      for (int j = 0; j < kFusedPiece; j += 4)
        line("ld.global.v4.f32 {", to[j], ", ", to[j + 1], ", ", to[j + 2], ", ", to[j + 3], "}, [", at, "+", 4 * j,
             "];");
  }
}

void Body::store(int operand, const Value& v) {
  if (!loop_.operands[operand].index) return store_there(operand, v);
  const std::string label = cat("$I", shared_.instances++, "_none");
  line("@!%k", operand, " bra ", label, ";");
  store_there(operand, v);
  line(label, ":");
}

void Body::store_there(int operand, const Value& v) {
  const std::string at = cat("[", address(operand), "]");
  const DType dtype = loop_.operands[operand].dtype;
  const char* narrow = dtype == DType::Float16 ? "cvt.rn.f16.f32" : "cvt.rn.bf16.f32";
  if (!layout_.pieces) {
    if (dtype == DType::Bool) {
      line("setp.neu.f32 %q1, ", v[0], ", 0f00000000;\nselp.u32 %u0, 1, 0, %q1;\nst.global.u8 ", at, ", %u0;");
    } else if (dtype == DType::Float32) {
      line("st.global.f32 ", at, ", ", v[0], ";");
    } else {
      line(narrow, " %h0, ", v[0], ";\nst.global.b16 ", at, ", %h0;");
    }
    return;
  }
  if (dtype == DType::Bool) {
    for (int j = 0; j < kFusedPiece; ++j) {
      line("setp.neu.f32 %q1, ", v[j], ", 0f00000000;\nselp.u32 %u0, ", 1u << j % 4 * 8, ", 0, %q1;");
      if (j % 4 == 0)
        line("mov.u32 %w", j / 4, ", %u0;");
      else
        line("or.b32 %w", j / 4, ", %w", j / 4, ", %u0;");
    }
    line("st.global.v2.b32 ", at, ", {%w0, %w1};");
  } else if (dtype == DType::Float32) {
    for (int j = 0; j < kFusedPiece; j += 4)
      line("st.global.v4.f32 [", address(operand), "+", 4 * j, "], {", v[j], ", ", v[j + 1], ", ", v[j + 2], ", ",
           v[j + 3], "};");
  } else {
    for (int j = 0; j < kFusedPiece; j += 2) {
      line(narrow, " %h0, ", v[j], ";\n", narrow, " %h1, ", v[j + 1], ";\nmov.b32 %w", j / 2, ", {%h0, %h1};");
    }
    line("st.global.v4.b32 ", at, ", {%w0, %w1, %w2, %w3};");
  }
}

Value Body::number() {
  const Value v = make(true);
  line("ld.param.f32 ", v[0], ", [p+", places_.number(numbers_++), "];");
  return v;
}

Value Body::compute(const FusedInstruction& step, const Value* inputs) {
  const DeviceFunction& f = device_function(function_name(step));
  if (f.called && shared_.called.find(f.text) == std::string::npos) shared_.called += f.text;
  bool uniform = true;
  for (int k = 0; k < step.inputs; ++k) uniform &= inputs[k].uniform;
  const Value parameter = f.arguments > step.inputs ? number() : Value();
  const Value out = make(uniform || count_ == 1);
  for (int j = 0; j < (out.uniform ? 1 : count_); ++j) {
    std::string arguments[4];
    for (int k = 0; k < f.arguments; ++k) arguments[k] = k < step.inputs ? inputs[k][j] : parameter[0];
    body_ += written_out(f, arguments, out[j], shared_.instances++);
    // A result is what its dtype can hold: the next kernel would read it from memory.
    if (step.dtype == DType::Float16) {
      line("cvt.rn.f16.f32 %h0, ", out[j], ";\ncvt.f32.f16 ", out[j], ", %h0;");
    } else if (step.dtype == DType::BFloat16) {
      line("cvt.rn.bf16.f32 %h0, ", out[j], ";\ncvt.u32.u16 %u0, %h0;\nshl.b32 %u0, %u0, 16;");
      line("mov.b32 ", out[j], ", %u0;");
    }
  }
  return out;
}

void Body::write() {
  find_elements();
  Value registers[kFusedRegisters], last;
  for (int i = 0; i < loop_.ninstructions; ++i) {
    const FusedInstruction& step = loop_.instructions[i];
    if (step.code == FusedInstruction::kLoad) {
      last = load(step.operand);
    } else {
      Value inputs[3];
      for (int k = 0; k < step.inputs; ++k)
        inputs[k] = step.in[k] == FusedInstruction::kNumber ? number()
                    : step.in[k] == FusedInstruction::kLast ? last
                                                            : registers[step.in[k]];
      if (step.code == FusedInstruction::kStore) {
        store(step.operand, inputs[0]);
        continue;
      }
      last = compute(step, inputs);
    }
    if (step.out >= 0) registers[step.out] = last;
  }
}

std::string Body::registers() const {
  return cat(".reg .pred %q<2>, %k<", kFusedOperands, ">;\n.reg .b16 %h<2>;\n.reg .b32 %i, %n, %u<4>, %w<4>, %c<",
             kFusedDims, ">;\n.reg .b64 %b<4>, %a<", kFusedOperands, ">;\n.reg .f32 %x<", floats_ + 1, ">;\n");
}

}  // namespace

LoopText loop_text(const FusedLoop& loop, const FusedLayout& layout, SharedText& shared, int begin) {
  const Body body(loop, layout, shared, begin);
  return {body.registers(), body.text(), body.end()};
}

std::string kernel_text(int capability, const SharedText& shared, int argument, int threads, const std::string& text) {
  const bool overlaps = capability >= 90;
  std::string all = cat(".version 7.8\n.target sm_", overlaps ? 90 : 80, "\n.address_size 64\n");
  if (!shared.called.empty()) all += std::string(device_constants()) + shared.called;
  all += cat(".visible .entry fused(.param .align 8 .b8 p[", argument, "])\n.maxntid ", threads, "\n{\n");
  if (overlaps) all += "griddepcontrol.launch_dependents;\ngriddepcontrol.wait;\n";
  return all + text + "ret;\n}\n";
}

std::string signature(const FusedLoop& loop, const FusedLayout& layout) {
  std::string key;
  const auto add = [&key](auto value) { key.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  key += static_cast<char>(layout.ndim);
  key += static_cast<char>(layout.pieces);
  add(layout.dense);
  key += static_cast<char>(loop.noperands);
  for (int k = 0; k < loop.noperands; ++k) {
    add(loop.operands[k].dtype);
    key += static_cast<char>(loop.operands[k].index != nullptr);
  }
  for (int i = 0; i < loop.ninstructions; ++i) {
    const FusedInstruction& step = loop.instructions[i];
    add(step.code);
    key += static_cast<char>(step.out);
    add(step.dtype);
    key += static_cast<char>(is_transfer(step) ? step.operand : 0);
    key.append(reinterpret_cast<const char*>(step.in), step.inputs);
    switch (static_cast<FusedCode>(step.code)) {  // those whose function depends on a parameter
      case FusedCode::AddScaled:
        key += static_cast<char>(step.parameters[1]);
        break;
      case FusedCode::PowShort:
      case FusedCode::Compare:
      case FusedCode::Gelu:
      case FusedCode::GeluBackward:
        key += static_cast<char>(step.parameters[0]);
        break;
      default:
        break;
    }
  }
  return key;
}

std::string ptx_of(const FusedLoop& loop, const FusedLayout& layout, int capability) {
  SharedText shared;
  const LoopText text = loop_text(loop, layout, shared, 0);
  const std::string head = cat("mov.u32 %u0, %ctaid.x;\nmov.u32 %u1, %tid.x;\nmad.lo.u32 %i, %u0, ", kFusedThreads,
                               ", %u1;\nld.param.u32 %u0, [p];\nsetp.ge.u32 %q0, %i, %u0;\n@%q0 ret;\n");
  return kernel_text(capability, shared, text.end, kFusedThreads, cat("{\n", text.registers, head, text.body, "}\n"));
}

void pack_arguments(const FusedLoop& loop, const FusedLayout& layout, std::vector<char>& bytes) {
  const Places places(loop, layout, padded(static_cast<int>(bytes.size())));
  bytes.resize(places.numbers);
  const auto put = [&bytes](int at, const auto& value) { std::memcpy(bytes.data() + at, &value, sizeof(value)); };
  put(places.items, static_cast<uint32_t>(layout.items));
  for (int d = 0; d + 1 < layout.ndim; ++d) {
    const Divider size(static_cast<uint32_t>(layout.shape[d]));
    put(places.size(d), size.magic);
    put(places.size(d) + 4, size.shift);
    put(places.size(d) + 8, size.divisor);
  }
  for (int k = 0; k < loop.noperands; ++k) {
    put(places.address(k), loop.operands[k].data);
    for (int d = 0; d < layout.ndim; ++d) put(places.stride(k, d), layout.strides[k][d]);
    const FusedLoop::Operand& o = loop.operands[k];
    if (!o.index) continue;
    const Bounds bounds = Bounds::of(kIndexedOperation, loop.device.index());
    put(places.indices[k], o.index);
    put(places.indices[k] + Places::kStep, o.step);
    put(places.indices[k] + Places::kPlaces, o.size);
    put(places.indices[k] + Places::kDim, static_cast<int64_t>(o.dim));
    put(places.indices[k] + Places::kReport, bounds.report);
    put(places.indices[k] + Places::kOperation, bounds.op);
  }
  for (int i = 0; i < loop.ninstructions; ++i)
    visit_numbers(loop.instructions[i], [&bytes](float number) {
      bytes.insert(bytes.end(), reinterpret_cast<const char*>(&number), reinterpret_cast<const char*>(&number) + 4);
    });
}

}  // namespace mica::cuda
