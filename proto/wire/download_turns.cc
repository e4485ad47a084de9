#include "proto/wire/download_turns.h"

#include <algorithm>
#include <utility>

namespace macaw::wire {
namespace {

void CallAll(const std::vector<DownloadTurns::Go>& ready) {
  for (const DownloadTurns::Go& go : ready) go();
}

// Nodes that fetch nothing and were last seen longer ago than `gone`.
template <typename Nodes>
void Forget(Nodes& nodes, Duration gone, TimePoint now) {
  nodes.remove_if([&](const auto& node) { return node.open.empty() && now - node.seen > gone; });
}

}  // namespace

uint64_t DownloadTurns::Enter(const std::string& node, const Digest& blob, Go go) {
  std::vector<Go> ready;
  uint64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    const TimePoint now = clock_.Now();
    Forget(nodes_, limits_.gone, now);
    auto of = std::ranges::find(nodes_, node, &Node::name);
    if (of == nodes_.end()) of = nodes_.insert(of, Node{.name = node, .waits = now});
    if (of->began.has_value() && of->blob != blob && !HasATurn(*of, now)) {
      of->began.reset();  // the turn was for another blob
      of->used = {};
      of->waits = now;
      nodes_.splice(nodes_.end(), nodes_, of);
    }
    of->blob = blob;
    number = ++newest_;
    of->seen = now;
    of->open.emplace(number, std::move(go));
    ready = Grant();
  }
  CallAll(ready);
  return number;
}

void DownloadTurns::Moved(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  if (const auto of = Of(number); of != nodes_.end()) of->seen = clock_.Now();
}

void DownloadTurns::Leave(uint64_t number, bool complete) {
  std::vector<Go> ready;
  {
    absl::MutexLock lock(&mutex_);
    const auto of = Of(number);
    if (of == nodes_.end()) return;
    const TimePoint now = clock_.Now();
    of->open.erase(number);
    of->seen = now;
    if (complete && of->open.empty()) MakeWay(of, now);
    ready = Grant();
  }
  CallAll(ready);
}

void DownloadTurns::Look() {
  std::vector<Go> ready;
  {
    absl::MutexLock lock(&mutex_);
    ready = Grant();
  }
  CallAll(ready);
}

Duration DownloadTurns::TakeWaited(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  const auto of = Of(number);
  if (of == nodes_.end() || of->began.has_value()) return {};
  const TimePoint now = clock_.Now();
  return now - std::exchange(of->waits, now);
}

void DownloadTurns::MakeWay(std::list<Node>::iterator of, TimePoint now) {
  const bool over = !HasATurn(*of, now);
  if (!of->began.has_value() || (over && of->second)) {
    nodes_.erase(of);
    return;
  }
  of->used = over ? Duration{} : now - *of->began;
  of->second = of->second || over;
  of->began.reset();
  of->waits = now;
  nodes_.splice(nodes_.begin(), nodes_, of);
}

std::list<DownloadTurns::Node>::iterator DownloadTurns::Of(uint64_t number) {
  return std::ranges::find_if(nodes_,
                              [number](const Node& node) { return node.open.contains(number); });
}

bool DownloadTurns::HasATurn(const Node& node, TimePoint now) const {
  return node.began.has_value() && now - *node.began <= limits_.turn &&
         now - node.seen <= limits_.gone;
}

std::vector<DownloadTurns::Go> DownloadTurns::Grant() {
  const TimePoint now = clock_.Now();
  Forget(nodes_, limits_.gone, now);
  auto counted = static_cast<size_t>(
      std::ranges::count_if(nodes_, [&](const Node& node) { return HasATurn(node, now); }));
  std::vector<Go> ready;
  for (Node& node : nodes_) {
    if (!node.began.has_value() && !node.open.empty() && counted < limits_.at_once) {
      node.began = now - node.used;
      node.seen = now;
      ++counted;
    }
    if (!node.began.has_value()) continue;
    for (auto& [number, go] : node.open)
      if (go) ready.push_back(std::exchange(go, nullptr));
  }
  return ready;
}

}  // namespace macaw::wire
