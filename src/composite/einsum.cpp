// einsum: labelled dimensions, contracted two tensors at a time.
#include <algorithm>
#include <array>

#include "core/geometry.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::composite {

namespace {

// Letters take 0..51; the dimensions of an ellipsis take the numbers after them, counted from its last one backwards.
constexpr int kLetters = 52;
constexpr int kMaxLabels = kLetters + 64;

int label_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  return -1;
}
char letter_of(int label) { return static_cast<char>(label < 26 ? 'A' + label : 'a' + label - 26); }

using Labels = std::vector<int>;

struct Term {
  Labels labels;
  int ellipsis_at = -1;  // position within labels where the ellipsis stands
};

Term parse_term(std::string_view text, const char* what, size_t number) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (c == '.') {
      MICA_CHECK(text.substr(i, 3) == "...", "einsum(): found '.' for ", what, " ", number,
                 " that is not part of any ellipsis");
      MICA_CHECK(term.ellipsis_at < 0, "einsum(): found '.' for ", what, " ", number,
                 " for which an ellipsis was already found");
      term.ellipsis_at = static_cast<int>(term.labels.size());
      i += 2;
      continue;
    }
    const int label = label_of(c);
    MICA_CHECK(label >= 0, "einsum(): invalid subscript given at index ", i,
               " in the equation string, subscripts must be in [a-zA-Z]");
    term.labels.push_back(label);
  }
  return term;
}

struct Operand {
  Tensor tensor;
  Labels labels;  // one per dimension, each once
};

bool contains(const Labels& list, int label) { return std::find(list.begin(), list.end(), label) != list.end(); }

// A label that occurs twice in one term takes the diagonal of its two dimensions.
Operand without_repeats(Operand o) {
  for (size_t i = 0; i < o.labels.size(); ++i) {
    for (size_t j = i + 1; j < o.labels.size();) {
      if (o.labels[i] != o.labels[j]) {
        ++j;
        continue;
      }
      MICA_CHECK(o.tensor.sizes()[i] == o.tensor.sizes()[j], "einsum(): subscript ", letter_of(o.labels[i]),
                 " is repeated for an operand but the sizes don't match, ", o.tensor.sizes()[j],
                 " != ", o.tensor.sizes()[i]);
      o.tensor =
          o.tensor.diagonal(0, static_cast<int64_t>(i), static_cast<int64_t>(j)).movedim(-1, static_cast<int64_t>(i));
      o.labels.erase(o.labels.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
  return o;
}

// Leaves out labels of size one that are not in `keep`.
Operand squeeze_out(Operand o, const Labels& keep) {
  for (size_t d = o.labels.size(); d-- > 0;) {
    if (o.tensor.sizes()[d] != 1 || contains(keep, o.labels[d])) continue;
    o.tensor = o.tensor.squeeze(static_cast<int64_t>(d));
    o.labels.erase(o.labels.begin() + static_cast<std::ptrdiff_t>(d));
  }
  return o;
}

// Sums the labels that are not in `keep`, over a view whose other dimensions are in the order of `keep`, as the sum's
// are then.
Operand sum_out(Operand o, const Labels& keep) {
  DimVector order, dims;
  Labels left;
  for (int label : keep) {
    if (!contains(o.labels, label) || contains(left, label)) continue;
    order.push_back(std::find(o.labels.begin(), o.labels.end(), label) - o.labels.begin());
    left.push_back(label);
  }
  if (left.size() == o.labels.size()) return o;
  for (size_t d = 0; d < o.labels.size(); ++d) {
    if (contains(left, o.labels[d])) continue;
    dims.push_back(static_cast<int64_t>(order.size()));
    order.push_back(static_cast<int64_t>(d));
  }
  return {o.tensor.permute(order).sum(dims.ref()), left};
}

// The operand with its dimensions in the order of `labels`, grouped into a batch of matrices.
Tensor as_matrices(const Operand& o, const Labels& batch, const Labels& rows, const Labels& columns,
                   const int64_t* sizes) {
  DimVector order;
  int64_t counts[3] = {1, 1, 1};
  const Labels* groups[3] = {&batch, &rows, &columns};
  DimVector full;
  for (int g = 0; g < 3; ++g) {
    for (int label : *groups[g]) {
      const auto at = std::find(o.labels.begin(), o.labels.end(), label) - o.labels.begin();
      order.push_back(at);
      full.push_back(sizes[label]);
      counts[g] *= sizes[label];
    }
  }
  Tensor t = o.tensor.permute(order);
  if (!(t.sizes() == full.ref())) t = t.expand(full);  // a dimension of size one that broadcasts
  return t.reshape({counts[0], counts[1], counts[2]});
}

// A view of the operand with one dimension for each of `labels`, of size one for those that it lacks. What else it has
// is of size one, and left out.
Tensor spread(const Operand& o, const Labels& labels) {
  DimVector order;
  for (int label : labels)
    if (contains(o.labels, label))
      order.push_back(std::find(o.labels.begin(), o.labels.end(), label) - o.labels.begin());
  for (size_t d = 0; d < o.labels.size(); ++d)
    if (!contains(labels, o.labels[d])) order.push_back(static_cast<int64_t>(d));
  Tensor t = o.tensor.permute(order);
  for (size_t d = 0; d < labels.size(); ++d)
    if (!contains(o.labels, labels[d])) t = t.unsqueeze(static_cast<int64_t>(d));
  while (t.dim() > static_cast<int64_t>(labels.size())) t = t.squeeze(-1);
  return t;
}

// Multiplies two operands and sums the labels that only they have and nobody else needs.
Operand contract(Operand a, Operand b, const Labels& needed_later) {
  int64_t sizes[kMaxLabels];
  std::fill_n(sizes, kMaxLabels, int64_t{1});
  for (const Operand* o : {&a, &b})
    for (size_t d = 0; d < o->labels.size(); ++d)
      if (o->tensor.sizes()[d] != 1) sizes[o->labels[d]] = o->tensor.sizes()[d];
  // Labels that only one operand has and nobody needs later are summed before the product.
  Labels keep_a = needed_later, keep_b = needed_later;
  keep_a.insert(keep_a.end(), b.labels.begin(), b.labels.end());
  keep_b.insert(keep_b.end(), a.labels.begin(), a.labels.end());
  const bool alike = a.tensor.dtype() == b.tensor.dtype();
  a = sum_out(squeeze_out(std::move(a), keep_a), keep_a);
  b = sum_out(squeeze_out(std::move(b), keep_b), keep_b);
  Labels batch, rows, columns, summed;
  for (int label : a.labels) {
    if (!contains(b.labels, label)) {
      rows.push_back(label);
    } else if (contains(needed_later, label)) {
      batch.push_back(label);
    } else {
      // A contracted dimension that one side broadcasts is summed on the other.
      const int64_t da = std::find(a.labels.begin(), a.labels.end(), label) - a.labels.begin();
      const int64_t db = std::find(b.labels.begin(), b.labels.end(), label) - b.labels.begin();
      if (a.tensor.sizes()[da] != b.tensor.sizes()[db]) {
        if (a.tensor.sizes()[da] == 1) b.tensor = b.tensor.sum(db, true);
        if (b.tensor.sizes()[db] == 1 && a.tensor.sizes()[da] != 1) a.tensor = a.tensor.sum(da, true);
        sizes[label] = 1;
      }
      summed.push_back(label);
    }
  }
  for (int label : b.labels)
    if (!contains(a.labels, label)) columns.push_back(label);
  if (alike && a.tensor.dtype() != b.tensor.dtype()) {  // a sum makes small integers int64
    a.tensor = a.tensor.to(DType::Int64);
    b.tensor = b.tensor.to(DType::Int64);
  }
  Labels labels;
  if (std::all_of(summed.begin(), summed.end(), [&](int label) { return sizes[label] == 1; })) {
    // Nothing is summed: a * b, of any two dtypes, which autocast leaves as they are.
    for (int label : needed_later)
      if (!contains(labels, label) && (contains(a.labels, label) || contains(b.labels, label))) labels.push_back(label);
    return {mica::mul(spread(a, labels), spread(b, labels)), labels};
  }
  labels = batch;
  labels.insert(labels.end(), rows.begin(), rows.end());
  labels.insert(labels.end(), columns.begin(), columns.end());
  DimVector shape;
  for (int label : labels) shape.push_back(sizes[label]);
  const Tensor left = as_matrices(a, batch, rows, summed, sizes), right = as_matrices(b, batch, summed, columns, sizes);
  return {mica::bmm(left, right).reshape(shape), labels};
}

// Labels that the result or another operand than i and j needs.
Labels needed(const std::vector<Operand>& operands, const Labels& output, size_t i, size_t j) {
  Labels result = output;
  for (size_t k = 0; k < operands.size(); ++k)
    if (k != i && k != j) result.insert(result.end(), operands[k].labels.begin(), operands[k].labels.end());
  return result;
}

double contraction_cost(const Operand& a, const Operand& b) {
  double cost = 1;
  for (size_t d = 0; d < a.labels.size(); ++d) cost *= static_cast<double>(std::max<int64_t>(a.tensor.sizes()[d], 1));
  for (size_t d = 0; d < b.labels.size(); ++d)
    if (!contains(a.labels, b.labels[d])) cost *= static_cast<double>(std::max<int64_t>(b.tensor.sizes()[d], 1));
  return cost;
}

}  // namespace

Tensor einsum(std::string_view equation, TensorList tensors, std::optional<IntArrayRef> path) {
  MICA_CHECK(!tensors.empty(), "einsum(): must provide at least one operand");
  const size_t arrow = equation.find("->");
  const std::string_view left = equation.substr(0, arrow);
  std::vector<Term> terms;
  for (size_t start = 0; start <= left.size();) {
    const size_t comma = std::min(left.find(',', start), left.size());
    terms.push_back(parse_term(left.substr(start, comma - start), "operand", terms.size()));
    start = comma + 1;
  }
  MICA_CHECK(terms.size() == tensors.size(),
             terms.size() > tensors.size() ? "einsum(): fewer operands were provided than specified in the equation"
                                           : "einsum(): more operands were provided than specified in the equation",
             ": ", tensors.size(), " for ", terms.size(), " terms");

  // Name every dimension; those of an ellipsis are aligned from the right, as broadcasting does.
  std::vector<Operand> operands;
  int64_t ellipsis_dims = 0;
  std::array<int, kMaxLabels> uses{};
  int64_t sizes[kMaxLabels];
  std::fill_n(sizes, kMaxLabels, int64_t{1});
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Term& term = terms[i];
    const int64_t covered = tensors[i].dim() - static_cast<int64_t>(term.labels.size());
    MICA_CHECK(term.ellipsis_at >= 0 ? covered >= 0 : covered == 0,
               "einsum(): the number of subscripts in the equation (", term.labels.size(),
               term.ellipsis_at >= 0 ? ") is more than the number of dimensions ("
                                     : ") does not match the number of dimensions (",
               tensors[i].dim(), ") for operand ", i, term.ellipsis_at >= 0 ? "" : " and no ellipsis was given");
    MICA_CHECK(covered <= kMaxLabels - kLetters, "einsum(): only ellipses of up to ", kMaxLabels - kLetters,
               " dimensions are supported, got one of ", covered, " for operand ", i);
    if (term.ellipsis_at >= 0) ellipsis_dims = std::max(ellipsis_dims, covered);
    Labels labels;
    for (size_t d = 0; d <= term.labels.size(); ++d) {
      if (static_cast<int>(d) == term.ellipsis_at)
        for (int64_t e = covered - 1; e >= 0; --e) labels.push_back(kLetters + static_cast<int>(e));
      if (d < term.labels.size()) labels.push_back(term.labels[d]);
    }
    Operand o = without_repeats({tensors[i], labels});
    for (size_t d = 0; d < o.labels.size(); ++d) {
      const int label = o.labels[d];
      const int64_t n = o.tensor.sizes()[d];
      ++uses[label];
      if (n == 1) continue;
      MICA_CHECK(sizes[label] == 1 || sizes[label] == n, "einsum(): subscript ",
                 label < kLetters ? std::string(1, letter_of(label)) : std::string("..."), " has size ", n,
                 " for operand ", i, " which does not broadcast with previously seen size ", sizes[label]);
      sizes[label] = n;
    }
    operands.push_back(std::move(o));
  }

  Labels output;
  auto put_ellipsis = [&] {
    for (int64_t e = ellipsis_dims - 1; e >= 0; --e) output.push_back(kLetters + static_cast<int>(e));
  };
  if (arrow == std::string_view::npos) {
    // Without an arrow: the ellipsis, then the letters that occur once, in alphabetical order.
    put_ellipsis();
    std::array<int, kLetters> occurrences{};
    for (const Term& term : terms)
      for (int label : term.labels) ++occurrences[label];
    for (int label = 0; label < kLetters; ++label)
      if (occurrences[label] == 1) output.push_back(label);
  } else {
    const Term term = parse_term(equation.substr(arrow + 2), "the output", 0);
    for (size_t d = 0; d <= term.labels.size(); ++d) {
      if (static_cast<int>(d) == term.ellipsis_at) put_ellipsis();
      if (d == term.labels.size()) break;
      const int label = term.labels[d];
      MICA_CHECK(uses[label] > 0, "einsum(): output subscript ", letter_of(label),
                 " does not appear in the equation for any input operand");
      MICA_CHECK(!contains(output, label), "einsum(): output subscript ", letter_of(label),
                 " appears more than once in the output");
      output.push_back(label);
    }
  }

  size_t step = 0;
  while (operands.size() > 1) {
    size_t i = 0, j = 1;
    if (path && 2 * step + 1 < path->size()) {
      i = static_cast<size_t>((*path)[2 * step]);
      j = static_cast<size_t>((*path)[2 * step + 1]);
      MICA_CHECK(i != j && i < operands.size() && j < operands.size(), "einsum(): invalid contraction path");
    } else if (operands.size() > 2) {
      double best = std::numeric_limits<double>::infinity();
      for (size_t a = 0; a < operands.size(); ++a)
        for (size_t b = a + 1; b < operands.size(); ++b)
          if (const double cost = contraction_cost(operands[a], operands[b]); cost < best) best = cost, i = a, j = b;
    }
    ++step;
    if (i > j) std::swap(i, j);
    Operand merged = contract(operands[i], operands[j], needed(operands, output, i, j));
    operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(j));
    operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(i));
    operands.push_back(std::move(merged));
  }
  Operand last = sum_out(std::move(operands[0]), output);
  DimVector order, shape;
  for (int label : output) {
    order.push_back(std::find(last.labels.begin(), last.labels.end(), label) - last.labels.begin());
    shape.push_back(sizes[label]);
  }
  Tensor result = last.tensor.permute(order);
  return result.sizes() == shape.ref() ? result : result.expand(shape);
}

}  // namespace mica::composite
