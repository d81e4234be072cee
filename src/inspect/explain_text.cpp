// An anatomy as text for a terminal.
#include <algorithm>
#include <cstdio>

#include "mica/inspect.h"

namespace mica::inspect {

std::string readable_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double amount = static_cast<double>(bytes);
  int unit = 0;
  while (unit < 5 && (amount >= 1024 || amount <= -1024)) {
    amount /= 1024;
    ++unit;
  }
  char text[48];
  if (unit == 0) {
    std::snprintf(text, sizeof text, "%lld B", static_cast<long long>(bytes));
  } else {
    std::snprintf(text, sizeof text, "%.2f %s", amount, kUnits[unit]);
  }
  return text;
}

namespace {

class Page {
 public:
  explicit Page(bool colours) : colours_(colours) {}

  void row(const char* label, const std::string& value, const std::string& remark = "") {
    std::string padded(label);
    padded.resize(std::max<size_t>(padded.size(), 12), ' ');
    text_ += dim(padded) + value;
    if (!remark.empty()) text_ += "  " + dim(remark);
    text_ += '\n';
  }
  void line(const std::string& s) { text_ += s + '\n'; }

  std::string bold(const std::string& s) const { return paint("1", s); }
  std::string dim(const std::string& s) const { return paint("2", s); }
  std::string good(const std::string& s) const { return paint("36", s); }  // shares, holds
  std::string warn(const std::string& s) const { return paint("33", s); }  // owns, breaks
  std::string take() { return std::move(text_); }

 private:
  std::string paint(const char* code, const std::string& s) const {
    return colours_ ? "\033[" + std::string(code) + "m" + s + "\033[0m" : s;
  }
  bool colours_;
  std::string text_;
};

std::string tuple(IntArrayRef v) {
  std::string s = "(";
  for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + std::to_string(v[i]);
  return s + (v.size() == 1 ? ",)" : ")");
}
std::string hexadecimal(uint64_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}
std::string plural(int64_t n, const std::string& thing) {
  if (n == 1) return "1 " + thing;
  return std::to_string(n) + " " + (thing == "index" ? "indices" : thing + "s");
}

// The storage as a bar: the part that the tensor spans, and within it the part that it reaches.
std::string bar(const Anatomy& a, const Page& page) {
  constexpr int kCells = 48;
  const int64_t total = a.storage_bytes / a.element_size;
  if (total <= 0 || a.reached.distinct <= 0) return "";
  auto cell = [&](int64_t place) {
    return static_cast<int>(std::clamp<int64_t>(place * kCells / total, 0, kCells - 1));
  };
  const int first = cell(a.reached.lowest);
  const int last = std::max(first, static_cast<int>((a.reached.highest + 1) * kCells / total) - 1);
  const bool gaps = a.hole_bytes > 0;
  std::string span;
  for (int i = first; i <= last; ++i) span += gaps ? "▒" : "█";
  std::string before, after;
  for (int i = 0; i < first; ++i) before += "·";
  for (int i = last + 1; i < kCells; ++i) after += "·";
  return page.dim("│" + before) + page.good(span) + page.dim(after + "│");
}

// Parts of a whole, each as long as its share of the bytes.
std::string parts_bar(const Anatomy& a, const Page& page) {
  constexpr int64_t kCells = 48;
  static constexpr const char* kFills[] = {"█", "▓", "▒", "░"};
  if (a.part_bytes <= 0) return "";
  std::string drawn;
  int64_t before = 0;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    const int64_t first = before * kCells / a.part_bytes;
    before += a.parts[i].bytes;
    for (int64_t c = first; c < before * kCells / a.part_bytes; ++c) drawn += kFills[i % 4];
  }
  return page.dim("│") + page.good(drawn) + page.dim("│");
}

std::string times(int64_t bytes, int64_t others) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f times", static_cast<double>(bytes) / static_cast<double>(others));
  return text;
}
std::string number(double value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

void put_parts(const Anatomy& a, Page& page) {
  static constexpr const char* kFills[] = {"█", "▓", "▒", "░"};
  page.row("parts", readable_bytes(a.part_bytes), a.parts.size() > 1 ? cat("in ", a.parts.size(), " tensors") : "");
  for (size_t i = 0; i < a.parts.size(); ++i) {
    const Part& p = a.parts[i];
    page.row("", page.good(a.parts.size() > 1 ? kFills[i % 4] : "") + (a.parts.size() > 1 ? " " : "") + p.name,
             cat(p.dtype, " ", tuple(p.sizes), " strides ", tuple(p.strides), ", ", readable_bytes(p.bytes)));
  }
  if (a.parts.size() > 1) page.row("", parts_bar(a, page));
}

void put_sparse(const Anatomy& a, Page& page) {
  const SparseAnatomy& s = *a.sparse;
  const bool coo = a.layout == Layout::SparseCoo;
  const int64_t percent = a.numel ? s.stored * 100 / a.numel : 0;
  page.row("shape", tuple(a.sizes),
           cat(plural(a.numel, "element"), ", ", s.stored, " of them (", percent, " %) in memory"));
  page.row("layout", layout_name(a.layout),
           cat(plural(s.sparse_dims, "sparse dimension"), s.dense_dims ? cat(", ", s.dense_dims, " dense") : "",
               !coo          ? ""
               : s.coalesced ? "; coalesced"
                             : "; not coalesced: an index may come twice, coalesce() adds them up"));
  put_parts(a, page);
  if (a.dense_bytes > 0) {
    const bool pays = a.part_bytes < a.dense_bytes;
    page.row("dense", readable_bytes(a.dense_bytes),
             cat(pays ? "" : "less: ", "this takes ", times(a.part_bytes, a.dense_bytes), " that; up to ",
                 plural(s.break_even, "index"), " of ", readable_bytes(s.bytes_each), " would be smaller"));
  }
}

void put_quantized(const Anatomy& a, Page& page) {
  const QuantizedAnatomy& q = *a.quantized;
  if (q.axis < 0) {
    page.row("means", cat("(integer - ", q.zero_point, ") * ", number(q.scale)),
             cat("from ", number(q.lowest), " to ", number(q.highest), " in steps of ", number(q.scale)));
  } else {
    page.row("means", "(integer - zero point) * scale",
             cat("one pair for each of the ", a.sizes[static_cast<size_t>(q.axis)], " slices of dimension ", q.axis));
  }
  if (a.parts.size() > 1) put_parts(a, page);
  if (a.dense_bytes > 0)
    page.row("float32", readable_bytes(a.dense_bytes), cat("this takes ", times(a.part_bytes, a.dense_bytes), " that"));
}

std::string ragged_tuple(const NestedAnatomy& n) {
  std::string s = "(";
  for (size_t i = 0; i < n.sizes.size(); ++i)
    s += (i ? ", " : "") + (n.sizes[i] < 0 ? std::string("j") : std::to_string(n.sizes[i]));
  return s + ")";
}

void put_nested(const Anatomy& a, Page& page) {
  const NestedAnatomy& n = *a.nested;
  std::string lengths;
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < n.lengths.size() && i < kShown; ++i) lengths += (i ? ", " : "") + std::to_string(n.lengths[i]);
  if (n.lengths.size() > kShown) lengths += ", …";
  page.row("sequences", ragged_tuple(n),
           cat(plural(n.sizes[0], "sequence"), n.lengths.empty() ? "" : cat(" of length ", lengths),
               " along dimension ", n.ragged_dim));
  put_parts(a, page);
  if (a.dense_bytes > 0)
    page.row("padded", readable_bytes(a.dense_bytes),
             cat("to the longest; this takes ", times(a.part_bytes, a.dense_bytes), " that"));
}

std::string title(const Anatomy& a) {
  const std::string dtype = cat(a.quantized ? "q" : "", name(a.dtype));
  if (a.nested) return cat(dtype, " ", ragged_tuple(*a.nested), " nested");
  return cat(dtype, " ", tuple(a.sizes), a.sparse ? cat(" ", layout_name(a.layout)) : "");
}

std::string named_dimensions(const Anatomy& a) {
  std::string s = "(";
  for (size_t i = 0; i < a.names.size(); ++i)
    s += (i ? ", " : "") + (a.names[i].empty() ? std::string("None") : "'" + a.names[i] + "'");
  return s + (a.names.size() == 1 ? ",)" : ")");
}

void put_storage(const Anatomy& a, Page& page) {
  page.row("strides", tuple(a.strides),
           cat("in elements of ", plural(a.element_size, "byte"), a.overlaps ? "; some elements share a place" : ""));
  page.row("offset", std::to_string(a.offset), a.address ? hexadecimal(a.address) : "");
  if (a.device == kMeta) {
    page.row("storage", "none",
             cat("the meta device has shapes and no memory; elsewhere ", readable_bytes(a.storage_bytes)));
    return;
  }
  const int64_t percent = a.storage_bytes ? a.reached_bytes * 100 / a.storage_bytes : 100;
  page.row("storage", readable_bytes(a.storage_bytes),
           cat(a.storage_address ? hexadecimal(a.storage_address) + ", " : "", a.reached.exact ? "" : "at most ",
               readable_bytes(a.reached_bytes), " (", percent, " %) reached",
               a.hole_bytes > 0 ? cat(", ", readable_bytes(a.hole_bytes), " skipped between") : std::string(),
               a.foreign_memory ? ", memory of another library" : ""));
  if (const std::string drawn = bar(a, page); !drawn.empty()) page.row("", drawn);
}

void put_contiguity(const Anatomy& a, Page& page) {
  for (const Contiguity& c : a.formats) {
    const char* label = c.format == MemoryFormat::Contiguous ? "contiguous" : name(c.format);
    if (c.holds) {
      page.row(label, page.good("yes"));
      continue;
    }
    const std::string mend = c.format == MemoryFormat::Contiguous
                                 ? "contiguous()"
                                 : cat("contiguous(memory_format=mica.", name(c.format), ")");
    const std::string why = cat("dimension ", c.dimension, " steps by ", c.found, " instead of ", c.expected);
    page.row(label, page.warn("no") + ": " + why, cat(mend, " copies ", readable_bytes(a.numel * a.element_size)));
  }
}

void put_view(const Anatomy& a, Page& page) {
  page.row("shared by", plural(a.storage_users, "holder"),
           a.storage_users > 1 ? "views, or tensors saved for backward, of the same storage" : "");
  if (a.is_view) {
    page.row("view of", page.good(cat("base ", tuple(a.base_sizes))),
             cat("strides ", tuple(a.base_strides), ", offset ", a.base_offset));
    for (const ViewStep& s : a.steps) {
      const bool index = s.operation.starts_with("[");
      page.row("", (index ? "" : ".") + s.operation,
               cat(tuple(s.sizes), " strides ", tuple(s.strides), " offset ", s.offset));
    }
  }
  const std::string amount = readable_bytes(a.numel * a.element_size);
  if (a.conjugated) page.row("lazily", "conjugated", cat("a bit, not other memory; resolve_conj() copies ", amount));
  if (a.negated) page.row("lazily", "negated", cat("a bit, not other memory; resolve_neg() copies ", amount));
}

}  // namespace

const char* layout_name(Layout layout) {
  switch (layout) {
    case Layout::SparseCoo:
      return "sparse_coo";
    case Layout::SparseCsr:
      return "sparse_csr";
    case Layout::SparseCsc:
      return "sparse_csc";
    case Layout::SparseBsr:
      return "sparse_bsr";
    case Layout::SparseBsc:
      return "sparse_bsc";
    default:
      return "strided";
  }
}

std::string to_text(const Anatomy& a, bool colours) {
  Page page(colours);
  page.line(page.bold(title(a)) + page.dim(" on " + a.device.str()));
  if (a.sparse) {
    put_sparse(a, page);
  } else {
    if (a.nested) put_nested(a, page);
    page.row(a.nested ? "values" : "shape", tuple(a.sizes),
             cat(plural(a.numel, "element"), ", ", readable_bytes(a.numel * a.element_size)));
    if (!a.names.empty()) page.row("names", named_dimensions(a));
    if (a.quantized) put_quantized(a, page);
    put_storage(a, page);
    put_contiguity(a, page);
    put_view(a, page);
  }
  page.row("version", std::to_string(a.version), "in-place changes of the memory");
  if (a.requires_grad) {
    std::string chain;
    constexpr size_t kShown = 6;
    for (size_t i = 0; i < a.history.size() && i < kShown; ++i) chain += (i ? " ← " : "") + a.history[i];
    if (a.history.size() > kShown) chain += " ← …";
    page.row("gradient", a.grad_fn.empty() ? "leaf" : chain, a.has_grad ? "has .grad" : "");
  }
  return page.take();
}

}  // namespace mica::inspect
