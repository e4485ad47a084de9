#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/track/growing_file.h"
#include "cli/track/tracker.h"
#include "core/status.h"
#include "proto/track/wandb.pb.h"

namespace macaw::cli {
namespace {

using track::wandb::Item;
using track::wandb::Record;

// A file: ":W&B", u16 0xBEE1, u8 0; then records in blocks of 32 KiB as in LevelDB's log, which
// count from the file's begin. A piece of a record: u32 CRC-32 of kind and bytes, u16 bytes, u8
// kind, the bytes. Numbers are little-endian. Fewer than seven bytes at the end of a block are
// zero.
constexpr absl::string_view kFileHead("\x3aW&B\xe1\xbe\x00", 7);
constexpr size_t kBlock = 32768, kPieceHead = 7;
enum Kind : char { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

uint32_t Crc(char kind, absl::string_view bytes) {
  uLong crc = ::crc32(0, reinterpret_cast<const Bytef*>(&kind), 1);
  crc = ::crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  return static_cast<uint32_t>(crc);
}

// Appends a record to what lies at `offset` of the file and behind.
void AppendLogged(absl::string_view record, uint64_t offset, std::string& out) {
  bool first = true;
  do {
    const size_t room = kBlock - (offset + out.size()) % kBlock;
    if (room < kPieceHead) {
      out.append(room, '\0');
      continue;
    }
    const absl::string_view piece = record.substr(0, room - kPieceHead);
    record.remove_prefix(piece.size());
    const char kind = record.empty() ? (first ? kFull : kLast) : (first ? kFirst : kMiddle);
    const uint32_t crc = Crc(kind, piece);
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(crc >> (8 * i)));
    for (int i = 0; i < 2; ++i) out.push_back(static_cast<char>(piece.size() >> (8 * i)));
    out.push_back(kind);
    absl::StrAppend(&out, piece);
    first = false;
  } while (!record.empty() || first);
}

uint64_t Little(absl::string_view bytes, size_t count) {
  uint64_t number = 0;
  for (size_t i = 0; i < count; ++i) number |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return number;
}

// Reads a record at `at` of the whole file, and moves behind it. Nothing: there is none, or it is
// torn.
std::optional<std::string> TakeLogged(absl::string_view file, size_t& at) {
  std::string record;
  bool begun = false;
  for (size_t next = at;;) {
    const size_t room = kBlock - next % kBlock;
    if (room < kPieceHead) {
      next += room;
      continue;
    }
    if (next + kPieceHead > file.size()) return std::nullopt;
    const absl::string_view head = file.substr(next, kPieceHead);
    const uint64_t bytes = Little(head.substr(4), 2);
    const char kind = head[6];
    if (bytes > room - kPieceHead || next + kPieceHead + bytes > file.size()) return std::nullopt;
    const absl::string_view piece = file.substr(next + kPieceHead, bytes);
    if (Crc(kind, piece) != Little(head, 4)) return std::nullopt;
    if (begun == (kind == kFull || kind == kFirst)) return std::nullopt;
    begun = true;
    absl::StrAppend(&record, piece);
    next += kPieceHead + bytes;
    if (kind == kFull || kind == kLast) {
      at = next;
      return record;
    }
  }
}

// Numbers as wandb's clients write them: JSON, with NaN and Infinity as names.
std::string Json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return nlohmann::json(value).dump();
}

void AddItem(const std::string& name, std::string json, Item& item) {
  item.add_nested_key(name);
  item.set_value_json(std::move(json));
}

class WandbTracker final : public Tracker {
 public:
  explicit WandbTracker(std::string project) : project_(std::move(project)) {}

  absl::StatusOr<int64_t> Open(const RunFacts& facts) override {
    began_ms_ = facts.began_ms;
    // wandb's names for runs are short.
    const std::string id = facts.id.substr(0, 12);
    folder_ = FolderOf(facts, id);
    MACAW_ASSIGN_OR_RETURN(file_, GrowingFile::Open(absl::StrCat(folder_, "/run-", id, ".wandb")));
    MACAW_ASSIGN_OR_RETURN(const int64_t last, ReadBack());
    if (file_->size() > 0) return last;
    Record header, run;
    header.mutable_header()->mutable_version_info()->set_producer("macaw");
    header.mutable_header()->mutable_version_info()->set_min_consumer("0.70.0");
    run.mutable_run()->set_run_id(id);
    run.mutable_run()->set_project(project_);
    run.mutable_run()->set_display_name(facts.name);
    run.mutable_run()->mutable_start_time()->set_seconds(facts.began_ms / 1000);
    run.mutable_run()->mutable_start_time()->set_nanos(
        static_cast<int32_t>(facts.began_ms % 1000 * 1'000'000));
    for (const auto& [key, value] : facts.settings) {
      Item& item = *run.mutable_run()->mutable_config()->add_update();
      item.set_key(key);
      const auto json = nlohmann::json::parse(value, nullptr, /*allow_exceptions=*/false);
      const bool is_json = !json.is_discarded();  // a number, true, a list: TOML's are JSON's
      item.set_value_json(is_json ? json.dump() : nlohmann::json(value).dump());
    }
    MACAW_RETURN_IF_ERROR(file_->Append(kFileHead));
    std::string records;
    Add(header, records);
    Add(run, records);
    MACAW_RETURN_IF_ERROR(file_->Append(records));
    return kNoRound;
  }

  absl::Status Deliver(const std::vector<Row>& rows) override {
    // A run that goes on is synchronised again.
    if (exit_at_ > 0) MACAW_RETURN_IF_ERROR(file_->Cut(std::exchange(exit_at_, 0)));
    std::string records;
    Record summary;
    std::map<std::string, std::string> last;
    for (const Row& row : rows) {
      Record history;
      auto& items = *history.mutable_history();
      const double seconds = static_cast<double>(row.wall_ms) / 1000;
      std::vector<std::pair<std::string, std::string>> values = {
          {"_step", absl::StrCat(row.round)},
          {"_timestamp", Json(seconds)},
          {"_runtime", Json(seconds - static_cast<double>(began_ms_) / 1000)},
          {"round", absl::StrCat(row.round)}};
      for (const Metric& metric : row.metrics) values.emplace_back(metric.name, Json(metric.value));
      for (const auto& [name, json] : values) {
        AddItem(name, json, *items.add_item());
        last[name] = json;
      }
      items.mutable_step()->set_num(row.round);
      Add(history, records);
    }
    for (const auto& [name, json] : last)
      AddItem(name, json, *summary.mutable_summary()->add_update());
    Add(summary, records);
    return file_->Append(records);
  }

  absl::Status Close(const RunEnd& end) override {
    if (exit_at_ > 0 || end.end.empty()) return absl::OkStatus();
    Record exit;
    exit.mutable_exit()->set_exit_code(end.end == "failed" ? 1 : 0);
    std::string records;
    Add(exit, records);
    const uint64_t at = file_->size();
    MACAW_RETURN_IF_ERROR(file_->Append(records));
    exit_at_ = at;
    return absl::OkStatus();
  }

 private:
  // The folder of an earlier session, or else a new one, which has the run's begin in its name.
  static std::string FolderOf(const RunFacts& facts, const std::string& id) {
    const std::string parent = facts.folder + "/wandb";
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
      const std::string name = entry.path().filename().string();
      if (absl::StartsWith(name, "offline-run-") && absl::EndsWith(name, "-" + id))
        return entry.path().string();
    }
    const std::string when = absl::FormatTime("%Y%m%d_%H%M%S", absl::FromUnixMillis(facts.began_ms),
                                              absl::UTCTimeZone());
    return absl::StrCat(parent, "/offline-run-", when, "-", id);
  }

  // Looks for the last round, and cuts off a torn end. Keeps where an exit record begins.
  absl::StatusOr<int64_t> ReadBack() {
    MACAW_ASSIGN_OR_RETURN(const std::string text, file_->Read());
    number_ = 0;
    exit_at_ = 0;
    int64_t last = kNoRound;
    if (!absl::StartsWith(text, kFileHead)) {
      MACAW_RETURN_IF_ERROR(file_->Cut(0));
      return last;
    }
    size_t at = kFileHead.size();
    bool runs = false;
    for (size_t begin = at; const std::optional<std::string> bytes = TakeLogged(text, at);
         begin = at) {
      Record record;
      if (!record.ParseFromString(*bytes)) break;
      if (record.has_exit()) {
        exit_at_ = begin;
        break;  // nothing comes behind it
      }
      number_ = record.num();
      runs = runs || record.has_run();
      if (record.has_history()) last = std::max(last, record.history().step().num());
    }
    MACAW_RETURN_IF_ERROR(file_->Cut(runs ? at : 0));
    if (!runs) number_ = 0;
    return last;
  }

  void Add(Record& record, std::string& records) {
    record.set_num(++number_);
    AppendLogged(record.SerializeAsString(), file_->size(), records);
  }

  const std::string project_;
  std::string folder_;
  std::optional<GrowingFile> file_;
  int64_t began_ms_ = 0;
  int64_t number_ = 0;    // of the last record
  uint64_t exit_at_ = 0;  // where the exit record begins; 0: there is none
};

}  // namespace

std::unique_ptr<Tracker> MakeWandbTracker(const TrackConfig& config) {
  return std::make_unique<WandbTracker>(config.wandb_project);
}

}  // namespace macaw::cli
