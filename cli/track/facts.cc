#include "cli/track/facts.h"

#include <chrono>
#include <optional>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/config/reader.h"
#include "core/files.h"
#include "core/status.h"
#include "server/log/reader.h"
#include "server/log/record.h"

namespace macaw::cli {
namespace {

void Flatten(const std::string& prefix, const Table& table, RunFacts& facts) {
  for (const auto& [name, value] : table) {
    const std::string key = prefix.empty() ? name : absl::StrCat(prefix, ".", name);
    if (const Table* inner = value.As<Table>(); inner != nullptr) {
      Flatten(key, *inner, facts);
      continue;
    }
    const std::string* text = value.As<std::string>();
    if (key == "run.name" && text != nullptr) facts.name = *text;
    facts.settings.emplace_back(key, text != nullptr ? *text : settings::ToToml(value));
  }
}

// The log's first record has the time at which the first server began.
int64_t BeganMs(const std::string& folder) {
  absl::StatusOr<server::log::Reader> log = server::log::Reader::Open(folder + "/rounds.log");
  if (log.ok()) {
    const absl::StatusOr<std::optional<server::log::Entry>> first = log->Next();
    if (first.ok() && first->has_value()) {
      const auto* opened = std::get_if<server::log::RunOpened>(&(*first)->record);
      if (opened != nullptr) return opened->wall_ns / 1'000'000;
    }
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::StatusOr<RunFacts> ReadFacts(const std::string& folder) {
  RunFacts facts;
  facts.folder = folder;
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(folder + "/config.toml"));
  Flatten("", document.content, facts);
  MACAW_ASSIGN_OR_RETURN(const std::string id, ReadFile(folder + "/run-id"));
  facts.id = std::string(absl::StripAsciiWhitespace(id));
  facts.began_ms = BeganMs(folder);
  return facts;
}

RunEnd ReadEnd(const std::string& folder) {
  absl::StatusOr<server::log::Reader> log = server::log::Reader::Open(folder + "/rounds.log");
  RunEnd end;
  while (log.ok()) {
    const absl::StatusOr<std::optional<server::log::Entry>> entry = log->Next();
    if (!entry.ok() || !entry->has_value()) break;
    const server::log::Record& record = (*entry)->record;
    if (std::holds_alternative<server::log::RunOpened>(record)) end.end = "";
    const auto* ended = std::get_if<server::log::RunEnded>(&record);
    if (ended != nullptr) end.end = server::log::NameOf(ended->how);
  }
  return end;
}

}  // namespace macaw::cli
