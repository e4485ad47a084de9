#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/api/algorithm.h"
#include "algorithms/api/description.h"
#include "core/ids.h"
#include "core/vector.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "server/client_parts.h"
#include "server/engine/phase.h"

namespace macaw::server {

inline constexpr char kUnlearn[] = "evaluation.unlearn";

// A run's model, with all that one client has sent taken out of it to the first order.
struct UnlearnedModel {
  ClientId client{};
  uint32_t rounds = 0;  // that have counted the client
  fleet::Blob model;
  Digest digest;  // of the model's values, as in summary.json
};

// evaluation.unlearn: for each client asked for, the model that the server would have if it were
// given all rounds' sums without the client, and all others had sent what they have sent. With
// FedAvg that is model − Σ_t (step of round t − its step without the client): what Wu, Zhu and
// Mitra subtract ("Federated Unlearning with Knowledge Distillation", 2022), exact, because sums
// are integers. What the others learned from the client stays.
//
// A server half of its own follows the run for each of these clients, from the state before the
// first round that counts the client. So what the client has left in a server optimizer's memory
// goes, too, and after that one round the model is the one of evaluation.leave_one_out, to the
// byte.
//
//   Open → Apply
//
// One thread, the keeper's. Holds a server half a client asked for.
class Unlearning {
 public:
  // `clients`: by number.
  static absl::StatusOr<Unlearning> Make(const algorithms::Description& algorithm,
                                         const algorithms::Setup& setup, const FlatVector& initial,
                                         std::span<const uint64_t> clients);

  bool Asks(ClientId client) const { return followed_.contains(client); }
  // Before the rule prepares a round. `run`: the run's server half.
  void Open(const PhaseOrder& order, const algorithms::ServerAlgorithm& run);
  // `parts`: of the round, each client asked for apart.
  absl::Status Apply(const ClientParts& parts, const algorithms::Schema& schema, uint64_t seed);

  // No client has a state any more, after a round: nor do the others in what the halves follow.
  absl::Status ForgetStates();

  struct Model {
    ClientId client{};
    uint32_t rounds = 0;
    ConstVectorView model;  // the rule's Result, until the next Apply or Load
  };
  // Of the clients that some round has counted, by client.
  std::vector<Model> Models() const;

  // Adds all of it to the run's own saved state, under names of its own.
  void Save(algorithms::ServerState& state) const;
  absl::Status Load(const algorithms::ServerState& state);

 private:
  struct Followed {
    std::unique_ptr<algorithms::ServerAlgorithm> half;
    uint32_t rounds = 0;  // 0: the half is idle
  };
  Unlearning() = default;

  std::map<ClientId, Followed> followed_;
  PhaseOrder order_;
  algorithms::ServerState before_;  // of the run's half, while some half is idle
};

// Refuses runs in which what clients send has no meaning for another state of the server.
absl::Status CheckUnlearning(const RunPlan& run, const algorithms::Description& algorithm,
                             const algorithms::Schema& schema);

}  // namespace macaw::server
