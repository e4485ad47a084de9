// Rows that are sequences of numbers, [positions, width], from end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/random.h"
#include "testing/temporary_folder.h"
#include "tests/system/libtorch.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::Simulation;
using testing_support::TemporaryFolder;

constexpr size_t kPositions = 7, kWidth = 6, kClasses = 3;

// Readings of a sensor: a class is a wave of its own over the positions.
std::string Readings(size_t rows) {
  RandomStream stream({.seed = 5});
  std::string table = "label";
  for (size_t i = 0; i < kPositions * kWidth; ++i) absl::StrAppend(&table, ",x", i);
  for (size_t row = 0; row < rows; ++row) {
    const size_t label = stream.Below(kClasses);
    absl::StrAppend(&table, "\n", label);
    for (size_t i = 0; i < kPositions * kWidth; ++i) {
      const double wave = std::sin(static_cast<double>((i / kWidth) * (label + 1)) * 0.7);
      absl::StrAppend(&table, ",", wave + 0.7 * stream.Normal());
    }
  }
  return absl::StrCat(table, "\n");
}

std::string WriteSensors(const TemporaryFolder& folder, const std::string& layers) {
  folder.Write("readings.csv", Readings(300));
  return folder.Write("sensors.toml", absl::StrCat(R"([run]
rounds = 5
seed = 1
[data]
path = "readings.csv"
label_column = "label"
input_shape = [7, 6]
test_fraction = 0.2
[partition]
scheme = "iid"
clients = 10
[cohort]
size = 10
[local]
epochs = 2
batch_size = 10
lr = 0.1
[model]
layers = )",
                                                   layers, "\n"));
}

// Before, the fused trainer read such rows as one vector: workers died, and what they sent in time
// was another result each time.
TEST(Sequences, OfNumbersAreOneResultOnEveryBackEnd) {
  MACAW_NEEDS_LIBTORCH();
  const TemporaryFolder folder;
  const std::string config = WriteSensors(folder, R"(["linear 5", "tanh", "flatten", "linear 3"])");
  Simulation torch("torch", {config, "--set", "workers.backend=torch"});
  ASSERT_EQ(torch.Wait(), 0) << torch.output();
  const double loss = torch.summary()["final"]["test_loss"].get<double>();
  EXPECT_GT(torch.summary()["final"]["test_accuracy"].get<double>(), 0.8);
  std::string digest;
  for (int time = 0; time < 3; ++time) {
    Simulation run(absl::StrCat("auto", time), {config});
    ASSERT_EQ(run.Wait(), 0) << run.output();
    EXPECT_EQ(run.summary()["profile"]["trainer"], "fused") << run.summary()["profile"];
    EXPECT_NEAR(run.summary()["final"]["test_loss"].get<double>(), loss, 1e-5);
    if (digest.empty()) digest = run.digest();
    EXPECT_EQ(run.digest(), digest);
  }
  // Owners' files keep the shape, and the names of the table's columns.
  Simulation owners("owners", {config, "--owners", "2"});
  ASSERT_EQ(owners.Wait(), 0) << owners.output();
  EXPECT_EQ(owners.digest(), digest);
}

// Layers that the fused kernels do not have are LibTorch's.
TEST(Sequences, OfNumbersTakeEveryLayerThatKnowsPositions) {
  MACAW_NEEDS_LIBTORCH();
  const TemporaryFolder folder;
  const std::string config = WriteSensors(
      folder, R"(["positions", "transformer heads 2 ff 9", "gru 6", "mean", "linear 3"])");
  Simulation run("layers", {config, "--rounds", "15", "--set", "local.optimizer=adam", "--set",
                            "local.lr=0.01"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  EXPECT_EQ(run.summary()["profile"]["trainer"], "torch") << run.summary()["profile"];
  EXPECT_GT(run.summary()["final"]["test_accuracy"].get<double>(), 0.9);
}

}  // namespace
}  // namespace macaw
