#include "site.h"

#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>

#include "mica/error.h"

namespace mica::lab {

namespace {

// Takes as long for a wrong token as for a right one.
bool same_secret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

const char* media_type(const std::string& extension) {
  if (extension == ".html") return "text/html; charset=utf-8";
  if (extension == ".css") return "text/css; charset=utf-8";
  if (extension == ".js") return "text/javascript; charset=utf-8";
  if (extension == ".svg") return "image/svg+xml";
  return "application/octet-stream";
}

Response plain(int status, const std::string& words) { return {status, "text/plain; charset=utf-8", words + "\n"}; }

std::mutex report_lock;
std::string report = "null";
std::pair<std::string, std::string> program_runner;

}  // namespace

void Site::publish(std::string text) {
  std::lock_guard lock(report_lock);
  report = std::move(text);
}
std::string Site::published() {
  std::lock_guard lock(report_lock);
  return report;
}

void Site::set_interpreter(std::string program, std::string package) {
  std::lock_guard lock(report_lock);
  program_runner = {std::move(program), std::move(package)};
}
std::pair<std::string, std::string> Site::interpreter() {
  std::lock_guard lock(report_lock);
  return program_runner;
}

void Site::read_files(const std::string& folder, const std::string& prefix, const char* type) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream content;
    content << in.rdbuf();
    const std::string name = prefix + std::filesystem::relative(entry.path().parent_path(), folder).generic_string() +
                             "/" + entry.path().filename().string();
    files_[std::filesystem::path(name).lexically_normal().generic_string()] = {
        type ? type : media_type(entry.path().extension().string()), content.str()};
  }
}

Site::Site(const std::string& folder, const std::string& sources, const std::string& token, int port) : token_(token) {
  read_files(folder, "", nullptr);
  MICA_CHECK(files_.count("index.html"), "mica lab: the page is missing from ", folder);
  // The style goes with the page: the first paint waits for one answer less.
  std::string& page = files_["index.html"].content;
  static const std::string kLink = "<link rel=\"stylesheet\" href=\"style.css\">";
  if (const size_t at = page.find(kLink); at != std::string::npos) {
    std::random_device random;
    for (int i = 0; i < 4; ++i) nonce_ += std::to_string(random());
    page.replace(at, kLink.size(), "<style nonce=\"" + nonce_ + "\">" + files_["style.css"].content + "</style>");
  }
  if (std::filesystem::is_directory(sources)) read_files(sources, "source/", "text/plain; charset=utf-8");
  server_ = std::make_unique<HttpServer>(port, [this](const Request& r) { return answer(r); });
}

std::string Site::url() const { return cat("http://127.0.0.1:", server_->port(), "/", token_, "/"); }

std::string Site::refusal(const Request& request) const {
  const std::string host = request.header("host"), port = std::to_string(server_->port());
  if (host != "127.0.0.1:" + port && host != "localhost:" + port) return "this address is not mine";
  const std::string origin = request.header("origin");
  if (!origin.empty() && origin != "http://" + host) return "asked by another page";
  const std::string site = request.header("sec-fetch-site");
  if (request.method != "GET" && !site.empty() && site != "same-origin") return "asked by another page";
  const size_t slash = request.path.find('/', 1);
  if (slash == std::string::npos || !same_secret(request.path.substr(1, slash - 1), token_))
    return "the address lacks its token: open the one that `mica lab` printed";
  return "";
}

Response Site::answer(const Request& request) const {
  if (const std::string words = refusal(request); !words.empty()) return plain(403, words);
  const std::string path = request.path.substr(token_.size() + 2);
  if (path.rfind("api/", 0) == 0) {
    if (request.method != "POST") return plain(405, "questions are asked with POST");
    if (request.header("content-type").rfind("application/json", 0) != 0) return plain(415, "questions are JSON");
    Reply told = reply(path.substr(4), request.body);
    if (told.status != 200) return plain(told.status, told.body);
    return {200, "application/json", std::move(told.body)};
  }
  if (request.method != "GET" && request.method != "HEAD") return plain(405, "files are read with GET");
  const auto found = files_.find(path.empty() ? "index.html" : path);
  if (found == files_.end()) return plain(404, "no such file");
  return {200, found->second.type, found->second.content, false, path.empty() ? nonce_ : ""};
}

}  // namespace mica::lab
