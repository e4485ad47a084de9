#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aggregation/channel.h"
#include "algorithms/around/registry.h"
#include "models/spec.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "training/backends.h"
#include "worker/state_keeper.h"
#include "worker/trace.h"
#include "worker/whole_models.h"

namespace macaw::worker {

// What a registration fixes for the length of a session: the run, its model and algorithm.
// Immutable, shared by all slots.
struct RunContext {
  RunPlan run;
  uint32_t epoch = 0;
  training::Backends* backends = nullptr;
  training::BackendChoice backend;  // of the node
  bool hooks = false;               // of the rule, as the next two
  bool slices = false;
  bool statistics = false;
  bool redact_errors = false;  // of the node: what its clients' errors say stays here
  models::ModelSpec spec;
  HostileClients hostile;  // of the run's attack
  algorithms::Schema schema;
  std::unique_ptr<algorithms::ClientAlgorithm> algorithm;
  StateKeeper* states = nullptr;  // null: the algorithm keeps no client states
  WholeModels* whole = nullptr;   // null: the model has no frozen tensors
  const Trace* trace = nullptr;   // null: no trace is written
};

// One phase of a round, as a worker sees it: the broadcast, and the grids of its sums. Immutable,
// shared by all slots.
struct PhaseContext {
  uint64_t id = 0;  // within its session, from 1
  Round round{};
  Phase phase{};
  fleet::Broadcast broadcast;  // keeps the views below alive
  // Parallel to Schema::down; empty: not sent in this phase, and the model if it came in parts.
  std::vector<ConstVectorView> vectors;
  TrainedPart part;
  aggregation::GridOrder order;
  LocalConfig local;  // of work(), with its learning rate
  // Of clients that train from an older model: by how many rounds it is older than the newest one.
  uint32_t staleness = 0;
  Digest named;  // the broadcast of the phase, whose newest model it is
  // The server says in which round its client counts once it is trained (TrainingLease::arrives).
  bool arrives = false;

  // The round whose work its clients do.
  Round work(const RunPlan& run) const { return WorkRound(run.asynchronous, round, staleness); }
};

// What an evaluation is of.
struct EvaluationContext {
  Round round{};
  fleet::Blob blob;
  ConstVectorView model;  // empty: it came in parts
  TrainedPart part;
  // Of a rule with further models (Schema::models): the model and these.
  std::vector<ConstVectorView> models;
  LocalConfig local;  // with the round's learning rate
};

}  // namespace macaw::worker
