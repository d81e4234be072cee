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
std::string plural(int64_t n, const char* thing) { return std::to_string(n) + " " + thing + (n == 1 ? "" : "s"); }

// The storage as a bar: the part that the tensor spans, and of it what it reaches.
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

}  // namespace

std::string to_text(const Anatomy& a, bool colours) {
  Page page(colours);
  page.line(page.bold(cat(name(a.dtype), " ", tuple(a.sizes))) + page.dim(" on " + a.device.str()));
  page.row("shape", tuple(a.sizes), cat(plural(a.numel, "element"), ", ", readable_bytes(a.numel * a.element_size)));
  page.row("strides", tuple(a.strides),
           cat("in elements of ", plural(a.element_size, "byte"), a.overlaps ? "; some elements share a place" : ""));
  page.row("offset", std::to_string(a.offset), a.address ? hexadecimal(a.address) : "");
  const int64_t percent = a.storage_bytes ? a.reached_bytes * 100 / a.storage_bytes : 100;
  page.row("storage", readable_bytes(a.storage_bytes),
           cat(a.storage_address ? hexadecimal(a.storage_address) + ", " : "", a.reached.exact ? "" : "at most ",
               readable_bytes(a.reached_bytes), " (", percent, " %) reached",
               a.hole_bytes > 0 ? cat(", ", readable_bytes(a.hole_bytes), " skipped between") : std::string(),
               a.foreign_memory ? ", memory of another library" : ""));
  if (const std::string drawn = bar(a, page); !drawn.empty()) page.row("", drawn);
  for (const Contiguity& c : a.formats) {
    if (c.holds) {
      page.row(c.format == MemoryFormat::Contiguous ? "contiguous" : name(c.format), page.good("yes"));
      continue;
    }
    const std::string mend = c.format == MemoryFormat::Contiguous
                                 ? "contiguous()"
                                 : cat("contiguous(memory_format=mica.", name(c.format), ")");
    const std::string why = cat("dimension ", c.dimension, " steps by ", c.found, " instead of ", c.expected);
    page.row(c.format == MemoryFormat::Contiguous ? "contiguous" : name(c.format), page.warn("no") + ": " + why,
             cat(mend, " copies ", readable_bytes(a.numel * a.element_size)));
  }
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
  if (a.conjugated || a.negated)
    page.row("lazily",
             a.conjugated && a.negated ? "conjugated, negated"
             : a.conjugated            ? "conjugated"
                                       : "negated",
             a.conjugated ? "resolve_conj() writes it out" : "resolve_neg() writes it out");
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
