#include "data/partition_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/pooled.h"
#include "data/text.h"

namespace macaw::data {
namespace {

using Json = nlohmann::json;

const std::string kTestKey = "test", kValidationKey = "validation", kClientTestKey = "client_test",
                  kCentralValidationKey = "central_validation";

struct NamedLists {
  std::vector<std::string> names;
  RowLists lists;
};

// Reads the file as a stream of events, because it may name a million clients and their order
// matters.
class PartitionEvents : public nlohmann::json_sax<Json> {
 public:
  explicit PartitionEvents(uint64_t rows) : rows_(rows) {}

  absl::Status status() const { return status_; }
  NamedLists train, validation, client_test;
  std::vector<uint32_t> test, central_val;
  bool has_test = false, has_central_val = false;
  bool whole = false;  // the file has "validation" or "client_test"

  bool key(string_t& name) override {
    if (depth_ == 1) section_ = name;
    if (depth_ == 1 && (name == kValidationKey || name == kClientTestKey)) whole = true;
    name_ = name;
    return true;
  }
  bool start_object(size_t) override {
    const bool expected =
        depth_ == 0 || (depth_ == 1 && (section_ == kValidationKey || section_ == kClientTestKey));
    ++depth_;
    return expected || Fail(Quoted(name_), " is an object; expected a list of rows");
  }
  bool start_array(size_t) override {
    if (depth_ == 1 && section_ == kTestKey) {
      if (std::exchange(has_test, true)) return Fail("\"test\" comes twice");
      into_ = &test;
    } else if (depth_ == 1 && section_ == kCentralValidationKey) {
      if (std::exchange(has_central_val, true))
        return Fail(Quoted(kCentralValidationKey), " comes twice");
      into_ = &central_val;
    } else if (depth_ == 1 && section_ != kValidationKey && section_ != kClientTestKey) {
      list_ = &train;
    } else if (depth_ == 2 && into_ == nullptr) {
      list_ = section_ == kValidationKey ? &validation : &client_test;
    } else {
      return Fail("a list where none belongs, at ", Quoted(name_));
    }
    if (into_ == nullptr) {
      list_->names.push_back(name_);
      into_ = &list_->lists.rows;
    }
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    if (into_ != &test && into_ != &central_val)
      list_->lists.begin.push_back(list_->lists.rows.size());
    into_ = nullptr;
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool number_unsigned(uint64_t row) override {
    if (into_ == nullptr) return Fail("a number where none belongs, at ", Quoted(name_));
    if (row >= rows_)
      return Fail(Quoted(name_), " lists row ", row, ", but the data has ", rows_, " rows");
    into_->push_back(static_cast<uint32_t>(row));
    return true;
  }
  bool number_integer(int64_t value) override { return Fail(Quoted(name_), " lists row ", value); }
  bool number_float(double value, const string_t&) override {
    return Fail(Quoted(name_), " lists row ", value);
  }
  bool null() override { return Fail("null at ", Quoted(name_)); }
  bool boolean(bool) override { return Fail("true or false at ", Quoted(name_)); }
  bool string(string_t&) override { return Fail("text at ", Quoted(name_), "; rows are numbers"); }
  bool binary(Json::binary_t&) override { return Fail("binary data"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail("is not JSON at byte ", position);
  }

 private:
  template <typename... Words>
  bool Fail(const Words&... words) {
    status_ = absl::InvalidArgumentError(absl::StrCat(words...));
    return false;
  }

  const uint64_t rows_;
  absl::Status status_;
  int depth_ = 0;
  std::string section_, name_;
  NamedLists* list_ = nullptr;
  std::vector<uint32_t>* into_ = nullptr;
};

// The lists in the order of the clients; a client without an entry gets an empty list.
absl::StatusOr<RowLists> InOrder(const NamedLists& lists,
                                 const std::map<std::string, size_t>& clients,
                                 const std::string& section) {
  std::vector<std::span<const uint32_t>> of(clients.size());
  std::vector<bool> has(clients.size());
  for (size_t i = 0; i < lists.names.size(); ++i) {
    const auto client = clients.find(lists.names[i]);
    if (client == clients.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", section, "\" names ", Quoted(lists.names[i]), ", who is no client"));
    }
    if (has[client->second]) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", section, "\" names ", Quoted(lists.names[i]), " twice"));
    }
    has[client->second] = true;
    of[client->second] = lists.lists.Of(i);
  }
  RowLists ordered;
  for (const std::span<const uint32_t> rows : of) {
    ordered.rows.insert(ordered.rows.end(), rows.begin(), rows.end());
    ordered.begin.push_back(ordered.rows.size());
  }
  return ordered;
}

// Refuses a list with a row that is there twice. `seen`: no row, before and after.
absl::Status CheckOnce(std::span<const uint32_t> rows, const std::string& list,
                       std::vector<bool>& seen) {
  for (const uint32_t row : rows) {
    if (seen[row])
      return absl::InvalidArgumentError(absl::StrCat(list, " lists row ", row, " twice"));
    seen[row] = true;
  }
  for (const uint32_t row : rows) seen[row] = false;
  return absl::OkStatus();
}

// The same of each list of the file, as it is there: clients' lists are not split yet.
absl::Status CheckListsOnce(const PartitionEvents& events, uint64_t rows) {
  std::vector<bool> seen(rows);
  MACAW_RETURN_IF_ERROR(CheckOnce(events.test, Quoted(kTestKey), seen));
  MACAW_RETURN_IF_ERROR(CheckOnce(events.central_val, Quoted(kCentralValidationKey), seen));
  const auto check = [&](const NamedLists& lists, const std::string& of) -> absl::Status {
    for (size_t i = 0; i < lists.names.size(); ++i) {
      MACAW_RETURN_IF_ERROR(
          CheckOnce(lists.lists.Of(i), absl::StrCat(Quoted(lists.names[i]), of), seen));
    }
    return absl::OkStatus();
  };
  MACAW_RETURN_IF_ERROR(check(events.train, ""));
  MACAW_RETURN_IF_ERROR(check(events.validation, absl::StrCat(" in ", Quoted(kValidationKey))));
  return check(events.client_test, absl::StrCat(" in ", Quoted(kClientTestKey)));
}

// Refuses rows that are in two lists where they may be in one alone.
absl::Status CheckRows(const Division& division, uint64_t rows) {
  std::vector<bool> trains(rows);
  for (uint64_t c = 0; c < division.clients(); ++c) {
    for (const Split split : {Split::kTrain, Split::kValidation}) {
      for (const uint32_t row : division.Of(ClientId(c), split)) {
        if (trains[row]) {
          return absl::InvalidArgumentError(absl::StrCat(Quoted(division.names[c]), " lists row ",
                                                         row, ", which is in another list too"));
        }
        trains[row] = true;
      }
    }
  }
  std::vector<bool> validates(rows);
  for (const uint32_t row : division.central_val) {
    validates[row] = true;
    if (!trains[row]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("row ", row, " is a client's and is in \"", kCentralValidationKey,
                     "\" too (without that list it is the data's own; [] is none)"));
  }
  const auto refuse_test = [&](std::span<const uint32_t> test, const std::string& name) {
    for (const uint32_t row : test) {
      if (trains[row]) {
        return absl::InvalidArgumentError(
            absl::StrCat("row ", row, " trains a client and is in \"", name, "\" too"));
      }
      if (validates[row]) {
        return absl::InvalidArgumentError(absl::StrCat(
            "row ", row, " is in \"", kCentralValidationKey, "\" and in \"", name, "\" too"));
      }
    }
    return absl::OkStatus();
  };
  MACAW_RETURN_IF_ERROR(refuse_test(division.central_test, kTestKey));
  for (uint64_t c = 0; c < division.clients(); ++c) {
    MACAW_RETURN_IF_ERROR(refuse_test(division.Of(ClientId(c), Split::kTest), kClientTestKey));
  }
  return absl::OkStatus();
}

// Notes for people: rows that the file leaves out, and options that have no effect with it.
std::vector<std::string> NotesOn(const Division& division, const Examples& examples,
                                 const DataOptions& options) {
  std::vector<std::string> notes;
  if (division.central_test.empty() && options.TestFraction() > 0) {
    notes.push_back(
        absl::StrCat("the partition file has no \"test\" rows, so there is no central "
                     "test set; data.test_fraction = ",
                     options.TestFraction(), " has no effect beside a partition file"));
  }
  if (options.central_val_fraction > 0) {
    notes.push_back(absl::StrCat("data.central_val_fraction = ", options.central_val_fraction,
                                 " has no effect beside a partition file: its \"",
                                 kCentralValidationKey,
                                 "\" is the central validation set, and without it the data's "
                                 "own"));
  }
  std::vector<bool> used(examples.block.count);
  for (const uint32_t row : division.central_val) used[row] = true;
  for (const uint32_t row : division.lists.rows) used[row] = true;
  for (const uint32_t row : division.central_test) used[row] = true;
  const auto unused = static_cast<uint64_t>(std::count(used.begin(), used.end(), false));
  if (unused > 0) {
    notes.push_back(absl::StrCat(unused, " of the ", used.size(),
                                 " rows are in no list of the partition file and stay unused"));
  }
  return notes;
}

absl::StatusOr<Division> Assemble(PartitionEvents& events, const Examples& examples,
                                  const DataOptions& options) {
  if (events.train.names.empty()) return absl::InvalidArgumentError("names no client");
  std::map<std::string, size_t> clients;
  for (size_t i = 0; i < events.train.names.size(); ++i) {
    if (events.train.names[i].empty())
      return absl::InvalidArgumentError(absl::StrCat("client ", i, " has an empty name"));
    if (!clients.emplace(events.train.names[i], i).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", Quoted(events.train.names[i]), " comes twice"));
    }
  }
  MACAW_RETURN_IF_ERROR(CheckListsOnce(events, examples.block.count));
  Division division{.names = events.train.names};
  if (events.whole) {
    MACAW_ASSIGN_OR_RETURN(const RowLists validation,
                           InOrder(events.validation, clients, kValidationKey));
    MACAW_ASSIGN_OR_RETURN(const RowLists test,
                           InOrder(events.client_test, clients, kClientTestKey));
    for (uint64_t c = 0; c < clients.size(); ++c) {
      for (const RowLists* lists : {&std::as_const(events.train.lists), &validation, &test}) {
        const std::span<const uint32_t> rows = lists->Of(c);
        division.lists.rows.insert(division.lists.rows.end(), rows.begin(), rows.end());
        division.lists.begin.push_back(division.lists.rows.size());
      }
    }
  } else {
    division.lists = SplitClients(options, events.train.lists);
  }
  division.central_test = std::move(events.test);
  division.central_val = std::move(events.central_val);
  const auto rows_of = [](RowRange range) {
    std::vector<uint32_t> rows(range.size());
    std::iota(rows.begin(), rows.end(), static_cast<uint32_t>(range.begin));
    return rows;
  };
  if (!events.has_test) division.central_test = rows_of(examples.own_test);
  if (!events.has_central_val) division.central_val = rows_of(examples.own_val);
  MACAW_RETURN_IF_ERROR(CheckRows(division, examples.block.count));
  division.notes = NotesOn(division, examples, options);
  return division;
}

void AppendList(std::string& text, const std::string& name, std::span<const uint32_t> rows) {
  absl::StrAppend(&text, Json(name).dump(-1, ' ', false, Json::error_handler_t::replace), ":[");
  for (size_t i = 0; i < rows.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ",", rows[i]);
  text += "]";
}

}  // namespace

absl::StatusOr<Division> ReadPartition(const std::string& path, const Examples& examples,
                                       const DataOptions& options) {
  if (path.empty())
    return absl::InvalidArgumentError("partition.scheme = file needs partition.path");
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  MACAW_RETURN_IF_ERROR(CheckUtf8(text, path));
  PartitionEvents events(examples.block.count);
  Json::sax_parse(text, &events);
  MACAW_RETURN_IF_ERROR(Annotate(events.status(), path));
  absl::StatusOr<Division> division = Assemble(events, examples, options);
  if (!division.ok()) return Annotate(division.status(), path);
  return division;
}

absl::Status ExportPartition(const Dataset& dataset, const std::string& path) {
  const auto* pooled = dynamic_cast<const PooledDataset*>(&dataset);
  if (pooled == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the partition of ", dataset.info().name,
        " data cannot be exported: its clients are not lists of row numbers of a file"));
  }
  const Division& division = pooled->division();
  std::string text = "{";
  for (uint64_t c = 0; c < division.clients(); ++c) {
    const std::string name = pooled->ClientName(ClientId(c));
    if (name == kTestKey || name == kValidationKey || name == kClientTestKey ||
        name == kCentralValidationKey) {
      return absl::FailedPreconditionError(absl::StrCat(
          "client ", c, " is called \"", name, "\", which is a reserved key of partition files"));
    }
    AppendList(text, name, division.Of(ClientId(c), Split::kTrain));
    text += ",\n";
  }
  AppendList(text, kTestKey, division.central_test);
  if (!division.central_val.empty()) {
    text += ",\n";
    AppendList(text, kCentralValidationKey, division.central_val);
  }
  for (const auto& [section, split] :
       {std::pair{kValidationKey, Split::kValidation}, std::pair{kClientTestKey, Split::kTest}}) {
    absl::StrAppend(&text, ",\n\"", section, "\":{");
    bool first = true;
    for (uint64_t c = 0; c < division.clients(); ++c) {
      const std::span<const uint32_t> rows = division.Of(ClientId(c), split);
      if (rows.empty()) continue;
      if (!std::exchange(first, false)) text += ",\n";
      AppendList(text, pooled->ClientName(ClientId(c)), rows);
    }
    text += "}";
  }
  return AtomicWriteFile(path, absl::StrCat(text, "}\n"));
}

}  // namespace macaw::data
