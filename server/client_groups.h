#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/evaluation.h"
#include "plan/task.h"
#include "server/engine/evaluation_sums.h"
#include "training/api/class_counts.h"

namespace macaw::server {

// A division of the clients: the columns over a family of clients' rows are given by group, too.
struct ClientGroups {
  std::vector<std::string> names;  // in the columns: clients_test_NAME_accuracy
  // The group of a client that was evaluated; nothing: it is in none.
  std::function<std::optional<uint32_t>(const EvaluationSums::ClientSums&)> of;
  // The counts of classes over the test rows of each group.
  std::vector<training::SparseCounts> EvaluationSums::*counts = &EvaluationSums::group_counts;
  // Also the worst group and by how much it is behind the best one: clients_test_worst_group_*,
  // clients_test_group_gap_*.
  bool compared = false;
};

// By the model at which each client was evaluated, of a rule with so many; nothing for one.
std::optional<ClientGroups> GroupsByModel(uint32_t models);

// By evaluation.groups, compared with each other; nothing without groups, or if they are wrong.
std::optional<ClientGroups> GroupsByName(const std::vector<std::string>& entries);

struct GroupColumn {
  std::string name;
  const char* metric = nullptr;  // the word of evaluation.metrics that it needs; null: none
};
// The columns of clients' test rows, in the order of GroupValues, with all that evaluation.metrics
// can ask for.
std::vector<GroupColumn> GroupColumns(TaskKind task, const ClientGroups& groups);

// The columns with their values: the metrics over all test rows of a group, example-weighted, and
// how many clients they are of. A group of which no client was evaluated has null for its metrics.
// Sums are added by client id, and counts are whole numbers, so every run has the same bits.
// `counts`: what is counted for the metrics of classes, of the rows of all clients in `reported`:
// `sums` may lack those without a possible loss (engine/possible_losses.h).
std::vector<std::pair<std::string, double>> GroupValues(TaskKind task, const ClientGroups& groups,
                                                        const EvaluationSums& sums,
                                                        const EvaluationSums& reported,
                                                        const training::ClassCounts& counts = {},
                                                        const EvaluationMetrics& asked = {});

}  // namespace macaw::server
