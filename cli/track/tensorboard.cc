#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/track/crc32c.h"
#include "cli/track/growing_file.h"
#include "cli/track/tracker.h"
#include "core/status.h"
#include "proto/track/tensorboard.pb.h"

namespace macaw::cli {
namespace {

using track::tensorboard::Event;

// A TFRecord, little-endian: u64 bytes, u32 masked CRC of these eight, the bytes, u32 their CRC.
constexpr size_t kHead = 12, kFoot = 4;
constexpr int kStrings = 7;  // DataType.DT_STRING

template <typename T>
void Put(T number, std::string& out) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(number >> (8 * i)));
}

template <typename T>
T Get(absl::string_view bytes) {
  T number = 0;
  for (size_t i = 0; i < sizeof(T); ++i) number |= T{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return number;
}

void AppendRecord(const Event& event, std::string& out) {
  const std::string payload = event.SerializeAsString();
  std::string length;
  Put<uint64_t>(payload.size(), length);
  absl::StrAppend(&out, length);
  Put<uint32_t>(MaskedCrc32c(length), out);
  absl::StrAppend(&out, payload);
  Put<uint32_t>(MaskedCrc32c(payload), out);
}

// Takes the first record off `bytes`. Nothing: there is none, or it is torn.
std::optional<absl::string_view> TakeRecord(absl::string_view& bytes) {
  if (bytes.size() < kHead + kFoot) return std::nullopt;
  const auto length = Get<uint64_t>(bytes);
  if (Get<uint32_t>(bytes.substr(8)) != MaskedCrc32c(bytes.substr(0, 8)) ||
      length > bytes.size() - kHead - kFoot) {
    return std::nullopt;
  }
  const absl::string_view payload = bytes.substr(kHead, length);
  if (Get<uint32_t>(bytes.substr(kHead + length)) != MaskedCrc32c(payload)) return std::nullopt;
  bytes.remove_prefix(kHead + length + kFoot);
  return payload;
}

double SecondsOf(int64_t ms) { return static_cast<double>(ms) / 1000; }

// What is too large becomes infinite, as it does in TensorFlow.
float Narrow(double value) {
  if (std::abs(value) <= std::numeric_limits<float>::max() || std::isnan(value))
    return static_cast<float>(value);
  return std::copysign(std::numeric_limits<float>::infinity(),
                       static_cast<float>(value < 0 ? -1 : 1));
}

// A text for TensorBoard's text page, in Markdown: an indented block.
Event Configuration(const RunFacts& facts) {
  std::string text;
  for (const auto& [key, value] : facts.settings)
    absl::StrAppend(&text, "    ", key, " = ", value, "\n");
  Event event;
  event.set_wall_time(SecondsOf(facts.began_ms));
  auto* value = event.mutable_summary()->add_value();
  value->set_tag("configuration/text_summary");
  value->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  value->mutable_tensor()->set_dtype(kStrings);
  value->mutable_tensor()->mutable_tensor_shape();  // a scalar
  value->mutable_tensor()->add_string_val(text);
  return event;
}

class TensorBoardTracker final : public Tracker {
 public:
  absl::StatusOr<int64_t> Open(const RunFacts& facts) override {
    MACAW_ASSIGN_OR_RETURN(
        file_, GrowingFile::Open(facts.folder + "/tensorboard/events.out.tfevents.macaw"));
    MACAW_ASSIGN_OR_RETURN(const std::string text, file_->Read());
    int64_t last = kNoRound;
    absl::string_view rest = text;
    while (const std::optional<absl::string_view> record = TakeRecord(rest)) {
      Event event;
      if (!event.ParseFromArray(record->data(), static_cast<int>(record->size()))) break;
      for (const auto& value : event.summary().value()) {
        if (value.has_simple_value()) last = std::max(last, event.step());
      }
    }
    MACAW_RETURN_IF_ERROR(file_->Cut(text.size() - rest.size()));
    if (file_->size() > 0) return last;
    std::string head;
    Event version;
    version.set_wall_time(SecondsOf(facts.began_ms));
    version.set_file_version("brain.Event:2");
    AppendRecord(version, head);
    AppendRecord(Configuration(facts), head);
    MACAW_RETURN_IF_ERROR(file_->Append(head));
    return last;
  }

  absl::Status Deliver(const std::vector<Row>& rows) override {
    std::string records;
    for (const Row& row : rows) {
      Event event;
      event.set_wall_time(SecondsOf(row.wall_ms));
      event.set_step(row.round);
      for (const Metric& metric : row.metrics) {
        auto* value = event.mutable_summary()->add_value();
        value->set_tag(metric.name);
        value->set_simple_value(Narrow(metric.value));
      }
      AppendRecord(event, records);
    }
    return file_->Append(records);
  }

  absl::Status Close(const RunEnd&) override { return absl::OkStatus(); }

 private:
  std::optional<GrowingFile> file_;
};

}  // namespace

std::unique_ptr<Tracker> MakeTensorBoardTracker() { return std::make_unique<TensorBoardTracker>(); }

}  // namespace macaw::cli
