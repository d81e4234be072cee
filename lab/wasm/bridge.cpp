// The one function that a page calls: an instrument's name and a question in, a status and the answer out.
#include <emscripten/emscripten.h>

#include "instruments.h"
#include "mica/error.h"

namespace mica::lab {

// What `mica lab` has and a page has not: programs in Python, run by themselves or watched.
std::string Site::published() { return "null"; }
Json execute(const Json&) {
  fail(ErrorKind::NotImplemented, "this page has no Python: `mica lab`, on a machine of your own, runs programs");
}

}  // namespace mica::lab

// The status as three digits, then the body. The text lives until the next call.
extern "C" EMSCRIPTEN_KEEPALIVE const char* mica_lab_ask(const char* instrument, const char* question) {
  static std::string text;
  const mica::lab::Reply told = mica::lab::reply(instrument, question);
  text = std::to_string(told.status) + told.body;
  return text.c_str();
}
