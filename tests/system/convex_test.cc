// examples/convex.toml against the golden table: the distance to the optimum after so many rounds.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing_support::Simulation;

constexpr double kOptimum = .33334075206871;  // F* of a9a with lambda = 1e-3
constexpr double kTolerance = 1e-2;           // relative

std::string DataPath() { return MACAW_SOURCE_DIR "/../shared/data/libsvm/a9a"; }

struct Golden {
  std::string name;
  std::vector<std::string> set;
  double after10, after50;
};

class Convex : public testing::TestWithParam<Golden> {};

TEST_P(Convex, IsAsFarFromTheOptimumAsTheTableSays) {
  if (!std::filesystem::exists(DataPath())) GTEST_SKIP() << "no " << DataPath();
  std::vector<std::string> arguments = {MACAW_SOURCE_DIR "/examples/convex.toml",
                                        "--rounds",
                                        "50",
                                        "--set",
                                        "data.path=" + DataPath(),
                                        "--quiet"};
  for (const std::string& set : GetParam().set) arguments.insert(arguments.end(), {"--set", set});
  Simulation run(GetParam().name, arguments);
  ASSERT_EQ(run.Wait(), 0) << run.output();
  std::vector<double> objective;
  for (const absl::string_view line : absl::StrSplit(run.metrics(), '\n', absl::SkipEmpty())) {
    objective.push_back(nlohmann::json::parse(line)["train_objective"].get<double>());
  }
  ASSERT_EQ(objective.size(), 50u);
  EXPECT_NEAR((objective[9] - kOptimum) / GetParam().after10, 1, kTolerance);
  EXPECT_NEAR((objective[49] - kOptimum) / GetParam().after50, 1, kTolerance);
  EXPECT_EQ(run.summary()["final"]["train_objective"].get<double>(), objective[49]);
}

INSTANTIATE_TEST_SUITE_P(
    Golden, Convex,
    testing::Values(Golden{"gd", {"local.steps=1"}, 1.40e-1, 5.15e-2},
                    Golden{"fedavg", {}, 8.07e-2, 3.27e-2},
                    Golden{"fedprox", {"algorithm.name=fedprox"}, 1.13e-1, 4.12e-2},
                    Golden{"scaffold", {"algorithm.name=scaffold"}, 3.36e-2, 4.18e-3},
                    Golden{"mime", {"algorithm.name=mime"}, 2.88e-2, 4.03e-3},
                    Golden{"feddyn", {"algorithm.name=feddyn"}, 1.25e-2, 2.44e-4}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace macaw
