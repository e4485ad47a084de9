#include "virtual_time/table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/csv_text.h"
#include "core/files.h"
#include "core/spelling.h"
#include "core/status.h"
#include "core/text.h"
#include "core/utf8.h"

namespace macaw::virtual_time {
namespace {

// Of a number, and of one that must be above 0: seconds stay finite.
constexpr double kLargest = 1e15, kSmallest = 1e-12;
constexpr double kKilobyte = 1000;

std::string InQuotes(absl::string_view text) {
  return absl::StrCat("\"", EscapeToUtf8(text), "\"");
}

struct Column {
  const char* name;
  bool needed;
};

// The records of a table with known columns.
class Rows {
 public:
  // Reads the header. `columns` are all that there may be.
  static absl::StatusOr<Rows> Open(absl::string_view text, std::string file,
                                   std::span<const Column> columns) {
    Rows rows(text, std::move(file));
    if (!rows.text_.Next())
      return absl::InvalidArgumentError(absl::StrCat(rows.file_,
                                                     " is empty: its first line names "
                                                     "the columns"));
    if (!rows.text_.status().ok()) return rows.Refused(rows.text_.status().message());
    std::vector<std::string> known;
    for (const Column& column : columns) known.emplace_back(column.name);
    for (size_t cell = 0; cell < rows.text_.cells().size(); ++cell) {
      const std::string name(rows.text_.cells()[cell]);
      const auto place = std::find(known.begin(), known.end(), name);
      if (place == known.end()) {
        const std::string meant = NearestWord(name, known);
        return rows.Refused(
            absl::StrCat("column ", cell + 1, " is ", InQuotes(name), ", which is none of ",
                         absl::StrJoin(known, ", "),
                         meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?")));
      }
      if (!rows.places_.emplace(name, cell).second)
        return rows.Refused(absl::StrCat("there are two columns ", InQuotes(name)));
    }
    for (const Column& column : columns) {
      if (column.needed && !rows.Has(column.name))
        return rows.Refused(absl::StrCat("there is no column ", InQuotes(column.name)));
    }
    rows.width_ = rows.text_.cells().size();
    return rows;
  }

  bool Has(const char* column) const { return places_.contains(column); }

  // Reads the next record. False: there is none, or status() is an error.
  bool Next() {
    if (!text_.Next()) return false;
    if (!text_.status().ok()) {
      status_ = Refused(text_.status().message());
    } else if (text_.cells().size() != width_) {
      status_ = Refused(absl::StrCat(Counted(text_.cells().size(), "cell"),
                                     ", but the first line "
                                     "names ",
                                     Counted(width_, "column")));
    }
    return status_.ok();
  }
  const absl::Status& status() const { return status_; }

  absl::StatusOr<std::string> Name(const char* column) const {
    const absl::string_view cell = text_.cells()[places_.at(column)];
    if (cell.empty()) return Refused(absl::StrCat("column ", InQuotes(column), " is empty"));
    return std::string(cell);
  }

  // `above`: 0 is out of range. `otherwise`: of an empty cell and of a column that is not there.
  absl::StatusOr<double> Number(const char* column, bool above,
                                std::optional<double> otherwise = std::nullopt) const {
    const auto place = places_.find(column);
    const absl::string_view cell =
        place == places_.end() ? absl::string_view() : text_.cells()[place->second];
    if (cell.empty() && otherwise.has_value()) return *otherwise;
    const std::optional<double> number = ParseNumber(cell);
    const double least = above ? kSmallest : 0;
    if (number.has_value() && *number <= kLargest && *number >= least)
      return *number + 0.0;  // -0 is 0
    return Refused(absl::StrCat("column ", InQuotes(column), " must be a number >= ", least,
                                " and at most ", kLargest, ", found ", InQuotes(cell)));
  }

  absl::Status Refused(absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", text_.line(), ": ", why));
  }
  int64_t line() const { return text_.line(); }

 private:
  Rows(absl::string_view text, std::string file)
      : text_(text, FindSeparator(text)), file_(std::move(file)) {}

  CsvText text_;
  std::string file_;
  absl::flat_hash_map<std::string, size_t> places_;  // of the columns
  size_t width_ = 0;
  absl::Status status_;
};

void AddNumber(Digester& digester, double number) { digester.Add(std::bit_cast<uint64_t>(number)); }

// Sorts, and joins those that touch.
std::vector<Interval> Apart(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::on);
  std::vector<Interval> apart;
  for (const Interval& next : intervals) {
    if (!apart.empty() && next.on <= apart.back().off) {
      apart.back().off = std::max(apart.back().off, next.off);
    } else {
      apart.push_back(next);
    }
  }
  return apart;
}

}  // namespace

absl::StatusOr<DeviceTable> ParseDevices(absl::string_view text, const std::string& file) {
  static constexpr Column kColumns[] = {{"device", false},       {"samples_per_s", true},
                                        {"down_kB_s", true},     {"up_kB_s", true},
                                        {"down_sd_kB_s", false}, {"up_sd_kB_s", false}};
  MACAW_ASSIGN_OR_RETURN(Rows rows, Rows::Open(text, file, kColumns));
  DeviceTable table{.file = file};
  absl::flat_hash_map<std::string, int64_t> lines;  // of names
  Digester digester;
  while (rows.Next()) {
    if (rows.Has("device")) {
      MACAW_ASSIGN_OR_RETURN(std::string name, rows.Name("device"));
      const auto [known, is_new] = lines.emplace(name, rows.line());
      if (!is_new) {
        return rows.Refused(absl::StrCat("column \"device\": ", InQuotes(name),
                                         " is the device of line ", known->second, ", too"));
      }
      digester.Add(absl::string_view(name));
      table.names.push_back(std::move(name));
    }
    Device device;
    MACAW_ASSIGN_OR_RETURN(device.samples_per_s, rows.Number("samples_per_s", true));
    MACAW_ASSIGN_OR_RETURN(device.down.mean, rows.Number("down_kB_s", true));
    MACAW_ASSIGN_OR_RETURN(device.up.mean, rows.Number("up_kB_s", true));
    MACAW_ASSIGN_OR_RETURN(device.down.deviation, rows.Number("down_sd_kB_s", false, 0));
    MACAW_ASSIGN_OR_RETURN(device.up.deviation, rows.Number("up_sd_kB_s", false, 0));
    for (double* const rate :
         {&device.down.mean, &device.up.mean, &device.down.deviation, &device.up.deviation}) {
      *rate *= kKilobyte;
      AddNumber(digester, *rate);
    }
    AddNumber(digester, device.samples_per_s);
    table.devices.push_back(device);
  }
  MACAW_RETURN_IF_ERROR(rows.status());
  if (table.devices.empty())
    return absl::InvalidArgumentError(absl::StrCat(file, " has no device below its first line"));
  digester.Add(uint64_t{table.names.size()});
  table.digest = digester.Finish();
  return table;
}

absl::StatusOr<PresenceTable> ParsePresence(absl::string_view text, const std::string& file) {
  static constexpr Column kColumns[] = {
      {"device", true}, {"on_s", true}, {"off_s", true}, {"period_s", true}};
  MACAW_ASSIGN_OR_RETURN(Rows rows, Rows::Open(text, file, kColumns));
  PresenceTable table{.file = file};
  absl::flat_hash_map<std::string, size_t> places;  // of names
  std::vector<std::vector<Interval>> intervals;     // by device
  while (rows.Next()) {
    MACAW_ASSIGN_OR_RETURN(const std::string name, rows.Name("device"));
    Interval interval;
    MACAW_ASSIGN_OR_RETURN(interval.on, rows.Number("on_s", false));
    MACAW_ASSIGN_OR_RETURN(interval.off, rows.Number("off_s", true));
    MACAW_ASSIGN_OR_RETURN(const double period, rows.Number("period_s", true));
    if (interval.off <= interval.on) {
      return rows.Refused(absl::StrCat("column \"off_s\" is ", interval.off,
                                       ", not above column \"on_s\", ", interval.on));
    }
    if (interval.off > period) {
      return rows.Refused(absl::StrCat("column \"off_s\" is ", interval.off,
                                       ", above column \"period_s\", ", period,
                                       ": write the part behind it as an interval from 0"));
    }
    const auto [place, is_new] = places.emplace(name, table.names.size());
    if (is_new) {
      table.names.push_back(name);
      table.records.push_back({.period = period});
      intervals.emplace_back();
    }
    if (table.records[place->second].period != period) {
      return rows.Refused(absl::StrCat("column \"period_s\" is ", period, ", but ",
                                       table.records[place->second].period,
                                       " in an earlier row of device ", InQuotes(name)));
    }
    intervals[place->second].push_back(interval);
  }
  MACAW_RETURN_IF_ERROR(rows.status());
  if (table.names.empty())
    return absl::InvalidArgumentError(absl::StrCat(file, " has no interval below its first line"));
  Digester digester;
  for (size_t device = 0; device < table.names.size(); ++device) {
    const std::vector<Interval> apart = Apart(std::move(intervals[device]));
    PresenceTable::Record& record = table.records[device];
    record.first = table.intervals.size();
    table.intervals.insert(table.intervals.end(), apart.begin(), apart.end());
    record.end = table.intervals.size();
    digester.Add(absl::string_view(table.names[device])).Add(uint64_t{apart.size()});
    AddNumber(digester, record.period);
    for (const Interval& interval : apart) {
      AddNumber(digester, interval.on);
      AddNumber(digester, interval.off);
    }
  }
  table.digest = digester.Finish();
  return table;
}

absl::StatusOr<DeviceTable> ReadDevices(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseDevices(text, path);
}

absl::StatusOr<PresenceTable> ReadPresence(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParsePresence(text, path);
}

}  // namespace macaw::virtual_time
