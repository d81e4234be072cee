// The Lab's address, who may ask, and which function answers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "http_server.h"

namespace mica::lab {

using Json = nlohmann::json;

// An instrument's question in, its answer out. Throws mica::Error for input that the engine refuses.
using Instrument = std::function<Json(const Json&)>;
const std::map<std::string, Instrument>& instruments();  // by name, as the page asks for them

// What the page is told: a status as of HTTP, and with 200 JSON, the answer or the engine's refusal; words otherwise.
struct Reply {
  int status;
  std::string body;
};
Reply reply(const std::string& instrument, const std::string& question);

class Site {
 public:
  // Serves the files of `folder`, and those of `sources` under source/ as text, if that folder is there; port 0 takes a
  // free one. `token` is the part of the address that others cannot guess.
  Site(const std::string& folder, const std::string& sources, const std::string& token, int port);

  std::string url() const;
  int port() const { return server_->port(); }
  void stop() { server_->stop(); }
  // What a running program shows of itself, as JSON: the answer of the instrument "run".
  static void publish(std::string report);
  static std::string published();
  // The Python that runs programs of the reader's own, and the folder that it finds the package in.
  static void set_interpreter(std::string program, std::string package);
  static std::pair<std::string, std::string> interpreter();

 private:
  void read_files(const std::string& folder, const std::string& prefix, const char* type);
  Response answer(const Request& request) const;
  // Why a request is refused; empty for one that may pass.
  std::string refusal(const Request& request) const;

  std::string token_, nonce_;
  struct File {
    std::string type, content;
  };
  std::map<std::string, File> files_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace mica::lab
