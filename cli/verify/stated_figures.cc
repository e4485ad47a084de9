#include "cli/verify/stated_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/bundle/manifest.h"
#include "cli/diff/tensors.h"
#include "core/files.h"
#include "core/status.h"
#include "server/early_stopping.h"
#include "server/selection.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::map<uint32_t, MetricsRow>;

constexpr char kSummary[] = "summary.json";
constexpr char kNothing[] = "nothing";
constexpr size_t kMostShown = 80;

// What summary.json says of the result. The rest is of one machine or one moment.
constexpr const char* kFigures[] = {
    "algorithm", "seed",      "rounds", "final_round",  "final",           "best",
    "bests",     "rounds_to", "bytes",  "bytes_to",     "virtual_seconds", "virtual_seconds_to",
    "left_out",  "privacy",   "models", "model_digest", "state_digest",    "best_model",
    "parameters"};
// The figures of these that depend on which row is the best. Under a tolerance it may be another.
constexpr const char* kByRound[] = {"rounds_to", "bytes_to", "virtual_seconds_to", "best_model"};
// Figures that count, exactly under a tolerance, too.
constexpr const char* kCounts[] = {"round",    "rounds", "clients",  "client", "rows",
                                   "examples", "steps",  "left_out", "seed",   "parameters"};
// Other files of a bundle that a verification reads or compares.
constexpr const char* kRead[] = {"config.toml", "metrics.jsonl",     "rounds.log",
                                 kManifestFile, "model.safetensors", "model.best.safetensors"};

template <size_t n>
bool IsOneOf(const char* const (&names)[n], absl::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

bool IsDigest(const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kMostShown ? text : absl::StrCat(text.substr(0, kMostShown), "…");
}

absl::StatusOr<Json> Parsed(absl::string_view text, const std::string& file) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return absl::InvalidArgumentError(absl::StrCat(file, " is not a JSON object"));
  return json;
}

// Whether digests are compared, and rounds that follow from the last bits.
bool ByBits(const FigureOptions& options) { return options.tolerance == 0 || options.same_model; }

// The figures of one file.
class Comparison {
 public:
  Comparison(std::string file, const FigureOptions& options)
      : file_(std::move(file)), tolerance_(options.tolerance), by_bits_(ByBits(options)) {}

  std::optional<FigureDifference> Of(const Json& stated, const Json& made,
                                     const std::string& key) const {
    return Values(stated, made, {.key = key, .tolerance = tolerance_});
  }
  FigureDifference Differing(const std::string& key, const Json* stated, const Json* made) const {
    return {.file = file_,
            .key = key,
            .stated = stated == nullptr ? kNothing : Shown(*stated),
            .made = made == nullptr ? kNothing : Shown(*made)};
  }

 private:
  struct Place {
    std::string key;
    double tolerance = 0;
    double slack = 0;  // a number may always differ by this
  };

  std::optional<FigureDifference> Values(const Json& stated, const Json& made,
                                         const Place& place) const {
    if (stated.is_object() && made.is_object()) return Members(stated, made, place);
    if (stated.is_array() && made.is_array() && stated.size() == made.size()) {
      for (size_t i = 0; i < stated.size(); ++i) {
        Place inner = place;
        absl::StrAppend(&inner.key, "[", i, "]");
        if (auto found = Values(stated[i], made[i], inner); found.has_value()) return found;
      }
      return std::nullopt;
    }
    bool same = stated == made;
    if (!same && stated.is_number() && made.is_number()) {
      const double a = stated.get<double>(), b = made.get<double>();
      same =
          place.tolerance > 0 && (Agree(a, b, place.tolerance) || std::fabs(a - b) <= place.slack);
    }
    if (!same && !by_bits_) same = IsDigest(stated) && IsDigest(made);
    if (same) return std::nullopt;
    return Differing(place.key, &stated, &made);
  }

  std::optional<FigureDifference> Members(const Json& stated, const Json& made,
                                          const Place& place) const {
    // Where two rounds are nearly as good, the last bits say which is the best one.
    const bool other_best = !by_bits_ && stated.contains("value") && made.contains("value") &&
                            stated.value("round", Json()) != made.value("round", Json());
    for (const auto& [name, value] : stated.items()) {
      if (other_best && name != "value") continue;
      Place inner = place;
      inner.key = place.key.empty() ? name : absl::StrCat(place.key, ".", name);
      if (IsOneOf(kCounts, name)) inner.tolerance = 0;
      // Entries of a matrix that counts rows: a tolerance is a share of all of them.
      const auto rows = stated.find("rows");
      if (name == "confusion" && rows != stated.end() && rows->is_number())
        inner.slack = tolerance_ * rows->get<double>();
      const auto found = made.find(name);
      if (found == made.end()) return Differing(inner.key, &value, nullptr);
      if (auto difference = Values(value, *found, inner); difference.has_value()) return difference;
    }
    return std::nullopt;
  }

  const std::string file_;
  const double tolerance_;
  const bool by_bits_;
};

// ---- summary.json

uint32_t RoundIn(const Json& object) {
  const auto round = object.find("round");
  if (round == object.end() || !round->is_number_unsigned()) return 0;
  const auto number = round->get<uint64_t>();
  return number <= std::numeric_limits<uint32_t>::max() ? static_cast<uint32_t>(number) : 0;
}

std::string TextIn(const Json& object, const char* key) {
  const auto text = object.find(key);
  return text != object.end() && text->is_string() ? text->get<std::string>() : "";
}

bool Has(const Rows& rows, uint32_t round, const std::string& column) {
  const auto row = rows.find(round);
  return row != rows.end() && row->second.contains(column);
}

// What the summary of the run made again says for the rows that the bundle has. The run made again
// has evaluated its last model, which a run that was cut has not.
class OfTheSameRows {
 public:
  OfTheSameRows(const Rows& stated, const Rows& made) : stated_rows_(stated), made_rows_(made) {}

  void Apply(const Json& stated, Json& made) const {
    if (stated.contains("final_round"))
      made["final_round"] = stated_rows_.empty() ? 0 : stated_rows_.rbegin()->first;
    if (auto last = made.find("final"); last != made.end() && last->is_object()) {
      for (auto& [name, value] : last->items()) {
        if (const auto round = LastWith(name); round.has_value()) value = MadeIn(*round, name);
      }
    }
    if (const Json* const best = Find(stated, "best"), * const is = Find(made, "best");
        best != nullptr && is != nullptr && !TextIn(*best, "metric").empty()) {
      const std::string metric = TextIn(*best, "metric"), other = TextIn(*is, "metric");
      if (metric != other && !LastWith(other).has_value()) {
        UseBest(metric, *best, made["best"]);
      } else {
        KeepBest(metric, *best, made["best"]);
      }
    }
    if (const Json* const bests = Find(stated, "bests"), * const are = Find(made, "bests");
        bests != nullptr && are != nullptr) {
      for (const auto& [name, best] : bests->items()) {
        if (are->contains(name)) KeepBest(name, best, made["bests"][name]);
      }
    }
    KeepSums(made);
  }

 private:
  // The object of that name; null: there is none.
  static const Json* Find(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_object() ? &*found : nullptr;
  }
  std::optional<uint32_t> LastWith(const std::string& column) const {
    for (auto row = stated_rows_.rbegin(); row != stated_rows_.rend(); ++row) {
      if (row->second.contains(column)) return row->first;
    }
    return std::nullopt;
  }
  Json MadeIn(uint32_t round, const std::string& column) const {
    if (!Has(made_rows_, round, column)) return nullptr;
    const double value = made_rows_.at(round).at(column);
    return std::isnan(value) ? Json(nullptr) : Json(value);
  }

  void KeepBest(const std::string& column, const Json& stated, Json& made) const {
    if (!stated.is_object() || !made.is_object() || Has(stated_rows_, RoundIn(made), column))
      return;
    const uint32_t round = RoundIn(stated);
    if (!Has(stated_rows_, round, column)) return;  // then it is a difference
    made = stated;
    made["value"] = MadeIn(round, column);
    if (Find(made, "report") == nullptr) return;
    for (auto& [name, value] : made["report"].items()) value = MadeIn(round, name);
  }

  // Without an evaluation there is no column but this one to choose by, and the run made again has
  // chosen by another.
  void UseBest(const std::string& column, const Json& stated, Json& made) const {
    const bool higher = server::HigherIsBetter(column);
    uint32_t at = 0;
    Json value = nullptr;
    for (const auto& [round, row] : stated_rows_) {
      const Json is = MadeIn(round, column);
      if (is.is_null()) continue;
      const double number = is.get<double>();
      if (!value.is_null() &&
          !(higher ? number > value.get<double>() : number < value.get<double>()))
        continue;
      at = round;
      value = is;
    }
    made = {{"metric", column},
            {"value", std::move(value)},
            {"round", at},
            {"rows", server::Name(server::RowsOfMetric(column))}};
    if (const Json* const report = Find(stated, "report"); report != nullptr) {
      for (const auto& [name, figure] : report->items()) made["report"][name] = MadeIn(at, name);
    }
  }

  void KeepSums(Json& made) const {
    double up = 0, down = 0, seconds = 0, clients = 0;
    uint64_t rounds = 0;
    for (const auto& [round, row] : made_rows_) {
      if (!stated_rows_.contains(round)) continue;
      const auto in = [&row = row](const char* column) {
        const auto found = row.find(column);
        return found == row.end() ? 0 : found->second;
      };
      up += in("bytes_up");
      down += in("bytes_down");
      seconds += in("virtual_seconds");
      clients += in("left_out");
      rounds += in("left_out") > 0 ? 1 : 0;
    }
    if (Find(made, "bytes") != nullptr) {
      made["bytes"]["up"] = up;
      made["bytes"]["down"] = down;
    }
    if (Find(made, "left_out") != nullptr)
      made["left_out"] = {{"clients", clients}, {"rounds", rounds}};
    if (made.contains("virtual_seconds")) made["virtual_seconds"] = seconds;
  }

  const Rows& stated_rows_;
  const Rows& made_rows_;
};

// ---- all files

class Figures {
 public:
  Figures(const StatedRun& stated, const std::string& again, const Rows& made_rows,
          const FigureOptions& options)
      : stated_(stated), again_(again), made_rows_(made_rows), options_(options) {}

  absl::StatusOr<FigureReport> Compare() {
    MACAW_RETURN_IF_ERROR(InSummary());
    for (const char* file : {"confusion.json", "clients_evaluated.json"})
      MACAW_RETURN_IF_ERROR(InObject(file));
    for (const char* file : {"contributions.jsonl", "clients.jsonl"})
      MACAW_RETURN_IF_ERROR(InLines(file));
    NameTheRest();
    return std::move(report_);
  }

 private:
  using LineKey = std::array<uint64_t, 3>;  // round, client, which of several

  const std::string* Stated(const std::string& file) {
    const auto found = stated_.files.find(file);
    return found == stated_.files.end() ? nullptr : &found->second;
  }
  void Keep(std::optional<FigureDifference> difference) {
    if (!report_.difference.has_value()) report_.difference = std::move(difference);
  }
  // The file of the run made again; empty: it is a difference that there is none.
  absl::StatusOr<std::string> Made(const std::string& file) {
    const std::string path = again_ + "/" + file;
    if (FileExists(path)) return ReadFile(path);
    Keep(FigureDifference{
        .file = file, .key = "the file", .stated = "there", .made = std::string(kNothing)});
    return "";
  }

  absl::Status InSummary() {
    const std::string* const text = Stated(kSummary);
    if (text == nullptr) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(const Json whole, Parsed(*text, kSummary));
    MACAW_ASSIGN_OR_RETURN(const std::string again, ReadFile(again_ + "/" + kSummary));
    MACAW_ASSIGN_OR_RETURN(Json made, Parsed(again, kSummary));
    Json stated = Json::object();
    for (const char* name : kFigures) {
      const auto found = whole.find(name);
      if (found == whole.end() || (!ByBits(options_) && IsOneOf(kByRound, name))) continue;
      stated[name] = *found;
    }
    if (!stated_.ended_by_itself) {
      OfTheSameRows(stated_.rows, made_rows_).Apply(stated, made);
      const auto best = stated.find("best_model"), is = made.find("best_model");
      if (best != stated.end() && is != made.end() && best->is_object() && is->is_object() &&
          RoundIn(*best) != RoundIn(*is) &&
          !Has(stated_.rows, RoundIn(*is),
               TextIn(*is, "metric"))) {  // the bundle has not evaluated it
        stated.erase("best_model");
        report_.not_compared.emplace_back("summary.json: best_model");
      }
    }
    Keep(Comparison(kSummary, options_).Of(stated, made, ""));
    const Json manifest = {{"rounds", stated_.rounds}, {"model_digest", stated_.model_digest}};
    Keep(Comparison(kManifestFile, options_).Of(manifest, made, "run"));
    report_.not_compared.emplace_back(
        "summary.json: settings, names, how it ended, times, memory, traffic");
    if (!ByBits(options_))
      report_.not_compared.emplace_back("digests, rounds of best values and up to an accuracy");
    return absl::OkStatus();
  }

  absl::Status InObject(const std::string& file) {
    const std::string* const text = Stated(file);
    if (text == nullptr) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(const Json stated, Parsed(*text, file));
    MACAW_ASSIGN_OR_RETURN(const std::string again, Made(file));
    if (again.empty()) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(const Json made, Parsed(again, file));
    // The files are of the last evaluation.
    if (!stated_.ended_by_itself && RoundIn(stated) < RoundIn(made)) {
      report_.not_compared.push_back(absl::StrCat(file, " (of round ", RoundIn(stated),
                                                  "; here it is of round ", RoundIn(made), ")"));
      return absl::OkStatus();
    }
    Keep(Comparison(file, options_).Of(stated, made, ""));
    return absl::OkStatus();
  }

  static absl::StatusOr<std::map<LineKey, Json>> LinesOf(const std::string& text,
                                                         const std::string& file) {
    std::map<LineKey, Json> lines;
    size_t number = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      ++number;
      if (line.empty()) continue;
      MACAW_ASSIGN_OR_RETURN(Json row, Parsed(line, absl::StrCat(file, ":", number)));
      const auto client = row.find("client");
      LineKey key = {
          RoundIn(row),
          client != row.end() && client->is_number_unsigned() ? client->get<uint64_t>() : 0, 0};
      while (lines.contains(key)) ++key[2];
      lines.emplace(key, std::move(row));
    }
    return lines;
  }

  absl::Status InLines(const std::string& file) {
    const std::string* const text = Stated(file);
    if (text == nullptr) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(const auto stated, LinesOf(*text, file));
    MACAW_ASSIGN_OR_RETURN(const std::string again, Made(file));
    if (report_.difference.has_value()) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(const auto made, LinesOf(again, file));
    const Comparison comparison(file, options_);
    const auto place = [&](const LineKey& key) {
      return file == "clients.jsonl" ? absl::StrCat("round ", key[0], ", client ", key[1])
                                     : absl::StrCat("round ", key[0]);
    };
    for (const auto& [key, line] : stated) {
      if (!stated_.ended_by_itself && key[0] > stated_.rounds) continue;  // it was not done
      const auto found = made.find(key);
      Keep(found == made.end() ? comparison.Differing(place(key), &line, nullptr)
                               : comparison.Of(line, found->second, place(key)));
      if (report_.difference.has_value()) return absl::OkStatus();
    }
    // A run that was cut may lack its last lines.
    const uint64_t last = stated.empty() ? 0 : stated.rbegin()->first[0];
    for (const auto& [key, line] : made) {
      if (stated.contains(key) || (!stated_.ended_by_itself && key[0] >= last)) continue;
      Keep(comparison.Differing(place(key), nullptr, &line));
    }
    return absl::OkStatus();
  }

  // Files that nothing was compared with: figures, functions of the run's own.
  void NameTheRest() {
    for (const auto& [name, content] : stated_.files) {
      const bool compared = name == kSummary || IsOneOf(kRead, name) ||
                            absl::StartsWith(name, "inputs/") || name == "confusion.json" ||
                            name == "clients_evaluated.json" || name == "contributions.jsonl" ||
                            name == "clients.jsonl";
      if (!compared) report_.not_compared.push_back(name);
    }
  }

  const StatedRun& stated_;
  const std::string& again_;
  const Rows& made_rows_;
  const FigureOptions options_;
  FigureReport report_;
};

}  // namespace

absl::StatusOr<FigureReport> CompareFigures(const StatedRun& stated, const std::string& again,
                                            const std::map<uint32_t, MetricsRow>& made_rows,
                                            const FigureOptions& options) {
  return Figures(stated, again, made_rows, options).Compare();
}

}  // namespace macaw::cli
