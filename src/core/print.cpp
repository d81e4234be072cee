// A tensor as text: which elements are shown, how a row is broken, and what is said after the values.
#include "mica/print.h"

#include <mutex>
#include <ostream>
#include <utility>

#include "core/entry.h"
#include "core/print_numbers.h"
#include "core/rare_facts.h"
#include "core/scalar_bytes.h"
#include "mica/autograd.h"
#include "mica/core/fork.h"
#include "mica/ops.h"

namespace mica {

namespace {

std::mutex options_mutex;
HeldOverFork options_held(options_mutex, LockOrder::Settings);
PrintOptions current_options;

// The elements that are printed: all of them, or the edges of every dimension that is longer than two edges.
struct Shown {
  DimVector sizes;            // counts the shown items only
  std::vector<bool> elided;   // whether items are left out in the middle of a dimension
  std::vector<Scalar> items;  // in row-major order
};

// Where the i-th shown item of a dimension stands in the tensor.
int64_t place_of(int64_t i, int64_t edge, int64_t size) { return i < edge ? i : size - 2 * edge + i; }

void read_items(const TensorView& view, const Shown& shown, int64_t edge, int64_t d, const char* from, bool conjugate,
                bool negate, std::vector<Scalar>& items) {
  if (d == view.ndim) {
    // Pairs of 4-bit floats show as the byte that they are, as in torch.
    const bool pair = view.dtype == DType::Float4_e2m1fn_x2;
    Scalar value = pair ? Scalar(static_cast<float>(static_cast<uint8_t>(*from))) : read_scalar(view.dtype, from);
    if (conjugate) value = value.conj();
    items.push_back(negate ? -value : value);
    return;
  }
  const auto n = static_cast<size_t>(d);
  const int64_t step = view.strides[d] * element_size(view.dtype);
  for (int64_t i = 0; i < shown.sizes[n]; ++i) {
    const int64_t place = shown.elided[n] ? place_of(i, edge, view.sizes[d]) : i;
    read_items(view, shown, edge, d + 1, from + place * step, conjugate, negate, items);
  }
}

// Brings no more than the shown elements from another device.
Tensor edges_on_cpu(Tensor t, const Shown& shown, int64_t edge) {
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (!shown.elided[static_cast<size_t>(d)]) continue;
    t = cat({narrow(t, d, 0, edge), narrow(t, d, t.sizes()[static_cast<size_t>(d)] - edge, edge)}, d);
  }
  return t.cpu();
}

Shown select_shown(const Tensor& t, const PrintOptions& options) {
  Shown shown;
  const bool summarize = t.numel() > options.threshold;
  for (int64_t size : t.sizes()) {
    const bool elided = summarize && size > 2 * options.edgeitems;
    shown.sizes.push_back(elided ? 2 * options.edgeitems : size);
    shown.elided.push_back(elided);
  }
  const Tensor source = t.is_cpu() ? t : edges_on_cpu(t, shown, options.edgeitems);
  const int64_t edge = t.is_cpu() ? options.edgeitems : 0;
  const TensorView& view = source.view_of();
  Shown read = shown;
  if (!t.is_cpu()) read.elided.assign(read.elided.size(), false);
  read_items(view, read, edge, 0, static_cast<const char*>(view.data), source.is_conj(), source.is_neg(), shown.items);
  return shown;
}

// ---- laying out

class Layouter {
 public:
  Layouter(const Shown& shown, const Cells& cells, const PrintOptions& options)
      : shown_(shown), cells_(cells), options_(options) {}

  std::string text(int64_t indent) {
    if (shown_.sizes.empty()) return cells_.texts[0];
    write(0, indent);
    return std::move(text_);
  }

 private:
  bool elided_at(size_t d, int64_t i) const { return shown_.elided[d] && i == options_.edgeitems; }

  void write(size_t d, int64_t indent) {
    const size_t rest = shown_.sizes.size() - d;
    if (rest == 1) return write_row(d, indent);
    const std::string separator = "," + std::string(rest - 1, '\n') + std::string(static_cast<size_t>(indent) + 1, ' ');
    text_ += '[';
    for (int64_t i = 0; i < shown_.sizes[d]; ++i) {
      if (i) text_ += separator;
      if (elided_at(d, i)) text_ += "..." + separator;
      write(d + 1, indent + 1);
    }
    if (shown_.elided[d] && options_.edgeitems == 0) text_ += "...";
    text_ += ']';
  }

  void write_row(size_t d, int64_t indent) {
    const int64_t room = options_.linewidth - indent;
    const int64_t per_line = room > 0 ? std::max<int64_t>(1, room / (cells_.width + 2)) : 1;
    int64_t written = 0;
    const auto add = [&](std::string_view cell) {
      if (written && written % per_line == 0) {
        text_ += ",\n" + std::string(static_cast<size_t>(indent) + 1, ' ');
      } else if (written) {
        text_ += ", ";
      }
      text_ += cell;
      ++written;
    };
    text_ += '[';
    for (int64_t i = 0; i < shown_.sizes[d]; ++i) {
      if (elided_at(d, i)) add(" ...");
      add(cells_.texts[next_++]);
    }
    if (shown_.elided[d] && options_.edgeitems == 0) add("...");
    text_ += ']';
  }

  const Shown& shown_;
  const Cells& cells_;
  const PrintOptions& options_;
  std::string text_;
  size_t next_ = 0;
};

// ---- what is said after the values

std::string tuple_text(IntArrayRef sizes) {
  std::string s = "(";
  for (size_t i = 0; i < sizes.size(); ++i) s += cat(i ? ", " : "", sizes[i]);
  return s + (sizes.size() == 1 ? ",)" : ")");
}

// The name of the tensor's node. A view that was changed while that could not be recorded has none.
std::string grad_fn_text(const Tensor& t) {
  try {
    const Node* node = t.grad_fn();
    return node ? cat("grad_fn=<", node->name(), ">") : std::string();
  } catch (const Error&) {
    return "grad_fn=<Invalid>";
  }
}

// The values as text, in the columns from `indent` on.
std::string body_of(const Tensor& t, int64_t indent, const PrintOptions& options) {
  if (t.numel() == 0) return "[]";
  const Shown shown = select_shown(t, options);
  const Cells cells = format_numbers(shown.items, t.dtype(), options);
  return Layouter(shown, cells, options).text(indent);
}

// The parts of a sparse tensor, one below the other, as torch shows them.
std::string sparse_body(const Tensor& t, int64_t indent, const PrintOptions& options) {
  const SparseParts& p = sparse_parts(t);
  const bool rows = t.layout() == Layout::SparseCsr || t.layout() == Layout::SparseBsr;
  std::string text;
  const auto add = [&](const char* name, const Tensor& part) {
    if (!text.empty()) text += ",\n" + std::string(static_cast<size_t>(indent), ' ');
    const std::string prefix = cat(name, "=tensor(");
    text += prefix + body_of(part, indent + static_cast<int64_t>(prefix.size()), options);
    if (part.numel() == 0) text += ", size=" + tuple_text(part.sizes());
    text += ")";
  };
  if (t.layout() != Layout::SparseCoo) add(rows ? "crow_indices" : "ccol_indices", p.compressed);
  add(t.layout() == Layout::SparseCoo ? "indices" : rows ? "col_indices" : "row_indices", p.indices);
  add("values", p.values);
  return text;
}

std::vector<std::string> sparse_suffixes(const Tensor& t) {
  std::vector<std::string> list;
  if (!t.is_cpu()) list.push_back("device='" + t.device().str() + "'");
  list.push_back("size=" + tuple_text(t.sizes()));
  list.push_back(cat("nnz=", sparse_parts(t).indices.size(-1)));
  const DType complex = default_dtype() == DType::Float64 ? DType::Complex128 : DType::Complex64;
  const bool evident = t.dtype() == DType::Int64 || t.dtype() == DType::Bool || t.dtype() == complex;
  if (t.dtype() != default_dtype() && !evident) list.push_back(cat("dtype=torch.", t.dtype()));
  list.push_back(cat("layout=", t.layout()));
  return list;
}

std::vector<std::string> quantized_suffixes(const Tensor& t) {
  const Quantizer& q = quantizer_of(t);
  std::vector<std::string> list;
  if (!t.is_cpu()) list.push_back("device='" + t.device().str() + "'");
  list.push_back("size=" + tuple_text(t.sizes()));
  list.push_back(cat(is_packed_quantized(t.dtype()) ? "dtype=torch." : "dtype=torch.q", t.dtype()));
  list.push_back(cat("quantization_scheme=torch.per_", q.axis < 0 ? "tensor" : "channel", "_affine",
                     q.float_zero_points ? "_float_qparams" : ""));
  if (q.axis < 0) {
    list.push_back(cat("scale=", Scalar(q.scale)));
    list.push_back(cat("zero_point=", q.zero_point));
  } else {
    list.push_back("scale=" + q.scales.str());
    list.push_back("zero_point=" + q.zero_points.str());
    list.push_back(cat("axis=", q.axis));
  }
  return list;
}

std::vector<std::string> suffixes_of(const Tensor& t, const PrintOptions& options) {
  std::vector<std::string> list;
  if (t.is_quantized()) return quantized_suffixes(t);
  if (t.layout() != Layout::Strided) {
    list = sparse_suffixes(t);
    if (std::string grad_fn = grad_fn_text(t); !grad_fn.empty()) {
      list.push_back(std::move(grad_fn));
    } else if (t.requires_grad()) {
      list.push_back("requires_grad=True");
    }
    return list;
  }
  const bool bare = t.is_meta() || t.numel() == 0;  // shows no values from which a reader could tell the dtype
  if (!t.is_cpu()) list.push_back("device='" + t.device().str() + "'");
  if (t.is_meta() || (bare ? t.dim() != 1 : options.edgeitems == 0)) list.push_back("size=" + tuple_text(t.sizes()));
  const DType complex = default_dtype() == DType::Float64 ? DType::Complex128 : DType::Complex64;
  const bool evident = t.dtype() == DType::Int64 || t.dtype() == DType::Bool || t.dtype() == complex;
  if (t.dtype() != default_dtype() && (bare || !evident)) list.push_back(cat("dtype=torch.", t.dtype()));
  if (std::string grad_fn = grad_fn_text(t); !grad_fn.empty()) {
    list.push_back(std::move(grad_fn));
  } else if (t.requires_grad()) {
    list.push_back("requires_grad=True");
  }
  if (t.has_names()) {
    std::string names;
    for (const std::string& name : t.names())
      names += (names.empty() ? "" : ", ") + (name.empty() ? "None" : "'" + name + "'");
    list.push_back(cat("names=(", names, t.dim() == 1 ? ",)" : ")"));
  }
  return list;
}

}  // namespace

PrintOptions print_options() {
  std::lock_guard lock(options_mutex);
  return current_options;
}

void set_print_options(const PrintOptions& options) {
  MICA_CHECK_KIND(options.precision >= 0, Value, "precision must not be negative, but it is ", options.precision);
  MICA_CHECK_KIND(options.edgeitems >= 0, Value, "edgeitems must not be negative, but it is ", options.edgeitems);
  std::lock_guard lock(options_mutex);
  current_options = options;
}

std::string print(const Tensor& t, std::string_view name, std::optional<std::string_view> contents,
                  std::optional<std::string> last) {
  if (!t.defined()) return "None";
  ModeGuard plain(mode_bit::kNoGrad, true);
  set_modes(mode_bit::kProfile, false);  // the operations of printing are not the program's
  const PrintOptions options = print_options();
  std::string text = cat(name, "(");
  const auto indent = static_cast<int64_t>(text.size());
  if (contents) {
    text += *contents;
  } else if (t.is_meta()) {
    text += "...";
  } else if (t.layout() != Layout::Strided) {
    text += sparse_body(t, indent, options);
  } else {
    text += body_of(t.has_names() ? without_names(t) : t.is_quantized() ? t.dequantize() : t, indent, options);
  }
  // torch's count, which takes the line before the first break as two characters longer than it is.
  const size_t line_break = text.rfind('\n');
  size_t line = line_break == std::string::npos ? text.size() + 2 : text.size() - line_break + 1;
  bool new_line = t.is_sparse();  // torch begins one after the parts of a COO tensor
  std::vector<std::string> suffixes = suffixes_of(t, options);
  if (last) suffixes.push_back(std::move(*last));
  for (const std::string& suffix : suffixes) {
    if (std::exchange(new_line, false) || static_cast<int64_t>(line + suffix.size() + 2) > options.linewidth) {
      text += ",\n" + std::string(static_cast<size_t>(indent), ' ') + suffix;
      line = static_cast<size_t>(indent) + suffix.size();
    } else {
      text += ", " + suffix;
      line += suffix.size() + 2;
    }
  }
  return text + ")";
}

std::string Tensor::str() const { return print(*this, "tensor"); }

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << t.str(); }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << device.str(); }
std::ostream& operator<<(std::ostream& out, IntArrayRef dims) { return out << cat(dims); }

}  // namespace mica
