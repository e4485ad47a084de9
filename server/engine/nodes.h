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

#include "absl/container/flat_hash_map.h"
#include "core/clock.h"
#include "core/ids.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "server/engine/roster.h"
#include "server/engine/ticket.h"

namespace macaw::server {

// A call for work that waits until there is some.
struct Poll {
  Ticket ticket = 0;
  TimePoint deadline{};
  fleet::LeaseRequest request;
};

// A worker process that has registered.
struct Node {
  WorkerId id;
  SessionId session;
  std::string name;
  uint64_t incarnation = 0;
  uint32_t slots = 1;
  std::string device;  // nodes with equal devices are equally fast
  HoldingId holding;
  bool central_test = false;    // it has the central test set
  bool volatile_state = false;  // the client states that it keeps end with its process
  uint64_t last_commit = 0;     // the newest that was accepted
  // Its leases ran out: until a part of it counts it is given one client at a time.
  bool on_trial = false;
  bool told = false;  // that the run is over

  TimePoint last_seen{};
  uint64_t progress = 0;  // as it reported last, and when that last grew
  TimePoint progressed{};
  std::optional<Poll> poll;
  TimePoint look_again = TimePoint::max();  // while polling: may get now what it did not before
};

// The nodes that are there: by number, session, name and holding; and when one of them has been
// silent for too long. Pure; one thread. A reference to a node holds until it is removed.
class Nodes {
 public:
  // `patience`: a node that says nothing for this long is lost. An open poll counts as a word.
  explicit Nodes(Duration patience) : patience_(patience) {}

  Node* Find(SessionId session);
  const Node* Find(SessionId session) const;
  Node* Hear(SessionId session, TimePoint now);  // Find, and it has been heard of
  Node* Named(const std::string& name);
  Node& At(WorkerId id) { return nodes_.at(id); }
  const Node& At(WorkerId id) const { return nodes_.at(id); }
  bool Knows(WorkerId id) const { return nodes_.contains(id); }
  // Another process has taken over the name of the one with this incarnation.
  bool WasReplaced(const std::string& name, uint64_t incarnation) const;

  // Gives the node its number, unless it has one (restored), and counts it as heard of.
  Node& Add(Node node, TimePoint now);
  Node Remove(WorkerId id);
  // Numbers up to this one have been given out before.
  void NumberFrom(WorkerId newest) { last_ = std::max(last_, newest.value); }
  void NoteReplaced(const Node& node);

  void Park(Node& node, Poll poll);
  Poll Unpark(Node& node, TimePoint now);  // it must be parked
  void LookAgain(Node& node, TimePoint when);

  // The nodes with a holding's rows.
  struct Team {
    std::set<WorkerId> members;
    uint64_t slots = 0;
  };
  const Team& Of(HoldingId holding) const;
  uint64_t slots() const { return slots_; }
  uint64_t central_slots() const { return central_slots_; }  // of those with the central test set

  size_t size() const { return nodes_.size(); }
  WorkerId newest() const { return WorkerId(last_); }  // ever
  auto begin() { return nodes_.begin(); }
  auto end() { return nodes_.end(); }
  auto begin() const { return nodes_.begin(); }
  auto end() const { return nodes_.end(); }
  bool everybody_told() const;

  // What time has brought: nodes that have been silent for too long, polls that ran out.
  struct Elapsed {
    std::vector<WorkerId> silent;
    std::vector<Ticket> polls;
  };
  Elapsed Expire(TimePoint now);
  // Not after Expire has something to say, and seldom before. Costs the same for any number.
  TimePoint NextDeadline() const { return nodes_.empty() ? TimePoint::max() : next_; }

 private:
  TimePoint DeadlineOf(const Node& node) const;
  Team& TeamOf(HoldingId holding);

  const Duration patience_;
  std::map<WorkerId, Node> nodes_;
  absl::flat_hash_map<SessionId, WorkerId> by_session_;
  absl::flat_hash_map<std::string, WorkerId> by_name_;
  std::vector<Team> teams_;  // by holding
  uint64_t slots_ = 0, central_slots_ = 0;
  uint32_t last_ = 0;  // number given out
  TimePoint next_ = TimePoint::max();
  // (name, incarnation) of former processes, the newest ones.
  std::set<std::pair<std::string, uint64_t>> replaced_;
  std::deque<std::pair<std::string, uint64_t>> replaced_order_;
};

}  // namespace macaw::server
