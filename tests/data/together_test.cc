// All training rows as those of one client.
#include "data/together.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "data/options.h"

namespace macaw::data {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Dataset> Five() {
  DataOptions options;
  options.source = "synthetic";
  options.val_fraction = 0.2;
  options.synthetic.clients = 5;
  options.synthetic.max_size = 70;
  return *OpenDataset(options, {});
}

std::vector<std::byte> FeaturesOf(const Rows& rows) {
  std::vector<std::byte> bytes;
  for (uint64_t i = 0; i < rows.size(); ++i) {
    const std::byte* const row = rows.block.features + rows.at(i) * rows.block.row_bytes;
    bytes.insert(bytes.end(), row, row + rows.block.row_bytes);
  }
  return bytes;
}

std::vector<int32_t> ClassesOf(const Rows& rows) {
  std::vector<int32_t> classes;
  for (uint64_t i = 0; i < rows.size(); ++i) classes.push_back(rows.block.classes[rows.at(i)]);
  return classes;
}

TEST(Together, TheFirstClientHasEverybodysTrainingRowsInOrder) {
  const auto apart = Five();
  const auto together = TrainTogether(Five());
  ASSERT_TRUE(together.ok()) << together.status();
  std::vector<std::byte> features;
  std::vector<int32_t> classes;
  for (uint64_t c = 0; c < 5; ++c) {
    const Rows rows = *apart->Client(ClientId(c), Split::kTrain);
    const std::vector<std::byte> more = FeaturesOf(rows);
    features.insert(features.end(), more.begin(), more.end());
    const std::vector<int32_t> labels = ClassesOf(rows);
    classes.insert(classes.end(), labels.begin(), labels.end());
  }
  ASSERT_GT(classes.size(), 100u);
  const Rows all = *(*together)->Client(ClientId(0), Split::kTrain);
  EXPECT_EQ((*together)->Examples(ClientId(0), Split::kTrain), classes.size());
  EXPECT_EQ(FeaturesOf(all), features);
  EXPECT_EQ(ClassesOf(all), classes);
  EXPECT_EQ((*together)->info().train_clients, 1u);
  EXPECT_EQ((*together)->info().train_examples, classes.size());
  EXPECT_NE((*together)->info().digest, apart->info().digest);
}

TEST(Together, TheRowsKnowWhoseTheyAre) {
  const auto apart = Five();
  const auto together = *TrainTogether(Five());
  Rows all = *together->Client(ClientId(0), Split::kTrain);
  all.noise = {.seed = 3, .client = ClientId(0), .split = Split::kTrain, .clients = 5};
  uint64_t i = 0;
  for (uint64_t c = 0; c < 5; ++c) {
    for (uint64_t row = 0; row < apart->Examples(ClientId(c), Split::kTrain); ++row, ++i) {
      const auto [key, place] = all.Own(i);
      EXPECT_EQ(key.client, ClientId(c));
      EXPECT_EQ(key.clients, 5u);
      EXPECT_EQ(place, row);
    }
  }
  EXPECT_EQ(i, all.size());
}

TEST(Together, AClientsOwnTrainingRowsCanBeHadFromIt) {
  const auto apart = Five();
  const auto together = *TrainTogether(Five());
  for (uint64_t c = 0; c < 5; ++c) {
    EXPECT_EQ(FeaturesOf(*together->OwnTrainingRows(ClientId(c))),
              FeaturesOf(*apart->Client(ClientId(c), Split::kTrain)));
  }
}

TEST(Together, OtherRowsStayWithTheirClients) {
  const auto apart = Five();
  const auto together = *TrainTogether(Five());
  for (uint64_t c = 0; c < 5; ++c) {
    const ClientId client(c);
    if (c > 0) {
      EXPECT_EQ(together->Examples(client, Split::kTrain), 0u);
      EXPECT_TRUE(together->Client(client, Split::kTrain)->empty());
    }
    for (const Split split : {Split::kValidation, Split::kTest}) {
      EXPECT_EQ(together->Examples(client, split), apart->Examples(client, split));
      EXPECT_EQ(FeaturesOf(*together->Client(client, split)),
                FeaturesOf(*apart->Client(client, split)));
    }
  }
  EXPECT_FALSE(together->Client(ClientId(5), Split::kTrain).ok());
}

class Declared final : public Dataset {
 public:
  explicit Declared(DatasetInfo info) : info_(std::move(info)) {}
  const DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId, Split) const override { return 0; }
  absl::StatusOr<Rows> Client(ClientId, Split) const override { return Rows(); }
  Rows CentralTest() const override { return {}; }

 private:
  const DatasetInfo info_;
};

TEST(Together, RowsThatAreOnlyDeclaredAndTooManyRowsAreRefused) {
  DatasetInfo info;
  info.name = "clients.json";
  info.declared = true;
  EXPECT_THAT(std::string(TrainTogether(std::make_unique<Declared>(info)).status().message()),
              HasSubstr("clients.json are only declared"));
  info.declared = false;
  info.train_examples = uint64_t{1} << 32;
  EXPECT_THAT(std::string(TrainTogether(std::make_unique<Declared>(info)).status().message()),
              HasSubstr("4294967296 training rows"));
}

}  // namespace
}  // namespace macaw::data
