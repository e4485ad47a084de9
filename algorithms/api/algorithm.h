#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/channel.h"
#include "aggregation/exact_sum.h"
#include "algorithms/api/workspace.h"
#include "core/ids.h"
#include "core/vector.h"
#include "plan/run_plan.h"
#include "training/api/stage.h"

namespace macaw::algorithms {

// A federated algorithm is three things: what travels (Schema), what a client does before and after
// its local work (ClientAlgorithm), and what the server does with the cohort's sums
// (ServerAlgorithm). All of it is torch-free: local work is described as data
// (training/api/stage.h) and carried out by a trainer that knows no algorithm.

struct NamedLayout {
  std::string name;
  LayoutPtr layout;
};

struct Schema {
  std::vector<NamedLayout> down;             // what every client receives; down[0] is the model
  std::vector<aggregation::ChannelSpec> up;  // what every client returns
  std::vector<NamedLayout> state;            // what a client keeps between rounds; empty: stateless
};

// What both halves are constructed from. They copy what they need, so it need not outlive them.
struct Setup {
  AlgorithmConfig config;  // parameters complete and checked against the description
  LayoutPtr layout;        // the model's
  LocalConfig local;
  CohortConfig cohort;
  uint64_t clients = 0;     // N: the clients that can train
  double total_weight = 0;  // Σ w_i over them, under the run's weight policy
  double contribution_bound = 65536;

  // A client may be drawn several times in a round.
  bool with_replacement() const { return cohort.sampling == "proportional"; }
  // A parameter with its type; the description guarantees that it exists.
  template <typename T>
  T Get(const std::string& name) const {
    return std::get<T>(config.parameters.at(name));
  }
  // For code that several rules share: returns `fallback` if the description has no such parameter.
  template <typename T>
  T GetOr(const std::string& name, T fallback) const {
    const auto found = config.parameters.find(name);
    return found == config.parameters.end() ? fallback : std::get<T>(found->second);
  }
};

// One client's turn. Views live until Conclude returns.
struct ClientContext {
  Round round{};
  Phase phase{};
  ClientId client{};
  uint32_t examples = 0;                       // training rows
  double weight = 1;                           // under the run's weight policy
  LocalConfig local;                           // lr includes the round's schedule factor
  std::span<const ConstVectorView> broadcast;  // parallel to Schema::down
  std::span<const ConstVectorView> state;      // parallel to Schema::state; zero on a first turn
  bool first_turn = false;                     // the client has kept no state yet
  const ConstVectorView& model() const { return broadcast[0]; }
};

struct ClientResult {
  std::vector<ConstVectorView> up;  // parallel to Schema::up
  // The next version, parallel to Schema::state. Empty: the state does not change, as in every
  // phase but the last.
  std::vector<ConstVectorView> state;
};

// The client half. Stateless and const: one object serves every slot of a worker at once. Vectors
// that must be computed live in the slot's Workspace until the client's turn ends.
class ClientAlgorithm {
 public:
  virtual ~ClientAlgorithm() = default;
  virtual absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                                      Workspace& workspace) const = 0;
  virtual absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                                std::span<const training::StageOutcome> outcomes,
                                                Workspace& workspace) const = 0;
  // The point at which the client's own rows are evaluated: the broadcast model, unless the
  // algorithm keeps a personal one.
  virtual absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                          Workspace&) const {
    return training::Point(context.model());
  }
};

enum class AfterApply : uint8_t { kRoundDone, kNextPhase };

// A server half's vectors and numbers by name, as a checkpoint stores them.
struct ServerState {
  std::map<std::string, FlatVector> vectors;
  std::map<std::string, double> numbers;
};

// The server half: owns the model and everything else that lives between rounds. Called on one
// thread.
class ServerAlgorithm {
 public:
  virtual ~ServerAlgorithm() = default;
  // What every client receives in this phase, parallel to Schema::down. The views are valid until
  // the next Apply or Load.
  virtual std::vector<ConstVectorView> Configure(Round round, Phase phase) const = 0;
  // The only call that changes the model. If no client contributed, mean channels are empty and
  // fixed-divisor sums are zero.
  virtual absl::StatusOr<AfterApply> Apply(Round round, Phase phase,
                                           aggregation::Aggregate aggregate) = 0;
  virtual ConstVectorView Model() const = 0;
  // The model that is evaluated and written as the run's result: the model itself, unless the rule
  // reports another one.
  virtual ConstVectorView Result() const { return Model(); }
  virtual ServerState Save() const = 0;
  virtual absl::Status Load(const ServerState& state) = 0;  // on an error nothing is changed
};

}  // namespace macaw::algorithms
