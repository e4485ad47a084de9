#include "cli/simulate/client_names.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/config/document.h"
#include "cli/config/reader.h"
#include "core/spelling.h"
#include "core/status.h"
#include "data/dataset.h"
#include "server/engine/roster.h"
#include "server/journal/holdings.h"

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

// Of a simulation, whose clients are those of its data.
absl::StatusOr<Names> NamesInData(const Document& document) {
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, {}));
  MACAW_ASSIGN_OR_RETURN(const Config config, ReadConfig(document, {}, catalogue, Idle::kLeaveOut));
  if (config.node.workers.owners > 0) return Names();
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                         catalogue.OpenDataset(config.node.data, config.node.partition));
  Names names;
  for (ClientId client; client.value < dataset->info().clients; ++client.value)
    names.push_back(dataset->ClientName(client));
  // Workers tell the clients' names where patterns decide who is drawn, and the server then numbers
  // the clients by them.
  if (!config.run.cohort.eligible.empty()) std::ranges::sort(names, server::NameBefore);
  return UnlessNumbers(std::move(names));
}

// Of a fleet.
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
  return source.has_value() ? NamesInData(document) : NamesOfOwners(run);
}

bool IsClientNumber(absl::string_view client) {
  uint64_t number = 0;
  return absl::SimpleAtoi(client, &number);
}

absl::StatusOr<uint64_t> ClientNumber(absl::string_view client,
                                      const std::vector<std::string>& names) {
  uint64_t number = 0;
  if (absl::SimpleAtoi(client, &number)) return number;
  if (const auto found = std::ranges::find(names, client); found != names.end())
    return static_cast<uint64_t>(found - names.begin());
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
