#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "proto/fleet/client_table.h"
#include "proto/fleet/messages.h"
#include "server/log/history.h"

namespace macaw::server {

// The state in which an earlier server of the run died, read from the run's log and its journal
// (server/journal/). Rounds that were closed since the checkpoint are done again from the parts
// accepted then, without training. The open round continues where it was.
struct Restored {
  struct Member {
    WorkerId node;
    SessionId session;
    uint64_t last_commit = 0;  // the newest commit of it that was accepted
    fleet::RegisterRequest request;
    fleet::ClientTable table;
    bool there = true;  // false: the node was lost before, but its clients belong to the run
  };
  struct AcceptedPart {
    WorkerId node;
    std::string node_name;
    fleet::Part part;  // names its sums by digest; without their bytes
  };
  struct PhaseStory {
    Digest broadcast;
    std::vector<ClientId> present;       // log::RoundOpened::present
    std::vector<AcceptedPart> accepted;  // in the order of acceptance
    std::vector<log::GivenUp> gave_up;   // clients that the server itself gave up
    std::map<Attempt, WorkerId> leased;  // leases that were still open
    std::string dropped;                 // why the server dropped the round; empty: it did not
    std::string alone;                   // log::RoundLost::alone
    // Of a fleet whose rounds do not wait for each other: who trains, and by how many rounds the
    // models of those that were leased are older than the newest one (no entry: not at all).
    std::vector<ClientId> cohort = {};
    std::map<ClientId, uint32_t> staleness = {};
    bool closed = false;
  };
  // A client that trained when the round before the first of `phases` had been closed, of a fleet
  // whose rounds do not wait for each other.
  struct TrainsOn {
    Attempt attempt;
    WorkerId node;
    uint32_t staleness = 0;  // in that round
  };
  std::vector<Member> members;  // in the order of registration
  std::vector<TrainsOn> train_on;
  std::map<std::pair<Round, Phase>, PhaseStory> phases;
  WorkerId newest;            // the largest number that any node has had
  bool begun = false;         // a round had been opened
  std::set<Round> evaluated;  // rounds whose metrics rows are on disk
  log::LostStates lost_states;
  log::CutEvaluations evaluations;
};

}  // namespace macaw::server
