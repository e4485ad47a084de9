#include "worker/load_client.h"

#include <gtest/gtest.h>

#include <cstring>

#include "data/options.h"
#include "data/subset.h"
#include "data/together.h"
#include "tests/worker/synthetic_run.h"

namespace macaw::worker {
namespace {

using fixtures::SyntheticClients;
using fixtures::SyntheticRun;

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

TEST(LoadClient, PutsABackdoorIntoTheTrainingRowsOfHostileClients) {
  const std::unique_ptr<data::Dataset> dataset = SyntheticClients();
  RunContext context{.run = SyntheticRun(*dataset, 1)};
  context.run.clients = dataset->info().clients;
  const auto values = static_cast<int64_t>(dataset->info().input_shape[0]);
  context.run.model.input_shape = {1, 2, values / 2};
  context.run.attack = {.kind = "backdoor", .fraction = 0.5};
  context.run.attack.target = 3;
  context.run.attack.poisoned = 1;
  context.run.attack.trigger = 1;
  context.hostile = HostileOf(context.run);
  for (ClientId client; client.value < context.run.clients; ++client.value) {
    for (const data::Split split : {data::Split::kTrain, data::Split::kTest}) {
      if (dataset->Examples(client, split) == 0) continue;
      const auto rows =
          LoadRows(context, *dataset, {.client = client, .place = client}, split, nullptr);
      ASSERT_TRUE(rows.ok()) << rows.status();
      const bool changed = split == data::Split::kTrain && context.hostile.Contains(client);
      bool all_bright = true, all_target = true;
      for (uint64_t i = 0; i < rows->size(); ++i) {
        float last = 0;
        std::memcpy(&last,
                    rows->block.features + (rows->at(i) + 1) * rows->block.row_bytes - sizeof last,
                    sizeof last);
        all_bright &= last == 1;
        all_target &= rows->block.classes[rows->at(i)] == 3;
      }
      EXPECT_EQ(all_bright && all_target, changed) << client;
    }
  }
  // What it is judged by: rows of other classes. Those of a client stand for the central ones.
  const data::Rows central = *dataset->Client(ClientId(0), data::Split::kTrain);
  const int32_t target = central.block.classes[central.at(0)];
  context.run.attack.target = static_cast<uint32_t>(target);
  const auto stamped = StampedCentralRows(context, central, 0, central.size());
  ASSERT_TRUE(stamped.ok()) << stamped.status();
  uint64_t others = 0;
  for (uint64_t i = 0; i < central.size(); ++i)
    others += central.block.classes[central.at(i)] != target ? 1 : 0;
  EXPECT_EQ(stamped->size(), others);
  EXPECT_LT(others, central.size());
  EXPECT_FALSE(StampedCentralRows(context, central, 0, central.size() + 1).ok());
  context.run.attack.kind = "sign-flip";
  EXPECT_FALSE(StampedCentralRows(context, central, 0, 1).ok()) << "the run has no backdoor";
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

std::vector<int32_t> LabelsOf(const RunContext& context, const data::Dataset& dataset,
                              const Subject& subject, data::Split split = data::Split::kTrain) {
  const auto rows = LoadRows(context, dataset, subject, split, /*work=*/nullptr);
  EXPECT_TRUE(rows.ok()) << rows.status();
  std::vector<int32_t> labels;
  for (uint64_t i = 0; i < rows->size(); ++i) labels.push_back(rows->block.classes[rows->at(i)]);
  return labels;
}

TEST(LoadClient, WrongLabelsBelongToTheClientsNumberWhateverElseTheNodeHolds) {
  const std::unique_ptr<data::Dataset> dataset = SyntheticClients();
  const auto own = data::SubsetOf(*dataset, {.begin = 5, .end = 6});
  ASSERT_TRUE(own.ok()) << own.status();
  RunContext context{.run = SyntheticRun(*dataset, 1)};
  context.run.task = TaskKind::kClassification;
  context.run.model.classes = 10;
  const std::vector<int32_t> stored =
      LabelsOf(context, *dataset, {.client = ClientId(5), .place = ClientId(5)});
  context.run.transform.label_noise = 0.5;
  const std::vector<int32_t> among_all =
      LabelsOf(context, *dataset, {.client = ClientId(5), .place = ClientId(5)});
  EXPECT_NE(among_all, stored);
  EXPECT_EQ(LabelsOf(context, **own, {.client = ClientId(5), .place = ClientId(0)}), among_all);
  EXPECT_NE(LabelsOf(context, **own, {.client = ClientId(6), .place = ClientId(0)}), among_all);
}

TEST(LoadClient, RowsThatTrainTogetherKeepTheLabelsOfTheirClients) {
  const auto open = [] {
    return *data::OpenDataset({.source = "synthetic", .synthetic = {.clients = 10}}, {});
  };
  const auto apart = open(), together = *data::TrainTogether(open());
  RunContext context{.run = SyntheticRun(*apart, 1)};
  context.run.task = TaskKind::kClassification;
  context.run.model.classes = 10;
  context.run.transform = {.label_noise = 0.3, .concept_shift = ConceptShift::kLabelPermutation};
  std::vector<int32_t> labels;
  for (uint64_t c = 0; c < 10; ++c) {
    const auto own = LabelsOf(context, *apart, {.client = ClientId(c), .place = ClientId(c)});
    labels.insert(labels.end(), own.begin(), own.end());
  }
  const Subject first{.client = ClientId(0), .place = ClientId(0)};
  EXPECT_EQ(LabelsOf(context, *together, first), labels);
  context.run.transform = {};
  EXPECT_NE(LabelsOf(context, *together, first), labels);
}

TEST(LoadClient, AConceptShiftIsInEverySplitAndWrongLabelsInTrainingOnly) {
  const auto dataset = data::OpenDataset(
      {.source = "synthetic", .val_fraction = 0.2, .synthetic = {.clients = 10}}, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  RunContext context{.run = SyntheticRun(**dataset, 1)};
  context.run.task = TaskKind::kClassification;
  context.run.model.classes = 10;
  const auto changed = [&](data::Split split) {
    int clients = 0;
    for (uint64_t c = 0; c < 10; ++c) {
      const Subject subject{.client = ClientId(c), .place = ClientId(c)};
      RunContext plain{.run = context.run};
      plain.run.transform = {};
      clients += LabelsOf(context, **dataset, subject, split) !=
                 LabelsOf(plain, **dataset, subject, split);
    }
    return clients;
  };
  context.run.transform.label_noise = 1;
  EXPECT_EQ(changed(data::Split::kTrain), 10);
  EXPECT_EQ(changed(data::Split::kValidation), 0);
  EXPECT_EQ(changed(data::Split::kTest), 0);
  context.run.transform = {.concept_shift = ConceptShift::kLabelPermutation};
  EXPECT_GT(changed(data::Split::kTrain), 0);
  EXPECT_LT(changed(data::Split::kTrain), 10);  // the first group's rows are as stored
  EXPECT_EQ(changed(data::Split::kValidation), changed(data::Split::kTrain));
  EXPECT_EQ(changed(data::Split::kTest), changed(data::Split::kTrain));
}

}  // namespace
}  // namespace macaw::worker
