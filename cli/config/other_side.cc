#include "cli/config/other_side.h"

#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace macaw::cli {
namespace {

bool Gives(const Document& document, const std::string& key) {
  const absl::StatusOr<std::optional<Value>> value = Lookup(document, {}, key);
  return value.ok() && value->has_value();
}

std::string TableOf(const std::string& key) { return key.substr(0, key.find('.')); }

std::string Note(const std::set<std::string>& tables, const char* what) {
  if (tables.empty()) return "";
  const auto brackets = [](std::string* out, const std::string& table) {
    absl::StrAppend(out, "[", table, "]");
  };
  return absl::StrCat(absl::StrJoin(tables, ", ", brackets), what);
}

}  // namespace

std::string NoteOnServersTables(const Document& document) {
  std::set<std::string> tables;
  const auto add = [&](const std::string& key) {
    // A node dials server.listen where nothing else says whom.
    const bool its_own = absl::StartsWith(key, "data.") || key == "server.listen";
    if (!its_own && Gives(document, key)) tables.insert(TableOf(key));
  };
  const settings::Section<RunPlan> plan = PlanSection();
  for (const auto& field : plan.fields()) {
    if (field.in_file) add(field.key);
  }
  const settings::Section<server::ServerConfig> server = server::ServerSection();
  for (const auto& field : server.fields()) add(field.key);
  return Note(tables, ": the server's file decides this, and here it changes nothing");
}

std::string NoteOnNodesTables(const Config& config) {
  const Config defaults;
  std::set<std::string> tables;
  for (const Field& field : AllFields()) {
    const std::string table = TableOf(field.key);
    if (table != "node" && table != "accept" && table != "emulation") continue;
    if (field.get(config) != field.get(defaults)) tables.insert(table);
  }
  return Note(tables, ": each node's own file decides this, and here it changes nothing");
}

}  // namespace macaw::cli
