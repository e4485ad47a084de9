#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "core/clock.h"
#include "core/ids.h"
#include "core/token_bucket.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "server/engine/deadlines.h"
#include "server/engine/roster.h"
#include "server/engine/ticket.h"

namespace macaw::server {

// A call for work that waits until there is work.
struct Poll {
  Ticket ticket = 0;
  TimePoint since{};
  TimePoint deadline{};
  fleet::LeaseRequest request;
};

// A worker process that has registered.
struct Node {
  WorkerId id;
  SessionId session;
  std::string name;
  std::string program;  // "macaw-worker 0.1.0"
  uint64_t incarnation = 0;
  uint32_t slots = 1;
  std::string device;  // nodes with equal devices are equally fast
  HoldingId holding;
  bool central_test = false;    // it has the central test and validation sets
  bool volatile_state = false;  // it keeps client states in memory; they end with its process
  uint64_t last_commit = 0;     // the newest commit of it that was accepted
  // Its leases have expired, or a part of it left out all its clients. It gets one client at a time
  // until one of its parts counts.
  bool on_trial = false;
  uint64_t shown = 0;        // the most clients of a part of it that counted
  TokenBucket unreached;     // how often a lease of it may have got lost on the way
  bool empty_store = false;  // it registered after the rounds of which client states are kept
  // When its leases, and its evaluation tasks, end at the latest, whatever it reports. The time of
  // an open poll does not count.
  TimePoint leased_until{}, tasks_until{};
  Duration waited{};        // for its turns to download, in leased_until
  uint64_t present_in = 0;  // the newest count of the present clients that had this node's in it
  // Changed by Nodes only:
  bool told = false;     // it knows that the run is over
  std::string declined;  // why its owner does not let it work now; empty: it works

  TimePoint heard{};       // its last call or heartbeat
  TimePoint last_seen{};   // the same, or its open poll was seen
  uint64_t progress = 0;   // as it reported last
  TimePoint progressed{};  // when `progress` last grew
  std::optional<Poll> poll;
  TimePoint look_again = TimePoint::max();  // while polling: when to try again to serve the poll
};

// The registered nodes, by number, session, name and holding. Also finds nodes that have been
// silent for too long. No method takes time that grows with the number of nodes, but for logarithms
// of it. Pure; one thread. A reference to a node is valid until the node is removed.
class Nodes {
 public:
  // `patience`: a node that sends nothing for this long is lost. A node with an open poll is not
  // silent.
  explicit Nodes(Duration patience) : patience_(patience) {}

  Node* Find(SessionId session);
  const Node* Find(SessionId session) const;
  Node* Hear(SessionId session, TimePoint now);  // like Find; also sets last_seen
  Node* Named(const std::string& name);
  Node& At(WorkerId id) { return nodes_.at(id); }
  const Node& At(WorkerId id) const { return nodes_.at(id); }
  bool Knows(WorkerId id) const { return nodes_.contains(id); }
  // Whether a newer process has taken over this name from the process with this incarnation.
  bool WasReplaced(const std::string& name, uint64_t incarnation) const;

  // Adds the node and sets last_seen. Gives it a number, unless it has one (a restored node).
  Node& Add(Node node, TimePoint now);
  Node Remove(WorkerId id);
  // Numbers up to this one are in use already; new nodes get larger ones.
  void NumberFrom(WorkerId newest) { last_ = std::max(last_, newest.value); }
  void NoteReplaced(const Node& node);

  void Park(Node& node, Poll poll);
  Poll Unpark(Node& node, TimePoint now);  // the node must be parked
  void LookAgain(Node& node, TimePoint when);
  void SetDeclined(Node& node, std::string why);
  void SetTold(Node& node);

  using Ids = absl::btree_set<WorkerId>;
  // Nodes that have the same rows.
  struct Team {
    Ids members;
    Ids parked;  // those with an open poll
    uint64_t slots = 0;
    uint64_t declining = 0;  // those whose owners decline now
    uint64_t volatile_states = 0;
  };
  const Team& Of(HoldingId holding) const;          // with the holding's rows
  const Team& central() const { return central_; }  // with the central test set
  const Ids& parked() const { return parked_; }
  // Whether there are nodes with this holding, and the owners of all of them decline now.
  bool Decline(HoldingId holding) const;
  // The most clients that the node may have leased at once: no limit for the only node that has
  // their rows. A node that claims many slots gets a large share only after it has shown results.
  uint64_t MostLeases(const Node& node) const;
  const absl::btree_set<HoldingId>& declining() const { return declining_holdings_; }
  bool AnybodyDeclines() const { return declining_ > 0; }
  uint64_t slots() const { return slots_; }

  size_t size() const { return nodes_.size(); }
  WorkerId newest() const { return WorkerId(last_); }  // the largest number ever given out
  auto begin() { return nodes_.begin(); }
  auto end() { return nodes_.end(); }
  auto begin() const { return nodes_.begin(); }
  auto end() const { return nodes_.end(); }
  bool everybody_told() const { return told_ == nodes_.size(); }

  // Nodes that have been silent for too long, tickets of polls past their deadline, and parked
  // nodes whose time to look again has come. In the order of the nodes' numbers.
  struct Elapsed {
    std::vector<WorkerId> silent;
    std::vector<Ticket> polls;
    std::vector<WorkerId> look_again;
  };
  Elapsed Expire(TimePoint now);
  // When to call Expire: never later than it has something to return, and seldom earlier. Takes
  // constant time.
  TimePoint NextDeadline() const { return deadlines_.next(); }

 private:
  TimePoint DeadlineOf(const Node& node) const;
  Team& TeamOf(HoldingId holding);
  void CountDeclining(const Node& node, int change);

  const Duration patience_;
  std::map<WorkerId, Node> nodes_;
  absl::flat_hash_map<SessionId, WorkerId> by_session_;
  absl::flat_hash_map<std::string, WorkerId> by_name_;
  std::vector<Team> teams_;  // by holding
  Team central_;
  Ids parked_;
  absl::btree_set<HoldingId> declining_holdings_;
  uint64_t declining_ = 0, told_ = 0;  // nodes
  uint64_t slots_ = 0;
  uint32_t last_ = 0;  // the last number given out
  Deadlines<WorkerId> deadlines_;
  // (name, incarnation) of processes that were replaced; only the newest are remembered.
  std::set<std::pair<std::string, uint64_t>> replaced_;
  std::deque<std::pair<std::string, uint64_t>> replaced_order_;
};

}  // namespace macaw::server
