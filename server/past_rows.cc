#include "server/past_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/status.h"
#include "server/contributions.h"
#include "server/metrics.h"

namespace macaw::server {
namespace {

// What follows the first `from` bytes; "" if there is no such file.
absl::StatusOr<std::string> Rest(const std::string& path, uint64_t from) {
  if (!FileExists(path)) return std::string();
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return text.substr(std::min<uint64_t>(from, text.size()));
}

// The time of the last whole line of events.jsonl. 0: there is none.
absl::StatusOr<double> SecondsOfEvents(const std::string& run_dir) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, Rest(run_dir + "/events.jsonl", 0));
  for (size_t end = text.rfind('\n'); end != text.npos && end > 0;) {
    const size_t newline = text.rfind('\n', end - 1);
    const size_t begin = newline == text.npos ? 0 : newline + 1;
    const auto line = nlohmann::json::parse(text.substr(begin, end - begin), nullptr,
                                            /*allow_exceptions=*/false);
    if (line.is_object() && line.contains("t") && line["t"].is_number())
      return line["t"].get<double>();
    end = newline;
  }
  return 0;
}

}  // namespace

absl::StatusOr<PastRows> ReadPastRows(const Options& options, uint64_t metrics_bytes,
                                      uint64_t contributions_bytes) {
  PastRows past;
  MACAW_ASSIGN_OR_RETURN(past.seconds, SecondsOfEvents(options.run_dir));
  if (HasContributions(options.run.evaluation)) {
    MACAW_ASSIGN_OR_RETURN(const std::string text,
                           Rest(options.run_dir + "/contributions.jsonl", contributions_bytes));
    past.contributions = ContributionLines(text);
  }
  MACAW_ASSIGN_OR_RETURN(const std::string text,
                         Rest(options.run_dir + "/metrics.jsonl", metrics_bytes));
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const auto row = MetricsRow::Parse(options.run.task, std::string(line));
    if (!row.has_value()) break;  // the row was torn by a crash of the machine
    const Round round(static_cast<uint32_t>(*row->Get("round")));
    if (!EvaluationDue(options, round)) continue;
    const bool has_line = HasContributions(options.run.evaluation, round);
    if (has_line && !past.contributions.contains(round)) break;
    past.rows[round] = std::string(line);
  }
  return past;
}

}  // namespace macaw::server
