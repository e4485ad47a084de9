#include "cli/sweep/sweep_file.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/config/key_error.h"
#include "core/settings/section.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using settings::AtLeast;

settings::Section<SweepSettings> Settings() {
  using S = SweepSettings;
  settings::Section<S> f;
  f.Add(
      "metric", &S::metric,
      "metric that chooses a configuration: a column of metrics.jsonl (its last value), best_ and "
      "a metric of validation or test rows, rounds_to_0.9, seconds; default: an accuracy, else a "
      "loss, of validation rows where there are some (val_accuracy with "
      "data.central_val_fraction), else of test rows (test_accuracy), else train_loss");
  f.Add("report", &S::report,
        "columns shown beside the metric, which choose nothing; of test rows, with a metric "
        "best_..., those of its round; default: the test metric, where validation rows choose");
  f.AddChoice("mode", &S::mode, {"max", "min"},
              "whether more or less of the metric is better; default: by its name");
  f.AddWords(
      "baselines", &S::baselines, {"local", "pooled"},
      "rules that run beside the configurations, with their other settings, and are never the "
      "best. local: each client for itself; pooled: all rows in one place");
  f.Add("seeds", &S::seeds,
        "seeds with which each configuration runs; default: the base's run.seed", AtLeast(0));
  f.Add("samples", &S::samples, "number of draws of the keys with ranges", AtLeast(1));
  f.Add("sample_seed", &S::sample_seed, "seed of these draws", AtLeast(0));
  f.Add("halving.rounds", &S::rungs,
        "successive halving: numbers of rounds; the best configurations at one go on to the next",
        AtLeast(1));
  f.Add("halving.factor", &S::factor,
        "successive halving: one configuration in this number goes on", AtLeast(2));
  f.Add("jobs", &S::jobs, "runs at a time; default: what cores and memory allow", AtLeast(1));
  f.Add("cores", &S::cores, "cores of all jobs together; default: the machine's", AtLeast(1));
  f.Add("memory", &S::memory,
        "gigabytes of all jobs together: another job begins only while it fits; default: what is "
        "free when the sweep begins",
        settings::Above(0));
  return f;
}

const Value* Find(const Table& table, const std::string& key) {
  const auto found = std::ranges::find(table, key, [](const auto& entry) { return entry.first; });
  return found == table.end() ? nullptr : &found->second;
}

absl::Status Wrong(const Value& value, const std::string& key, const std::string& message) {
  return WithKeyError(absl::InvalidArgumentError(absl::StrCat(value.place.text, ": ", message)),
                      {.place = value.place.text, .key = key});
}

// Sets each key of `table` but for `base` and `keys`, which are read elsewhere.
absl::Status ReadSettings(const Table& table, const std::string& prefix, SweepSettings& into) {
  const settings::Section<SweepSettings> section = Settings();
  for (const auto& [name, value] : table) {
    const std::string key = prefix + name;
    if (key == "base" || key == "keys") continue;
    if (key == "halving" && value.As<Table>() != nullptr) {
      MACAW_RETURN_IF_ERROR(ReadSettings(*value.As<Table>(), "halving.", into));
      continue;
    }
    const auto field =
        std::ranges::find(section.fields(), key, &settings::Field<SweepSettings>::key);
    if (field != section.fields().end()) {
      if (field->set(into, value)) continue;
      return Wrong(value, key,
                   absl::StrCat(key, " must be ", field->expected, ", found ", Describe(value)));
    }
    std::vector<std::string> known = {"base", "keys", "halving"};
    for (const auto& other : section.fields()) known.push_back(other.key);
    const std::string meant = NearestWord(key, known);
    return Wrong(value, key,
                 absl::StrCat("unknown key ", key,
                              meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?"),
                              " (a run's own keys stand in [base], those that vary in [keys])"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Document> BaseOf(const Document& sweep) {
  const Value* const base = Find(sweep.content, "base");
  if (base == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(sweep.name,
                     ": base is missing: the configuration that the sweep varies, a "
                     "file (base = \"run.toml\") or a table [base]"));
  }
  if (const Table* const table = base->As<Table>())
    return Document{sweep.name, sweep.folder, *table};
  const std::string* const file = base->As<std::string>();
  if (file == nullptr) {
    return Wrong(*base, "base",
                 absl::StrCat("base must be a path or a table, found ", Describe(*base)));
  }
  const std::string path =
      (std::filesystem::path(sweep.folder) / *file).lexically_normal().string();
  absl::StatusOr<Document> document = OpenDocument(path);
  return document.ok() ? std::move(document)
                       : Annotate(document.status(), absl::StrCat(base->place.text, ": base"));
}

// The sweep decides these itself.
absl::Status CheckOwnKeys(const std::vector<Axis>& axes, bool halving) {
  for (const Axis& axis : axes) {
    std::string why;
    if (axis.key == "run.seed") why = "give the runs' seeds as seeds = [...]";
    if (axis.key == "run.name" || axis.key == "run.out") why = "the sweep names its runs itself";
    if (axis.key == "run.rounds" && halving) why = "halving.rounds says how long the runs are";
    if (axis.key == "plugins") why = "plug-ins are the same in all runs: name them in the base";
    if (why.empty()) continue;
    return WithKeyError(absl::InvalidArgumentError(
                            absl::StrCat(axis.place.text, ": ", axis.key, " cannot vary: ", why)),
                        {.place = axis.place.text, .key = axis.key});
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(const SweepFile& file) {
  const SweepSettings& s = file.settings;
  const bool random = std::ranges::any_of(file.axes, &Axis::random);
  const auto wrong = [&](const std::string& message) {
    return absl::InvalidArgumentError(absl::StrCat(file.path, ": ", message));
  };
  if (random && s.samples == 0)
    return wrong("samples is missing: how often the keys with ranges are drawn");
  if (!random && s.samples > 0)
    return wrong("samples has no effect: no key has a range; a list is tried value by value");
  if (std::set(s.seeds.begin(), s.seeds.end()).size() != s.seeds.size())
    return wrong("seeds has a number twice");
  if (s.rungs.size() == 1) return wrong("halving.rounds needs two rungs or more");
  if (std::ranges::adjacent_find(s.rungs, std::greater_equal<>()) != s.rungs.end())
    return wrong("halving.rounds must grow from rung to rung");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SweepFile> ReadSweepFile(const std::string& path) {
  SweepFile file;
  file.path = path;
  MACAW_ASSIGN_OR_RETURN(const Document sweep, OpenDocument(path));
  MACAW_RETURN_IF_ERROR(ReadSettings(sweep.content, "", file.settings));
  MACAW_ASSIGN_OR_RETURN(file.base, BaseOf(sweep));
  if (const Value* const keys = Find(sweep.content, "keys")) {
    if (keys->As<Table>() == nullptr)
      return Wrong(*keys, "keys", absl::StrCat("keys must be a table, found ", Describe(*keys)));
    MACAW_ASSIGN_OR_RETURN(file.axes, ReadAxes(*keys->As<Table>()));
  }
  MACAW_RETURN_IF_ERROR(CheckOwnKeys(file.axes, !file.settings.rungs.empty()));
  MACAW_RETURN_IF_ERROR(CheckTogether(file));
  return file;
}

std::string SweepFileHelp() {
  std::string text =
      "# A sweep file of `macaw sweep`. Relative paths start at this file.\n"
      "base = \"run.toml\"   # the configuration that the sweep varies: a file, or a table [base]\n";
  const SweepSettings defaults;
  const settings::Section<SweepSettings> section = Settings();
  for (const auto& field : section.fields()) {
    const std::optional<Value> value = field.get(defaults);
    const bool fixed = value.has_value() && *value != Value{int64_t{0}} && *value != Value{0.0};
    absl::StrAppend(&text,
                    absl::StrFormat("# %-22s %s (%s)\n",
                                    absl::StrCat(field.key, " = ", fixed ? ToToml(*value) : "..."),
                                    field.help, field.expected));
  }
  absl::StrAppend(
      &text,
      "\n[keys]             # every key of a configuration (macaw keys) may vary\n"
      "# local.lr = [0.05, 0.1]                        each value\n"
      "# local.lr = {log_uniform = [0.001, 1.0]}       drawn, as are the next three\n"
      "# local.momentum = {uniform = [0, 0.9]}\n"
      "# local.epochs = {integers = [1, 10]}\n"
      "# algorithm.name = {choice = [\"fedavg\", \"fedprox\"]}\n"
      "# algorithm = [{name = \"fedavg\"}, {name = \"fedprox\", fedprox.mu = 0.1}]   several "
      "keys at once\n");
  return text;
}

}  // namespace macaw::cli
