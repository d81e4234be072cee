// Questions on shapes, strides, views and copies: made from a number, answered by the engine.
#include <random>

#include "evaluate.h"
#include "instruments.h"

namespace mica::lab {

namespace {

// A short chain that ends in an operation worth asking about. The same number gives the same chain.
Json chain_of(uint64_t number) {
  std::mt19937_64 random(number * 0x9E3779B97F4A7C15ULL + 1);
  const auto pick = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  const int64_t rows = pick(2, 4), columns = pick(2, 5);
  Json steps = Json::array({{{"op", "arange"}, {"args", {{"end", rows * columns}}}},
                            {{"op", "reshape"}, {"on", {0}}, {"args", {{"shape", {rows, columns}}}}}});
  const Json last[] = {{{"op", "t"}, {"args", Json::object()}},
                       {{"op", "select"}, {"args", {{"dim", 1}, {"index", pick(0, columns - 1)}}}},
                       {{"op", "slice"}, {"args", {{"dim", 1}, {"start", 0}, {"stop", columns}, {"step", 2}}}},
                       {{"op", "unsqueeze"}, {"args", {{"dim", pick(0, 2)}}}},
                       {{"op", "expand"}, {"args", {{"shape", {pick(2, 3), rows, columns}}}}},
                       {{"op", "contiguous"}, {"args", Json::object()}},
                       {{"op", "rows"}, {"args", {{"index", {0, rows - 1}}}}},
                       {{"op", "reshape"}, {"args", {{"shape", {-1}}}}},
                       {{"op", "reverse"}, {"args", Json::object()}},
                       {{"op", "diagonal"}, {"args", Json::object()}}};
  if (pick(0, 1)) steps.push_back({{"op", "t"}, {"on", {1}}, {"args", Json::object()}});
  Json step = last[pick(0, 9)];
  if (step["op"] == "slice" || step["op"] == "select" || step["op"] == "expand")
    while (steps.size() > 2) steps.erase(steps.size() - 1);  // their arguments are those of the matrix as it was
  step["on"] = {steps.size() - 1};
  if (step["op"] == "rows" && steps.size() == 3) step["args"]["index"] = {0, columns - 1};
  steps.push_back(step);
  return steps;
}

}  // namespace

// {"number": n} asks; {"number": n, "guess": {...}} is told which of shape, strides and copy are right, and the truth.
Json quiz(const Json& question) {
  NoGradGuard below;
  const auto number = question.at("number").get<uint64_t>();
  Evaluation e = evaluate(chain_of(number));
  MICA_CHECK(e.error.empty(), "a question that cannot be asked: ", e.error);
  const size_t last = e.results.size() - 1;
  Json before = Json::array();
  for (size_t i = 0; i < last; ++i) {
    const Json card = e.step_json(i);
    before.push_back({{"call", card["call"]}, {"shape", card["shape"]}, {"strides", card["strides"]}});
  }
  const Json card = e.step_json(last);
  Json answer = {{"number", number}, {"before", before}, {"call", card["call"]}};
  if (!question.contains("guess")) return answer;
  const Json& guess = question.at("guess");
  const bool copies = !card["shares"].get<bool>();
  const bool shape = integers(dims(guess.at("shape"), "shape")) == card["shape"];
  const bool strides = integers(dims(guess.at("strides"), "strides")) == card["strides"];
  answer["right"] = {{"shape", shape}, {"strides", strides}, {"copies", guess.at("copies").get<bool>() == copies}};
  answer["truth"] = card;
  answer["truth"]["copied"] = copies;
  Json why = Json::array();
  for (const Json& c : card["copies"]) why.push_back(c["why"]);
  answer["why"] = why;
  return answer;
}

}  // namespace mica::lab
