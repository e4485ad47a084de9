#include "server/engine/totals.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/local_steps.h"

namespace macaw::server {
namespace {

struct Registered {
  uint64_t clients = 0, examples = 0, tokens = 0;
};

Registered RegisteredTotals(const CohortConfig& cohort, const Draw& draw, const Roster& roster) {
  Registered totals;
  const std::vector<uint32_t>& rows = draw.drawable_rows();
  for (size_t client = 0; client < rows.size(); ++client) {
    if (rows[client] == 0) continue;
    ++totals.clients;
    totals.examples += CountedOf(cohort, rows[client]);
    if (!roster.tokens().empty()) totals.tokens += CountedOf(cohort, roster.tokens()[client]);
  }
  return totals;
}

// A number of the plan beside the registered one.
struct Total {
  std::string key;
  uint64_t planned = 0, registered = 0;
  bool used = false;

  bool differs() const { return planned != registered && (used || planned > 0); }
};

}  // namespace

absl::StatusOr<std::string> CompareTotals(const RunPlan& run, TotalsUsed used, const Draw& draw,
                                          const Roster& roster) {
  const Registered registered = RegisteredTotals(run.cohort, draw, roster);
  const std::string weight_key = TotalWeightKey(run.cohort.weight);
  Total clients{.key = "run.train_clients",
                .planned = TrainClients(run),
                .registered = registered.clients,
                .used = used.clients};
  std::vector<Total> totals;
  if (weight_key == clients.key) {
    clients.used |= used.weight;
  } else {
    const bool tokens = run.cohort.weight == WeightPolicy::kTokens;
    totals.push_back({.key = weight_key,
                      .planned = tokens ? run.train_tokens : run.train_examples,
                      .registered = tokens ? registered.tokens : registered.examples,
                      .used = used.weight});
  }
  totals.insert(totals.begin(), clients);

  std::vector<std::string> differences, remedies;
  bool depends = false;
  for (const Total& total : totals) {
    if (!total.differs()) continue;
    differences.push_back(absl::StrCat(total.key, " is ", total.planned, " in the plan, and ",
                                       total.registered, " of the registered clients"));
    remedies.push_back(absl::StrCat(total.key, " = ", total.registered));
    depends |= total.used;
  }
  if (differences.empty()) return "";
  const std::string text = absl::StrCat(
      absl::StrJoin(differences, "; "), " (those with training rows that cohort.eligible",
      LeastRows(run.local) > 1 ? ", cohort.min_rows and local.drop_last" : " and cohort.min_rows",
      " do not leave out)");
  if (!depends) {
    return absl::StrCat(text, ": nothing in this run depends on it; ",
                        absl::StrJoin(remedies, ", "), " would agree");
  }
  return absl::FailedPreconditionError(
      absl::StrCat(text, ", and ", run.algorithm.name,
                   run.cohort.sampling == "poisson" ? " with cohort.sampling = \"poisson\"" : "",
                   " computes with it: write ", absl::StrJoin(remedies, ", "),
                   " into the server's file and begin the run again"));
}

std::vector<std::string> EmptyGroups(const NamedGroups& groups, const Roster& roster) {
  std::vector<bool> tested(groups.names().size());
  for (ClientId client; client.value < roster.clients(); ++client.value) {
    const std::optional<uint32_t> group = roster.GroupOf(client);
    if (group.has_value() && roster.TestRowsOf(client) > 0) tested[*group] = true;
  }
  std::vector<std::string> empty;
  for (size_t group = 0; group < tested.size(); ++group)
    if (!tested[group]) empty.push_back(groups.names()[group]);
  return empty;
}

}  // namespace macaw::server
