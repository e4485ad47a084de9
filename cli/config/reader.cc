#include "cli/config/reader.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/config/complete.h"
#include "cli/config/groups_file.h"
#include "cli/config/idle_keys.h"
#include "cli/config/parameters.h"
#include "cli/config/resolve.h"
#include "cli/config/toml.h"
#include "cli/config/wrong_key.h"
#include "core/spelling.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/detect.h"
#include "sdk/loader.h"

namespace macaw::cli {
namespace {

std::vector<std::string> DataSourcesOf(const sdk::Catalogue& catalogue) {
  std::vector<std::string> sources;
  for (const auto& [name, source] : catalogue.data_sources()) sources.push_back(name);
  return sources;
}

// What a refused value must be: of one that is too large for a member of 32 bits, with the
// uppermost number, which `expected` does not name.
std::string Expected(const Field& field, const Value& value, Config config) {
  constexpr int64_t kLargest = std::numeric_limits<uint32_t>::max();
  const int64_t* const number = value.As<int64_t>();
  if (number == nullptr || *number <= kLargest || !field.set(config, Value{kLargest}) ||
      field.set(config, Value{kLargest + 1})) {
    return field.expected;
  }
  return absl::StrCat(field.expected, " and at most ", kLargest);
}

std::string TwoWaysText(const std::string& key, const std::string& other) {
  return absl::StrCat(key, " and ", other, " say the same thing in two ways; give one of them");
}

// Fills a Config from several sources, the file first.
class Reader {
 public:
  explicit Reader(const sdk::Catalogue& catalogue)
      : catalogue_(catalogue),
        registry_(catalogue.algorithms()),
        fields_(FieldsWith(DataSourcesOf(catalogue))) {
    for (const Field& field : fields_) by_path_.emplace(field.key, &field);
  }

  absl::Status ReadAll(const Document& document, const std::vector<Override>& overrides) {
    MACAW_RETURN_IF_ERROR(ReadDocument(document));
    for (const Override& override : overrides) MACAW_RETURN_IF_ERROR(ReadOverride(override));
    return absl::OkStatus();
  }

  absl::StatusOr<Config> FinishNode(const std::string& file) && {
    MACAW_RETURN_IF_ERROR(FindSource(Given(), Place{file}, config_));
    const settings::Section<NodeConfig> node = NodeSection(DataSourcesOf(catalogue_));
    for (const settings::Field<NodeConfig>& field : node.fields()) {
      const auto* const need = settings::Missing(field.needs, config_.node);
      if (need == nullptr || !given_.contains(field.key) ||
          AsksForNothing(*by_path_.at(field.key), config_)) {
        continue;
      }
      if (!effective_.contains(field.key) && !switched_off_.contains(field.key))
        return Refused({field.key, absl::StrCat("without ", need->words)});
      Forget(field.key);
    }
    FollowTheRunsSeed(Given(), config_);
    return std::move(config_);
  }

  absl::StatusOr<Config> Finish(const std::string& file, Idle idle) && {
    const Place place{file};
    // A fleet's server has no data: its file says what would follow from them.
    if (!IsResolved(config_.run)) MACAW_RETURN_IF_ERROR(FindSource(Given(), place, config_));
    MACAW_RETURN_IF_ERROR(CheckNeeded(Given(), place, registry_, config_));
    MACAW_RETURN_IF_ERROR(LeaveOutIdle(idle));
    config_.run.plugins = catalogue_.plugins();
    return CompleteConfig(Given(), place, registry_, std::move(config_));
  }

 private:
  GivenKeys Given() const { return {fields_, given_, places_}; }

  absl::Status ReadDocument(const Document& document) {
    folder_ = document.folder;
    MACAW_RETURN_IF_ERROR(ReadTable("", document.content));
    for (const Field& field : fields_) {
      for (const std::string& other : field.instead_of) {
        if (!given_.contains(field.key) || !given_.contains(other)) continue;
        return WrongKey(places_[field.key], field.key, "", TwoWaysText(field.key, other));
      }
    }
    NoteEffects();
    NoteSwitchedOff();
    overriding_ = true;
    return absl::OkStatus();
  }

  // Notes the file's keys that have no effect because the file itself turns them off.
  void NoteSwitchedOff() {
    const Config so_far = SoFar();
    std::vector<const Field*> given;
    for (const std::string& key : given_) given.push_back(by_path_.at(key));
    for (const Field* const field : given) {
      if (!effective_.contains(field->key) && IsSwitchedOff(*field, so_far, given))
        switched_off_.insert(field->key);
    }
  }

  // With what follows from what has been read.
  Config SoFar() const {
    Config so_far = config_;
    NameModel(so_far);
    data::DataOptions& data = so_far.node.data;
    if (data.source.empty() && !data.path.empty())
      data.source = data::DetectSource(data.path, data).value_or("");
    return so_far;
  }

  // Remembers which of the keys so far have an effect. An override may take it from them.
  void NoteEffects() {
    Config so_far = SoFar();
    for (const std::string& key : given_) {
      if (!effective_.contains(key) && WhyIdle(*by_path_.at(key), so_far, registry_).empty())
        effective_.insert(key);
    }
    const std::string& rule = so_far.run.algorithm.name;
    const std::map<std::string, std::string> idle = IdleParameters(so_far, registry_);
    for (const auto& [name, value] : so_far.algorithm_tables[rule]) {
      if (!idle.contains(name)) effective_.insert(absl::StrCat("algorithm.", rule, ".", name));
    }
  }

  absl::Status ReadOverride(const Override& override) {
    folder_ = override.folder.empty() ? std::filesystem::current_path().string() : override.folder;
    MACAW_ASSIGN_OR_RETURN(Value value, ParseTomlValue(override.value, Place{override.place}));
    if (!overridden_.insert(override.key).second) {
      // An earlier override of the key is taken back, and with it the effect of others. What that
      // override took from the document does not come back.
      NoteEffects();
      LeaveOutTaken();
    }
    for (std::set<std::string>* const keys : {&effective_, &switched_off_}) {
      std::erase_if(*keys, [&](const std::string& key) {
        return key == override.key || absl::StartsWith(key, override.key + ".");
      });
    }
    const auto field = by_path_.find(override.key);
    if (field == by_path_.end()) return ReadEntry(override.key, value);
    // If a key takes words only, an override that looks like another type is still a word (--set
    // run.name=7).
    const bool is_list = field->second->is_path && value.As<Array>() != nullptr;  // plugins
    const bool is_text = field->second->expected == "a string" || field->second->is_path;
    if (is_text && !is_list && value.As<std::string>() == nullptr) value.data = override.value;
    return ReadEntry(override.key, value);
  }

  // Leaves out what has had an effect, and lost it to an override.
  void LeaveOutTaken() {
    for (const std::string& key : std::set<std::string>(given_)) {
      if (overridden_.contains(key) || !effective_.contains(key)) continue;
      const Field& field = *by_path_.at(key);
      const IdleKey idle{key, WhyIdle(field, SoFar(), registry_)};
      if (idle.why.empty() || AsksForNothing(field, config_)) continue;
      config_.idle.push_back(idle);
      Forget(key);
    }
  }

  // See Idle. Leaving a key out may leave others without an effect, too.
  absl::Status LeaveOutIdle(Idle what) {
    for (bool again = true; again;) {
      again = false;
      for (const std::string& key : std::set<std::string>(given_)) {
        const Field& field = *by_path_.at(key);
        const IdleKey idle{key, WhyIdle(field, config_, registry_), switched_off_.contains(key)};
        if (idle.why.empty() || AsksForNothing(field, config_)) continue;
        if (what == Idle::kRefuse && !effective_.contains(key) && !idle.switched_off)
          return Refused(idle);
        config_.idle.push_back(idle);
        Forget(key);
        again = true;
      }
    }
    return LeaveOutIdleParameters(what);
  }

  absl::Status LeaveOutIdleParameters(Idle what) {
    const std::string& name = config_.run.algorithm.name;
    for (const auto& [parameter, why] : IdleParameters(config_, registry_)) {
      const IdleKey idle{absl::StrCat("algorithm.", name, ".", parameter), why};
      if (what == Idle::kRefuse && !effective_.contains(idle.key)) return Refused(idle);
      config_.idle.push_back(idle);
      config_.algorithm_tables[name].erase(parameter);
    }
    return absl::OkStatus();
  }

  absl::Status Refused(const IdleKey& idle) const {
    return WrongKey(places_.at(idle.key), idle.key, "", TextOf(idle));
  }

  // An override replaces the file's other keys for the same thing, but no other override's.
  absl::Status LeaveOutOthersFor(const Field& field, const Place& place) {
    if (!overriding_) return absl::OkStatus();
    for (const Field& other : fields_) {
      if (!other.Excludes(field)) continue;
      if (given_over_.contains(other.key))
        return WrongKey(place, field.key, "", TwoWaysText(field.key, other.key));
      Forget(other.key);
    }
    given_over_.insert(field.key);
    return absl::OkStatus();
  }

  void Forget(const std::string& path) {
    given_.erase(path);
    by_path_.at(path)->reset(config_);
  }

  absl::Status ReadTable(const std::string& path, const Table& table) {
    for (const auto& [key, value] : table) {
      MACAW_RETURN_IF_ERROR(ReadEntry(path.empty() ? key : absl::StrCat(path, ".", key), value));
    }
    return absl::OkStatus();
  }

  absl::Status ReadEntry(const std::string& path, const Value& value) {
    if (const auto found = by_path_.find(path); found != by_path_.end())
      return ReadField(*found->second, value);
    const std::vector<std::string> parts = absl::StrSplit(path, '.');
    if (parts.size() == 2 && parts[0] == "algorithm" && value.As<Table>() != nullptr) {
      MACAW_RETURN_IF_ERROR(AlgorithmAt(registry_, parts[1], value.place).status());
      config_.algorithm_tables[parts[1]];
      return ReadTable(path, *value.As<Table>());
    }
    if (parts.size() == 3 && parts[0] == "algorithm") {
      MACAW_ASSIGN_OR_RETURN(config_.algorithm_tables[parts[1]][parts[2]],
                             ReadParameter(registry_, parts[1], parts[2], value));
      places_[path] = value.place;
      return absl::OkStatus();
    }
    if (IsTable(path)) {
      if (const Table* table = value.As<Table>()) return ReadTable(path, *table);
      if (path == "local.lr_schedule") return ReadEntry("local.lr_schedule.kind", value);
      return At(value.place, absl::StrCat(path, " must be a table, found ", Describe(value)));
    }
    return UnknownKey(fields_, path, value);
  }

  absl::Status ReadField(const Field& field, const Value& value) {
    Value placed = value;
    if (field.is_path) MakeAbsolute(field, placed);
    if (field.key == "evaluation.groups") {
      MACAW_ASSIGN_OR_RETURN(placed, WithGroupsOfFiles(value, folder_));
    }
    if (const std::string word = NotUtf8In(placed); !word.empty()) {
      return WrongKey(
          value.place, field.key, "",
          absl::StrCat(field.key, " is \"", EscapeToUtf8(word),
                       "\", which is not UTF-8, as the run's config.toml must be: ",
                       field.is_path ? "rename the file or folder" : "write it in UTF-8"));
    }
    MACAW_RETURN_IF_ERROR(LeaveOutOthersFor(field, value.place));
    const bool follows = field.is_seed && value == Value{std::string(settings::kRunsSeed)};
    if (follows && field.key != "run.seed") {
      Forget(field.key);
      return absl::OkStatus();
    }
    if (follows || !field.set(config_, placed)) {
      const std::string meant = WordMeant(field, value);
      const std::string* const word = value.As<std::string>();
      const bool list = word != nullptr && meant == *word;  // right, but for a list of one
      const std::string shown =
          list ? absl::StrCat("[\"", meant, "\"]") : absl::StrCat("\"", meant, "\"");
      return WrongKey(
          value.place, field.key, meant,
          absl::StrCat(field.key, " must be ", Expected(field, value, config_), ", found ",
                       Describe(value), DidYouMean(meant.empty() ? "" : shown)));
    }
    // A program runs beside the file that names it, unless the file names a folder, too.
    if (field.key == "workers.command" && !given_.contains("workers.folder"))
      config_.node.workers.backend.program.folder = folder_;
    given_.insert(field.key);
    places_[field.key] = value.place;
    return absl::OkStatus();
  }

  // Makes a path, or each path of a list, absolute, starting from the folder of the file.
  void MakeAbsolute(const Field& field, Value& value) const {
    if (Array* items = std::get_if<Array>(&value.data)) {
      for (Value& item : *items) MakeAbsolute(field, item);
    }
    std::string* text = std::get_if<std::string>(&value.data);
    if (text == nullptr || text->empty() ||
        std::find(field.choices.begin(), field.choices.end(), *text) != field.choices.end()) {
      return;
    }
    *text = (std::filesystem::path(folder_) / *text).lexically_normal().string();
  }

  // Whether `path` is the beginning of some key: "local", "local.lr_schedule", "algorithm".
  bool IsTable(const std::string& path) const {
    const auto next = by_path_.lower_bound(path + ".");
    return next != by_path_.end() && absl::StartsWith(next->first, path + ".");
  }

  const sdk::Catalogue& catalogue_;
  const algorithms::Registry& registry_;
  const std::vector<Field> fields_;
  std::map<std::string, const Field*> by_path_;
  Config config_;
  std::set<std::string> given_;
  std::set<std::string> effective_;     // of these, what has had an effect since it was given
  std::set<std::string> switched_off_;  // of these, what the file itself turns off
  bool overriding_ = false;             // the file has been read
  std::set<std::string> overridden_;    // what overrides name: keys, parameters, tables
  std::set<std::string> given_over_;    // the keys that overrides have given
  std::map<std::string, Place> places_;
  std::string folder_;
};

}  // namespace

absl::StatusOr<sdk::Catalogue> LoadCatalogue(const Document& document,
                                             const std::vector<Override>& overrides) {
  MACAW_ASSIGN_OR_RETURN(const std::optional<Value> given, Lookup(document, overrides, "plugins"));
  if (!given.has_value()) return sdk::LoadAll({});
  const auto last =
      std::find_if(overrides.rbegin(), overrides.rend(),
                   [](const Override& override) { return override.key == "plugins"; });
  std::filesystem::path folder = document.folder;
  if (last != overrides.rend())
    folder = last->folder.empty() ? std::filesystem::current_path().string() : last->folder;
  const absl::Status refused =
      At(given->place, absl::StrCat("plugins must be a list of paths, found ", Describe(*given)));
  const Array* const items = given->As<Array>();
  if (items == nullptr) return refused;
  std::vector<std::string> plugins;
  for (const Value& item : *items) {
    const std::string* const file = item.As<std::string>();
    if (file == nullptr) return refused;
    plugins.push_back((folder / *file).lexically_normal().string());
  }
  return sdk::LoadAll(plugins);
}

absl::StatusOr<Config> ReadConfig(const Document& document, const std::vector<Override>& overrides,
                                  const sdk::Catalogue& catalogue, Idle idle) {
  Reader reader(catalogue);
  MACAW_RETURN_IF_ERROR(reader.ReadAll(document, overrides));
  MACAW_ASSIGN_OR_RETURN(Config config, std::move(reader).Finish(document.name, idle));
  MACAW_RETURN_IF_ERROR(NameRun(document.name, config));
  return config;
}

absl::StatusOr<Config> ReadNodeConfig(const Document& document,
                                      const std::vector<Override>& overrides,
                                      const sdk::Catalogue& catalogue) {
  Reader reader(catalogue);
  MACAW_RETURN_IF_ERROR(reader.ReadAll(document, overrides));
  return std::move(reader).FinishNode(document.name);
}

}  // namespace macaw::cli
