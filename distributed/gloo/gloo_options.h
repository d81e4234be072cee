// The options of a group on Gloo. They name nothing of Gloo's, which only libmica_gloo.so knows.
#pragma once

#include "distributed/call.h"

namespace mica::distributed {

// How ranks leave their addresses for each other. The functions are called only while the group is made.
struct MeetingPlace {
  std::function<void(const std::string&, const std::string&)> set;
  std::function<std::string(const std::string&)> get;  // waits until the key is there
};

struct GlooOptions {
  std::string name;  // the name of the group, for messages to people
  int rank = 0, size = 1;
  std::string address;    // the address of this host, as others reach it
  std::string interface;  // instead of an address
  double timeout = 1800;  // seconds
  double silence = 8;     // seconds after which a connection without any answer is lost
};

using GlooFactory = Backend* (*)(const GlooOptions& options, const MeetingPlace& place);

}  // namespace mica::distributed
