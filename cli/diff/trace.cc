#include "cli/diff/trace.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/config/document.h"
#include "cli/results/ending.h"
#include "cli/results/stored_model.h"
#include "core/csv_text.h"
#include "core/files.h"
#include "core/status.h"
#include "core/text.h"
#include "server/log/reader.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;
namespace log = server::log;
using Json = nlohmann::json;

constexpr char kModelFiles[] = ".safetensors";

// The name that a column or tensor gets. The trace keeps its own one.
std::string Renamed(const std::string& name, const Renames& renames, Trace& trace) {
  trace.names.insert(name);
  const auto found = renames.find(name);
  return found == renames.end() ? name : found->second;
}

// ---- tables

absl::Status AddRow(MetricsRow row, const std::string& place, Trace& trace) {
  const auto round = row.find(kRoundColumn);
  if (round == row.end()) {
    std::vector<std::string> columns;
    for (const auto& [name, value] : row) columns.push_back(name);
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": no number in the column \"round\"; there are ",
                     absl::StrJoin(columns, ", "), " (--rename NAME=round)"));
  }
  const double number = round->second;
  if (!(number >= 0 && number <= std::numeric_limits<uint32_t>::max()) ||
      number != std::floor(number)) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": \"round\" must be a whole number from 0 on"));
  }
  row.erase(round);
  const auto [slot, added] = trace.rows.emplace(static_cast<uint32_t>(number), std::move(row));
  if (!added)
    return absl::InvalidArgumentError(absl::StrCat(place, ": round ", slot->first, " was before"));
  return absl::OkStatus();
}

MetricsRow NumbersIn(const Json& object) {
  MetricsRow row;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number() || value.is_boolean() || value.is_null())
      row[name] = value.is_number()    ? value.get<double>()
                  : value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0)
                                       : std::nan("");
  }
  return row;
}

// `unfinished`: the last line may have been cut off, as a run leaves it that was killed.
absl::Status ReadJsonRows(const std::string& path, const Renames& renames, bool unfinished,
                          Trace& trace) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  size_t line = 0, at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const absl::string_view piece = absl::string_view(text).substr(at, end - at);
    const bool whole = end < text.size();
    at = end + 1;
    ++line;
    if (piece.empty() || piece == "\r") continue;
    const Json row = Json::parse(piece, nullptr, /*allow_exceptions=*/false);
    const std::string place = absl::StrCat(path, ":", line);
    if (!row.is_object()) {
      if (unfinished && !whole) break;
      return absl::InvalidArgumentError(absl::StrCat(place, " is not a JSON object"));
    }
    MetricsRow numbers;
    for (const auto& [name, number] : NumbersIn(row))
      numbers[Renamed(name, renames, trace)] = number;
    MACAW_RETURN_IF_ERROR(AddRow(std::move(numbers), place, trace));
  }
  return absl::OkStatus();
}

absl::Status ReadCsvRows(const std::string& path, const Renames& renames, Trace& trace) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  CsvText csv(text, FindSeparator(text));
  std::vector<std::string> columns;
  while (csv.Next()) {
    const std::string place = absl::StrCat(path, ":", csv.line());
    if (!csv.status().ok())
      return absl::InvalidArgumentError(absl::StrCat(place, ": ", csv.status().message()));
    if (columns.empty()) {
      for (const absl::string_view cell : csv.cells())
        columns.push_back(Renamed(std::string(absl::StripAsciiWhitespace(cell)), renames, trace));
      const std::set<std::string> names(columns.begin(), columns.end());
      if (names.size() != columns.size())
        return absl::InvalidArgumentError(absl::StrCat(place, " names a column twice"));
      continue;
    }
    if (csv.cells().size() != columns.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          place, " has ", csv.cells().size(), " cells, and the first line ", columns.size()));
    }
    MetricsRow row;
    for (size_t i = 0; i < columns.size(); ++i) {
      if (const auto number = ParseNumber(csv.cells()[i])) row[columns[i]] = *number;
    }
    MACAW_RETURN_IF_ERROR(AddRow(std::move(row), place, trace));
  }
  return absl::OkStatus();
}

// ---- models

absl::StatusOr<TracedModel> OpenModel(const std::string& path, const std::string& name,
                                      uint32_t round, const Renames& renames, Trace& trace) {
  MACAW_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  TracedModel model{.round = round, .file = name};
  model.storage = std::make_shared<const SafetensorsFile>(std::move(file));
  for (const auto& [tensor, content] : model.storage->tensors())
    model.tensors[Renamed(tensor, renames, trace)] = content;
  return model;
}

// The frozen tensors of a run, which its checkpoints lack; null: it has none.
std::shared_ptr<const SafetensorsFile> BaseOf(const std::string& folder) {
  auto file = SafetensorsFile::Open(folder + "/base.safetensors");
  return file.ok() ? std::make_shared<const SafetensorsFile>(*std::move(file)) : nullptr;
}

// The newest checkpoints. One that a running server removes meanwhile is passed over.
void AddCheckpoints(const std::string& folder, const Renames& renames, Trace& trace) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder + "/checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "round-") && absl::EndsWith(name, kModelFiles))
      files.push_back(name);
  }
  std::ranges::sort(files);
  const std::shared_ptr<const SafetensorsFile> base = BaseOf(folder);
  for (const std::string& name : files) {
    uint32_t round = 0;
    const absl::string_view digits =
        absl::string_view(name).substr(6, name.size() - 6 - (sizeof(kModelFiles) - 1));
    if (!absl::SimpleAtoi(digits, &round)) continue;
    auto file = SafetensorsFile::Open(folder + "/checkpoints/" + name);
    if (!file.ok()) {
      trace.notes.push_back(absl::StrCat(file.status().message(), ", so it is not compared"));
      continue;
    }
    TracedModel model{.round = round, .file = "checkpoints/" + name};
    model.storage = std::make_shared<const SafetensorsFile>(*std::move(file));
    auto tensors = TensorsOfCheckpoint(*model.storage);
    if (!tensors.ok()) {
      trace.notes.push_back(absl::StrCat(tensors.status().message(), ", so it is not compared"));
      continue;
    }
    for (auto& [tensor, content] : *tensors)
      model.tensors[Renamed(tensor, renames, trace)] = std::move(content);
    if (base != nullptr && !model.tensors.empty()) {
      model.base = base;
      for (const auto& [tensor, content] : base->tensors())
        model.tensors.emplace(Renamed(tensor, renames, trace), content);
    }
    if (!model.tensors.empty()) trace.models.push_back(std::move(model));
  }
}

// ---- runs

void Flatten(const Table& table, const std::string& prefix,
             std::map<std::string, std::string>& flat) {
  for (const auto& [key, value] : table) {
    const std::string whole = absl::StrCat(prefix, key);
    if (const Table* const inner = value.As<Table>()) {
      Flatten(*inner, whole + ".", flat);
    } else {
      flat[whole] = settings::ToToml(value);
    }
  }
}

absl::Status ReadLog(const std::string& path, Trace& trace) {
  MACAW_ASSIGN_OR_RETURN(log::Reader reader, log::Reader::Open(path));
  log::History history;
  auto& parts = trace.parts;
  while (true) {
    const absl::StatusOr<std::optional<log::Entry>> entry = reader.Next();
    if (!entry.ok()) {
      trace.notes.push_back(
          absl::StrCat(entry.status().message(), "; what is before it is compared"));
      break;
    }
    if (!entry->has_value()) break;
    const log::Record& record = (*entry)->record;
    history.Add(record);
    if (const auto* session = std::get_if<log::RunOpened>(&record)) {
      if (!session->goes_on)
        std::erase_if(parts, [&](const auto& p) { return p.first.first > session->completed; });
    } else if (const auto* opened = std::get_if<log::RoundOpened>(&record)) {
      std::erase_if(parts, [&](const auto& p) {
        return p.first.first == opened->round && p.first.second >= opened->phase;
      });
    } else if (const auto* accepted = std::get_if<log::Accepted>(&record)) {
      if (accepted->included.empty() || accepted->sums.IsZero()) continue;
      TracedPart part{.clients = {}, .sums = accepted->sums};
      for (const Attempt& attempt : accepted->included) part.clients.push_back(attempt.client);
      std::ranges::sort(part.clients);
      parts[{accepted->round, accepted->phase}].push_back(std::move(part));
    }
  }
  trace.history = std::move(history);
  return absl::OkStatus();
}

std::string TextIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string ProfileIn(const Json& summary) {
  const auto profile = summary.find("profile");
  if (profile == summary.end() || !profile->is_object()) return "";
  return absl::StrCat(TextIn(*profile, "trainer"), ", ", TextIn(*profile, "instruction_set"), ", ",
                      TextIn(*profile, "libraries"));
}

absl::Status ReadSummary(const std::string& path, const Renames& renames, Trace& trace,
                         uint32_t& rounds) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json summary = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) return absl::DataLossError(absl::StrCat(path, " is not a JSON object"));
  trace.program = TextIn(summary, "program");
  trace.profile = ProfileIn(summary);
  trace.data_digest = TextIn(summary, "data_digest");
  if (HasEnded(fs::path(path).parent_path().string())) {
    trace.end = TextIn(summary, "end");
    trace.model_digest = TextIn(summary, "model_digest");
    trace.state_digest = TextIn(summary, "state_digest");
  }
  const auto done = summary.find("rounds");
  if (done != summary.end() && done->is_number_unsigned()) rounds = done->get<uint32_t>();
  trace.done = rounds;
  const auto best = summary.find("best_model");
  if (best == summary.end() || !best->is_object() || !best->contains("round"))
    return absl::OkStatus();
  const Json& round = (*best)["round"];
  const std::string file = fs::path(path).parent_path().string() + "/model.best.safetensors";
  if (round.is_number_unsigned() && FileExists(file)) {
    MACAW_ASSIGN_OR_RETURN(TracedModel model, OpenModel(file, "model.best.safetensors",
                                                        round.get<uint32_t>(), renames, trace));
    trace.models.push_back(std::move(model));
  }
  return absl::OkStatus();
}

absl::Status ReadRun(const std::string& folder, const Renames& renames, Trace& trace) {
  trace.is_run = true;
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(folder + "/config.toml"));
  Flatten(document.content, "", trace.settings);
  if (FileExists(folder + "/metrics.jsonl")) {
    MACAW_RETURN_IF_ERROR(
        ReadJsonRows(folder + "/metrics.jsonl", renames, /*unfinished=*/true, trace));
  }
  if (FileExists(folder + "/rounds.log"))
    MACAW_RETURN_IF_ERROR(ReadLog(folder + "/rounds.log", trace));
  uint32_t rounds = 0;
  if (FileExists(folder + "/summary.json")) {
    MACAW_RETURN_IF_ERROR(ReadSummary(folder + "/summary.json", renames, trace, rounds));
    if (FileExists(folder + "/model.safetensors")) {
      MACAW_ASSIGN_OR_RETURN(
          TracedModel model,
          OpenModel(folder + "/model.safetensors", "model.safetensors", rounds, renames, trace));
      trace.models.insert(trace.models.begin(), std::move(model));
    }
  }
  if (trace.history.has_value() && trace.profile.empty()) {  // there in parentheses
    absl::string_view profile = trace.history->profile();
    absl::ConsumePrefix(&profile, "(");
    absl::ConsumeSuffix(&profile, ")");
    trace.profile = std::string(profile);
  }
  AddCheckpoints(folder, renames, trace);
  if (FileExists(folder + "/clients.jsonl")) trace.clients_file = folder + "/clients.jsonl";
  return absl::OkStatus();
}

// ---- traces of others

absl::Status AddModelFiles(const std::string& folder, const Renames& renames, Trace& trace) {
  std::map<uint32_t, std::string> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != kModelFiles) continue;
    const std::string stem = entry.path().stem().string();
    const size_t digits = stem.find_last_not_of("0123456789") + 1;
    uint32_t round = 0;
    if (!absl::SimpleAtoi(stem.substr(digits), &round)) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.path().string(),
                       ": the name of a model ends with its round, as in model-12.safetensors"));
    }
    const auto [slot, added] = files.emplace(round, entry.path().filename().string());
    if (!added) {
      return absl::InvalidArgumentError(absl::StrCat(folder, " has two models of round ", round,
                                                     ": ", slot->second, " and ",
                                                     entry.path().filename().string()));
    }
  }
  if (error) return FileError("cannot read the folder", folder, error.value());
  for (const auto& [round, name] : files) {
    MACAW_ASSIGN_OR_RETURN(TracedModel model,
                           OpenModel(folder + "/" + name, name, round, renames, trace));
    trace.models.push_back(std::move(model));
  }
  return absl::OkStatus();
}

absl::Status ReadForeign(const std::string& path, const Renames& renames, Trace& trace) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (absl::EndsWith(path, ".jsonl")) return ReadJsonRows(path, renames, false, trace);
    if (absl::EndsWith(path, ".csv")) return ReadCsvRows(path, renames, trace);
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " is neither the folder of a run nor a trace: FILE.csv, FILE.jsonl, or a folder with "
        "metrics.csv, metrics.jsonl or models"));
  }
  if (FileExists(path + "/metrics.jsonl"))
    MACAW_RETURN_IF_ERROR(ReadJsonRows(path + "/metrics.jsonl", renames, false, trace));
  else if (FileExists(path + "/metrics.csv"))
    MACAW_RETURN_IF_ERROR(ReadCsvRows(path + "/metrics.csv", renames, trace));
  MACAW_RETURN_IF_ERROR(AddModelFiles(path, renames, trace));
  return absl::OkStatus();
}

}  // namespace

uint32_t Trace::rounds() const {
  uint32_t last = std::max(done, rows.empty() ? 0 : rows.rbegin()->first);
  if (history.has_value()) last = std::max(last, history->completed().value);
  for (const TracedModel& model : models) last = std::max(last, model.round);
  return last;
}

std::vector<RoundSpan> Trace::RoundsWithoutRow() const {
  if (!is_run) return {};
  const uint32_t completed = history.has_value() ? history->completed().value : 0;
  // A resumed run has the summary of its earlier session.
  const bool goes_on = history.has_value() && !history->ended().has_value() && completed > done;
  uint32_t last = rows.empty() ? 0 : rows.rbegin()->first;
  if (!end.empty() && !goes_on) {
    const uint32_t all = std::max(done, completed);
    last = std::max(last, end == "finished" || all == 0 ? all : all - 1);
  }
  std::vector<RoundSpan> without;
  uint32_t before = 0;  // the last round with a row
  for (const auto& [round, row] : rows) {
    if (round > last) break;
    if (round > before && round - before > 1) without.push_back({before + 1, round - 1});
    before = round;
  }
  if (before < last) without.push_back({before + 1, last});
  return without;
}

absl::StatusOr<Trace> ReadTrace(const std::string& path, const Renames& renames) {
  Trace trace;
  trace.path = path;
  if (!FileExists(path)) return FileError("cannot open", path);
  if (const std::string config = path + "/config.toml"; FileExists(config)) {
    MACAW_RETURN_IF_ERROR(ReadRun(path, renames, trace));
    return trace;
  } else if (const absl::Status why = MissingFile(config, ""); !absl::IsNotFound(why)) {
    return why;
  }
  if (FileExists(path + "/sweep.json")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is the folder of a sweep: name two of its runs"));
  }
  MACAW_RETURN_IF_ERROR(ReadForeign(path, renames, trace));
  if (trace.rows.empty() && trace.models.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has no rounds: neither rows of metrics nor models (*.safetensors)"));
  }
  return trace;
}

absl::StatusOr<std::map<uint64_t, MetricsRow>> ClientRows(const Trace& trace, uint32_t round) {
  std::map<uint64_t, MetricsRow> rows;
  std::ifstream file(trace.clients_file);
  if (!file) return FileError("cannot open", trace.clients_file);
  std::string line;
  // The rows of a round stand together, and rounds follow each other: most lines are told by their
  // beginning, which is always the same.
  const std::string begin = absl::StrCat("{\"round\":", round, ",");
  while (std::getline(file, line)) {
    if (!absl::StartsWith(line, begin)) continue;
    const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object() || !row.contains("client") || !row["client"].is_number_unsigned())
      continue;
    MetricsRow numbers = NumbersIn(row);
    numbers.erase(kRoundColumn);
    numbers.erase("client");
    rows[row["client"].get<uint64_t>()] = std::move(numbers);
  }
  return rows;
}

}  // namespace macaw::cli
