#include "cli/diff/beside.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/config/config.h"
#include "cli/config/settings.h"
#include "core/spelling.h"

namespace macaw::cli {
namespace {

// The last part of a path. Two runs may have the same data in different folders.
std::string LastOf(const std::string& toml) {
  const bool quoted = toml.size() >= 2 && toml.front() == '"' && toml.back() == '"';
  std::filesystem::path path(quoted ? toml.substr(1, toml.size() - 2) : toml);
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

bool DecidesAResult(const std::string& key, const std::string& a, const std::string& b) {
  using settings::Role;
  for (const Field& field : AllFields()) {
    if (field.key != key) continue;
    if (field.is_path && !a.empty() && !b.empty() && LastOf(a) == LastOf(b)) return false;
    // Those with a program of its own, or other instructions, can change a result's bits.
    if (absl::StartsWith(key, "workers.") &&
        (key == "workers.command" || key == "workers.backend" || key == "workers.instruction_set"))
      return true;
    return !OnlyComputes(key) && (field.role != Role::kLabel || key == "plugins");
  }
  return true;  // a parameter of a rule
}

}  // namespace

void CompareFacts(const Trace& a, const Trace& b, DiffReport& report) {
  if (!a.is_run || !b.is_run) return;
  std::set<std::string> keys;
  for (const Trace* const trace : {&a, &b}) {
    for (const auto& [key, value] : trace->settings) keys.insert(key);
  }
  const auto value = [](const Trace& trace, const std::string& key) {
    const auto found = trace.settings.find(key);
    return found == trace.settings.end() ? std::string() : found->second;
  };
  for (const std::string& key : keys) {
    FactDifference fact{.name = key, .first = value(a, key), .second = value(b, key)};
    if (fact.first == fact.second) continue;
    const bool decides = DecidesAResult(key, fact.first, fact.second);
    (decides ? report.settings : report.elsewhere).push_back(std::move(fact));
  }
  const auto compare = [&](const char* name, const std::string& first, const std::string& second) {
    if (first != second && !first.empty() && !second.empty())
      report.facts.push_back({.name = name, .first = first, .second = second});
  };
  compare("program", a.program, b.program);
  compare("data digest", a.data_digest, b.data_digest);
  compare("numeric profile", a.profile, b.profile);
}

std::vector<ModelDifference> CompareModels(const Trace& a, const Trace& b, double tolerance) {
  std::vector<ModelDifference> models;
  std::set<uint32_t> done;
  for (const TracedModel& first : a.models) {
    // The final model and its checkpoint are one: the first of a round stands for it.
    if (done.contains(first.round)) continue;
    const auto second = std::ranges::find(b.models, first.round, &TracedModel::round);
    if (second == b.models.end()) continue;
    done.insert(first.round);
    models.push_back({.round = first.round,
                      .first = first.file,
                      .second = second->file,
                      .tensors = CompareTensors(first.tensors, second->tensors, tolerance)});
  }
  std::ranges::sort(models, {}, &ModelDifference::round);
  return models;
}

std::string WhatItIs(const Trace& trace) {
  if (!trace.is_run) {
    return absl::StrCat("trace, ", Counted(trace.rows.size(), "row"), ", ",
                        Counted(trace.models.size(), "model"));
  }
  return absl::StrCat(trace.end.empty() ? "not over" : trace.end, ", ",
                      Counted(trace.rounds(), "round"));
}

absl::Status CountCommon(const Trace& a, const Trace& b, DiffReport& report) {
  std::set<uint32_t> rounds;
  std::set<std::string> columns, first, second;
  for (const auto& [round, row] : a.rows) {
    const auto other = b.rows.find(round);
    for (const auto& [name, value] : row) first.insert(name);
    if (other == b.rows.end()) continue;
    rounds.insert(round);
    for (const auto& [name, value] : row) {
      if (other->second.contains(name)) columns.insert(name);
    }
  }
  for (const auto& [round, row] : b.rows) {
    for (const auto& [name, value] : row) second.insert(name);
  }
  for (const ModelDifference& model : report.models) rounds.insert(model.round);
  const bool runs = a.is_run && b.is_run;
  if (runs) {
    report.rounds = std::min(a.rounds(), b.rounds());
  } else {
    report.rounds = static_cast<uint32_t>(rounds.size());
  }
  report.columns = static_cast<uint32_t>(columns.size());
  if (runs || !columns.empty() || !report.models.empty()) return absl::OkStatus();
  if (rounds.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(a.path, " and ", b.path, " tell of no round in common: rounds count from 1"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      a.path, " and ", b.path, " have no column in common: ", absl::StrJoin(first, ", "), " and ",
      absl::StrJoin(second, ", "), " (--rename THEIRS=OURS)"));
}

}  // namespace macaw::cli
