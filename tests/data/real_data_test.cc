// Public data sets, as they are published.
#include <gmock/gmock.h>

#include <iostream>

#include "testing/public_data.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::ElementsAre;

using testing_support::PublicData;

TEST(RealData, TheCommittedMnistMakesTheQuickstartsThousandClients) {
  const std::string path = std::string(MACAW_SOURCE_DIR) + "/examples/data/mnist";
  const auto dataset = OpenDataset(
      {.source = "idx", .path = path},
      {.scheme = "dirichlet-class", .clients = 1000, .concentration = 0.1, .min_size = 1});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const DatasetInfo& info = (*dataset)->info();
  EXPECT_THAT(info.input_shape, ElementsAre(1, 28, 28));
  EXPECT_EQ(info.classes, 10);
  EXPECT_EQ(info.clients, 1000u);
  EXPECT_EQ(info.train_examples, 60000u);
  EXPECT_EQ(info.test_examples, 10000u);
  EXPECT_LT(info.mean_classes_per_client, 6.0);
  EXPECT_GT(info.mean_classes_per_client, 2.5);
  for (uint64_t c = 0; c < 1000; ++c)
    ASSERT_GE((*dataset)->Examples(ClientId(c), Split::kTrain), 1u);
  std::cout << "mean classes per client " << info.mean_classes_per_client << "\n";
  RecordProperty("mean_classes_per_client", std::to_string(info.mean_classes_per_client));
  // The label counts of both published files together.
  std::vector<int> counts(10);
  for (const auto& rows : CopyAll(**dataset)) {
    for (const RowCopy& row : rows) ++counts[static_cast<size_t>(row.label)];
  }
  EXPECT_THAT(counts, ElementsAre(6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958));
}

TEST(RealData, A9a) {
  const auto dataset = OpenDataset(
      {.source = "libsvm", .path = PublicData("a9a.gz"), .test_fraction = 0}, {.clients = 10});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().train_examples, 32561u);
  EXPECT_THAT((*dataset)->info().input_shape, ElementsAre(123));
  EXPECT_EQ((*dataset)->info().classes, 2);
}

TEST(RealData, MushroomsHasLabelsOneAndTwo) {
  const auto dataset =
      OpenDataset({.source = "libsvm", .path = PublicData("mushrooms.gz"), .test_fraction = 0},
                  {.clients = 10});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().train_examples, 8124u);
  EXPECT_EQ((*dataset)->info().classes, 2);
}

TEST(RealData, LeafSynthetic) {
  const auto dataset = OpenDataset(
      {.source = "leaf", .path = PublicData("synthetic_1_1_test.json.gz"), .test_fraction = 0}, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const DatasetInfo& info = (*dataset)->info();
  EXPECT_EQ(info.clients, 30u);
  EXPECT_THAT(info.input_shape, ElementsAre(60));
  EXPECT_EQ((*dataset)->ClientName(ClientId(15)), "f_00015");
  EXPECT_EQ((*dataset)->Examples(ClientId(15), Split::kTrain), 662u);
  EXPECT_EQ(info.classes, 10);
}

}  // namespace
}  // namespace macaw::data
