#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/digest.h"
#include "virtual_time/devices.h"

namespace macaw::virtual_time {

// Tables of devices and of their presence, as CSV (core/csv_text.h: commas, semicolons or tabs).
// Columns are named by the first record, in any order. An error names the file, the line and the
// column. A digest is that of what a table says: the order of its columns, blanks and quotation
// marks do not change it.

// One row a device:
//   device          its name; needed only for devices.assign = "name", and different in each row
//   samples_per_s   training examples a second, forward and backward; 1e-12 or more
//   down_kB_s, up_kB_s            mean rates, 1000 bytes a second; 1e-12 or more
//   down_sd_kB_s, up_sd_kB_s      their standard deviations between turns; optional, 0 or more
struct DeviceTable {
  std::string file;
  std::vector<std::string> names;  // of each device; none without the column "device"
  std::vector<Device> devices;     // at least one
  Digest digest;
};
absl::StatusOr<DeviceTable> ParseDevices(absl::string_view text, const std::string& file);
absl::StatusOr<DeviceTable> ReadDevices(const std::string& path);

// A time in which a device is there: from `on` until just before `off`, in seconds.
struct Interval {
  double on = 0, off = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// One row an interval, so several rows a device, in any order:
//   device          its name
//   on_s, off_s     seconds since the record began; 0 <= on_s < off_s <= period_s
//   period_s        seconds after which the record begins again; the same in all rows of a device
// Intervals of a device that touch or overlap are one.
struct PresenceTable {
  struct Record {
    size_t first = 0, end = 0;  // places in `intervals`
    double period = 0;
  };
  std::string file;
  std::vector<std::string> names;   // of each device, in the order of their first rows
  std::vector<Record> records;      // of each device
  std::vector<Interval> intervals;  // those of a device by time, apart from each other
  Digest digest;
  std::span<const Interval> Of(size_t device) const {
    return std::span(intervals).subspan(records[device].first,
                                        records[device].end - records[device].first);
  }
};
absl::StatusOr<PresenceTable> ParsePresence(absl::string_view text, const std::string& file);
absl::StatusOr<PresenceTable> ReadPresence(const std::string& path);

// The tables of a run. Null: the configuration names none.
struct Tables {
  std::shared_ptr<const DeviceTable> devices;
  std::shared_ptr<const PresenceTable> presence;
};

}  // namespace macaw::virtual_time
