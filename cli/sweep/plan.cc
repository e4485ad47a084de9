#include "cli/sweep/plan.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/compare/text.h"
#include "cli/config/json.h"
#include "cli/config/key_error.h"
#include "cli/config/writer.h"
#include "cli/simulate/result.h"
#include "cli/simulate/simulate.h"
#include "core/spelling.h"
#include "core/status.h"
#include "server/selection.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

// A value that is a table sets several keys.
void Flatten(const std::string& key, const Value& value, Point& into) {
  const Table* const table = value.As<Table>();
  if (table == nullptr) {
    into.push_back({key, value});
    return;
  }
  for (const auto& [name, inner] : *table) {
    Value placed = inner;
    placed.place = value.place;
    Flatten(absl::StrCat(key, ".", name), placed, into);
  }
}

// The word that the point gives a key; null: it gives none.
const std::string* WordAt(const Point& point, absl::string_view key) {
  const auto found = std::ranges::find(point, key, &settings::Setting::key);
  return found == point.end() ? nullptr : found->value.As<std::string>();
}

std::vector<std::string> KeysOf(const std::vector<Point>& points) {
  std::vector<std::string> keys;
  for (const Point& point : points) {
    for (const settings::Setting& setting : point) {
      if (!settings::Contains(keys, setting.key)) keys.push_back(setting.key);
    }
  }
  return keys;
}

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

// What a run of so many rounds would fill in, so that a run that is continued to them is the same.
void FixSchedule(Config& config) {
  Schedule& schedule = config.run.local.lr_schedule;
  if (schedule.kind == "cosine" && schedule.rounds == 0) schedule.rounds = config.run.rounds;
}

bool IsMeasured(const std::string& metric) {
  return metric == "seconds" || metric == "rounds_per_second" ||
         absl::StartsWith(metric, "rounds_to_");
}

// The plan as far as a sweep's metric is concerned: without evaluations during the run there is
// still one after the last round.
RunPlan Evaluated(const CheckedRun& run) {
  RunPlan plan = run.config.run;
  if (plan.evaluation.every == 0) plan.evaluation.every = 1;
  return plan;
}

absl::Status CheckSweepMetric(const std::string& key, const std::string& metric,
                              const CheckedRun& run) {
  if (IsMeasured(metric)) return absl::OkStatus();
  return CheckHas(key, std::string(absl::StripPrefix(metric, "best_")), Evaluated(run), run.columns,
                  run.rows);
}

std::string UsualMetric(const CheckedRun& run) {
  return UsualMetricOf(Evaluated(run), run.columns, run.rows);
}

// What is reported beside the metric where nothing is named: where validation rows choose, the
// metric of test rows that would choose without them.
std::vector<std::string> UsualReport(const std::string& metric, const CheckedRun& run) {
  const auto column = absl::StripPrefix(metric, "best_");
  if (server::RowsOfMetric(column) != server::MetricRows::kValidation) return {};
  EvaluableRows without = run.rows;
  without.central_val = without.client_val = false;
  std::string usual = UsualMetricOf(Evaluated(run), run.columns, without);
  if (server::RowsOfMetric(usual) != server::MetricRows::kTest) return {};
  return {std::move(usual)};
}

// A metric of test rows is reported in the round that `metric` chooses: for best_ that is not the
// last one.
std::string ReportName(const std::string& reported, const std::string& metric) {
  const bool of_test = server::RowsOfMetric(reported) == server::MetricRows::kTest;
  if (!absl::StartsWith(metric, "best_") || !of_test || ChoosesByTestRows(metric)) return reported;
  return AtBest(reported, std::string(absl::StripPrefix(metric, "best_")));
}

class Preparation {
 public:
  Preparation(const SweepFile& file, const sdk::Catalogue& catalogue,
              const std::function<bool(const Job&)>& is_known)
      : file_(file), catalogue_(catalogue), is_known_(is_known) {}

  absl::StatusOr<PreparedSweep> Prepare() && {
    const SweepSettings& settings = file_.settings;
    sweep_.plan.rungs = settings.rungs;
    sweep_.plan.factor = settings.rungs.empty() ? 0 : settings.factor;
    std::vector<Point> points;
    for (const Point& point : PointsOf(file_.axes, settings.samples, settings.sample_seed)) {
      Point& flat = points.emplace_back();
      for (const settings::Setting& setting : point) Flatten(setting.key, setting.value, flat);
    }
    const size_t own = points.size();
    AddBaselines(points);
    sweep_.plan.keys = KeysOf(points);
    for (const OffSwitch& section : kOffSwitches) LeaveOut(section, points);
    if (points.size() * std::max<size_t>(1, settings.seeds.size()) > kMostJobs) {
      return absl::InvalidArgumentError(absl::StrCat(
          file_.path, ": ", points.size(), " configurations with ", settings.seeds.size(),
          " seeds are more than ", kMostJobs, " runs: draw some of them (samples)"));
    }
    size_t same = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      MACAW_ASSIGN_OR_RETURN(const bool is_new, Add(points[i], points.size()));
      same += is_new || i >= own ? 0 : 1;
    }
    if (same > 0) {
      sweep_.notes.push_back(absl::StrCat(
          Counted(same, "combination"),
          same == 1 ? " is the same experiment as another" : " are the same experiments as others",
          ", and left out."));
    }
    MACAW_ASSIGN_OR_RETURN(
        const std::string fixed,
        FixedOverSeeds(file_.base, OverridesOf(points.front()), sweep_.plan.seeds, catalogue_));
    if (!fixed.empty()) sweep_.warnings.push_back(fixed);
    DropConstantKeys();
    if (sweep_.plan.configurations.size() > 1 && ChoosesByTestRows(sweep_.plan.metric))
      sweep_.warnings.push_back(TestRowsChooseText(sweep_.plan.metric));
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
    return rule.ok() && ((*rule)->pools_clients || !(*rule)->has_common_model);
  }

  bool BaseHas(const OffSwitch& section) const {
    const auto kind = Lookup(file_.base, {}, section.key);
    return kind.ok() && kind->has_value() && **kind != Value{"none"};
  }

  // A baseline runs without the section, and where it is off, its other keys are left out.
  void LeaveOut(const OffSwitch& section, std::vector<Point>& points) {
    std::set<std::string> baselines, keys;
    for (Point& point : points) {
      const bool baseline = IsBaseline(point);
      const std::string* const kind = WordAt(point, section.key);
      const bool off = kind != nullptr && *kind == "none";
      if (baseline && !off && (kind != nullptr || BaseHas(section)))
        baselines.insert(*WordAt(point, "algorithm.name"));
      std::erase_if(point, [&](const settings::Setting& setting) {
        if (!absl::StartsWith(setting.key, section.prefix)) return false;
        if (baseline) return true;
        const bool idle = off && setting.key != section.key;
        if (idle) keys.insert(setting.key);
        return idle;
      });
    }
    if (!baselines.empty()) {
      sweep_.notes.push_back(absl::StrCat("Runs of ", absl::StrJoin(baselines, " and "),
                                          " are without ", section.key,
                                          ": their server adds up nothing that clients send."));
    }
    if (!keys.empty()) {
      sweep_.notes.push_back(absl::StrCat("Where ", section.key, " is \"none\", ",
                                          absl::StrJoin(keys, ", "),
                                          keys.size() == 1 ? " is left out." : " are left out."));
    }
  }

  // A key with a single value needs no column.
  void DropConstantKeys() {
    SweepPlan& plan = sweep_.plan;
    for (size_t key = plan.keys.size(); key-- > 0;) {
      const auto same = [&](const Configuration& configuration) {
        return configuration.values[key] == plan.configurations.front().values[key];
      };
      if (plan.configurations.size() < 2 || !std::ranges::all_of(plan.configurations, same))
        continue;
      const auto at = static_cast<std::ptrdiff_t>(key);
      plan.keys.erase(plan.keys.begin() + at);
      for (Configuration& configuration : plan.configurations)
        configuration.values.erase(configuration.values.begin() + at);
    }
  }

  std::vector<Override> OverridesOf(const Point& point) const {
    const std::string folder = FolderOf();
    std::vector<Override> overrides;
    for (const settings::Setting& setting : point) {
      overrides.push_back({setting.key, ToToml(setting.value), setting.value.place.text, folder});
    }
    for (const OffSwitch& section : kOffSwitches) {
      if (IsBaseline(point) && BaseHas(section))
        overrides.push_back({section.key, "\"none\"", "baselines", folder});
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
  absl::StatusOr<bool> Add(const Point& point, size_t count) {
    std::vector<Override> overrides = OverridesOf(point);
    MACAW_ASSIGN_OR_RETURN(Config config, ReadConfig(file_.base, overrides, catalogue_));
    if (!identities_.insert(IdentityOf(config)).second) return false;
    std::vector<uint64_t>& seeds = sweep_.plan.seeds;
    if (seeds.empty()) seeds = file_.settings.seeds;
    if (seeds.empty()) seeds = {config.run.seed};

    Configuration configuration;
    const size_t digits = std::max<size_t>(3, absl::StrCat(count).size());
    configuration.name = absl::StrFormat("%0*d", digits, sweep_.plan.configurations.size() + 1);
    configuration.rounds = config.run.rounds;
    for (const std::string& key : sweep_.plan.keys) {
      const auto setting = std::ranges::find(point, key, &settings::Setting::key);
      const bool used = setting != point.end() && !IsOfAnotherAlgorithm(key, config);
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
      MACAW_ASSIGN_OR_RETURN(Config whole, ReadConfig(file_.base, seeded, catalogue_));
      Job job;
      job.name = JobName(configuration, seed);
      job.configuration = sweep_.plan.configurations.size();
      job.seed = seed;
      whole.run.name = absl::StrCat(whole.run.name, "-", job.name);
      whole.node.server.out = "";
      FixSchedule(whole);
      job.config = EffectiveToml(whole);
      if (seed == seeds.front()) MACAW_RETURN_IF_ERROR(Check(job, seeded));
      sweep_.jobs.push_back(std::move(job));
    }
    sweep_.plan.configurations.push_back(std::move(configuration));
    return true;
  }

  // The first configuration is always checked: it says which metrics there are.
  absl::Status Check(const Job& job, const std::vector<Override>& overrides) {
    const bool first = sweep_.plan.configurations.empty();
    if (!first && is_known_(job)) return absl::OkStatus();
    absl::StatusOr<CheckedRun> run = CheckBeforeRun(file_.base, catalogue_, overrides);
    if (!run.ok()) return Explained(run.status(), overrides);
    if (first) {
      sweep_.plan.metric = file_.settings.metric;
      if (sweep_.plan.metric.empty()) sweep_.plan.metric = UsualMetric(*run);
      sweep_.plan.higher = HigherMetricIsBetter(sweep_.plan.metric);
      reported_ = file_.settings.report;
      if (reported_.empty()) reported_ = UsualReport(sweep_.plan.metric, *run);
      for (const std::string& reported : reported_)
        sweep_.plan.report.push_back(ReportName(reported, sweep_.plan.metric));
    }
    absl::Status status = CheckSweepMetric("metric", sweep_.plan.metric, *run);
    for (const std::string& reported : file_.settings.report)
      status.Update(CheckSweepMetric("report", reported, *run));
    return status.ok() ? status : Annotate(status, file_.path);
  }

  // An error that names no line of the sweep file is about a combination.
  absl::Status Explained(const absl::Status& status, const std::vector<Override>& overrides) const {
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
  PreparedSweep sweep_;
  std::set<std::string> identities_;
  std::vector<std::string> reported_;  // columns
};

}  // namespace

std::string JobName(const Configuration& configuration, uint64_t seed) {
  return absl::StrCat(configuration.name, "-seed", seed);
}

std::string JsonOf(const SweepPlan& plan) {
  Json json = {{"metric", plan.metric}, {"mode", plan.higher ? "max" : "min"},
               {"keys", plan.keys},     {"seeds", plan.seeds},
               {"rungs", plan.rungs},   {"factor", plan.factor},
               {"report", plan.report}};
  json["configurations"] = Json::array();
  for (const Configuration& configuration : plan.configurations) {
    json["configurations"].push_back({{"name", configuration.name},
                                      {"values", configuration.values},
                                      {"rounds", configuration.rounds}});
  }
  return json.dump(1) + "\n";
}

absl::StatusOr<SweepPlan> ParsePlan(const std::string& text, const std::string& name) {
  try {
    const Json json = Json::parse(text);
    SweepPlan plan;
    plan.metric = json.at("metric").get<std::string>();
    plan.higher = json.at("mode") == "max";
    plan.keys = json.at("keys").get<std::vector<std::string>>();
    plan.seeds = json.at("seeds").get<std::vector<uint64_t>>();
    plan.rungs = json.at("rungs").get<std::vector<uint32_t>>();
    plan.factor = json.at("factor").get<uint32_t>();
    plan.report = json.value("report", std::vector<std::string>());  // older sweeps have none
    for (const Json& entry : json.at("configurations")) {
      Configuration& configuration = plan.configurations.emplace_back();
      configuration.name = entry.at("name").get<std::string>();
      configuration.values = entry.at("values").get<std::vector<Json>>();
      configuration.rounds = entry.at("rounds").get<uint32_t>();
    }
    return plan;
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(absl::StrCat(name, " is not the plan of a sweep: ", error.what(),
                                            "; restore or remove it"));
  }
}

absl::StatusOr<PreparedSweep> Prepare(const SweepFile& file, const sdk::Catalogue& catalogue,
                                      const std::function<bool(const Job&)>& is_known) {
  return Preparation(file, catalogue, is_known).Prepare();
}

}  // namespace macaw::cli
