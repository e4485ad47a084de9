#include "cli/admin/view.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/one_line.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Json> Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool complete = json.is_object() && json.contains("waits_for") && json.contains("nodes") &&
                        json.contains("state");
  if (!complete) return absl::DataLossError("the server's status is not what this version reads");
  return json;
}

// Names come from nodes. OneLine takes control characters out of them.
std::string Text(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? OneLine(it->get<std::string>()) : "";
}
double Number(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number() ? it->get<double>() : 0;
}
bool Flag(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_boolean() && it->get<bool>();
}

// The columns of metrics.jsonl that a status of a few lines has room for.
bool IsHeadline(absl::string_view column) {
  return column == "train_loss" || column == "train_accuracy" || absl::StartsWith(column, "test_");
}

std::string Mebibytes(double bytes) {
  return bytes > 0 ? absl::StrFormat("%.0f MiB", bytes / (1 << 20)) : "-";
}

// Without their times, two sentences about the same wait are equal.
std::string WithoutTimes(const std::string& text) {
  static const std::regex time("\\b[0-9]+ (s|min|h)\\b");
  return std::regex_replace(text, time, "# $1");
}

}  // namespace

absl::StatusOr<std::string> StatusView(const std::string& text) {
  MACAW_ASSIGN_OR_RETURN(const Json json, Parse(text));
  std::string view = absl::StrFormat("%-10s %s\n", "run", Text(json, "run"));
  const auto line = [&](const char* what, const std::string& value) {
    absl::StrAppendFormat(&view, "%-10s %s\n", what, value);
  };
  line("state", Text(json, "state"));
  line("waits for", Text(json, "waits_for"));
  line("round", absl::StrFormat("%.0f of %.0f, %.0f done", Number(json, "round"),
                                Number(json, "rounds"), Number(json, "completed")));
  if (Number(json, "cohort") > 0) {
    line("clients", absl::StrFormat("%.0f counted, %.0f given up, %.0f leased, %.0f waiting",
                                    Number(json, "counted"), Number(json, "given_up"),
                                    Number(json, "leased"), Number(json, "waiting")));
  }
  line("nodes", absl::StrCat(json["nodes"].size()));
  for (const Json& one : json.value("quarantine", Json::array())) {
    line("quarantine", absl::StrCat(Text(one, "node"), ", by ", Text(one, "by"),
                                    Text(one, "reason").empty() ? "" : ": ", Text(one, "reason")));
  }
  if (json.contains("latest_row") && json["latest_row"].is_object()) {
    std::string row;
    for (const auto& [name, value] : json["latest_row"].items()) {
      if (value.is_number() && IsHeadline(name))
        absl::StrAppendFormat(&row, "%s%s %.4g", row.empty() ? "" : "  ", name,
                              value.get<double>());
    }
    line("metrics", OneLine(row));
  }
  line("seconds", absl::StrFormat("%.0f", Number(json, "seconds")));
  line("memory", Mebibytes(Number(json, "memory_bytes")));
  return view;
}

absl::StatusOr<std::string> NodesView(const std::string& text) {
  MACAW_ASSIGN_OR_RETURN(const Json json, Parse(text));
  if (json["nodes"].empty()) return "no node is there\n";
  size_t wide = 4;
  for (const Json& node : json["nodes"]) wide = std::max(wide, Text(node, "name").size());
  const int width = static_cast<int>(std::min<size_t>(wide, 40));
  std::string view =
      absl::StrFormat("%-*s %-10s %6s %8s %7s %8s %9s  %s\n", width, "name", "version", "slots",
                      "clients", "leases", "heard", "memory", "does");
  for (const Json& node : json["nodes"]) {
    const std::string heard = absl::StrFormat("%.0f s", Number(node, "silent_seconds"));
    std::string does = absl::StrCat(Flag(node, "late") ? "silent; " : "", Text(node, "doing"));
    if (Flag(node, "owner")) absl::StrAppend(&does, "; owns its clients");
    if (Flag(node, "on_trial")) absl::StrAppend(&does, "; on trial, its leases ran out");
    std::string version = Text(node, "program");
    version.erase(0, version.find(' ') + 1);
    absl::StrAppendFormat(&view, "%-*s %-10s %6.0f %8.0f %7.0f %8s %9s  %s\n", width,
                          Text(node, "name"), version, Number(node, "slots"),
                          Number(node, "clients"), Number(node, "leased"), heard,
                          Mebibytes(Number(node, "memory_bytes")), does);
  }
  return view;
}

absl::StatusOr<WatchLine> WatchView(const std::string& text) {
  MACAW_ASSIGN_OR_RETURN(const Json json, Parse(text));
  const std::string waits = Text(json, "waits_for");
  WatchLine line;
  line.ended = Text(json, "state") == "ended";
  line.text = line.ended ? waits
                         : absl::StrFormat("round %.0f/%.0f  %s", Number(json, "round"),
                                           Number(json, "rounds"), waits);
  line.key = WithoutTimes(line.text);
  return line;
}

absl::StatusOr<std::string> RunsView(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return absl::DataLossError("the server's list of runs is not one");
  if (json.empty()) return "no run was submitted\n";
  size_t wide = 4;
  for (const Json& run : json) wide = std::max(wide, Text(run, "name").size());
  const int width = static_cast<int>(wide);
  std::string view = absl::StrFormat("%-*s  %-11s  %-20s  %-20s  %s\n", width, "name", "state",
                                     "began", "ended", "by");
  for (const Json& run : json) {
    absl::StrAppendFormat(&view, "%-*s  %-11s  %-20s  %-20s  %s%s\n", width, Text(run, "name"),
                          Text(run, "state"), Text(run, "began"), Text(run, "ended"),
                          Text(run, "by"),
                          Text(run, "why").empty() ? "" : absl::StrCat("; ", Text(run, "why")));
  }
  return view;
}

absl::StatusOr<uint32_t> RoundOf(const std::string& text) {
  MACAW_ASSIGN_OR_RETURN(const Json json, Parse(text));
  return static_cast<uint32_t>(Number(json, "round"));
}

absl::StatusOr<uint32_t> EvaluatedRoundOf(const std::string& text) {
  MACAW_ASSIGN_OR_RETURN(const Json json, Parse(text));
  return static_cast<uint32_t>(Number(json, "evaluated_round"));
}

std::string SaidView(const std::string& text, bool json) {
  if (!json) return OneLine(text) + "\n";
  return Json({{"said", text}}).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string CodeView(const std::string& code, const std::string& until, bool json) {
  if (!json) return code + "\n";
  return Json({{"code", code}, {"until", until}}).dump() + "\n";
}

std::string FilesView(const std::string& folder, const std::vector<std::string>& names, bool json) {
  if (json) {
    return Json({{"folder", folder}, {"files", names}})
               .dump(-1, ' ', false, Json::error_handler_t::replace) +
           "\n";
  }
  if (names.empty()) return absl::StrCat(folder, ": nothing is there yet\n");
  return absl::StrCat(folder, ": ", OneLine(absl::StrJoin(names, ", ")), "\n");
}

}  // namespace macaw::cli
