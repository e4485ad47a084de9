#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/clock.h"
#include "proto/admin/status.h"

namespace macaw::server {

// What operators have asked for and the engine has not done yet, or goes on to do.
struct OperatorState {
  bool pause = false;             // no round is opened
  uint32_t go_on_to = 0;          // of a stepwise run: rounds up to this one may be opened
  std::optional<TimePoint> held;  // since when the next round waits for one of these
  bool stopped = false;           // the caller of a stepwise run has stopped it
  bool drain = false;             // the run ends when the open round is done
  std::string drained_by;
  bool abort = false;  // the open phase begins again as soon as no part of it is being added
  std::map<std::string, admin::Quarantined> quarantine;  // by name of the node
  // Owners for which nothing waits until they register again, and who has said so.
  std::map<std::string, std::string> given_up;
};

}  // namespace macaw::server
