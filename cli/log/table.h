#pragma once

#include <map>
#include <string>
#include <utility>

#include "server/log/json.h"
#include "server/log/record.h"

namespace macaw::cli {

// A run's log of rounds as lines for people: time, round.phase, what, who, how many clients, why.
class LogTable {
 public:
  static std::string Head();
  // With a line for each client that the record gives up; each ends with a newline. Nodes are
  // named as the records before said.
  std::string Lines(const server::log::Entry& entry, server::log::Standing standing);
  // For those whose lines are not wanted: keeps the nodes' names.
  void PassOver(const server::log::Record& record);

 private:
  std::string NameOf(WorkerId node) const;

  std::map<WorkerId, std::string> names_;  // of the session
};

}  // namespace macaw::cli
