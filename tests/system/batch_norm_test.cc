// Batch-norm statistics through the real programs. With one client the model that the server keeps,
// statistics included, is that client's own: rated on one set of rows, the two say the same.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "testing/temporary_folder.h"
#include "tests/system/libtorch.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing_support::RowsOf;
using testing_support::Simulation;
using testing_support::TemporaryFolder;

// Ditto with lambda = 0 keeps what the client itself has trained; beside it the server adds the
// client's change to its model. In stored order both train on the same batches.
TEST(BatchNorm, OfOneClientIsTheSameCentrallyAndAtTheClient) {
  MACAW_NEEDS_LIBTORCH();
  const TemporaryFolder folder;
  nlohmann::json partition = {{"0", nlohmann::json::array()}, {"test", nlohmann::json::array()}};
  for (int row = 0; row < 16; ++row) partition["0"].push_back(row);
  for (int row = 100; row < 110; ++row) partition["test"].push_back(row);
  partition["client_test"]["0"] = partition["test"];
  folder.Write("rows.json", partition.dump());
  const std::string config = folder.Write("run.toml", R"([run]
rounds = 2
seed = 2
[data]
source = "idx"
path = ")" MACAW_SOURCE_DIR R"(/examples/data/mnist/t10k-images-idx3-ubyte.gz"
[partition]
scheme = "file"
path = "rows.json"
[model]
name = "resnet18"
[algorithm]
name = "ditto"
[algorithm.ditto]
lambda = 0
[cohort]
size = 1
[local]
batch_size = 8
lr = 0.02
shuffle = false
[evaluation]
clients = true
)");
  Simulation run("resnet18", {config, "--processes", "1", "--slots", "1"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  double first = 0;
  for (const nlohmann::json& row : RowsOf(run)) {
    const double central = row["test_loss"].get<double>();
    // Not the same bits: the server's model went through the grid of the exact sum.
    EXPECT_NEAR(row["clients_test_loss"].get<double>(), central, 1e-4 * central) << row;
    EXPECT_EQ(row["clients_test_accuracy"], row["test_accuracy"]) << row;
    if (first == 0) first = central;
    EXPECT_GT(central, 0.01);
  }
  EXPECT_NE(first, 0);
}

}  // namespace
}  // namespace macaw
