#pragma once

#include <map>
#include <set>
#include <utility>

#include "core/ids.h"
#include "server/engine/restored.h"

namespace macaw::server {

// The phases that an earlier server of the run had opened and that this server has not reached yet.
// The engine takes them one after another. Empty in a run that does not go on inside a round. Pure;
// one thread.
class RestoredPhases {
 public:
  using Stories = std::map<std::pair<Round, Phase>, Restored::PhaseStory>;

  RestoredPhases() = default;
  explicit RestoredPhases(Restored restored)
      : phases_(std::move(restored.phases)),
        evaluated_(std::move(restored.evaluated)),
        lost_states_(std::move(restored.lost_states)),
        evaluations_(std::move(restored.evaluations)) {}

  bool empty() const { return phases_.empty(); }
  // The phase as the earlier server left it. Null: it had not opened the phase, or this server has
  // gone past it.
  const Restored::PhaseStory* Find(Round round, Phase phase) const {
    const auto it = phases_.find({round, phase});
    return it != phases_.end() ? &it->second : nullptr;
  }
  bool Closed(Round round, Phase phase) const {
    const Restored::PhaseStory* story = Find(round, phase);
    return story != nullptr && story->closed;
  }
  // This server has taken the phase over, or has done it again.
  void Pass(Round round, Phase phase) {
    phases_.erase({round, phase});
    lost_states_.Pass(round, phase);
  }
  // Whether the round's evaluation is complete and its row is on disk.
  bool Evaluated(Round round) const { return evaluated_.contains(round); }
  const log::LostStates::At* LostStatesAt(Round round, Phase phase) const {
    return lost_states_.Find(round, phase);
  }
  // What was given up of the round's evaluation, which is done again. Null: nothing.
  const log::CutEvaluations::Cuts* Cuts(Round round) const {
    const auto cuts = evaluations_.rounds().find(round);
    return cuts != evaluations_.rounds().end() ? &cuts->second : nullptr;
  }

 private:
  Stories phases_;
  std::set<Round> evaluated_;
  log::LostStates lost_states_;
  log::CutEvaluations evaluations_;
};

}  // namespace macaw::server
