// What a group on Gloo is made of. It names nothing of Gloo's, which is known to libmica_gloo.so only.
#pragma once

#include "distributed/call.h"

namespace mica::distributed {

// How ranks leave their addresses for each other. The functions are called while the group is made, and not later.
struct MeetingPlace {
  std::function<void(const std::string&, const std::string&)> set;
  std::function<std::string(const std::string&)> get;  // waits for the key
};

struct GlooOptions {
  std::string name;  // of the group, for messages to people
  int rank = 0, size = 1;
  std::string address;    // of this host, as others reach it
  std::string interface;  // instead of an address
  double timeout = 1800;  // seconds
  double silence = 8;     // seconds after which a connection without any answer is lost
};

using GlooFactory = Backend* (*)(const GlooOptions& options, const MeetingPlace& place);

}  // namespace mica::distributed
