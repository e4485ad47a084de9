#include "algorithms/around/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <variant>

#include "algorithms/builtin.h"

namespace macaw::algorithms {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() { registry_.AddBuiltin(BuiltinAlgorithms()); }
  std::string Refusal(const std::string& name, const std::string& parameter, ParameterValue value) {
    return std::string(
        registry_.Complete({name, {{parameter, std::move(value)}}}).status().message());
  }
  Registry registry_;
};

TEST_F(RegistryTest, ListsTheBuiltInsByName) {
  std::vector<std::string> names;
  for (const Description* description : registry_.All()) names.push_back(description->name);
  EXPECT_THAT(names,
              ElementsAre("afl", "apfl", "centered_clipping", "daef", "ditto", "fedadagrad",
                          "fedadam", "fedavg", "fedavgm", "fedbn", "feddyn", "fedexp", "fednova",
                          "fedper", "fedprox", "fedrep", "fedsam", "fedyogi", "fltrust", "gd",
                          "geometric_median", "heterofl", "ifca", "kmeans", "krum", "local",
                          "median", "mime", "mimelite", "moon", "norm_bound", "perfedavg", "pfedme",
                          "pooled", "qfedavg", "ridge", "scaffold", "term", "trimmed_mean"));
}

TEST_F(RegistryTest, NamesTheNearestOfAMisspeltName) {
  EXPECT_THAT(std::string(registry_.Find("FedProxx").status().message()),
              HasSubstr("did you mean 'fedprox'?"));
  const std::string far = std::string(registry_.Find("gradient_boosting").status().message());
  EXPECT_THAT(far, ::testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(far, HasSubstr("fedavg, fedavgm"));
  EXPECT_THAT(Refusal("fedprox", "my", 1.0),
              HasSubstr("algorithm.fedprox.my: no such parameter; did you mean 'mu'?"));
}

TEST_F(RegistryTest, FillsInDefaults) {
  const AlgorithmConfig config = *registry_.Complete({"fedprox", {}});
  EXPECT_EQ(std::get<double>(config.parameters.at("mu")), 0.01);
  EXPECT_EQ(std::get<double>(config.parameters.at("server_lr")), 1.0);
}

TEST_F(RegistryTest, AWholeNumberStandsForANumber) {
  const AlgorithmConfig config = *registry_.Complete({"fedprox", {{"mu", int64_t{1}}}});
  EXPECT_EQ(std::get<double>(config.parameters.at("mu")), 1.0);
}

TEST_F(RegistryTest, RefusesWrongTypesAndRanges) {
  EXPECT_THAT(Refusal("fedprox", "mu", std::string("1")),
              HasSubstr("algorithm.fedprox.mu: must be a number"));
  EXPECT_THAT(Refusal("fedprox", "mu", true), HasSubstr("not true or false"));
  EXPECT_THAT(Refusal("fedprox", "mu", -0.5), HasSubstr("at least 0"));
  EXPECT_THAT(Refusal("fedprox", "mu", std::numeric_limits<double>::quiet_NaN()),
              HasSubstr("finite"));
}

TEST_F(RegistryTest, ChecksChoicesAndMaxima) {
  Description custom = **registry_.Find("fedavg");
  custom.name = "custom";
  custom.parameters = {{.name = "kind", .default_value = "adam", .choices = {"adam", "yogi"}},
                       {.name = "beta", .default_value = 0.9, .minimum = 0, .maximum = 1},
                       {.name = "rate", .default_value = 1.0, .minimum = 0, .open_minimum = true}};
  ASSERT_TRUE(registry_.Add(custom).ok());
  EXPECT_THAT(Refusal("custom", "kind", std::string("yogy")), HasSubstr("did you mean 'yogi'?"));
  EXPECT_THAT(Refusal("custom", "beta", 1.5), HasSubstr("at most 1"));
  EXPECT_THAT(Refusal("custom", "rate", 0.0), HasSubstr("algorithm.custom.rate: must be above 0"));
  EXPECT_TRUE(registry_.Complete({"custom", {{"rate", 1e-9}}}).ok());
  EXPECT_TRUE(
      registry_.Complete({"custom", {{"kind", std::string("yogi")}, {"beta", int64_t{1}}}}).ok());
}

// So that no sum or product of them is beyond any integer.
TEST_F(RegistryTest, WholeNumbersOfTheBuiltInsHaveAMaximum) {
  for (const Description* rule : registry_.All()) {
    for (const ParameterSpec& parameter : rule->parameters) {
      if (!std::holds_alternative<int64_t>(parameter.default_value)) continue;
      EXPECT_TRUE(parameter.minimum.has_value()) << rule->name << "." << parameter.name;
      EXPECT_LE(parameter.maximum.value_or(INFINITY), 1e12) << rule->name << "." << parameter.name;
    }
  }
  EXPECT_THAT(Refusal("fedrep", "head_epochs", int64_t{1} << 32), HasSubstr("at most 10000"));
  EXPECT_THAT(Refusal("krum", "f", int64_t{1} << 62), HasSubstr("at most 1e+06"));
  EXPECT_THAT(Refusal("krum", "m", int64_t{1} << 62), HasSubstr("at most 1e+06"));
}

TEST_F(RegistryTest, RefusesATakenNameAndABrokenDescription) {
  EXPECT_EQ(registry_.Add(**registry_.Find("fedavg")).code(), absl::StatusCode::kAlreadyExists);
  Description broken = **registry_.Find("fedavg");
  broken.name = "broken";
  broken.parameters = {{.name = "mu", .default_value = -1.0, .minimum = 0}};
  EXPECT_FALSE(registry_.Add(broken).ok());
  broken.parameters = {{.name = "mu", .default_value = 1.0}, {.name = "mu", .default_value = 1.0}};
  EXPECT_FALSE(registry_.Add(broken).ok());
  broken.parameters = {};
  broken.client = nullptr;
  EXPECT_FALSE(registry_.Add(broken).ok());
}

}  // namespace
}  // namespace macaw::algorithms
