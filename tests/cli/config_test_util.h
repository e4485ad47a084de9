#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "algorithms/api/registry.h"
#include "cli/config/reader.h"

namespace macaw::cli {

// The least that a configuration needs.
inline constexpr char kMinimal[] = R"([data]
source = "synthetic"
[model]
name = "logistic"
[cohort]
size = 10
)";

// fedavg without parameters, fedprox with a number >= 0, and one with a parameter of each other
// type.
inline algorithms::Registry TestRegistry() {
  algorithms::Registry registry;
  EXPECT_TRUE(registry.Add({.name = "fedavg", .summary = "", .paper = ""}).ok());
  algorithms::Description prox{.name = "fedprox"};
  prox.parameters.push_back({.name = "mu", .default_value = 0.01, .minimum = 0});
  EXPECT_TRUE(registry.Add(std::move(prox)).ok());
  algorithms::Description other{.name = "other"};
  other.parameters.push_back(
      {.name = "option", .default_value = std::string("a"), .choices = {"a", "b"}});
  other.parameters.push_back({.name = "count", .default_value = int64_t{3}});
  other.parameters.push_back({.name = "flag", .default_value = false});
  EXPECT_TRUE(registry.Add(std::move(other)).ok());
  return registry;
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
  return ParseConfig(text, "exp.toml", folder, overrides, TestRegistry());
}

// The message of a configuration that must be refused.
inline std::string Refusal(const std::string& text, const std::vector<std::string>& set = {}) {
  const absl::StatusOr<Config> config = Parse(text, set);
  return config.ok() ? "accepted" : std::string(config.status().message());
}

}  // namespace macaw::cli
