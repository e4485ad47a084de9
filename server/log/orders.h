#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "server/log/record.h"

namespace macaw::server::log {

// What operators have ordered and not taken back.
struct Orders {
  bool paused = false;
  std::map<std::string, Operated> quarantine;  // by name of the node
  std::map<std::string, Operated> given_up;    // likewise; until the node registers again

  // Call it in the order of the log. An order outlives its server; a pause ends with a run that was
  // ended on purpose (RunEnded), since whoever resumes such a run wants it to go on.
  void Add(const Record& record);
};

// Reads a log to its end. `synced`: as in Reader::Open.
absl::StatusOr<Orders> ReadOrders(const std::string& path, uint64_t synced);

}  // namespace macaw::server::log
