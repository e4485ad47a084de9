#include "cli/sweep/rung_result.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/config/document.h"
#include "cli/config/reader.h"
#include "cli/simulate/client_names.h"
#include "core/files.h"
#include "core/status.h"
#include "plan/evaluation.h"
#include "sdk/catalogue.h"
#include "server/budget.h"
#include "server/checkpoint.h"

namespace macaw::cli {
namespace {

// Whether a run that has stopped would also have stopped without the rungs. The last round of a
// rung is evaluated because it is the last; the stop rule of a longer run does not look at it.
bool StopHolds(const RunResult& result, const Task& task) {
  if (result.rounds != task.from) return true;
  uint32_t every = EvaluationConfig().every;
  const auto set = result.settings.find("evaluation.every");
  if (set != result.settings.end() && !absl::SimpleAtoi(set->second, &every)) return false;
  return every > 0 && result.rounds % every == 0;
}

// The rounds that a budget on rule_epsilon leaves a run of the task's rounds; task.rounds: all.
absl::StatusOr<uint32_t> RoundsWithinBudget(const Task& task) {
  const std::vector<Override> overrides = {
      {"run.rounds", absl::StrCat(task.rounds), "the rounds of the rung"}};
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(task.folder + "/config.toml"));
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, overrides));
  MACAW_ASSIGN_OR_RETURN(Config config,
                         ReadConfig(document, overrides, catalogue, Idle::kLeaveOut));
  MACAW_ASSIGN_OR_RETURN(config.run.clients, ClientCountOf(task.folder));
  MACAW_ASSIGN_OR_RETURN(const std::optional<server::Budget> budget,
                         server::BudgetOf(config.node.server.stop, config.run));
  return budget.has_value() ? budget->rounds : task.rounds;
}

// Whether a run that has done all rounds of a rung has spent its budget with them. Then it is over,
// but has not stopped: nothing told it that there would be more.
bool HasSpentItsBudget(const RunResult& result, const Task& task) {
  const auto metric = result.settings.find("run.stop.metric");
  if (metric == result.settings.end() || !absl::StrContains(metric->second, "rule_epsilon"))
    return false;
  // Where that cannot be said, the run itself tells why when it goes on.
  const absl::StatusOr<uint32_t> rounds = RoundsWithinBudget(task);
  return rounds.ok() && *rounds <= result.rounds;
}

}  // namespace

std::optional<RunResult> FinishedRun(const Task& task) {
  if (!FileExists(task.folder + "/summary.json")) return std::nullopt;
  absl::StatusOr<RunResult> result = ReadResult(task.folder);
  if (!result.ok() || !result->done() || result->seed != task.seed) return std::nullopt;
  const bool over = result->rounds >= task.rounds ||
                    (result->end == "stopped" && StopHolds(*result, task)) ||
                    HasSpentItsBudget(*result, task);
  return over ? std::optional(*std::move(result)) : std::nullopt;
}

bool CanGoOn(const RunResult& result, const Task& task) {
  return !task.goes_on || server::NewestCheckpoint(task.folder) == Round(result.rounds);
}

}  // namespace macaw::cli
