#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "scheduler/estimator.h"
#include "server/engine/open_phase.h"

namespace macaw::server {

// Estimates how fast each node trains, for each phase of a round. The estimates affect placement
// only, never a result. One thread.
class Speeds {
 public:
  void Join(WorkerId node, const std::string& device) {
    devices_[node] = device;
    for (auto& [phase, estimator] : phases_) estimator.AddWorker(node, device);
  }
  void Leave(WorkerId node) {
    devices_.erase(node);
    for (auto& [phase, estimator] : phases_) estimator.RemoveWorker(node);
  }
  scheduler::Estimator& Of(Phase phase) {
    const auto [it, fresh] = phases_.try_emplace(phase);
    if (fresh) {
      for (const auto& [node, device] : devices_) it->second.AddWorker(node, device);
    }
    return it->second;
  }
  void Learn(WorkerId node, const fleet::Part& part, const OpenPhase& phase) {
    scheduler::Estimator& estimator = Of(phase.phase());
    for (const fleet::ClientRecord& record : part.included) {
      const auto within = [](double seconds) { return std::min(seconds, 1e8); };
      estimator.Observe(node, phase.Find(record.attempt.client)->entry,
                        {.state_seconds = within(record.state_seconds),
                         .load_seconds = within(record.load_seconds),
                         .train_seconds = within(record.train_seconds)});
    }
  }

 private:
  std::map<WorkerId, std::string> devices_;
  std::map<Phase, scheduler::Estimator> phases_;
};

}  // namespace macaw::server
