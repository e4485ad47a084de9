#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "cli/config/reader.h"

namespace macaw::cli {

// The minimal configuration.
inline constexpr char kMinimal[] = R"([data]
source = "synthetic"
[model]
name = "logistic"
[cohort]
size = 10
)";

// An algorithm that can be configured but not run.
inline algorithms::Description Named(const std::string& name,
                                     std::vector<algorithms::ParameterSpec> parameters) {
  const absl::Status none = absl::UnimplementedError("a name only");
  algorithms::Description description{.name = name, .summary = "for tests", .paper = "none"};
  description.parameters = std::move(parameters);
  description.schema = [none](const auto&) { return none; };
  description.server = [none](const auto&, FlatVector) { return none; };
  description.client = [none](const auto&) { return none; };
  return description;
}

inline algorithms::Description Pooling() {
  algorithms::Description pooling = Named("pooling", {});
  pooling.pools_clients = true;
  return pooling;
}

// fedavg without parameters, fedprox with a number >= 0, one with a parameter of each other type,
// and one that pools all clients.
inline sdk::Catalogue TestCatalogue() {
  sdk::Catalogue catalogue;
  for (const algorithms::Description& description :
       {Named("fedavg", {}),
        Named("fedprox", {{.name = "mu", .default_value = 0.01, .minimum = 0}}),
        Named("other",
              {{.name = "option", .default_value = std::string("a"), .choices = {"a", "b"}},
               {.name = "count", .default_value = int64_t{3}},
               {.name = "flag", .default_value = false}}),
        Pooling()}) {
    const absl::Status added = catalogue.AddAlgorithm(description);
    EXPECT_TRUE(added.ok()) << added;
  }
  return catalogue;
}

inline absl::StatusOr<Config> Parse(const std::string& text,
                                    const std::vector<std::string>& set = {},
                                    const std::string& folder = "/configs") {
  std::vector<Override> overrides;
  for (const std::string& one : set) {
    absl::StatusOr<Override> override = ParseOverride(one);
    if (!override.ok()) return override.status();
    overrides.push_back(*std::move(override));
  }
  const absl::StatusOr<Document> document = ParseDocument(text, "exp.toml", folder);
  if (!document.ok()) return document.status();
  return ReadConfig(*document, overrides, TestCatalogue());
}

// The message of a configuration that must be refused.
inline std::string Refusal(const std::string& text, const std::vector<std::string>& set = {}) {
  const absl::StatusOr<Config> config = Parse(text, set);
  return config.ok() ? "accepted" : std::string(config.status().message());
}

}  // namespace macaw::cli
