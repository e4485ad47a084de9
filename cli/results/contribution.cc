#include "cli/results/contribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "cli/results/text.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Tally {
  ClientContribution all;
  double cosines = 0;
  uint32_t with_cosine = 0;
};

bool AreNumbers(const Json& clients) {
  return clients.is_array() &&
         std::ranges::all_of(clients, [](const Json& one) { return one.is_number_unsigned(); });
}

// What the line says of models of evaluation.unlearn, in the place of what earlier ones have said.
bool AddUnlearned(const Json& line, std::map<uint64_t, Tally>& tallies) {
  if (!line.contains("unlearned_client")) return true;
  const Json& clients = line["unlearned_client"];
  if (!AreNumbers(clients)) return false;
  for (size_t i = 0; i < clients.size(); ++i) {
    ClientContribution& all = tallies[clients[i].get<uint64_t>()].all;
    all.unlearned.clear();
    for (const auto& [name, list] : line.items()) {
      absl::string_view metric = name;
      const bool number = list.is_array() && i < list.size() && list[i].is_number();
      if (!number || !absl::ConsumePrefix(&metric, "unlearned_")) continue;
      if (metric == "rounds") all.unlearned_rounds = list[i].get<uint32_t>();
      if (absl::StartsWith(metric, "test_"))
        all.unlearned[std::string(metric)] = list[i].get<double>();
    }
  }
  return true;
}

// Adds a round. False: the line is none of contributions.jsonl.
bool AddRound(const Json& line, std::map<uint64_t, Tally>& tallies) {
  if (!line.is_object() || !line.contains("client") || !AreNumbers(line["client"])) return false;
  const Json& clients = line["client"];
  for (size_t i = 0; i < clients.size(); ++i) {
    Tally& tally = tallies[clients[i].get<uint64_t>()];
    ++tally.all.rounds;
    for (const auto& [name, list] : line.items()) {
      absl::string_view metric = name;
      const bool number = list.is_array() && i < list.size() && list[i].is_number();
      if (number && name == "cosine") {
        tally.cosines += list[i].get<double>();
        ++tally.with_cosine;
      }
      if (number && absl::ConsumePrefix(&metric, "delta_"))
        tally.all.deltas[std::string(metric)] += list[i].get<double>();
    }
  }
  return AddUnlearned(line, tallies);
}

// Larger is better.
double WorthOf(const ClientContribution& client) {
  if (const auto accuracy = client.deltas.find("test_accuracy"); accuracy != client.deltas.end())
    return accuracy->second;
  const auto loss = client.deltas.find("test_loss");
  return loss == client.deltas.end() ? -std::numeric_limits<double>::infinity() : -loss->second;
}

// How numbers are written.
struct Style {
  std::string (*cosine)(double);
  std::string (*delta)(double);
  std::string (*metric)(double);
  std::string none;  // in the place of a number that is not defined
};

const Style kForPeople = {[](double value) { return absl::StrFormat("%.3f", value); },
                          [](double value) { return absl::StrFormat("%+.5f", value); },
                          [](double value) { return absl::StrFormat("%.5f", value); }, "-"};
const Style kExact = {ExactText, ExactText, ExactText, ""};

std::string NameOf(const ClientContribution& client, const std::vector<std::string>& names) {
  return client.client < names.size() ? names[client.client] : absl::StrCat(client.client);
}

std::vector<std::vector<std::string>> Lines(const std::vector<ClientContribution>& clients,
                                            size_t most, const std::vector<std::string>& names,
                                            const Style& style) {
  std::set<std::string> metrics, unlearned;
  bool unlearns = false;
  for (const ClientContribution& client : clients) {
    for (const auto& [metric, delta] : client.deltas) metrics.insert(metric);
    for (const auto& [metric, value] : client.unlearned) unlearned.insert(metric);
    unlearns = unlearns || client.unlearned_rounds > 0;
  }
  std::vector<std::vector<std::string>> lines = {{"client"}};
  if (!names.empty()) lines[0].emplace_back("name");
  lines[0].insert(lines[0].end(), {"rounds", "cosine"});
  for (const std::string& metric : metrics) lines[0].push_back(absl::StrCat("delta ", metric));
  if (unlearns) lines[0].emplace_back("unlearned rounds");
  for (const std::string& metric : unlearned)
    lines[0].push_back(absl::StrCat("unlearned ", metric));
  for (size_t i = 0; i < clients.size(); ++i) {
    if (i >= most && i + most < clients.size()) continue;
    const ClientContribution& client = clients[i];
    std::vector<std::string>& line = lines.emplace_back();
    line.push_back(absl::StrCat(client.client));
    if (!names.empty()) line.push_back(NameOf(client, names));
    line.push_back(absl::StrCat(client.rounds));
    line.push_back(std::isfinite(client.cosine) ? style.cosine(client.cosine) : style.none);
    for (const std::string& metric : metrics) {
      const auto delta = client.deltas.find(metric);
      line.push_back(delta == client.deltas.end() ? style.none : style.delta(delta->second));
    }
    const bool has_model = client.unlearned_rounds > 0;
    if (unlearns) line.push_back(has_model ? absl::StrCat(client.unlearned_rounds) : style.none);
    for (const std::string& metric : unlearned) {
      const auto value = client.unlearned.find(metric);
      const bool known = value != client.unlearned.end();
      line.push_back(known ? style.metric(value->second) : style.none);
    }
  }
  return lines;
}

}  // namespace

absl::StatusOr<std::vector<ClientContribution>> ReadContributions(const std::string& folder) {
  const std::string path = folder + "/contributions.jsonl";
  if (!FileExists(path)) {
    return absl::NotFoundError(
        absl::StrCat(folder,
                     " has no contributions.jsonl: run it with evaluation.leave_one_out = 1 "
                     "(or every how many rounds), or with evaluation.unlearn"));
  }
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::map<uint64_t, Tally> tallies;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const absl::string_view line = absl::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.empty() || AddRound(Json::parse(line, nullptr, /*allow_exceptions=*/false), tallies))
      continue;
    if (end == text.size()) break;  // a run that goes on may just be writing it
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", number,
                     " is no line of contributions: a JSON object whose \"client\" (and "
                     "\"unlearned_client\") is a list of numbers"));
  }
  std::vector<ClientContribution> clients;
  for (auto& [client, tally] : tallies) {
    tally.all.client = client;
    tally.all.cosine = tally.cosines / tally.with_cosine;
    clients.push_back(std::move(tally.all));
  }
  std::ranges::stable_sort(clients, std::ranges::greater(), WorthOf);
  return clients;
}

std::vector<std::vector<std::string>> ContributionLines(
    const std::vector<ClientContribution>& clients, size_t most,
    const std::vector<std::string>& names) {
  return Lines(clients, most, names, kForPeople);
}

std::string ContributionCsv(const std::vector<ClientContribution>& clients,
                            const std::vector<std::string>& names) {
  std::string text;
  for (const std::vector<std::string>& line : Lines(clients, clients.size(), names, kExact))
    absl::StrAppend(&text, CsvLine(line));
  return text;
}

std::string ContributionJson(const std::vector<ClientContribution>& clients,
                             const std::vector<std::string>& names) {
  Json all = Json::array();
  for (const ClientContribution& client : clients) {
    Json& one = all.emplace_back(Json{{"client", client.client}});
    if (!names.empty()) one["name"] = NameOf(client, names);
    one["rounds"] = client.rounds;
    one["cosine"] = std::isfinite(client.cosine) ? Json(client.cosine) : Json(nullptr);
    for (const auto& [metric, delta] : client.deltas) one[absl::StrCat("delta_", metric)] = delta;
    if (client.unlearned_rounds > 0) one["unlearned_rounds"] = client.unlearned_rounds;
    for (const auto& [metric, value] : client.unlearned)
      one[absl::StrCat("unlearned_", metric)] = value;
  }
  return all.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace macaw::cli
