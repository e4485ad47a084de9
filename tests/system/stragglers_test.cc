// Synthetic(1,1) of the FedProx paper (Li et al. 2020, figure 1): thirty clients of very uneven
// sizes, ten a round, twenty epochs. FedProx with mu = 1 ends with a smaller training loss than
// FedAvg, without stragglers and with nine in ten of them, whose partial work FedProx takes and
// FedAvg drops. The order is what holds; the losses themselves depend on the data's seed.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing_support::Simulation;

// The loss over all clients' training rows, mean of the last 20 of 200 rounds.
double LateLoss(const std::string& algorithm, double stragglers, int seed) {
  const bool fedavg = algorithm == "fedavg";
  std::vector<std::string> arguments = {MACAW_SOURCE_DIR "/examples/synthetic.toml",
                                        "--quiet",
                                        "--clients",
                                        "30",
                                        "--rounds",
                                        "200",
                                        "--set",
                                        absl::StrCat("run.seed=", seed),
                                        "--set",
                                        "data.synthetic.max_size=0",
                                        "--set",
                                        "cohort.size=10",
                                        "--set",
                                        "local.epochs=20",
                                        "--set",
                                        "evaluation.every=1",
                                        "--set",
                                        "evaluation.splits=[\"train\"]",
                                        "--set",
                                        "run.checkpoint_every=200",
                                        "--set",
                                        "algorithm.name=" + algorithm,
                                        "--set",
                                        "algorithm.fedprox.mu=1",
                                        "--set",
                                        absl::StrCat("cohort.straggler_fraction=", stragglers)};
  if (stragglers > 0) {
    arguments.insert(arguments.end(), {"--set", absl::StrCat("cohort.straggler_policy=",
                                                             fedavg ? "drop" : "partial")});
  }
  Simulation run(absl::StrCat(algorithm, stragglers, "-", seed), arguments);
  EXPECT_EQ(run.Wait(), 0) << run.output();
  double sum = 0;
  int rows = 0;
  for (const absl::string_view line : absl::StrSplit(run.metrics(), '\n', absl::SkipEmpty())) {
    const auto row = nlohmann::json::parse(line);
    if (row["round"].get<int>() <= 180) continue;
    sum += row["train_objective"].get<double>();
    ++rows;
  }
  EXPECT_EQ(rows, 20);
  return sum / 20;
}

class Stragglers : public testing::TestWithParam<double> {};

TEST_P(Stragglers, LeaveFedProxBelowFedAvgOnSynthetic) {
  double fedavg = 0, fedprox = 0;
  for (int seed = 1; seed <= 4; ++seed) {
    fedavg += LateLoss("fedavg", GetParam(), seed) / 4;
    fedprox += LateLoss("fedprox", GetParam(), seed) / 4;
  }
  RecordProperty("fedavg", absl::StrCat(fedavg));
  RecordProperty("fedprox", absl::StrCat(fedprox));
  EXPECT_LT(fedprox, fedavg);
}

INSTANTIATE_TEST_SUITE_P(Fraction, Stragglers, testing::Values(0.0, 0.9), [](const auto& param) {
  return absl::StrCat("Of", 100 * param.param, "Percent");
});

}  // namespace
}  // namespace macaw
