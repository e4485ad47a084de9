#include "server/selection.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/statistics.h"

namespace macaw::server {

MetricRows RowsOfMetric(absl::string_view column) {
  for (const char* prefix : {"test_", "clients_test_", "heldout_test_"}) {
    if (absl::StartsWith(column, prefix)) return MetricRows::kTest;
  }
  for (const char* prefix : {"val_", "clients_val_"}) {
    if (absl::StartsWith(column, prefix)) return MetricRows::kValidation;
  }
  return MetricRows::kTraining;
}

const char* Name(MetricRows rows) {
  switch (rows) {
    case MetricRows::kValidation:
      return "validation";
    case MetricRows::kTest:
      return "test";
    case MetricRows::kTraining:
      break;
  }
  return "training";
}

bool OfUntrainedRows(absl::string_view column) {
  if (RowsOfMetric(column) == MetricRows::kTraining || absl::EndsWith(column, "_clients") ||
      absl::EndsWith(column, "_missing")) {
    return false;
  }
  for (const ClientStatistic& statistic : kClientStatistics) {
    if (absl::EndsWith(column, absl::StrCat("_", statistic.name))) return false;
  }
  return true;
}

bool IsMovedByOneClient(absl::string_view column) {
  const bool central = absl::StartsWith(column, "test_") || absl::StartsWith(column, "val_");
  const bool counts = absl::EndsWith(column, "_clients") || absl::EndsWith(column, "_missing");
  for (const char* quantile : {"_p10", "_p50", "_p90"})
    if (absl::EndsWith(column, quantile)) return false;
  if (central || counts) return false;
  for (const char* metric : {"loss", "mae", "objective", "perplexity", "_r2"})
    if (absl::StrContains(column, metric)) return true;
  return false;
}

std::string UsualMetric(const std::function<bool(const std::string&)>& has) {
  const bool common = has("test_loss") || has("val_loss");
  const bool personal = has("clients_test_global_loss") || !common;
  using Columns = std::vector<const char*>;
  const Columns of_clients[] = {{"clients_val_accuracy", "clients_val_loss"},
                                {"clients_test_accuracy", "clients_test_loss"}};
  const Columns central[] = {{"val_accuracy", "val_loss"}, {"test_accuracy", "test_loss"}};
  const auto first_of = [&](const Columns& columns) -> std::string {
    for (const char* column : columns) {
      if (has(column)) return column;
    }
    return "";
  };
  for (size_t i = 0; i < 2; ++i) {
    std::string column = first_of(personal ? of_clients[i] : central[i]);
    // Validation rows of clients are better than any test rows; test rows of clients alone are not
    // looked at where there is a central test set.
    if (column.empty() && (personal || i == 0))
      column = first_of(personal ? central[i] : of_clients[i]);
    if (!column.empty()) return column;
  }
  return has("train_objective") ? "train_objective" : "train_loss";
}

}  // namespace macaw::server
