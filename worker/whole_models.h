#pragma once

#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "algorithms/api/parameter_group.h"
#include "core/digest.h"
#include "core/vector.h"

namespace macaw::worker {

// A model that came in parts, whose base this node has.
struct TrainedPart {
  Digest whole;            // name of the model
  ConstVectorView vector;  // what is trained; empty: the model came whole
};

// A whole model, which is valid as long as `keep`.
struct HeldModel {
  ConstVectorView view;
  std::shared_ptr<const FlatVector> keep = nullptr;
};

// The whole models of a run with frozen tensors, on one node, for all of its lanes. The base, which
// never changes, is in each of them, and nowhere else: so a node of which all lanes train from one
// model has one. A model that nobody uses any more becomes the next one, for which only its trained
// tensors are written. Thread-safe.
class WholeModels {
 public:
  explicit WholeModels(std::shared_ptr<const algorithms::ModelParts> parts)
      : parts_(std::move(parts)), state_(std::make_shared<State>()) {}

  const algorithms::ModelParts& parts() const { return *parts_; }
  // The digest of the base's blob; zero: none has been taken.
  Digest base() const ABSL_LOCKS_EXCLUDED(state_->mutex);
  // Takes the base, a vector of parts().base. No model of another base may be in use.
  void TakeBase(const Digest& digest, ConstVectorView base) ABSL_LOCKS_EXCLUDED(state_->mutex);
  // The model of this trained part. A base must have been taken.
  HeldModel Of(const TrainedPart& trained) ABSL_LOCKS_EXCLUDED(state_->mutex);

 private:
  struct Held {
    FlatVector vector;
    Digest holds;  // name of the model; zero: what is trained is not set
    int users = 0;
  };
  struct State {
    mutable absl::Mutex mutex;
    Digest base ABSL_GUARDED_BY(mutex);
    std::list<Held> held ABSL_GUARDED_BY(mutex);
  };
  static void GiveBack(State& state, Held* held) ABSL_LOCKS_EXCLUDED(state.mutex);

  const std::shared_ptr<const algorithms::ModelParts> parts_;
  const std::shared_ptr<State> state_;  // lives as long as one of its models is used
};

}  // namespace macaw::worker
