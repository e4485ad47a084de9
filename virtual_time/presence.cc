#include "virtual_time/presence.h"

#include <algorithm>
#include <cmath>
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
