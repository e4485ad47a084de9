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

TEST(LoadClient, FlipsTheTrainingLabelsOfHostileClients) {
  const std::unique_ptr<data::Dataset> dataset = SyntheticClients();
  RunContext context{.run = SyntheticRun(*dataset, 1)};
  context.run.clients = dataset->info().clients;
  const auto labels = [&](ClientId client, data::Split split) {
    const auto rows = LoadRows(context, *dataset, {.client = client, .place = client}, split,
                               /*work=*/nullptr);
    EXPECT_TRUE(rows.ok()) << rows.status();
    std::vector<int32_t> labels;
    for (uint64_t i = 0; i < rows->size(); ++i) labels.push_back(rows->block.classes[rows->at(i)]);
    return labels;
  };
  const auto last = static_cast<int32_t>(context.run.model.classes - 1);
  for (ClientId client; client.value < context.run.clients; ++client.value) {
    context.run.attack = {};
    context.hostile = {};
    std::vector<int32_t> expected = labels(client, data::Split::kTrain);
    context.run.attack = {.kind = "label-flip", .fraction = 0.5};
    context.hostile = HostileOf(context.run);
    EXPECT_EQ(context.hostile.count(), context.run.clients / 2);
    if (context.hostile.Contains(client)) {
      for (int32_t& label : expected) label = last - label;
    }
    EXPECT_EQ(labels(client, data::Split::kTrain), expected) << client;
    context.run.attack.kind = "sign-flip";
    const std::vector<int32_t> stored = labels(client, data::Split::kTrain);
    EXPECT_EQ(stored == expected, !context.hostile.Contains(client)) << client;
  }
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
