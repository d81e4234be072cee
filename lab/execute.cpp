// A program of the reader's own, in a process of its own: started when its button is pressed, never by a link.
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "instruments.h"

namespace mica::lab {

namespace {

constexpr size_t kMostSource = 64 * 1024, kMostAnswer = 4 * 1024 * 1024;
constexpr auto kLongest = std::chrono::seconds(20);  // the process ends itself after five seconds of work

// The child confines itself before it reads the program (mica.lab._sandbox); the path of the package and its folder are
// its arguments.
constexpr const char* kEntry =
    "import sys; sys.path.insert(0, sys.argv[1]); from mica.lab._sandbox import main; main()";

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() { MICA_CHECK(pipe2(ends, O_CLOEXEC) == 0, "no pipe: ", std::strerror(errno)); }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int i) {
    if (ends[i] >= 0) close(std::exchange(ends[i], -1));
  }
};

// A folder for the program's files, gone with all that is in it when the program has ended, however it ended.
struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "mica-lab-XXXXXX").string();
  Folder() { MICA_CHECK(mkdtemp(path.data()), "no folder for the program: ", std::strerror(errno)); }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

// What the program wrote, or an empty string if it took too long.
std::string answer_of(pid_t child, Pipe& in, Pipe& out, const std::string& source) {
  fcntl(in.ends[1], F_SETFL, O_NONBLOCK);
  std::string text;
  size_t written = 0;
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  char buffer[16384];
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd ready[2] = {{out.ends[0], POLLIN, 0}, {in.ends[1], POLLOUT, 0}};
    if (left <= 0 || text.size() > kMostAnswer || poll(ready, in.ends[1] >= 0 ? 2 : 1, static_cast<int>(left)) <= 0) {
      kill(-child, SIGKILL);
      return "";
    }
    if (in.ends[1] >= 0 && ready[1].revents) {
      const ssize_t n = write(in.ends[1], source.data() + written, source.size() - written);
      if (n > 0) written += static_cast<size_t>(n);
      if ((n < 0 && errno != EAGAIN) || written == source.size()) in.close_end(1);
    }
    if (ready[0].revents) {
      const ssize_t n = read(out.ends[0], buffer, sizeof buffer);
      if (n <= 0) return text;
      text.append(buffer, static_cast<size_t>(n));
    }
  }
}

}  // namespace

Json execute(const Json& question) {
  const std::string source = question.at("source").get<std::string>();
  MICA_CHECK(source.size() <= kMostSource, "a program of at most ", kMostSource, " bytes is run here");
  const auto [interpreter, package] = Site::interpreter();
  MICA_CHECK(!interpreter.empty(), "this Lab runs no programs: it was started without an interpreter");
  Folder folder;
  Pipe in, out;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.ends[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out.ends[1], 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // all that it starts ends with it
  std::string program = interpreter, isolated = "-I", command = "-c", entry = kEntry, path = package;
  char* arguments[] = {program.data(), isolated.data(),    command.data(), entry.data(),
                       path.data(),    folder.path.data(), nullptr};
  std::string search = "PATH=/usr/bin:/bin";
  char* environment[] = {search.data(), nullptr};
  pid_t child = 0;
  const int problem = posix_spawn(&child, interpreter.c_str(), &actions, &attributes, arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  MICA_CHECK(problem == 0, "the program could not be started: ", std::strerror(problem));
  in.close_end(0);
  out.close_end(1);
  const std::string text = answer_of(child, in, out, source);
  int status = 0;
  waitpid(child, &status, 0);
  MICA_CHECK(!text.empty(), WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL
                                ? cat("the program was ended by signal ", WTERMSIG(status))
                                : "the program took too long, or more memory than it may have, and was ended");
  return Json::parse(text);
}

}  // namespace mica::lab
