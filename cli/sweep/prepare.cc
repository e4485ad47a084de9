#include "cli/sweep/prepare.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/config/idle_keys.h"
#include "cli/config/inputs.h"
#include "cli/config/json.h"
#include "cli/config/key_error.h"
#include "cli/config/settings.h"
#include "cli/config/writer.h"
#include "cli/results/result.h"
#include "cli/simulate/simulate.h"
#include "cli/sweep/metric.h"
#include "cli/sweep/seed_files.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

// Sections that a baseline runs without: their keys, and the one that then has the value `off`.
struct OffSwitch {
  const char* prefix;
  const char* key;
  const char* off;  // as TOML
};
constexpr OffSwitch kOffSwitches[] = {{"attack.", "attack.kind", "\"none\""},
                                      {"privacy.", "privacy.mechanism", "\"none\""},
                                      {"update.", "update.codec", "[]"}};

// Whether the key is a parameter of an algorithm that the run does not use.
bool IsOfAnotherAlgorithm(const std::string& key, const Config& config) {
  const std::vector<std::string> parts = absl::StrSplit(key, '.');
  return parts.size() == 3 && parts[0] == "algorithm" && parts[1] != config.run.algorithm.name;
}

// Everything that distinguishes a configuration from others.
std::string IdentityOf(Config config) {
  std::erase_if(config.algorithm_tables,
                [&](const auto& table) { return table.first != config.run.algorithm.name; });
  config.run.name = "run";
  return EffectiveToml(config);
}

class Preparation {
 public:
  Preparation(const SweepFile& file, const sdk::Catalogue& catalogue,
              const std::function<bool(const Job&)>& is_known, Output& output)
      : file_(file), catalogue_(catalogue), is_known_(is_known), output_(output) {}

  absl::StatusOr<PreparedSweep> Prepare() && {
    const SweepSettings& settings = file_.settings;
    sweep_.plan.rungs = settings.rungs;
    sweep_.plan.factor = settings.rungs.empty() ? 0 : settings.factor;
    std::vector<Point> points;
    for (const Point& point : PointsOf(file_.axes, settings.samples, settings.sample_seed))
      points.push_back(WithoutTables(point));
    const size_t own = points.size();
    AddBaselines(points);
    sweep_.plan.keys = KeysOf(points);
    for (const auto& [key, value] : file_.base.content) AddKeys(key, value);
    for (const OffSwitch& section : kOffSwitches) LeaveOutOfBaselines(section, points);
    if (points.size() * std::max<size_t>(1, settings.seeds.size()) > kMostJobs) {
      return absl::InvalidArgumentError(absl::StrCat(
          file_.path, ": ", points.size(), " configurations",
          settings.seeds.empty() ? "" : " with " + Counted(settings.seeds.size(), "seed"),
          " are more than ", kMostJobs, " runs: draw some of them (samples)"));
    }
    MACAW_RETURN_IF_ERROR(CheckOneOfEachRule(points));
    size_t same = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      MACAW_ASSIGN_OR_RETURN(const bool is_new, Add(points[i], i, points.size()));
      same += is_new || i >= own ? 0 : 1;
    }
    if (same > 0) {
      sweep_.notes.push_back(absl::StrCat(
          Counted(same, "combination"),
          same == 1 ? " is the same experiment as another" : " are the same experiments as others",
          ", and left out."));
    }
    if (!alone_) MACAW_RETURN_IF_ERROR(CheckEffects());
    MACAW_ASSIGN_OR_RETURN(const std::string fixed,
                           FixedOverSeeds(file_.base, OverridesOf(points.front()),
                                          sweep_.plan.seeds, catalogue_, reading_));
    if (!fixed.empty()) sweep_.warnings.push_back(fixed);
    DropConstantKeys(sweep_.plan);
    CompareBaselinesAlone();
    if (sweep_.plan.candidates() > 1 && ChoosesByTestRows(sweep_.plan.metric))
      sweep_.warnings.push_back(TestRowsChooseText(sweep_.plan.metric));
    if (std::string note = MetricNote(file_.settings, sweep_.plan); !note.empty())
      sweep_.notes.push_back(std::move(note));
    MACAW_RETURN_IF_ERROR(CheckReported());
    if (!settings.mode.empty()) sweep_.plan.higher = settings.mode == "max";
    return std::move(sweep_);
  }

 private:
  static constexpr size_t kMostJobs = 100'000;

  // Each baseline with the values that a point has for everything but the algorithm. Points that
  // differ in the algorithm alone share one, since equal experiments run once.
  void AddBaselines(std::vector<Point>& points) const {
    const size_t own = points.size();
    for (const std::string& name : file_.settings.baselines) {
      for (size_t i = 0; i < own; ++i) {
        Point point;
        for (const settings::Setting& setting : points[i]) {
          if (!absl::StartsWith(setting.key, "algorithm.")) point.push_back(setting);
        }
        Value value{name};
        value.place.text = absl::StrCat(file_.path, ": baselines");
        point.push_back({"algorithm.name", std::move(value)});
        points.push_back(std::move(point));
      }
    }
  }

  // Whether the point names a rule whose server does not add up what clients send. Neither hostile
  // clients nor noise could reach it, so a run with them would be refused.
  bool IsBaseline(const Point& point) const {
    const std::string* const name = WordAt(point, "algorithm.name");
    if (name == nullptr) return false;
    const auto rule = catalogue_.algorithms().Find(*name);
    return rule.ok() && ((*rule)->pools_clients || !(*rule)->shares_models());
  }

  bool BaseHas(const OffSwitch& section) const {
    const auto kind = Lookup(file_.base, {}, section.key);
    return kind.ok() && kind->has_value() && ToToml(**kind) != section.off;
  }

  void LeaveOutOfBaselines(const OffSwitch& section, std::vector<Point>& points) {
    std::set<std::string> baselines;
    for (Point& point : points) {
      if (!IsBaseline(point)) continue;
      const auto given = std::ranges::find(point, section.key, &settings::Setting::key);
      const bool on = given != point.end() ? ToToml(given->value) != section.off : BaseHas(section);
      if (on) baselines.insert(*WordAt(point, "algorithm.name"));
      std::erase_if(point, [&](const settings::Setting& setting) {
        return absl::StartsWith(setting.key, section.prefix);
      });
    }
    if (!baselines.empty()) {
      sweep_.notes.push_back(absl::StrCat("Runs of ", absl::StrJoin(baselines, " and "),
                                          " are without ", section.key,
                                          ": their server adds up nothing that clients send."));
    }
  }

  // Notes which keys of the base and of the point have an effect in the configuration, and which
  // have none.
  void NoteEffects(const Config& config, const Point& point) {
    std::set<std::string> idle;
    for (const IdleKey& key : config.idle) {
      idle.insert(key.key);
      const bool of_baseline =
          IsBaseline(point) && std::ranges::any_of(kOffSwitches, [&](const OffSwitch& section) {
            return absl::StartsWith(key.key, section.prefix);
          });
      if (!of_baseline) idle_.emplace(key.key, key.why);
      if (key.switched_off) switched_off_.insert(key.key);
    }
    for (const std::string& key : base_keys_) {
      if (!idle.contains(key) && !IsOfAnotherAlgorithm(key, config)) used_.insert(key);
    }
    for (const settings::Setting& setting : point) {
      const std::string& key = setting.key;
      places_.emplace(key, setting.value.place.text);
      if (IsOfAnotherAlgorithm(key, config)) {
        of_others_.insert(key);
      } else if (!idle.contains(key)) {
        used_.insert(key);
      }
    }
  }

  // A key may be without an effect in some configurations, but not in all.
  absl::Status CheckEffects() {
    const auto refuse = [&](const std::string& key, const std::string& text) {
      const auto base = Lookup(file_.base, {}, key);
      const std::string place = places_.contains(key)            ? places_[key]
                                : base.ok() && base->has_value() ? (*base)->place.text
                                                                 : file_.path;
      return WithKeyError(absl::InvalidArgumentError(absl::StrCat(place, ": ", text)),
                          {.place = place, .key = key});
    };
    for (const auto& [key, why] : idle_) {
      const std::string text = TextOf({key, why});
      if (!used_.contains(key) && !switched_off_.contains(key))
        return refuse(key, absl::StrCat(text, ", in all configurations of the sweep"));
      sweep_.notes.push_back(
          absl::StrCat(text, ": configurations without an effect leave it out."));
    }
    for (const std::string& key : of_others_) {
      if (!used_.contains(key))
        return refuse(key, absl::StrCat(key,
                                        " has no effect: no configuration of the sweep has this "
                                        "algorithm"));
    }
    return absl::OkStatus();
  }

  void AddKeys(const std::string& key, const Value& value) {
    const Table* const table = value.As<Table>();
    if (table == nullptr) base_keys_.insert(key);
    for (size_t i = 0; table != nullptr && i < table->size(); ++i)
      AddKeys(absl::StrCat(key, ".", (*table)[i].first), (*table)[i].second);
  }

  // Where there is nothing but baselines, the best of them is looked for.
  void CompareBaselinesAlone() {
    if (sweep_.plan.candidates() > 0) return;
    for (Configuration& configuration : sweep_.plan.configurations) configuration.baseline = false;
  }

  std::vector<Override> OverridesOf(const Point& point) const {
    const std::string folder = FolderOf();
    std::vector<Override> overrides = file_.set;
    for (const settings::Setting& setting : point) {
      overrides.push_back({setting.key, ToToml(setting.value), setting.value.place.text, folder});
    }
    for (const OffSwitch& section : kOffSwitches) {
      if (IsBaseline(point) && BaseHas(section))
        overrides.push_back({section.key, section.off, "baselines", folder});
    }
    if (!sweep_.plan.rungs.empty()) {
      overrides.push_back(
          {"run.rounds", absl::StrCat(sweep_.plan.rungs.back()), "halving.rounds", folder});
    }
    return overrides;
  }

  std::string FolderOf() const {
    return std::filesystem::absolute(file_.path).parent_path().string();
  }

  // Returns whether the point is another experiment than those before.
  absl::StatusOr<bool> Add(const Point& point, size_t place, size_t count) {
    std::vector<Override> overrides = OverridesOf(point);
    MACAW_ASSIGN_OR_RETURN(Config config, ReadConfig(file_.base, overrides, catalogue_, reading_));
    NoteEffects(config, point);
    if (!identities_.insert(IdentityOf(config)).second) return false;
    std::vector<uint64_t>& seeds = sweep_.plan.seeds;
    if (seeds.empty()) seeds = file_.settings.seeds;
    if (seeds.empty()) seeds = {config.run.seed};

    Configuration configuration;
    const size_t digits = std::max<size_t>(3, absl::StrCat(count).size());
    if (!file_.is_repeat)
      configuration.name = absl::StrFormat("%0*d", digits, sweep_.plan.configurations.size() + 1);
    configuration.rounds = config.run.rounds;
    configuration.baseline =
        settings::Contains(file_.settings.baselines, config.run.algorithm.name);
    configuration.settings = {{"algorithm.name", config.run.algorithm.name}};
    configuration.settings.update(Json::parse(SettingsJson(config, catalogue_.algorithms())));
    configuration.inputs = Json::parse(inputs_.Json(config));
    for (const std::string& key : sweep_.plan.keys) {
      const auto setting = std::ranges::find(point, key, &settings::Setting::key);
      const bool used = setting != point.end() && !IsOfAnotherAlgorithm(key, config) &&
                        std::ranges::find(config.idle, key, &IdleKey::key) == config.idle.end();
      if (key == "algorithm.name") {  // baselines have it, even if it is no key of the file's
        configuration.values.push_back(config.run.algorithm.name);
        continue;
      }
      configuration.values.push_back(used ? ToJson(setting->value) : Json(nullptr));
    }
    TakeCores(config);
    for (const uint64_t seed : seeds) {
      std::vector<Override> seeded = overrides;
      seeded.push_back({"run.seed", absl::StrCat(seed), "seeds", FolderOf()});
      MACAW_ASSIGN_OR_RETURN(Config whole, ReadConfig(file_.base, seeded, catalogue_, reading_));
      Job job;
      job.name = JobName(configuration, seed);
      job.configuration = sweep_.plan.configurations.size();
      job.seed = seed;
      if (!file_.is_repeat) whole.run.name = absl::StrCat(whole.run.name, "-", job.name);
      whole.node.server.out = "";
      job.config = EffectiveToml(whole);
      if (seed == seeds.front()) MACAW_RETURN_IF_ERROR(Check(place, job, seeded));
      const absl::Status file = AddSeedFile(whole, job, configuration.inputs);
      if (!file.ok()) return Explained(file, seeded);
      sweep_.jobs.push_back(std::move(job));
    }
    sweep_.plan.configurations.push_back(std::move(configuration));
    return true;
  }

  // Its digest, so that other weights under its name are told apart.
  absl::Status AddSeedFile(const Config& config, const Job& job, Json& inputs) {
    const std::string path = SeedFileOf(config);
    if (path.empty()) return absl::OkStatus();
    const std::string& digest = inputs_.Of(path);
    if (!digest.empty()) inputs[SeedFileKey(job.seed)] = digest;
    return is_known_(job) ? absl::OkStatus() : CheckSeedFile(path, job.seed);
  }

  // The rule of a point: its own, or the base's; "": the default.
  std::string RuleOf(const Point& point) const {
    if (const std::string* const own = WordAt(point, "algorithm.name")) return *own;
    const auto base = Lookup(file_.base, {}, "algorithm.name");
    if (!base.ok() || !base->has_value()) return "";
    const std::string* const word = (*base)->As<std::string>();
    return word == nullptr ? "" : *word;
  }

  // Checks the first point of each rule, which says what metrics its runs have, and chooses the
  // metric that all of them have.
  absl::Status CheckOneOfEachRule(const std::vector<Point>& points) {
    std::set<std::string> rules;
    std::vector<CheckedRun> runs;
    std::vector<std::vector<Override>> of_runs;  // parallel to it
    for (size_t i = 0; i < points.size(); ++i) {
      if (!rules.insert(RuleOf(points[i])).second) continue;
      std::vector<Override> overrides = OverridesOf(points[i]);
      const std::vector<uint64_t>& seeds = file_.settings.seeds;
      if (!seeds.empty())
        overrides.push_back({"run.seed", absl::StrCat(seeds.front()), "seeds", FolderOf()});
      // Errors of the text have its line; those of a combination do not.
      MACAW_RETURN_IF_ERROR(ReadConfig(file_.base, overrides, catalogue_, reading_).status());
      absl::StatusOr<CheckedRun> run = CheckRun(overrides);
      if (!run.ok()) return Explained(run.status(), overrides);
      runs.push_back(*std::move(run));
      of_runs.push_back(std::move(overrides));
      checked_.insert(i);
    }
    const absl::Status chosen = ChooseMetrics(file_.settings, runs, sweep_.plan);
    if (!chosen.ok()) return Annotate(chosen, file_.path);
    if (std::string note = CommonModelNote(file_.settings, runs, sweep_.plan); !note.empty())
      sweep_.notes.push_back(std::move(note));
    for (size_t i = 0; i < runs.size(); ++i)
      MACAW_RETURN_IF_ERROR(CheckColumns(runs[i], of_runs[i]));
    return absl::OkStatus();
  }

  absl::Status CheckColumns(const CheckedRun& run, const std::vector<Override>& overrides) {
    const auto explain = [&](absl::Status status) {
      return alone_ ? Annotate(status, file_.path) : Explained(status, overrides);
    };
    reported_.Look(run, explain);
    const absl::Status status = CheckMetricOf(run, sweep_.plan);
    return status.ok() ? status : explain(status);
  }

  // What is reported is in some configuration, perhaps in one that an earlier command has checked.
  absl::Status CheckReported() {
    for (const std::vector<Override>& overrides : known_) {
      if (reported_.complete()) break;
      absl::StatusOr<CheckedRun> run = CheckRun(overrides);
      if (!run.ok()) return Explained(run.status(), overrides);
      MACAW_RETURN_IF_ERROR(CheckColumns(*run, overrides));
    }
    return reported_.Check();
  }

  absl::StatusOr<CheckedRun> CheckRun(const std::vector<Override>& overrides) const {
    Output silent;
    return CheckBeforeRun(file_.base, catalogue_, overrides, reading_, alone_ ? output_ : silent);
  }

  absl::Status Check(size_t place, const Job& job, const std::vector<Override>& overrides) {
    if (checked_.contains(place)) return absl::OkStatus();
    if (is_known_(job)) {
      known_.push_back(overrides);
      return absl::OkStatus();
    }
    absl::StatusOr<CheckedRun> run = CheckRun(overrides);
    if (!run.ok()) return Explained(run.status(), overrides);
    return CheckColumns(*run, overrides);
  }

  // An error that names no line of the sweep file is about a combination.
  absl::Status Explained(const absl::Status& status, const std::vector<Override>& overrides) const {
    if (alone_) return status;
    const KeyError about = KeyErrorOf(status);
    std::string which;
    for (const Override& override : overrides) {
      if (override.place == about.place && !about.place.empty()) return status;
      absl::StrAppend(&which, which.empty() ? "" : ", ", override.key, " = ", override.value);
    }
    return WithKeyError(absl::Status(status.code(), absl::StrCat(file_.path, ": with ", which, ": ",
                                                                 status.message())),
                        about);
  }

  void TakeCores(const Config& config) {
    const worker::WorkersConfig& workers = config.node.workers;
    sweep_.processes = std::max(sweep_.processes, workers.processes + workers.owners);
    sweep_.slots = std::max(sweep_.slots, workers.slots);
    sweep_.gpu = sweep_.gpu || workers.backend.name == "cuda";
  }

  const SweepFile& file_;
  const sdk::Catalogue& catalogue_;
  const std::function<bool(const Job&)>& is_known_;
  Output& output_;
  // Nothing varies but the seed. Then it is read as `macaw simulate` reads it.
  const bool alone_ = file_.axes.empty() && file_.settings.baselines.empty();
  const Idle reading_ = alone_ ? Idle::kRefuse : Idle::kLeaveOut;
  PreparedSweep sweep_;
  std::set<size_t> checked_;  // places of the points that have been checked: one of each rule
  std::vector<std::vector<Override>> known_;  // of configurations that were checked before
  ReportedColumns reported_{file_.settings};
  std::set<std::string> identities_;
  InputDigests inputs_;
  std::set<std::string> base_keys_;            // that the base gives
  std::set<std::string> used_;                 // keys that have an effect in some configuration
  std::map<std::string, std::string> idle_;    // keys that have none in some, and why
  std::set<std::string> switched_off_;         // of these, what the base itself turns off
  std::set<std::string> of_others_;            // parameters of algorithms that some do not have
  std::map<std::string, std::string> places_;  // of the keys that vary
};

}  // namespace

absl::StatusOr<PreparedSweep> Prepare(const SweepFile& file, const sdk::Catalogue& catalogue,
                                      const std::function<bool(const Job&)>& is_known,
                                      Output& output) {
  return Preparation(file, catalogue, is_known, output).Prepare();
}

}  // namespace macaw::cli
