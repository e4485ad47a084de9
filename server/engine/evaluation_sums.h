#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/digest.h"
#include "core/ids.h"
#include "training/api/class_counts.h"

namespace macaw::server {

// What a round's evaluation is about: each has columns of its own (metrics.cc has their names).
enum class EvaluatedRows : uint8_t {
  kCentral,            // the central test set
  kTrain,              // all clients' training rows
  kCentralValidation,  // the central validation set
  // Of each client:
  kClients,     // test rows, at the client's point
  kGlobal,      // test rows, the global model
  kTuned,       // test rows, after fine-tuning at the client's point
  kValidation,  // validation rows, at the client's point
  // Test rows of the clients that never train, if they are asked for apart from the others; then
  // those above omit them.
  kHeldout,      // the global model
  kHeldoutTuned  // after fine-tuning at the client's point
};
inline constexpr size_t kEvaluatedRows = 9;
constexpr bool IsOfClients(EvaluatedRows rows) { return rows >= EvaluatedRows::kClients; }

// The result of a round's evaluation. The order of all sums is independent of the workers.
struct EvaluationSums {
  Round round{};
  std::vector<double> central;  // of the central test set, added in chunk order; empty: not asked
  // By group of concept shift: of the central test set as that group sees it; `central` is their
  // sum. Empty: there is one group.
  std::vector<std::vector<double>> central_groups = {};
  std::vector<double> train;       // of all clients' training rows, added by client id, then chunk
  std::vector<double> validation;  // of the central validation set, added in chunk order
  // Of the central test rows with a backdoor's trigger and class, added in chunk order.
  std::vector<double> backdoor = {};
  struct ClientSums {
    ClientId client;
    std::vector<double> sums;
    std::vector<double> values = {};     // parallel to ClassCounts::names(); NaN: undefined
    uint32_t choice = 0;                 // of the rule's models
    std::optional<uint32_t> group = {};  // of evaluation.groups
  };
  // Of the central test set with the model without each client, added in chunk order; by client. A
  // client of which a task was given up is not there.
  std::vector<ClientSums> without = {};
  // The same with the model from which all that the client has sent was taken out.
  std::vector<ClientSums> unlearned = {};
  std::vector<Digest> states;  // one digest for each range of clients asked for (OfStates)
  // Clients without some of their rows: they were given up. Each once; the other fields omit them.
  std::vector<ClientId> given_up;
  // Tasks were given up: of the central sets, whose sums are then left out, or of `states`.
  bool without_central = false, without_states = false;
  // By EvaluatedRows: of each client's rows, by client id; empty: not asked, or not of clients.
  std::array<std::vector<ClientSums>, kEvaluatedRows> clients;
  std::vector<ClientSums>& Of(EvaluatedRows rows) { return clients[static_cast<size_t>(rows)]; }
  const std::vector<ClientSums>& Of(EvaluatedRows rows) const {
    return clients[static_cast<size_t>(rows)];
  }
  // By EvaluatedRows: the clients among given_up whose rows were asked for, and those that are left
  // out for their loss (possible_losses.h).
  std::array<uint64_t, kEvaluatedRows> missing = {};
  // By EvaluatedRows: the rows of those left out for their loss. `counts` have them.
  std::array<double, kEvaluatedRows> uncounted = {};
  // By EvaluatedRows: the counts of classes over all rows. Empty: none are asked for.
  std::array<training::SparseCounts, kEvaluatedRows> counts;
  // The same of the clients' test rows (kClients) by group of evaluation.groups, and by the model
  // that a client chose, of a rule with several. Groups behind the last one with rows are not
  // there.
  std::vector<training::SparseCounts> group_counts = {}, model_counts = {};
};

}  // namespace macaw::server
