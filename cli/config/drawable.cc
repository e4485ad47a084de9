#include "cli/config/drawable.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "scheduler/cohort.h"

namespace macaw::cli {
namespace {

bool LeavesOut(const CohortConfig& cohort) {
  return !cohort.eligible.empty() || cohort.min_rows.has_value();
}

bool CanBeDrawn(const CohortConfig& cohort, const data::Dataset& dataset, ClientId client) {
  const uint32_t rows = dataset.Examples(client, data::Split::kTrain);
  if (rows < std::max<uint32_t>(1, cohort.min_rows.value_or(1))) return false;
  if (cohort.eligible.empty()) return true;
  const std::string name = dataset.ClientName(client);
  return std::ranges::any_of(
      cohort.eligible, [&](const std::string& pattern) { return NameMatches(name, pattern); });
}

}  // namespace

absl::StatusOr<Drawable> DrawableOf(const CohortConfig& cohort, const data::Dataset& dataset) {
  const data::DatasetInfo& info = dataset.info();
  Drawable drawable{.tokens = LeavesOut(cohort) ? 0 : info.train_tokens};
  for (ClientId client; client.value < info.clients; ++client.value) {
    if (!CanBeDrawn(cohort, dataset, client)) continue;
    ++drawable.clients;
    drawable.examples += dataset.Examples(client, data::Split::kTrain);
    if (info.train_tokens == 0 || !LeavesOut(cohort)) continue;
    MACAW_ASSIGN_OR_RETURN(const data::Rows rows, dataset.Client(client, data::Split::kTrain));
    drawable.tokens += data::TokensOf(rows);
  }
  return drawable;
}

absl::Status CheckDrawable(const CohortConfig& cohort, const Drawable& drawable, uint64_t clients) {
  const uint64_t asked = scheduler::AskedClients(cohort);
  if (!LeavesOut(cohort) || drawable.clients >= asked) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cohort.eligible and cohort.min_rows leave ", drawable.clients, " of ", clients,
      " clients to draw from, but a round asks ", asked, " (cohort.size, cohort.over_selection)"));
}

}  // namespace macaw::cli
