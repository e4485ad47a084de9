#include "cli/track/tracking.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/config/reader.h"
#include "core/status.h"

namespace macaw::cli {

absl::Status CheckTrackers(const TrackConfig& config) {
  for (const std::string& name : config.to)
    MACAW_RETURN_IF_ERROR(MakeTracker(name, config).status());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tracking>> Tracking::Start(const std::string& folder,
                                                          const TrackConfig& config) {
  std::unique_ptr<Tracking> tracking(new Tracking);
  for (const std::string& name : std::set<std::string>(config.to.begin(), config.to.end())) {
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<Tracker> tracker, MakeTracker(name, config));
    DeliveryOptions options;
    options.folder = folder;
    options.name = name;
    options.say = [all = tracking.get()](const std::string& line) {
      const absl::MutexLock lock(&all->mutex_);
      all->lines_.push_back(line);
    };
    tracking->deliveries_.push_back(
        std::make_unique<Delivery>(std::move(options), std::move(tracker)));
  }
  return tracking;
}

std::vector<std::string> Tracking::TakeLines() {
  const absl::MutexLock lock(&mutex_);
  return std::exchange(lines_, {});
}

bool Tracking::Finish(Duration at_most) {
  const TimePoint until = SteadyClock().Now() + at_most;
  for (const auto& delivery : deliveries_) delivery->NoMoreRows();
  bool all = true;
  for (const auto& delivery : deliveries_)
    all = delivery->Finish(std::max(Duration(0), until - SteadyClock().Now())) && all;
  return all;
}

absl::StatusOr<TrackConfig> ReadTrackConfig(const std::string& folder) {
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(folder + "/config.toml"));
  TrackConfig config;
  const settings::Section<TrackConfig> section = TrackSection();
  for (const settings::Field<TrackConfig>& field : section.fields()) {
    MACAW_ASSIGN_OR_RETURN(const std::optional<Value> value, Lookup(document, {}, field.key));
    if (value.has_value() && !field.set(config, *value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(document.name, ": ", field.key, " must be ", field.expected));
    }
  }
  return config;
}

}  // namespace macaw::cli
