#include "server/engine/nodes.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace macaw::server {
namespace {

constexpr size_t kMostReplaced = 4096;  // replaced processes that are remembered
constexpr uint64_t kFirstLeases = 32;   // clients at once, of a node that has shown no result

}  // namespace

Node* Nodes::Find(SessionId session) {
  const auto it = by_session_.find(session);
  return it != by_session_.end() ? &nodes_.at(it->second) : nullptr;
}

const Node* Nodes::Find(SessionId session) const {
  const auto it = by_session_.find(session);
  return it != by_session_.end() ? &nodes_.at(it->second) : nullptr;
}

Node* Nodes::Hear(SessionId session, TimePoint now) {
  Node* node = Find(session);
  if (node == nullptr) return nullptr;
  node->heard = node->last_seen = now;
  deadlines_.Set(node->id, DeadlineOf(*node));
  return node;
}

Node* Nodes::Named(const std::string& name) {
  const auto it = by_name_.find(name);
  return it != by_name_.end() ? &nodes_.at(it->second) : nullptr;
}

bool Nodes::WasReplaced(const std::string& name, uint64_t incarnation) const {
  return replaced_.contains({name, incarnation});
}

Node& Nodes::Add(Node node, TimePoint now) {
  if (node.id.value == 0) node.id = WorkerId(last_ + 1);
  last_ = std::max(last_, node.id.value);
  node.heard = node.last_seen = node.progressed = now;
  Team& team = TeamOf(node.holding);
  for (Team* of : {&team, node.central_test ? &central_ : nullptr}) {
    if (of == nullptr) continue;
    of->members.insert(node.id);
    of->slots += node.slots;
  }
  team.volatile_states += node.volatile_state ? 1 : 0;
  slots_ += node.slots;
  by_session_[node.session] = node.id;
  by_name_[node.name] = node.id;
  deadlines_.Set(node.id, DeadlineOf(node));
  Node& added = nodes_.emplace(node.id, std::move(node)).first->second;
  CountDeclining(added, 0);
  return added;
}

Node Nodes::Remove(WorkerId id) {
  Node node = std::move(nodes_.extract(id).mapped());
  by_session_.erase(node.session);
  by_name_.erase(node.name);
  Team& team = TeamOf(node.holding);
  for (Team* of : {&team, node.central_test ? &central_ : nullptr}) {
    if (of == nullptr) continue;
    of->members.erase(id);
    of->parked.erase(id);
    of->slots -= node.slots;
  }
  team.volatile_states -= node.volatile_state ? 1 : 0;
  slots_ -= node.slots;
  parked_.erase(id);
  told_ -= node.told ? 1 : 0;
  deadlines_.Remove(id);
  CountDeclining(node, node.declined.empty() ? 0 : -1);
  return node;
}

void Nodes::NoteReplaced(const Node& node) {
  if (!replaced_.insert({node.name, node.incarnation}).second) return;
  replaced_order_.emplace_back(node.name, node.incarnation);
  if (replaced_order_.size() <= kMostReplaced) return;
  replaced_.erase(replaced_order_.front());
  replaced_order_.pop_front();
}

void Nodes::Park(Node& node, Poll poll) {
  node.poll = std::move(poll);
  parked_.insert(node.id);
  TeamOf(node.holding).parked.insert(node.id);
  if (node.central_test) central_.parked.insert(node.id);
  deadlines_.Set(node.id, DeadlineOf(node));
}

Poll Nodes::Unpark(Node& node, TimePoint now) {
  Poll poll = *std::move(node.poll);
  node.poll.reset();
  parked_.erase(node.id);
  TeamOf(node.holding).parked.erase(node.id);
  if (node.central_test) central_.parked.erase(node.id);
  node.last_seen = now;
  node.leased_until += now - poll.since;
  node.tasks_until += now - poll.since;
  deadlines_.Set(node.id, DeadlineOf(node));
  return poll;
}

void Nodes::LookAgain(Node& node, TimePoint when) {
  node.look_again = when;
  deadlines_.Set(node.id, DeadlineOf(node));
}

void Nodes::SetDeclined(Node& node, std::string why) {
  const int change = (why.empty() ? 0 : 1) - (node.declined.empty() ? 0 : 1);
  node.declined = std::move(why);
  CountDeclining(node, change);
}

void Nodes::CountDeclining(const Node& node, int change) {
  Team& team = TeamOf(node.holding);
  team.declining += static_cast<uint64_t>(change);
  declining_ += static_cast<uint64_t>(change);
  if (Decline(node.holding)) {
    declining_holdings_.insert(node.holding);
  } else {
    declining_holdings_.erase(node.holding);
  }
}

void Nodes::SetTold(Node& node) {
  if (!std::exchange(node.told, true)) ++told_;
}

Nodes::Team& Nodes::TeamOf(HoldingId holding) {
  if (holding.value >= teams_.size()) teams_.resize(holding.value + 1);
  return teams_[holding.value];
}

const Nodes::Team& Nodes::Of(HoldingId holding) const {
  static const Team nobody;
  return holding.value < teams_.size() ? teams_[holding.value] : nobody;
}

bool Nodes::Decline(HoldingId holding) const {
  const Team& team = Of(holding);
  return !team.members.empty() && team.declining == team.members.size();
}

uint64_t Nodes::MostLeases(const Node& node) const {
  if (Of(node.holding).members.size() < 2) return std::numeric_limits<uint64_t>::max();
  return std::max(kFirstLeases, 2 * node.shown);
}

TimePoint Nodes::DeadlineOf(const Node& node) const {
  return node.poll.has_value() ? std::min(node.poll->deadline, node.look_again)
                               : node.last_seen + patience_;
}

Nodes::Elapsed Nodes::Expire(TimePoint now) {
  std::vector<WorkerId> due;
  while (const std::optional<WorkerId> id = deadlines_.Pop(now)) due.push_back(*id);
  std::ranges::sort(due);
  Elapsed elapsed;
  for (const WorkerId id : due) {
    Node& node = nodes_.at(id);
    if (!node.poll.has_value()) {
      elapsed.silent.push_back(id);
      continue;
    }
    if (node.look_again <= now) node.look_again = TimePoint::max();
    if (node.poll->deadline <= now) {
      elapsed.polls.push_back(Unpark(node, now).ticket);
    } else {
      elapsed.look_again.push_back(id);
      deadlines_.Set(id, DeadlineOf(node));
    }
  }
  return elapsed;
}

}  // namespace macaw::server
