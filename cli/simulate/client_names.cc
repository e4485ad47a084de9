#include "cli/simulate/client_names.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/config/document.h"
#include "cli/config/reader.h"
#include "core/files.h"
#include "core/spelling.h"
#include "core/status.h"
#include "data/dataset.h"
#include "server/engine/roster.h"
#include "server/journal/holdings.h"
#include "server/log/reader.h"

namespace macaw::cli {
namespace {

using Names = std::vector<std::string>;

// Empty where each name is the client's number.
Names UnlessNumbers(Names names) {
  for (uint64_t client = 0; client < names.size(); ++client) {
    if (names[client] != absl::StrCat(client)) return names;
  }
  return {};
}

// What the log tells of the clients' numbers.
struct Numbered {
  bool in_parts = false;      // its nodes have parts of its clients, as workers with --clients do
  bool keeps_places = false;  // log::RunOpened, of the first session
};

absl::StatusOr<Numbered> NumberedIn(const std::string& run, uint64_t clients) {
  Numbered numbered;
  const std::string path = run + "/rounds.log";
  if (!FileExists(path)) return numbered;
  MACAW_ASSIGN_OR_RETURN(server::log::Reader reader, server::log::Reader::Open(path));
  bool opened = false;
  while (true) {
    MACAW_ASSIGN_OR_RETURN(const std::optional<server::log::Entry> entry, reader.Next());
    if (!entry.has_value()) return numbered;
    if (const auto* session = std::get_if<server::log::RunOpened>(&entry->record);
        session != nullptr && !opened) {
      numbered.keeps_places = session->keeps_places;
      opened = true;
    }
    const auto* const node = std::get_if<server::log::NodeJoined>(&entry->record);
    if (node == nullptr) continue;
    uint64_t held = 0;
    for (const server::log::Holding& holding : node->holdings) held += holding.clients;
    if (held == 0) continue;
    numbered.in_parts = held < clients;
    return numbered;
  }
}

// The names in the data set that the run's configuration names.
absl::StatusOr<Names> NamesInData(const std::string& run, const Document& document) {
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, {}));
  MACAW_ASSIGN_OR_RETURN(const Config config, ReadConfig(document, {}, catalogue, Idle::kLeaveOut));
  if (config.node.workers.owners > 0) return Names();
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                         catalogue.OpenDataset(config.node.data, config.node.partition));
  Names names;
  for (ClientId client; client.value < dataset->info().clients; ++client.value)
    names.push_back(dataset->ClientName(client));
  // Where nodes have parts of the clients, they tell the clients' names, and the server numbers the
  // clients by them; so it does on fleets where patterns decide who is drawn.
  MACAW_ASSIGN_OR_RETURN(const Numbered numbered, NumberedIn(run, names.size()));
  const bool for_patterns = !config.run.cohort.eligible.empty() && !numbered.keeps_places;
  if (numbered.in_parts || for_patterns) std::ranges::sort(names, server::NameBefore);
  return UnlessNumbers(std::move(names));
}

// The names that the owners of a fleet have registered.
absl::StatusOr<Names> NamesOfOwners(const std::string& run) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<server::Restored::Member> members,
                         server::ReadHoldings(run));
  Names names;
  for (const server::Restored::Member& member : members) {
    for (uint64_t place = 0; place < member.table.clients(); ++place)
      names.push_back(member.table.NameOf(place));
  }
  std::ranges::sort(names, server::NameBefore);
  return UnlessNumbers(std::move(names));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ClientNamesOf(const std::string& run) {
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(run + "/config.toml"));
  MACAW_ASSIGN_OR_RETURN(const std::optional<Value> source, Lookup(document, {}, "data.source"));
  return source.has_value() ? NamesInData(run, document) : NamesOfOwners(run);
}

absl::StatusOr<uint64_t> ClientCountOf(const std::string& run) {
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(run + "/config.toml"));
  MACAW_ASSIGN_OR_RETURN(const std::optional<Value> given, Lookup(document, {}, "run.clients"));
  const int64_t* const number = given.has_value() ? given->As<int64_t>() : nullptr;
  if (number != nullptr && *number > 0) return static_cast<uint64_t>(*number);
  MACAW_ASSIGN_OR_RETURN(const std::vector<server::Restored::Member> members,
                         server::ReadHoldings(run));
  uint64_t clients = 0;
  for (const server::Restored::Member& member : members) clients += member.table.clients();
  return clients;
}

bool IsClientNumber(absl::string_view client) {
  uint64_t number = 0;
  absl::ConsumePrefix(&client, "#");
  return absl::SimpleAtoi(client, &number);
}

absl::StatusOr<uint64_t> ClientNumber(absl::string_view client,
                                      const std::vector<std::string>& names) {
  const auto found = std::ranges::find(names, client);
  const auto named = static_cast<uint64_t>(found - names.begin());  // names.size(): nobody is
  uint64_t number = 0;
  if (absl::SimpleAtoi(client, &number)) {
    const bool is_other = named < names.size() && named != number;
    if (!is_other) return number;
    if (number >= names.size()) return named;
    return absl::InvalidArgumentError(
        absl::StrCat(client, " is the number of client \"", names[number],
                     "\" and the name of client ", named, ": say \"#", number,
                     "\" for the first (in quotation marks), or \"#", named, "\" for the second"));
  }
  if (named < names.size()) return named;
  if (IsClientNumber(client) && absl::SimpleAtoi(client.substr(1), &number)) return number;
  if (names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no client is named \"", client, "\": the run's clients have numbers alone, from 0"));
  }
  const std::string nearest = NearestWord(client, names);
  return absl::InvalidArgumentError(
      absl::StrCat("no client is named \"", client, "\"; ",
                   nearest.empty() ? absl::StrCat("client 0 is \"", names[0], "\", and so on")
                                   : absl::StrCat("did you mean \"", nearest, "\"?")));
}

}  // namespace macaw::cli
