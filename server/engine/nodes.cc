#include "server/engine/nodes.h"

#include <algorithm>

namespace macaw::server {
namespace {

constexpr size_t kMostReplaced = 4096;  // replaced processes that are remembered

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
  if (node != nullptr) node->heard = node->last_seen = now;
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
  team.members.insert(node.id);
  team.slots += node.slots;
  slots_ += node.slots;
  if (node.central_test) central_slots_ += node.slots;
  by_session_[node.session] = node.id;
  by_name_[node.name] = node.id;
  next_ = std::min(next_, DeadlineOf(node));
  return nodes_.emplace(node.id, std::move(node)).first->second;
}

Node Nodes::Remove(WorkerId id) {
  Node node = std::move(nodes_.extract(id).mapped());
  by_session_.erase(node.session);
  by_name_.erase(node.name);
  Team& team = TeamOf(node.holding);
  team.members.erase(id);
  team.slots -= node.slots;
  slots_ -= node.slots;
  if (node.central_test) central_slots_ -= node.slots;
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
  next_ = std::min(next_, DeadlineOf(node));
}

Poll Nodes::Unpark(Node& node, TimePoint now) {
  Poll poll = *std::move(node.poll);
  node.poll.reset();
  node.last_seen = now;
  next_ = std::min(next_, DeadlineOf(node));
  return poll;
}

void Nodes::LookAgain(Node& node, TimePoint when) {
  node.look_again = when;
  next_ = std::min(next_, when);
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
  const std::set<WorkerId>& members = Of(holding).members;
  return !members.empty() &&
         std::ranges::all_of(members, [this](WorkerId id) { return !At(id).declined.empty(); });
}

bool Nodes::AnybodyDeclines() const {
  return std::ranges::any_of(nodes_,
                             [](const auto& entry) { return !entry.second.declined.empty(); });
}

bool Nodes::everybody_told() const {
  return std::ranges::all_of(nodes_, [](const auto& entry) { return entry.second.told; });
}

TimePoint Nodes::DeadlineOf(const Node& node) const {
  return node.poll.has_value() ? std::min(node.poll->deadline, node.look_again)
                               : node.last_seen + patience_;
}

Nodes::Elapsed Nodes::Expire(TimePoint now) {
  Elapsed elapsed;
  if (now < next_) return elapsed;
  next_ = TimePoint::max();
  for (auto& [id, node] : nodes_) {
    if (node.poll.has_value()) {
      node.last_seen = now;
      if (node.poll->deadline <= now) elapsed.polls.push_back(Unpark(node, now).ticket);
      if (node.look_again <= now) node.look_again = TimePoint::max();
    } else if (node.last_seen + patience_ <= now) {
      elapsed.silent.push_back(id);
      continue;
    }
    next_ = std::min(next_, DeadlineOf(node));
  }
  return elapsed;
}

}  // namespace macaw::server
