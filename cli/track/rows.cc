#include "cli/track/rows.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/fd.h"
#include "core/files.h"
#include "core/status.h"
#include "server/log/record.h"

namespace macaw::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kBlock = 256 << 10;
constexpr int64_t kNsInMs = 1'000'000;

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::optional<Row> ParseRow(absl::string_view line) {
  const OrderedJson json = OrderedJson::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("round") || !json["round"].is_number_integer())
    return std::nullopt;
  Row row;
  row.round = json["round"].get<int64_t>();
  for (const auto& [name, value] : json.items()) {
    if (name == "round") continue;
    if (value.is_number()) {
      row.metrics.push_back({name, value.get<double>(), value.dump()});
    } else if (value.is_null()) {
      row.metrics.push_back({name, std::numeric_limits<double>::quiet_NaN(), "nan"});
    }
  }
  return row;
}

}  // namespace

std::optional<int64_t> RoundOf(absl::string_view line) {
  const std::optional<Row> row = ParseRow(line);
  return row.has_value() ? std::optional(row->round) : std::nullopt;
}

absl::StatusOr<std::vector<Row>> RowReader::Next(int64_t after, size_t most) {
  const std::string path = folder_ + "/metrics.jsonl";
  std::vector<Row> rows;
  if (!FileExists(path)) return rows;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return FileError("cannot open", path);
  MACAW_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
  if (size < offset_ || after < last_) offset_ = 0;
  std::string text, block(kBlock, '\0');
  while (rows.size() < most) {
    const ssize_t got =
        ::pread(file.get(), block.data(), block.size(), static_cast<off_t>(offset_ + text.size()));
    if (got < 0) return FileError("cannot read", path);
    if (got == 0) break;
    text.append(block, 0, static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end; rows.size() < most && (end = text.find('\n', begin)) != text.npos;) {
      std::optional<Row> row = ParseRow(absl::string_view(text).substr(begin, end - begin));
      if (!row.has_value()) {
        return absl::DataLossError(
            absl::StrCat(path, " has no row at byte ", offset_ + begin, ": it was damaged"));
      }
      begin = end + 1;
      last_ = row->round;
      if (row->round > after) rows.push_back(*std::move(row));
    }
    offset_ += begin;
    text.erase(0, begin);
  }
  if (rows.empty()) return rows;
  ReadTimes();
  const int64_t now = NowMs();
  for (Row& row : rows) {
    const auto closed = closed_ms_.find(row.round);
    row.wall_ms = closed == closed_ms_.end() ? now : closed->second;
  }
  return rows;
}

// Without the log, rows have the time at which they were read.
void RowReader::ReadTimes() {
  const std::string path = folder_ + "/rounds.log";
  if (!log_.has_value()) {
    if (!FileExists(path)) return;
    absl::StatusOr<server::log::Reader> log = server::log::Reader::Open(path);
    if (!log.ok()) return;
    log_ = *std::move(log);
  }
  while (true) {
    const absl::StatusOr<std::optional<server::log::Entry>> entry = log_->Next();
    if (!entry.ok() || !entry->has_value()) return;
    const server::log::Record& record = (*entry)->record;
    const auto* opened = std::get_if<server::log::RunOpened>(&record);
    if (opened != nullptr && began_ns_ == 0) began_ns_ = opened->wall_ns - (*entry)->ns;
    const auto* closed = std::get_if<server::log::Closed>(&record);
    if (closed != nullptr && closed->last) {
      closed_ms_.emplace(static_cast<int64_t>(closed->round.value),
                         (began_ns_ + (*entry)->ns) / kNsInMs);
    }
  }
}

}  // namespace macaw::cli
