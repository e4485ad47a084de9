#include "cli/verify/evaluated_rounds.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "server/columns.h"

namespace macaw::cli {
namespace {

bool IsOfAnEvaluation(const std::string& column) {
  for (size_t rows = 0; rows < server::kEvaluatedRows; ++rows) {
    if (absl::StartsWith(column, server::ColumnPrefix(static_cast<server::EvaluatedRows>(rows))))
      return true;
  }
  return false;
}

// Whether the key's number divides the round.
bool Asks(const Trace& run, const char* key, uint32_t standard, uint32_t round) {
  const auto found = run.settings.find(key);
  uint32_t every = standard;
  if (found != run.settings.end() && !absl::SimpleAtoi(found->second, &every)) every = standard;
  return every > 0 && round % every == 0;
}

}  // namespace

std::vector<uint32_t> EvaluatedBesides(const Trace& run, uint32_t rounds) {
  std::set<uint32_t> evaluated;
  for (const auto& [round, row] : run.rows) {
    if (std::ranges::any_of(row, [](const auto& one) { return IsOfAnEvaluation(one.first); }))
      evaluated.insert(round);
  }
  if (run.history.has_value()) {
    for (const Round round : run.history->evaluated()) evaluated.insert(round.value);
  }
  std::vector<uint32_t> besides;
  for (const uint32_t round : evaluated) {
    const bool asked =
        Asks(run, "evaluation.every", 1, round) || Asks(run, "evaluation.leave_one_out", 0, round);
    if (!asked && round < rounds) besides.push_back(round);
  }
  return besides;
}

}  // namespace macaw::cli
