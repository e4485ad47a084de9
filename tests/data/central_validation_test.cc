// data.central_val_fraction: rows to choose by, which are neither trained on nor test rows.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "data/foreign_token.h"
#include "data/partition_file.h"
#include "data/prepared.h"
#include "data/subset.h"
#include "data/together.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::HasSubstr;

class CentralValidation : public testing::Test {
 protected:
  void SetUp() override {
    data_ = {.source = "idx", .path = folder_.Write("m-images-idx3-ubyte", IdxImages(100))};
    folder_.Write("m-labels-idx1-ubyte", IdxLabels(100, 10));
  }
  std::unique_ptr<Dataset> Open(const DataOptions& data, const std::string& scheme = "iid") {
    auto dataset = OpenDataset(data, {.scheme = scheme, .clients = 5});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }
  DataOptions With(double fraction) const {
    DataOptions data = data_;
    data.central_val_fraction = fraction;
    return data;
  }
  static std::set<int> TrainedOn(const Dataset& dataset) {
    std::set<int> rows;
    for (uint64_t c = 0; c < dataset.info().clients; ++c)
      rows.merge(NumbersOf(Copy(dataset, c, Split::kTrain)));
    return rows;
  }

  TemporaryFolder folder_;
  DataOptions data_;
};

TEST_F(CentralValidation, IsCutFromTrainingRowsAndLeavesTheTestSetAsItIs) {
  const auto without = Open(data_), with = Open(With(0.2));
  EXPECT_EQ(without->info().val_examples, 0u);
  EXPECT_TRUE(without->CentralValidation().empty());
  EXPECT_EQ(with->info().val_examples, 20u) << "a fifth of the rows that test_fraction counts";
  EXPECT_EQ(with->CentralValidation().size(), 20u);
  EXPECT_EQ(Copy(with->CentralTest()), Copy(without->CentralTest()));
  const std::set<int> validation = NumbersOf(Copy(with->CentralValidation()));
  const std::set<int> test = NumbersOf(Copy(with->CentralTest())), train = TrainedOn(*with);
  EXPECT_EQ(validation.size(), 20u);
  EXPECT_EQ(train.size(), 70u);
  for (const int row : validation) EXPECT_FALSE(test.contains(row) || train.contains(row)) << row;
  EXPECT_NE(with->info().digest, without->info().digest);
  EXPECT_EQ(Open(With(0.2))->info().digest, with->info().digest);
  DataOptions other = With(0.2);
  other.seed = 7;
  EXPECT_NE(NumbersOf(Copy(Open(other)->CentralValidation())), validation);
}

TEST_F(CentralValidation, OfASourceWithATestFileOfItsOwnComesFromItsTrainingRows) {
  folder_.Write("t10k-images-idx3-ubyte", IdxImages(30));
  folder_.Write("t10k-labels-idx1-ubyte", IdxLabels(30, 10));
  folder_.Write("train-images-idx3-ubyte", IdxImages(100));
  folder_.Write("train-labels-idx1-ubyte", IdxLabels(100, 10));
  DataOptions data = With(0.1);
  data.path = folder_.path();
  const auto dataset = Open(data, "dirichlet-class");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->info().test_examples, 30u);
  EXPECT_EQ(dataset->info().val_examples, 10u);
  EXPECT_EQ(dataset->info().train_examples, 90u);
}

TEST_F(CentralValidation, OfClientsInAFileIsCutFromTheirTrainingRows) {
  std::string csv = "user,x,label\n";
  for (int row = 0; row < 60; ++row)
    absl::StrAppend(&csv, "u", row % 3, ",", row, ",", row % 2, "\n");
  DataOptions data = {.source = "csv",
                      .path = folder_.Write("a.csv", csv),
                      .test_fraction = 0,
                      .central_val_fraction = 0.25,
                      .client_column = "user"};
  const auto dataset = OpenDataset(data, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().clients, 3u);
  EXPECT_EQ((*dataset)->info().val_examples, 15u);
  EXPECT_EQ((*dataset)->info().train_examples, 45u);
  EXPECT_EQ((*dataset)->info().test_examples, 0u) << "validation needs no test rows";
}

TEST_F(CentralValidation, OutlivesPreparingExportingAndTakingApart) {
  const auto dataset = Open(With(0.2));
  const std::vector<RowCopy> rows = Copy(dataset->CentralValidation());
  const std::string prepared = folder_.path() + "/p.safetensors";
  ASSERT_TRUE(WritePrepared(*dataset, prepared).ok());
  const auto again = OpenDataset({.source = "prepared", .path = prepared}, {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(CopyAll(**again), CopyAll(*dataset));
  EXPECT_EQ(Copy((*again)->CentralValidation()), rows);
  EXPECT_EQ((*again)->info().val_examples, 20u);
  const auto divided =
      OpenDataset({.source = "prepared", .path = prepared}, {.scheme = "iid", .clients = 3});
  ASSERT_TRUE(divided.ok()) << divided.status();
  EXPECT_EQ(Copy((*divided)->CentralValidation()), rows) << "another partition leaves it";
  EXPECT_THAT(OpenDataset({.source = "prepared", .path = prepared, .central_val_fraction = 0.1}, {})
                  .status()
                  .ToString(),
              HasSubstr("data.central_val_fraction"));

  const std::string exported = folder_.path() + "/p.json";
  ASSERT_TRUE(ExportPartition(*dataset, exported).ok());
  const auto of_file = OpenDataset(data_, {.scheme = "file", .path = exported});
  ASSERT_TRUE(of_file.ok()) << of_file.status();
  EXPECT_EQ(Copy((*of_file)->CentralValidation()), rows);
  EXPECT_EQ((*of_file)->info().digest, dataset->info().digest);

  const auto owner = *SubsetOf(*dataset, {.begin = 0, .end = 1, .central_test = false});
  EXPECT_TRUE(owner->CentralValidation().empty());
  EXPECT_EQ(owner->info().val_examples, 0u);
  const auto half = *SubsetOf(*dataset, {.begin = 0, .end = 2});
  EXPECT_EQ(Copy(half->CentralValidation()), rows);
  EXPECT_EQ(Copy((*TrainTogether(Open(With(0.2))))->CentralValidation()), rows);
}

TEST_F(CentralValidation, OfAPartitionFileIsWhatTheFileSays) {
  const auto read = [&](const std::string& json, double fraction = 0) {
    return OpenDataset(With(fraction), {.scheme = "file", .path = folder_.Write("p.json", json)});
  };
  const auto dataset = read(R"({"a": [1, 2], "test": [3], "central_validation": [4, 5]})");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(NumbersOf(Copy((*dataset)->CentralValidation())), (std::set<int>{4, 5}));
  for (const char* json : {R"({"a": [1, 2], "central_validation": [2]})",
                           R"({"a": [1], "test": [3], "central_validation": [3]})"}) {
    EXPECT_THAT(read(json).status().ToString(), HasSubstr("central_validation")) << json;
  }
  const auto ignored = read(R"({"a": [1], "test": [3]})", 0.2);
  ASSERT_TRUE(ignored.ok()) << ignored.status();
  EXPECT_THAT((*ignored)->info().notes,
              testing::Contains(HasSubstr("data.central_val_fraction = 0.2 has no effect")));
}

TEST_F(CentralValidation, IsRefusedWhereNothingCanBeCut) {
  const auto refused = [](const DataOptions& data) {
    return OpenDataset(data, {}).status().ToString();
  };
  EXPECT_THAT(refused({.source = "synthetic", .central_val_fraction = 0.1}),
              HasSubstr("data.val_fraction"));
  DataOptions all = With(0.6);
  all.test_fraction = 0.4;
  EXPECT_THAT(refused(all), HasSubstr("no rows to train on"));
  EXPECT_THAT(refused(With(1.0)), HasSubstr("data.central_val_fraction"));
}

}  // namespace
}  // namespace macaw::data
