#include "cli/results/ending.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/files.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kSummary[] = "/summary.json";
constexpr std::streamoff kFirstTail = 1 << 16;

std::optional<uint32_t> NumberAt(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number_unsigned()
             ? std::optional(found->get<uint32_t>())
             : std::nullopt;
}

// The round of the last line that is a row.
std::optional<uint32_t> LastRowIn(absl::string_view lines) {
  while (true) {
    const size_t end = lines.find_last_not_of("\r\n");
    if (end == absl::string_view::npos) return std::nullopt;
    const size_t begin = lines.rfind('\n', end) + 1;  // npos + 1 is 0
    const Json row = Json::parse(lines.substr(begin, end + 1 - begin), nullptr,
                                 /*allow_exceptions=*/false);
    if (const auto round = NumberAt(row, "round")) return round;
    lines = lines.substr(0, begin);  // a crash has cut the line off
  }
}

}  // namespace

bool HasEnded(const std::string& folder) {
  if (!FileExists(folder + kSummary)) return false;
  const std::optional<uint32_t> known = LastRowOfSummary(folder);
  if (!known.has_value()) return true;
  const std::optional<uint32_t> last = LastRow(folder);
  return !last.has_value() || *last <= *known;
}

std::string NotEndedText(const std::string& folder) {
  const std::string go_on = "the run is not over; go on with macaw simulate --resume";
  if (!FileExists(folder + kSummary)) return absl::StrCat(" has no summary.json: ", go_on);
  return absl::StrCat(" has a summary.json of round ", LastRowOfSummary(folder).value_or(0),
                      " and rows up to round ", LastRow(folder).value_or(0), ": ", go_on);
}

std::optional<uint32_t> LastRow(const std::string& folder) {
  std::ifstream file(folder + "/metrics.jsonl", std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : 0;
  // A file has a row a round, and the last one is enough.
  for (std::streamoff tail = std::min(kFirstTail, size); tail > 0;) {
    std::string lines(static_cast<size_t>(tail), '\0');
    file.clear();
    file.seekg(size - tail);
    file.read(lines.data(), tail);
    lines.resize(static_cast<size_t>(file.gcount()));
    if (const auto round = LastRowIn(lines)) return round;
    if (tail == size) break;
    tail = std::min(2 * tail, size);
  }
  return std::nullopt;
}

std::optional<uint32_t> LastRowOfSummary(const std::string& folder) {
  const absl::StatusOr<std::string> text = ReadFile(folder + kSummary);
  if (!text.ok()) return std::nullopt;
  const Json summary = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const std::optional<uint32_t> row = NumberAt(summary, "final_round");
  return row.has_value() ? row : NumberAt(summary, "rounds");
}

}  // namespace macaw::cli
