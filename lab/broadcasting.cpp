// Shapes that meet: align, pad, stretch; and what to write where they cannot.
#include <algorithm>
#include <tuple>

#include "instruments.h"

namespace mica::lab {

namespace {

Tensor counted(const DimVector& shape, double scale) {
  int64_t numel = 1;
  for (const int64_t n : shape) numel *= n;
  return mica::arange(numel, DType::Float32).mul(scale).reshape(shape);
}

// Whether shapes broadcast together, asked of the engine.
bool meet(const std::vector<DimVector>& shapes, DimVector* result = nullptr) {
  const TensorOptions meta = TensorOptions(DType::Float32).device(Device{DeviceType::Meta});
  try {
    Tensor sum = mica::empty(shapes[0], meta);
    for (size_t i = 1; i < shapes.size(); ++i) sum = sum.add(mica::empty(shapes[i], meta));
    if (result) *result = DimVector(sum.sizes());
    return true;
  } catch (const Error&) {
    return false;
  }
}

// One more dimension in one of the shapes that makes them meet.
Json mends(const std::vector<DimVector>& shapes, const std::vector<std::string>& names) {
  Json found = Json::array();
  for (size_t i = 0; i < shapes.size(); ++i)
    for (size_t at = 0; at <= shapes[i].size(); ++at) {
      std::vector<DimVector> tried = shapes;
      DimVector longer;
      for (size_t d = 0; d <= shapes[i].size(); ++d) {
        if (d == at) longer.push_back(1);
        if (d < shapes[i].size()) longer.push_back(shapes[i][d]);
      }
      tried[i] = longer;
      DimVector result;
      if (meet(tried, &result))
        found.push_back({{"tensor", i},
                         {"dim", at},
                         {"code", cat(names[i], ".unsqueeze(", at, ")")},
                         {"shape", integers(longer)},
                         {"result", integers(result)}});
    }
  // The plainest result first: few dimensions, few elements, and the change in the shorter of the shapes.
  const auto cost = [&](const Json& m) {
    int64_t numel = 1;
    for (const Json& n : m["result"]) numel *= n.get<int64_t>();
    return std::tuple(m["result"].size(), numel, shapes[m["tensor"].get<size_t>()].size());
  };
  std::stable_sort(found.begin(), found.end(), [&](const Json& a, const Json& b) { return cost(a) < cost(b); });
  return found;
}

}  // namespace

Json broadcasting(const Json& question) {
  std::vector<DimVector> shapes;
  int64_t total = 0;
  for (const Json& s : question.at("shapes")) {
    shapes.push_back(dims(s, "shape"));
    int64_t numel = 1;
    for (const int64_t n : shapes.back()) {
      MICA_CHECK(n >= 0 && n <= 64, "sizes are between 0 and 64 here, not ", n);
      numel *= n;
    }
    total += numel;
    MICA_CHECK(total <= kMostElements, "the Lab broadcasts tensors of at most ", kMostElements, " elements");
  }
  MICA_CHECK(shapes.size() >= 2 && shapes.size() <= 3, "the Lab broadcasts two or three shapes, not ", shapes.size());
  const std::vector<std::string> names = {"a", "b", "c"};
  size_t rank = 0;
  for (const DimVector& s : shapes) rank = std::max(rank, s.size());

  Json columns = Json::array();
  for (size_t d = 0; d < rank; ++d) {
    Json sizes = Json::array();
    int64_t widest = 1;
    bool fits = true;
    for (const DimVector& s : shapes) {
      const bool padded = d + s.size() < rank;
      const int64_t n = padded ? 1 : s[d + s.size() - rank];
      if (n != 1) {
        fits = fits && (widest == 1 || widest == n);
        widest = widest == 1 ? n : widest;
      }
      sizes.push_back({{"size", n}, {"padded", padded}});
    }
    for (Json& s : sizes) s["stretched"] = fits && s["size"] == 1 && widest != 1;
    columns.push_back({{"sizes", sizes}, {"fits", fits}, {"result", fits ? Json(widest) : Json(nullptr)}});
  }
  Json answer = {{"columns", columns}, {"rank", rank}};
  NoGradGuard below;
  std::vector<Tensor> inputs;
  Json alone = Json::array();  // as they are before they meet
  double scale = 1;
  for (const DimVector& s : shapes) {
    const Tensor& t = inputs.emplace_back(counted(s, scale));
    alone.push_back({{"shape", integers(t.sizes())},
                     {"strides", integers(t.strides())},
                     {"values", first_values(t)},
                     {"bytes", t.nbytes()}});
    scale *= 10;
  }
  answer["inputs"] = alone;
  try {
    Tensor sum = inputs[0];
    for (size_t i = 1; i < inputs.size(); ++i) sum = sum.add(inputs[i]);
    MICA_CHECK(sum.numel() <= kMostElements, "the result has more than ", kMostElements, " elements");
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor wide = inputs[i].expand(sum.sizes());
      answer["inputs"][i]["wide_strides"] = integers(wide.strides());
      answer["inputs"][i]["places"] = places(wide.sizes(), wide.strides(), 0);
      answer["inputs"][i]["wide_bytes"] = wide.nbytes();
    }
    answer["result"] = {{"shape", integers(sum.sizes())}, {"values", first_values(sum)}, {"bytes", sum.nbytes()}};
  } catch (const Error& e) {
    answer["error"] = e.what();
    answer["mends"] = mends(shapes, names);
  }
  return answer;
}

}  // namespace mica::lab
