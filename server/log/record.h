#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/digest.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"

// What happened in a run, as values: the vocabulary of rounds.log. What the world decided is here
// (who was there, who was first, who was given up); what the seed decides is here as far as a
// reader wants to compare it. Which field has which number in the file: fields.h.
namespace macaw::server::log {

// A set of clients that a node can train: how many, and the digest of what decides their rows.
struct Holding {
  Digest data;
  uint64_t clients = 0;
  friend bool operator==(const Holding&, const Holding&) = default;
};

// A client of a cohort.
struct Member {
  ClientId client;
  uint32_t multiplicity = 1;  // how often it was drawn
  friend bool operator==(const Member&, const Member&) = default;
};

// A client that its round has to do without.
struct GivenUp {
  Attempt attempt;
  fleet::LeftOutReason reason = fleet::LeftOutReason::kFailed;
  std::string message;
  std::string tail;  // of a message that was too long to keep: how it ended
  friend bool operator==(const GivenUp&, const GivenUp&) = default;
};

// A server has begun to work on the run. Unless it goes on, what the log says before about rounds
// after `completed` is undone: they are done again.
struct RunOpened {
  Digest run;                          // the run's random name, the same in every session
  uint32_t epoch = 0;                  // how many servers have been started on the folder
  Digest configuration;                // of what decides the result (Describe)
  Round completed;                     // 0: from the start
  int64_t wall_ns = 0;                 // Unix time
  Digest replays;                      // the name of the run that this one repeats; zero: none
  std::vector<ClientId> reset_states;  // these clients gave their state up
  // Nothing is undone: it goes on where the server before it was, with the same nodes.
  bool goes_on = false;
  friend bool operator==(const RunOpened&, const RunOpened&) = default;
};

struct NodeJoined {
  WorkerId node;  // numbers count from 1 in each session of the run
  std::string name;
  uint32_t slots = 0;
  uint64_t incarnation = 0;  // random, per start of its process
  std::string profile;       // what equal bits depend on
  std::vector<Holding> holdings;
  friend bool operator==(const NodeJoined&, const NodeJoined&) = default;
};

struct NodeRefused {
  std::string name;
  std::string why;
  friend bool operator==(const NodeRefused&, const NodeRefused&) = default;
};

struct NodeLost {
  WorkerId node;
  std::string name;
  std::string why;
  friend bool operator==(const NodeLost&, const NodeLost&) = default;
};

// The client was being trained when its node's process died.
struct Died {
  Round round;
  ClientId client;
  uint32_t deaths = 0;  // so far, in this round
  friend bool operator==(const Died&, const Died&) = default;
};

// The cohort is drawn, the broadcast is there, leases begin.
struct RoundOpened {
  Round round;
  Phase phase;
  Digest eligible;  // of the clients that could be drawn, with their training rows
  std::vector<Member> cohort;
  double max_weight = 0, total_weight = 0;  // aggregation::GridOrder
  uint32_t max_multiplicity = 0;
  uint64_t total_multiplicity = 0;
  Digest broadcast;  // what everybody trains from
  uint64_t broadcast_bytes = 0;
  friend bool operator==(const RoundOpened&, const RoundOpened&) = default;
};

// Its clients are divided among nodes that have them.
struct Planned {
  Round round;
  Phase phase;
  std::string why;
  friend bool operator==(const Planned&, const Planned&) = default;
};

struct Leased {
  Round round;
  Phase phase;
  WorkerId node;
  std::vector<Attempt> attempts;
  friend bool operator==(const Leased&, const Leased&) = default;
};

// A part counts: what it includes and what it gives up are settled at once, so they are one record.
struct Accepted {
  Round round;
  Phase phase;
  WorkerId node;
  uint64_t commit = 0;
  std::vector<Attempt> included;
  std::vector<GivenUp> given_up;
  Digest sums;         // the blob with their sums; zero when nobody is included
  double seconds = 0;  // of its slots' time, as the node reports it
  friend bool operator==(const Accepted&, const Accepted&) = default;
};

// A part of which nothing counts.
struct TurnedDown {
  Round round;
  Phase phase;
  WorkerId node;
  uint64_t commit = 0;
  bool stale = false;  // it came too late; else it was wrong
  std::string why;
  friend bool operator==(const TurnedDown&, const TurnedDown&) = default;
};

// Leases that ended without a result: their clients go out again.
struct Requeued {
  Round round;
  Phase phase;
  std::vector<Attempt> attempts;
  std::string why;
  friend bool operator==(const Requeued&, const Requeued&) = default;
};

// Clients that a phase does without by the server's decision: a node that alone could train them
// cannot, or the run repeats another one.
struct GaveUp {
  Round round;
  Phase phase;
  std::vector<GivenUp> given_up;
  friend bool operator==(const GaveUp&, const GaveUp&) = default;
};

// Every client of a phase was given up.
struct RoundLost {
  Round round;
  Phase phase;
  std::string why;
  friend bool operator==(const RoundLost&, const RoundLost&) = default;
};

// The algorithm has moved the model.
struct Closed {
  Round round;
  Phase phase;
  bool last = false;  // the round has no further phase: it is done
  uint64_t counted = 0;
  uint64_t left_out = 0;  // given up in this phase
  uint64_t requeued = 0;  // attempts that ended without a result
  double seconds = 0;     // of a last phase: what the round took
  Digest model;           // of the blob that goes to evaluation; zero: none was due
  friend bool operator==(const Closed&, const Closed&) = default;
};

// The evaluation after this round is complete.
struct Evaluated {
  Round round;
  std::string stop;  // why the run is to stop now; empty: it goes on
  friend bool operator==(const Evaluated&, const Evaluated&) = default;
};

enum class End : uint8_t { kFinished = 0, kStopped = 1, kInterrupted = 2, kFailed = 3 };

// The server leaves the run. One that was killed leaves without this record.
struct RunEnded {
  End how = End::kFinished;
  uint32_t rounds = 0;  // completed in all
  std::string why;
  Digest model;   // as in summary.json; zero when the model is one of a broken-off round
  Digest states;  // likewise, of a run whose clients keep a state
  friend bool operator==(const RunEnded&, const RunEnded&) = default;
};

// Of a kind that this program does not know: a later version wrote it.
struct Unknown {
  uint32_t kind = 0;
  friend bool operator==(const Unknown&, const Unknown&) = default;
};

using Record = std::variant<RunOpened, NodeJoined, NodeRefused, NodeLost, Died, RoundOpened,
                            Planned, Leased, Accepted, TurnedDown, Requeued, RoundLost, Closed,
                            Evaluated, RunEnded, GaveUp, Unknown>;

// A record in its place.
struct Entry {
  uint64_t sequence = 0;  // 1, 2, 3, … through the whole file
  int64_t ns = 0;         // since the first server began in the folder; never decreases
  Record record;
  friend bool operator==(const Entry&, const Entry&) = default;
};

// The round that a record is about, and its phase; {0, 0} for one that is about none.
std::pair<Round, Phase> PlaceOf(const Record& record);

const char* NameOf(fleet::LeftOutReason reason);
const char* NameOf(End end);

// With texts cut so that a part costs some tens of kB whatever its clients report: of a long
// message its beginning and its end, of those after the first few only the beginning. Cuts lie
// between characters (UTF-8).
std::vector<GivenUp> GivenUpOf(const std::vector<fleet::LeftOut>& left_out);
// As one text again.
std::string TextOf(const GivenUp& given_up);

}  // namespace macaw::server::log
