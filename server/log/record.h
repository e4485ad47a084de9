#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/digest.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"

// The records of rounds.log: what happened in a run, as values. They hold everything that the seed
// does not decide (which nodes were registered, which node came first, which clients were given
// up). Of what the seed decides, they hold what a reader may want to compare. The numbers of the
// fields in the file are in fields.h.
namespace macaw::server::log {

// A set of clients that a node can train. `data` is the digest of everything that decides their
// rows.
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

// A client that is not part of its round's result.
struct GivenUp {
  Attempt attempt;
  fleet::LeftOutReason reason = fleet::LeftOutReason::kFailed;
  std::string message;
  std::string tail;  // the end of the message, if the message was too long and was cut
  friend bool operator==(const GivenUp&, const GivenUp&) = default;
};

// A server has begun a session of the run. Unless `goes_on` is true, all earlier records about
// rounds after `completed` are undone: these rounds are done again.
struct RunOpened {
  Digest run;                          // the run's random name, the same in every session
  uint32_t epoch = 0;                  // how many servers have been started on the folder
  Digest configuration;                // of everything that decides the result (Describe)
  Round completed;                     // 0: from the start
  int64_t wall_ns = 0;                 // Unix time
  Digest replays;                      // the name of the run that this one repeats; zero: none
  std::vector<ClientId> reset_states;  // these clients lost their states
  // Nothing is undone: the server continues where the previous one died, with the same nodes.
  bool goes_on = false;
  // Where cohort.eligible is set, the clients of a node that has all of them are numbered by their
  // places in its data, as without the key. False: by their names, as on fleets and in simulations
  // of 0.1.0.
  bool keeps_places = false;
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

// The owner of the node does not let it work now. Written when that begins and when the reason
// changes, and without a reason when the node works again.
struct NodeDeclined {
  WorkerId node;
  std::string name;
  std::string why;
  friend bool operator==(const NodeDeclined&, const NodeDeclined&) = default;
};

// The client was being trained when its node's process died.
struct Died {
  Round round;
  ClientId client;
  uint32_t deaths = 0;  // so far, in this round
  friend bool operator==(const Died&, const Died&) = default;
};

// Too few clients can be trained now to open the round: they are not present
// (round.present_within), or their nodes decline. Written once a round.
struct Waiting {
  Round round;
  uint64_t present = 0, needed = 0;  // clients that can be drawn
  friend bool operator==(const Waiting&, const Waiting&) = default;
};

// The cohort is drawn, the broadcast is ready, and leases begin.
struct RoundOpened {
  Round round;
  Phase phase;
  Digest eligible;  // of the clients that could be drawn and of their training rows
  std::vector<Member> cohort;
  double max_weight = 0, total_weight = 0;  // aggregation::GridOrder
  uint32_t max_multiplicity = 0;
  uint64_t total_multiplicity = 0;
  Digest broadcast;  // of the blob from which all clients train
  uint64_t broadcast_bytes = 0;
  // The clients that were present, if the round was drawn from those alone and they were not all:
  // of each range the first number and the one after the last, one range after the other.
  std::vector<ClientId> present;
  // Of a fleet whose rounds do not wait for each other: how many arrivals close the round. Its
  // cohort is then everybody who trains, also those who began in earlier rounds. 0: it waits.
  uint64_t arrivals = 0;
  friend bool operator==(const RoundOpened&, const RoundOpened&) = default;
};

// The clients of a phase have been divided among the nodes that hold them.
struct Planned {
  Round round;
  Phase phase;
  std::string why;
  friend bool operator==(const Planned&, const Planned&) = default;
};

// Where rounds do not wait for each other, leases that go on in the next round are written again
// behind its RoundOpened.
struct Leased {
  Round round;
  Phase phase;
  WorkerId node;
  std::vector<Attempt> attempts;
  // By how many rounds the model of each is older than the newest one; empty: none is.
  std::vector<uint64_t> staleness;
  friend bool operator==(const Leased&, const Leased&) = default;
};

// A part was accepted. It is one record, because the clients that it includes and those that it
// gives up are settled together.
struct Accepted {
  Round round;
  Phase phase;
  WorkerId node;
  uint64_t commit = 0;
  std::vector<Attempt> included;
  std::vector<GivenUp> given_up;
  Digest sums;              // of the blob with the sums; zero when no client is included
  double seconds = 0;       // time of the node's slots for this part, as the node reports it
  uint64_t sums_bytes = 0;  // of that blob, as it travelled
  std::vector<uint64_t> staleness;  // as Leased::staleness, of those that are included
  friend bool operator==(const Accepted&, const Accepted&) = default;
};

// A part was refused or was stale. Nothing of it counts.
struct TurnedDown {
  Round round;
  Phase phase;
  WorkerId node;
  uint64_t commit = 0;
  bool stale = false;  // true: it came too late; false: it was wrong
  std::string why;
  friend bool operator==(const TurnedDown&, const TurnedDown&) = default;
};

// Leases ended without a result. Their clients are queued again.
struct Requeued {
  Round round;
  Phase phase;
  std::vector<Attempt> attempts;
  std::string why;
  friend bool operator==(const Requeued&, const Requeued&) = default;
};

// The server itself gave up clients of a phase: the only node that could train them cannot, the
// phase closed without them, or the run repeats another run that gave them up. An attempt has a
// fence if the client was leased.
struct GaveUp {
  Round round;
  Phase phase;
  std::vector<GivenUp> given_up;
  friend bool operator==(const GaveUp&, const GaveUp&) = default;
};

// The phase's deadline has passed with too few clients counted, and the phase waits on.
struct Extended {
  Round round;
  Phase phase;
  uint64_t counted = 0, missing = 0;  // clients
  uint64_t needed = 0;                // clients that must be counted
  friend bool operator==(const Extended&, const Extended&) = default;
};

// Every client of a phase was given up.
struct RoundLost {
  Round round;
  Phase phase;
  std::string why;
  // The server dropped the round because too few clients were counted. Nothing of the round counts:
  // neither clients that this phase had counted nor states that were stored in the round.
  bool dropped = false;
  // The only node that said so of all these clients, while there were others; empty: there is no
  // such node. Then the round does not count for server.max_lost_rounds.
  std::string alone;
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
  double seconds = 0;     // duration of the round; only set in its last phase
  Digest model;           // of the blob to be evaluated; zero: no evaluation was due
  friend bool operator==(const Closed&, const Closed&) = default;
};

// The evaluation after this round is complete.
struct Evaluated {
  Round round;
  std::string stop;  // why the run stops now; empty: it continues
  friend bool operator==(const Evaluated&, const Evaluated&) = default;
};

enum class End : uint8_t { kFinished = 0, kStopped = 1, kInterrupted = 2, kFailed = 3 };

// The server gave up tasks of an evaluation. Nodes that have their rows decline, are gone or were
// too slow; an operator skipped them; or a state cannot be read.
struct EvaluationGaveUp {
  Round round;          // whose model is evaluated
  bool states = false;  // it is the digest of the clients' states, at the end of the run
  // Numbers of the tasks, in the order in which the configuration cuts the evaluation. Of each
  // range the first number and the one after the last, one range after the other.
  std::vector<uint64_t> tasks;
  std::vector<GivenUp> given_up;  // whose rows these are, each once; none: the central set's
  std::string why;                // of the first task
  friend bool operator==(const EvaluationGaveUp&, const EvaluationGaveUp&) = default;
};

// Clients have lost their states: the node that kept them in its memory is gone, or an owner cannot
// read them, or they were given up for a resume. Between two rounds, `round` is the next one. A
// round that is dropped after a phase that counted has a record without clients: their states of
// that phase do not count, and the algorithm's sum (`all`) has them.
struct StatesLost {
  Round round;
  Phase phase;
  std::string name;               // of the node; empty: no node's
  std::vector<ClientId> clients;  // they train in this phase, and later, without their states
  std::vector<ClientId> counted;  // their results of this phase count; they lose what they stored
  std::string why;
  // The server keeps a sum of what clients store, which has what is lost. So after the round no
  // client has a state, and the sum is what it was at first (algorithms::BeginsAnew).
  bool all = false;
  friend bool operator==(const StatesLost&, const StatesLost&) = default;
};

// The server's session has ended. A server that was killed leaves no such record.
struct RunEnded {
  End how = End::kFinished;
  uint32_t rounds = 0;  // completed in all
  std::string why;
  Digest model;   // as in summary.json; zero if the run ended inside a round
  Digest states;  // as in summary.json; zero unless clients keep states
  friend bool operator==(const RunEnded&, const RunEnded&) = default;
};

enum class Operation : uint8_t {
  kPause = 1,
  kResume = 2,
  kDrain = 3,
  kAbortRound = 4,
  kQuarantine = 5,
  kAdmit = 6,
  kGiveUp = 8,
  kSkipEvaluation = 9,
};

// An operator has changed the course of the run. After kAbortRound, the round's open phase begins
// again from the same broadcast: a second RoundOpened follows, and what was leased and accepted in
// the phase before is undone.
struct Operated {
  Operation action = Operation::kPause;
  std::string by;    // who asked, as the server knows it
  std::string name;  // kQuarantine, kAdmit, kGiveUp: of the node
  Round round;       // kAbortRound, kSkipEvaluation
  std::string why;
  friend bool operator==(const Operated&, const Operated&) = default;
};

// A record of a kind that this program does not know, because a later version wrote it.
struct Unknown {
  uint32_t kind = 0;
  friend bool operator==(const Unknown&, const Unknown&) = default;
};

using Record =
    std::variant<RunOpened, NodeJoined, NodeRefused, NodeLost, Died, RoundOpened, Planned, Leased,
                 Accepted, TurnedDown, Requeued, RoundLost, Closed, Evaluated, RunEnded, GaveUp,
                 Extended, Waiting, Operated, NodeDeclined, EvaluationGaveUp, StatesLost, Unknown>;

// A record with its place in the log.
struct Entry {
  uint64_t sequence = 0;  // 1, 2, 3, … through the whole file
  int64_t ns = 0;         // since the start of the folder's first server; never decreases
  Record record;
  friend bool operator==(const Entry&, const Entry&) = default;
};

// The round and phase of a record; {0, 0} for a record that belongs to no round.
std::pair<Round, Phase> PlaceOf(const Record& record);

const char* NameOf(fleet::LeftOutReason reason);
const char* NameOf(End end);
const char* NameOf(Operation operation);

// Converts, and cuts the messages so that a part costs some tens of kB whatever its clients report.
// The beginning and the end of a long message are kept. Once the part's messages have filled 16 kB,
// only a short beginning of each further message is kept. Cuts lie between UTF-8 characters.
std::vector<GivenUp> GivenUpOf(const std::vector<fleet::LeftOut>& left_out);
// The beginning of a message that a node has sent, cut as above.
std::string Shortened(absl::string_view message);
// The message and its tail as one text.
std::string TextOf(const GivenUp& given_up);

}  // namespace macaw::server::log
