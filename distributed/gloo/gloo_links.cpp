#include "gloo_links.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace mica::distributed {

std::set<int> tcp_sockets() {
  std::set<int> found;
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return found;
  while (const dirent* entry = readdir(folder)) {
    const int descriptor = std::atoi(entry->d_name);
    int protocol = 0;
    socklen_t size = sizeof protocol;
    if (entry->d_name[0] != '.' && getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
        protocol == IPPROTO_TCP) {
      found.insert(descriptor);
    }
  }
  closedir(folder);
  return found;
}

void limit_silence(int socket, double seconds) {
  const int on = 1;
  // The time between two questions is a tenth of the limit, so that the last answer decides within it.
  const int between = std::clamp(static_cast<int>(seconds / 10), 1, 60);
  const int limit = std::max(static_cast<int>(seconds * 1000) - between * 1000, 1000);
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &between, sizeof between);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(std::clamp(seconds, 0.001, 1e8) * 1000));
}

std::string of_silence(const std::string& error, double seconds) {
  if (error.find(std::strerror(ETIMEDOUT)) == std::string::npos &&
      error.find(std::strerror(EHOSTUNREACH)) == std::string::npos) {
    return "";
  }
  char text[160];
  std::snprintf(text, sizeof text,
                " (its host did not answer for %g s; MICA_DISTRIBUTED_LINK_LIMIT sets how many seconds are waited)",
                seconds);
  return text;
}

}  // namespace mica::distributed
