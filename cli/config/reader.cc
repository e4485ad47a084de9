#include "cli/config/reader.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/config/idle_keys.h"
#include "cli/config/key_error.h"
#include "cli/config/resolve.h"
#include "cli/config/suggest.h"
#include "cli/config/toml.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/detect.h"
#include "models/script.h"
#include "sdk/loader.h"

namespace macaw::cli {
namespace {

// `place` is empty where no file was given.
absl::Status At(const Place& place, absl::string_view message) {
  return WithKeyError(
      absl::InvalidArgumentError(absl::StrCat(place.text, place.text.empty() ? "" : ": ", message)),
      {.place = place.text});
}

// The same for a value or a name that is wrong.
absl::Status WrongKey(const Place& place, const std::string& key, const std::string& meant,
                      absl::string_view message) {
  return WithKeyError(At(place, message), {.key = key, .meant = meant});
}

std::string DidYouMean(absl::string_view meant) {
  return meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?");
}

std::string TypeName(const ParameterValue& value) {
  switch (value.index()) {
    case 0:
      return "true or false";
    case 1:
      return "an integer";
    case 2:
      return "a number";
    default:
      return "a string";
  }
}

// A parameter has the type of its default; an integer is accepted for a number.
std::optional<ParameterValue> AsParameter(const Value& value, const ParameterValue& like) {
  if (std::holds_alternative<double>(like)) {
    if (const int64_t* number = value.As<int64_t>()) return static_cast<double>(*number);
    if (const double* number = value.As<double>()) return *number;
  } else if (std::holds_alternative<int64_t>(like)) {
    if (const int64_t* number = value.As<int64_t>()) return *number;
  } else if (std::holds_alternative<bool>(like)) {
    if (const bool* flag = value.As<bool>()) return *flag;
  } else if (const std::string* text = value.As<std::string>()) {
    return *text;
  }
  return std::nullopt;
}

std::vector<std::string> DataSourcesOf(const sdk::Catalogue& catalogue) {
  std::vector<std::string> sources;
  for (const auto& [name, source] : catalogue.data_sources()) sources.push_back(name);
  return sources;
}

std::string TwoWaysText(const std::string& key, const std::string& other) {
  return absl::StrCat(key, " and ", other, " say the same thing in two ways; give one of them");
}

// local.lr with adam and adamw where no key gives it: that of PyTorch and of the paper.
constexpr double kAdamsRate = 0.001;

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
    MACAW_RETURN_IF_ERROR(CheckSource(Place{file}));
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
    FollowTheRunsSeed();
    return std::move(config_);
  }

  absl::StatusOr<Config> Finish(const std::string& file, Idle idle) && {
    const Place place{file};
    // A fleet's server has no data: its file says what would follow from them.
    if (!IsResolved(config_.run)) MACAW_RETURN_IF_ERROR(CheckSource(place));
    if (config_.run.model.name.empty() && config_.run.model.layers.empty() &&
        config_.run.model.tensors.empty() && config_.node.model_script.empty()) {
      return At(place,
                "model.name is missing (or model.layers, or model.torchscript); `macaw models` "
                "lists the names");
    }
    NameModel(config_);
    if (config_.run.cohort.size == 0 && config_.run.cohort.fraction == 0) {
      return At(place,
                "cohort.size or cohort.fraction is missing: how many clients train in a round");
    }
    MACAW_RETURN_IF_ERROR(CheckAlgorithm(place));
    MACAW_RETURN_IF_ERROR(LeaveOutIdle(idle));
    config_.run.plugins = catalogue_.plugins();
    const Schedule& schedule = config_.run.local.lr_schedule;
    if ((schedule.kind == "step" || schedule.kind == "exponential") &&
        !given_.contains("local.lr_schedule.gamma")) {
      return At(places_.at("local.lr_schedule.kind"),
                absl::StrCat("a schedule of kind \"", schedule.kind,
                             "\" needs local.lr_schedule.gamma: what the rate is multiplied by"));
    }
    // Adam's step is about as long as the rate, whatever the gradient.
    LocalConfig& local = config_.run.local;
    if (local.optimizer != "sgd" && !given_.contains("local.lr")) local.lr = kAdamsRate;
    FollowTheRunsSeed();
    if (config_.run.attack.kind != "none" && !given_.contains("attack.fraction")) {
      return At(places_.at("attack.kind"),
                absl::StrCat("attack.kind = \"", config_.run.attack.kind,
                             "\" needs attack.fraction: which part of all clients is hostile"));
    }
    MACAW_RETURN_IF_ERROR(CheckPrivacy());
    EvaluationConfig& evaluation = config_.run.evaluation;
    if (!evaluation.test) evaluation.central = evaluation.clients = evaluation.heldout = false;
    return std::move(*this).CompleteAlgorithm(place);
  }

 private:
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

  // Of the keys of the file that have no effect, those that the file itself turns off.
  void NoteSwitchedOff() {
    std::vector<const Field*> given;
    for (const std::string& key : given_) given.push_back(by_path_.at(key));
    for (const Field* const field : given) {
      if (!effective_.contains(field->key) && IsSwitchedOff(*field, config_, given))
        switched_off_.insert(field->key);
    }
  }

  // Remembers which of the keys so far have an effect. An override may take it from them.
  void NoteEffects() {
    Config so_far = config_;
    NameModel(so_far);
    data::DataOptions& data = so_far.node.data;
    if (data.source.empty() && !data.path.empty())
      data.source = data::DetectSource(data.path).value_or("");
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

  // The names of models that have no name of their own.
  static void NameModel(Config& config) {
    if (!config.run.model.layers.empty()) config.run.model.name = "layers";
    ModelConfig& model = config.run.model;
    if (model.name.empty() && !model.tensors.empty()) model.name = models::kProgramsName;
    if (!config.node.model_script.empty()) model.name = models::kScriptName;
  }

  absl::Status ReadOverride(const Override& override) {
    folder_ = override.folder.empty() ? std::filesystem::current_path().string() : override.folder;
    MACAW_ASSIGN_OR_RETURN(Value value, ParseTomlValue(override.value, Place{override.place}));
    // If a key takes words only, an override that looks like another type is still a word (--set
    // run.name=7).
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
    if (field->second->expected == "a string" && value.As<std::string>() == nullptr)
      value.data = override.value;
    return ReadEntry(override.key, value);
  }

  void LeaveOutTaken() {
    for (const std::string& key : std::set<std::string>(given_)) {
      const Field& field = *by_path_.at(key);
      const IdleKey idle{key, WhyIdle(field, config_, registry_)};
      if (overridden_.contains(key) || idle.why.empty() || AsksForNothing(field, config_)) continue;
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

  // A path without a source says it by its contents.
  absl::Status CheckSource(const Place& place) {
    data::DataOptions& data = config_.node.data;
    if (data.source.empty() && !data.path.empty()) {
      const absl::StatusOr<std::string> found = data::DetectSource(data.path);
      if (!found.ok()) {
        return WrongKey(places_.at("data.path"), "data.path", "",
                        absl::StrCat("data.path: ", found.status().message()));
      }
      data.source = *found;
    }
    if (!data.source.empty()) return absl::OkStatus();
    return At(place, absl::StrCat("data.source is missing; it is one of ",
                                  by_path_.at("data.source")->expected));
  }

  void FollowTheRunsSeed() {
    const Value seed{static_cast<int64_t>(config_.run.seed)};
    for (const Field& field : fields_) {
      if (field.is_seed && !given_.contains(field.key)) field.set(config_, seed);
    }
  }

  absl::Status CheckAlgorithm(const Place& place) const {
    const AlgorithmConfig& algorithm = config_.run.algorithm;
    const auto named = places_.find("algorithm.name");
    if (absl::Status status = registry_.Find(algorithm.name).status(); !status.ok()) {
      std::vector<std::string> names;
      for (const algorithms::Description* known : registry_.All()) names.push_back(known->name);
      return WrongKey(named == places_.end() ? place : named->second, "algorithm.name",
                      NearestWord(algorithm.name, names), status.message());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Config> CompleteAlgorithm(const Place& place) && {
    AlgorithmConfig& algorithm = config_.run.algorithm;
    bool& together = config_.node.partition.train_together;
    if ((*registry_.Find(algorithm.name))->pools_clients) {
      const std::string key = "partition.train_together";
      if (given_.contains(key) && !together) {
        return At(places_.at(key), absl::StrCat(key, " = false, but algorithm \"", algorithm.name,
                                                "\" trains on all clients' rows in one place"));
      }
      together = config_.pooled_by_rule = true;
    }
    algorithm.parameters = config_.algorithm_tables[algorithm.name];
    absl::StatusOr<AlgorithmConfig> complete = registry_.Complete(algorithm);
    if (!complete.ok()) return At(place, complete.status().message());
    algorithm = *std::move(complete);
    config_.algorithm_tables[algorithm.name] = algorithm.parameters;
    return std::move(config_);
  }

  absl::Status CheckPrivacy() const {
    if (!config_.run.privacy.on()) return absl::OkStatus();
    const std::pair<const char*, const char*> needed[] = {
        {"privacy.clip", "the largest norm of a client's update"},
        {"privacy.noise", "`macaw privacy` says which is enough for an epsilon"}};
    for (const auto& [key, meaning] : needed) {
      if (given_.contains(key)) continue;
      return At(places_.at("privacy.mechanism"),
                absl::StrCat("privacy.mechanism = \"", config_.run.privacy.mechanism, "\" needs ",
                             key, ": ", meaning));
    }
    return absl::OkStatus();
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
      MACAW_RETURN_IF_ERROR(FindAlgorithm(parts[1], value.place).status());
      config_.algorithm_tables[parts[1]];
      return ReadTable(path, *value.As<Table>());
    }
    if (parts.size() == 3 && parts[0] == "algorithm")
      return ReadParameter(parts[1], parts[2], value);
    if (IsTable(path)) {
      if (const Table* table = value.As<Table>()) return ReadTable(path, *table);
      if (path == "local.lr_schedule") return ReadEntry("local.lr_schedule.kind", value);
      return At(value.place, absl::StrCat(path, " must be a table, found ", Describe(value)));
    }
    return Unknown(path, value);
  }

  // The choice that is most like the word that was given, or like the first wrong word of a list.
  static std::string WordMeant(const Field& field, const Value& value) {
    if (const std::string* const word = value.As<std::string>())
      return NearestWord(*word, field.choices);
    const Array* const list = value.As<Array>();
    for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
      const std::string* const word = (*list)[i].As<std::string>();
      if (word != nullptr && !settings::Contains(field.choices, *word))
        return NearestWord(*word, field.choices);
    }
    return "";
  }

  // The first text of a value that is not UTF-8, as an argument of the command line may be.
  static std::string NotUtf8In(const Value& value) {
    if (const std::string* const word = value.As<std::string>()) return IsUtf8(*word) ? "" : *word;
    const Array* const list = value.As<Array>();
    for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
      if (std::string found = NotUtf8In((*list)[i]); !found.empty()) return found;
    }
    return "";
  }

  absl::Status ReadField(const Field& field, const Value& value) {
    Value placed = value;
    if (field.is_path) MakeAbsolute(field, placed);
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
      return WrongKey(value.place, field.key, meant,
                      absl::StrCat(field.key, " must be ", field.expected, ", found ",
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

  absl::StatusOr<const algorithms::Description*> FindAlgorithm(const std::string& name,
                                                               const Place& place) {
    absl::StatusOr<const algorithms::Description*> found = registry_.Find(name);
    if (!found.ok())
      return At(place, absl::StrCat("[algorithm.", name, "]: ", found.status().message()));
    return found;
  }

  absl::Status ReadParameter(const std::string& name, const std::string& key, const Value& value) {
    MACAW_ASSIGN_OR_RETURN(const algorithms::Description* algorithm,
                           FindAlgorithm(name, value.place));
    const std::string path = absl::StrCat("algorithm.", name, ".", key);
    std::vector<std::string> known;
    for (const algorithms::ParameterSpec& spec : algorithm->parameters) {
      known.push_back(spec.name);
      if (spec.name != key) continue;
      const std::optional<ParameterValue> parameter = AsParameter(value, spec.default_value);
      if (!parameter.has_value()) {
        return WrongKey(value.place, path, "",
                        absl::StrCat(path, " must be ", TypeName(spec.default_value), ", found ",
                                     Describe(value)));
      }
      // Asks the registry about this parameter alone, so that the error can name its line.
      const absl::Status checked = registry_.Complete({name, {{key, *parameter}}}).status();
      if (!checked.ok()) return WrongKey(value.place, path, "", checked.message());
      config_.algorithm_tables[name][key] = *parameter;
      places_[path] = value.place;
      return absl::OkStatus();
    }
    std::string meant = NearestWord(key, known);
    if (!meant.empty()) meant = absl::StrCat("algorithm.", name, ".", meant);
    return WrongKey(
        value.place, path, meant,
        absl::StrCat("unknown key ", path, DidYouMean(meant), "; ", name,
                     known.empty() ? " has no parameters" : " has ", absl::StrJoin(known, ", ")));
  }

  // Whether `path` is the beginning of some key: "local", "local.lr_schedule", "algorithm".
  bool IsTable(const std::string& path) const {
    const auto next = by_path_.lower_bound(path + ".");
    return next != by_path_.end() && absl::StartsWith(next->first, path + ".");
  }

  absl::Status Unknown(const std::string& path, const Value& value) const {
    std::vector<std::string> keys;
    std::set<std::string> tables;
    for (const Field& field : fields_) {
      keys.push_back(field.key);
      for (size_t dot = field.key.find('.'); dot != std::string::npos;
           dot = field.key.find('.', dot + 1)) {
        tables.insert(field.key.substr(0, dot));
      }
    }
    const std::vector<std::string> table_list(tables.begin(), tables.end());
    if (value.As<Table>() != nullptr) {
      const std::string meant = NearestWord(path, table_list);
      return WrongKey(value.place, path, meant,
                      absl::StrCat("unknown table [", path, "]",
                                   DidYouMean(meant.empty() ? "" : absl::StrCat("[", meant, "]"))));
    }
    keys.insert(keys.end(), table_list.begin(), table_list.end());
    const std::string meant = NearestKey(path, keys);
    return WrongKey(value.place, path, meant,
                    absl::StrCat("unknown key ", path, DidYouMean(meant)));
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
  const bool overridden = std::ranges::any_of(
      overrides, [](const Override& override) { return override.key == "plugins"; });
  const std::filesystem::path folder =
      overridden ? std::filesystem::current_path() : std::filesystem::path(document.folder);
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
  std::string& name = config.run.name;
  if (name.empty()) name = std::filesystem::path(document.name).stem().string();
  if (name.empty()) name = "run";  // without a file
  if (!IsUtf8(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the run would be called \"", EscapeToUtf8(name),
                     "\" like the file, which is not UTF-8: set run.name"));
  }
  if (name.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(document.name, document.name.empty() ? "" : ": ",
                     "run.name must not contain \"/\" (it names a folder), found \"", name, "\""));
  }
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
