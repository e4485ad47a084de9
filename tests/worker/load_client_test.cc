#include "worker/load_client.h"

#include <gtest/gtest.h>

#include "tests/worker/synthetic_run.h"

namespace macaw::worker {
namespace {

using testing_support::SyntheticClients;
using testing_support::SyntheticRun;

TEST(LoadClient, TheNoiseBelongsToTheClientsNumberAndTheRowsToItsPlace) {
  const std::unique_ptr<data::Dataset> dataset = SyntheticClients();
  RunContext context{.run = SyntheticRun(*dataset, 1)};
  context.run.clients = 40;
  WorkCounter work;
  const auto task = LoadClient(context, *dataset, {.client = ClientId(31), .place = ClientId(5)},
                               Round(3), Phase(1), &work);
  ASSERT_TRUE(task.ok()) << task.status();
  EXPECT_EQ(task->client, ClientId(31));
  EXPECT_EQ(task->round, Round(3));
  EXPECT_EQ(task->phase, Phase(1));
  EXPECT_EQ(task->train.size(), dataset->Examples(ClientId(5), data::Split::kTrain));
  EXPECT_EQ(task->train.noise.seed, context.run.seed);
  EXPECT_EQ(task->train.noise.client, ClientId(31));
  EXPECT_EQ(task->train.noise.clients, 40u);
}

TEST(LoadClient, WithoutANumberOfClientsTheNoiseScalesWithTheDatasets) {
  const std::unique_ptr<data::Dataset> dataset = SyntheticClients();
  RunContext context{.run = SyntheticRun(*dataset, 1)};
  context.run.clients = 0;
  const auto rows = LoadRows(context, *dataset, {.client = ClientId(2), .place = ClientId(2)},
                             data::Split::kTrain, /*work=*/nullptr);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->noise.clients, dataset->info().clients);
}

}  // namespace
}  // namespace macaw::worker
