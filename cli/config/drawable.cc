#include "cli/config/drawable.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "plan/local_steps.h"
#include "plan/named_groups.h"
#include "scheduler/cohort.h"

namespace macaw::cli {
namespace {

bool LeavesOut(const RunPlan& run) {
  return FiltersClients(run.cohort) || LeastRows(run.local) > 1;
}

std::string NameOf(const data::Dataset& dataset, MatchedBy matched, ClientId client) {
  return matched == MatchedBy::kName ? dataset.ClientName(client) : absl::StrCat(client.value);
}

bool EvaluatesGroups(const RunPlan& run) {
  return run.evaluation.test && run.evaluation.clients && !run.evaluation.groups.empty();
}

bool CanBeDrawn(const RunPlan& run, const data::Dataset& dataset, MatchedBy matched,
                ClientId client) {
  const CohortConfig& cohort = run.cohort;
  const uint32_t rows = dataset.Examples(client, data::Split::kTrain);
  if (rows < std::max({1U, cohort.min_rows.value_or(1), LeastRows(run.local)})) return false;
  if (cohort.eligible.empty()) return true;
  const std::string name = NameOf(dataset, matched, client);
  return std::ranges::any_of(
      cohort.eligible, [&](const std::string& pattern) { return NameMatches(name, pattern); });
}

}  // namespace

std::vector<uint32_t> DrawableRows(const RunPlan& run, const data::Dataset& dataset,
                                   MatchedBy matched) {
  std::vector<uint32_t> rows(dataset.info().clients, 0);
  for (ClientId client; client.value < rows.size(); ++client.value) {
    if (CanBeDrawn(run, dataset, matched, client))
      rows[client.value] = dataset.Examples(client, data::Split::kTrain);
  }
  return rows;
}

absl::StatusOr<Drawable> DrawableOf(const RunPlan& run, const data::Dataset& dataset,
                                    MatchedBy matched) {
  const data::DatasetInfo& info = dataset.info();
  // Otherwise all tokens count.
  const bool reads = info.train_tokens > 0 && (LeavesOut(run) || run.cohort.max_weight > 0);
  Drawable drawable{.tokens = reads ? 0 : info.train_tokens};
  for (ClientId client; client.value < info.clients; ++client.value) {
    if (!CanBeDrawn(run, dataset, matched, client)) continue;
    ++drawable.clients;
    drawable.examples += CountedOf(run.cohort, dataset.Examples(client, data::Split::kTrain));
    if (!reads) continue;
    MACAW_ASSIGN_OR_RETURN(const data::Rows rows, dataset.Client(client, data::Split::kTrain));
    drawable.tokens += CountedOf(run.cohort, data::TokensOf(rows));
  }
  return drawable;
}

absl::Status CheckGroups(const RunPlan& run, const data::Dataset& dataset, MatchedBy matched) {
  if (!EvaluatesGroups(run)) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const NamedGroups groups, NamedGroups::Parse(run.evaluation.groups));
  std::vector<bool> found(groups.names().size());
  const auto all_found = [&] { return !std::ranges::count(found, false); };
  for (ClientId client; client.value < dataset.info().clients && !all_found(); ++client.value) {
    if (const auto group = groups.Of(NameOf(dataset, matched, client))) found[*group] = true;
  }
  if (all_found()) return absl::OkStatus();
  const auto missing = std::ranges::find(found, false) - found.begin();
  return absl::InvalidArgumentError(
      absl::StrCat("evaluation.groups: no client is in the group \"", groups.names()[missing],
                   "\"; clients are ", "named \"", NameOf(dataset, matched, ClientId(0)),
                   "\" and so on, and one is in the group of ", "the first pattern that matches"));
}

std::string NoteOnGroups(const RunPlan& run, const data::Dataset& dataset, MatchedBy matched) {
  if (!EvaluatesGroups(run)) return "";
  const absl::StatusOr<NamedGroups> groups = NamedGroups::Parse(run.evaluation.groups);
  if (!groups.ok()) return "";  // CheckGroups refuses them
  GroupMatches matches(*groups);
  for (ClientId client; client.value < dataset.info().clients; ++client.value)
    matches.Add(NameOf(dataset, matched, client));
  return matches.Unmatched();
}

absl::Status CheckDrawable(const RunPlan& run, const Drawable& drawable, uint64_t clients) {
  const uint64_t asked = scheduler::AskedClients(run.cohort);
  if (!LeavesOut(run) || drawable.clients >= asked) return absl::OkStatus();
  std::string keys = FiltersClients(run.cohort) ? "cohort.eligible and cohort.min_rows" : "";
  if (LeastRows(run.local) > 1) {
    absl::StrAppend(&keys, keys.empty() ? "" : " and ", "local.drop_last (", LeastRows(run.local),
                    " rows for a step)");
  }
  return absl::InvalidArgumentError(absl::StrCat(keys, " leave ", drawable.clients, " of ", clients,
                                                 " clients to draw from, but a round asks ", asked,
                                                 " (cohort.size, cohort.over_selection)"));
}

}  // namespace macaw::cli
