#include "cli/bundle/crate.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace macaw::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kSpecification[] = "https://w3id.org/ro/crate/1.1";
constexpr char kRun[] = "#run", kMacaw[] = "#macaw", kData[] = "#data";

OrderedJson Reference(const std::string& id) { return {{"@id", id}}; }

// What a file is, by its name.
std::pair<const char*, const char*> KindOf(const std::string& name) {
  if (name == "config.toml") return {"application/toml", "The configuration of the run, resolved"};
  if (name == "summary.json") return {"application/json", "How the run ended: metrics, digests"};
  if (name == "metrics.jsonl") return {"application/x-ndjson", "Metrics, a row a round"};
  if (name == "rounds.log") return {"application/octet-stream", "The log of rounds (macaw log)"};
  if (name == "model.safetensors") return {"application/octet-stream", "The final model"};
  if (name == "model.best.safetensors")
    return {"application/octet-stream", "The model of the best round"};
  if (absl::EndsWith(name, ".svg")) return {"image/svg+xml", "A figure"};
  if (absl::EndsWith(name, ".png")) return {"image/png", "A figure"};
  if (absl::EndsWith(name, ".pdf")) return {"application/pdf", "A figure"};
  if (absl::EndsWith(name, ".html")) return {"text/html", "A report"};
  if (absl::EndsWith(name, ".jsonl")) return {"application/x-ndjson", "Rows"};
  if (absl::EndsWith(name, ".json")) return {"application/json", "Values"};
  return {"application/octet-stream", "A file that the run needs"};
}

// A name as the path of a URI (RFC 3986).
std::string UriOf(const std::string& name) {
  std::string uri;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       absl::StrContains("-._~/", absl::string_view(&c, 1));
    if (plain) {
      uri.push_back(c);
    } else {
      constexpr char kDigits[] = "0123456789ABCDEF";
      const auto byte = static_cast<unsigned char>(c);
      uri += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return uri;
}

OrderedJson DataEntity(const BundledData& data) {
  OrderedJson entity = {{"@id", kData}, {"@type", "CreativeWork"}, {"name", "Data of the run"}};
  entity["description"] = data.by_name
                              ? "Generated from the configuration; reproducible by name and seed"
                              : "Not in this bundle";
  if (!data.digest.empty()) entity["identifier"] = absl::StrCat("blake2b-256:", data.digest);
  if (!data.source.empty()) entity["encodingFormat"] = data.source;
  if (!data.path.empty()) entity["alternateName"] = data.path;
  return entity;
}

}  // namespace

std::string CrateJson(const Manifest& manifest, const std::string& license) {
  OrderedJson parts = OrderedJson::array(), files = OrderedJson::array(),
              results = OrderedJson::array();
  for (const BundledFile& file : manifest.files) {
    const auto [format, description] = KindOf(file.name);
    const std::string id = UriOf(file.name);
    parts.push_back(Reference(id));
    if (file.name != "config.toml" && !absl::StartsWith(file.name, "inputs/"))
      results.push_back(Reference(id));
    files.push_back({{"@id", id},
                     {"@type", "File"},
                     {"name", file.name},
                     {"description", description},
                     {"encodingFormat", format},
                     {"contentSize", absl::StrCat(file.bytes)},
                     {"sha256", file.sha256}});
  }
  parts.push_back(Reference(kManifestFile));
  const std::string day = manifest.ended.substr(0, 10);
  OrderedJson root = {
      {"@id", "./"},
      {"@type", "Dataset"},
      {"name", absl::StrCat("Result of the federated run ", manifest.name)},
      {"description",
       absl::StrCat("Configuration, metrics, model and log of ", manifest.rounds, " rounds of ",
                    manifest.algorithm, ". `macaw verify` runs it again and compares.")},
      {"datePublished", day},
      {"hasPart", std::move(parts)},
      {"mentions", OrderedJson::array({Reference(kRun)})}};
  if (!license.empty()) root["license"] = Reference(license);
  OrderedJson run = {{"@id", kRun},
                     {"@type", "CreateAction"},
                     {"name", manifest.name},
                     {"description", manifest.command},
                     {"instrument", Reference(kMacaw)},
                     {"object", OrderedJson::array({Reference("config.toml"), Reference(kData)})},
                     {"result", std::move(results)},
                     {"actionStatus", "http://schema.org/CompletedActionStatus"}};
  if (!manifest.began.empty()) run["startTime"] = manifest.began;
  if (!manifest.ended.empty()) run["endTime"] = manifest.ended;
  const std::string program = manifest.program.empty() ? "macaw" : manifest.program;
  const size_t space = program.find(' ');
  OrderedJson graph = OrderedJson::array();
  graph.push_back({{"@id", kCrateFile},
                   {"@type", "CreativeWork"},
                   {"conformsTo", Reference(kSpecification)},
                   {"about", Reference("./")}});
  graph.push_back(std::move(root));
  for (OrderedJson& file : files) graph.push_back(std::move(file));
  graph.push_back({{"@id", kManifestFile},
                   {"@type", "File"},
                   {"name", kManifestFile},
                   {"description", "What the bundle has and has not, with digests"},
                   {"encodingFormat", "application/json"}});
  graph.push_back(DataEntity(manifest.data));
  graph.push_back(
      {{"@id", kMacaw},
       {"@type", "SoftwareApplication"},
       {"name", "Macaw"},
       {"version", space == std::string::npos ? manifest.macaw : program.substr(space + 1)},
       {"softwareRequirements", manifest.profile.libraries},
       {"processorRequirements", manifest.profile.instruction_set}});
  graph.push_back(std::move(run));
  if (!license.empty())
    graph.push_back({{"@id", license}, {"@type", "CreativeWork"}, {"name", license}});
  const OrderedJson crate = {{"@context", absl::StrCat(kSpecification, "/context")},
                             {"@graph", std::move(graph)}};
  return crate.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace macaw::cli
