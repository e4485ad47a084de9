#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "proto/fleet/client_table.h"
#include "proto/fleet/messages.h"
#include "server/log/record.h"

namespace macaw::server {

// What an earlier server of the run had come to when it died: read back from the run's log and its
// journal (server/journal/). Rounds since the checkpoint are done again from the parts that were
// accepted then, without training anybody; the open one goes on where it was.
struct Restored {
  struct Member {
    WorkerId node;
    SessionId session;
    uint64_t last_commit = 0;  // the newest that was accepted
    fleet::RegisterRequest request;
    fleet::ClientTable table;
    bool there = true;  // false: lost by then, but the run has its clients
  };
  struct AcceptedPart {
    WorkerId node;
    std::string node_name;
    fleet::Part part;  // its sums by name
  };
  struct PhaseStory {
    Digest broadcast;
    std::vector<AcceptedPart> accepted;  // in their order
    std::vector<log::GivenUp> gave_up;   // by the server's decision
    std::map<Attempt, WorkerId> leased;  // still
    bool closed = false;
  };
  std::vector<Member> members;  // in the order in which they came
  std::map<std::pair<Round, Phase>, PhaseStory> phases;
  WorkerId newest;            // number that any node has had
  bool begun = false;         // a round had been opened
  std::set<Round> evaluated;  // whose rows are there
};

}  // namespace macaw::server
