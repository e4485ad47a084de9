#pragma once

#include <map>
#include <string>
#include <utility>

#include "server/log/json.h"
#include "server/log/record.h"

namespace macaw::cli {

// Formats a run's log of rounds for people: time, round.phase, event, node, number of clients,
// reason.
class LogTable {
 public:
  static std::string Head();
  // The lines of a record, each with a newline: one for the record and one for each client that it
  // gives up. Nodes have the names given in earlier records.
  std::string Lines(const server::log::Entry& entry, server::log::Standing standing);
  // Remembers the nodes' names of a record that is not printed.
  void PassOver(const server::log::Record& record);

 private:
  std::string NameOf(WorkerId node) const;

  std::map<WorkerId, std::string> names_;  // of the session
};

}  // namespace macaw::cli
