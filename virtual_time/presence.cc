#include "virtual_time/presence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "virtual_time/assignment.h"
#include "virtual_time/table.h"

namespace macaw::virtual_time {
namespace {

class TablePresence final : public Presence {
 public:
  TablePresence(std::shared_ptr<const PresenceTable> table, Assignment rows)
      : table_(std::move(table)), rows_(std::move(rows)) {}

  bool On(ClientId client, double seconds) const override {
    const size_t device = rows_.Of(client);
    const double time = std::fmod(seconds, table_->records[device].period);
    const std::span<const Interval> intervals = table_->Of(device);
    const auto next = std::ranges::upper_bound(intervals, time, {}, &Interval::on);
    return next != intervals.begin() && time < std::prev(next)->off;
  }

  double NextOn(ClientId client, double seconds) const override {
    if (On(client, seconds)) return seconds;
    const size_t device = rows_.Of(client);
    const std::span<const Interval> intervals = table_->Of(device);
    const double period = table_->records[device].period;
    const double time = std::fmod(seconds, period), begin = seconds - time;
    const auto later = std::ranges::upper_bound(intervals, time, {}, &Interval::on);
    double next =
        later != intervals.end() ? begin + later->on : begin + (period + intervals.front().on);
    // A sum that was rounded down is just before the interval.
    constexpr int kMostRoundings = 4;
    for (int i = 0; i < kMostRoundings && !On(client, next); ++i)
      next = std::nextafter(next, std::numeric_limits<double>::infinity());
    return next;
  }

  double ShareOn(ClientId client) const override {
    const size_t device = rows_.Of(client);
    double on = 0;
    for (const Interval& interval : table_->Of(device)) on += interval.off - interval.on;
    return on / table_->records[device].period;
  }

 private:
  const std::shared_ptr<const PresenceTable> table_;
  const Assignment rows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Presence>> MakePresence(const DevicesConfig& config,
                                                       const Tables& tables,
                                                       const Population& population) {
  if (tables.presence == nullptr) return std::unique_ptr<Presence>();
  const PresenceTable& table = *tables.presence;
  MACAW_ASSIGN_OR_RETURN(
      Assignment rows,
      Assignment::Make(config, DrawOf::kPresence, table.names.size(), table.names, population,
                       absl::StrCat(table.file, " (devices.presence)")));
  return std::make_unique<TablePresence>(tables.presence, std::move(rows));
}

}  // namespace macaw::virtual_time
