// data.test_fraction and data.central_val_fraction over clients that the data has itself: a
// prepared file's, as Python writes one of a dict of clients.
#include <gmock/gmock.h>

#include <set>

#include "data/partition_file.h"
#include "data/prepared.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class OwnClients : public testing::Test {
 protected:
  static constexpr uint64_t kClients = 5;
  static constexpr uint32_t kRows = 100;

  void SetUp() override {
    images_ = {.source = "idx",
               .path = folder_.Write("m-images-idx3-ubyte", IdxImages(kRows)),
               .test_fraction = 0};
    folder_.Write("m-labels-idx1-ubyte", IdxLabels(kRows, 10));
  }
  // A prepared file of five clients; `images` may give them validation and test rows.
  DataOptions Prepare(const DataOptions& images) {
    const auto dataset = OpenDataset(images, {.scheme = "iid", .clients = kClients});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    const std::string path = folder_.path() + "/clients.safetensors";
    EXPECT_TRUE(WritePrepared(**dataset, path).ok());
    return {.source = "prepared", .path = path};
  }
  static std::unique_ptr<Dataset> Open(const DataOptions& data,
                                       const PartitionOptions& partition = {}) {
    auto dataset = OpenDataset(data, partition);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }

  TemporaryFolder folder_;
  DataOptions images_;
};

TEST_F(OwnClients, KeepTheirRowsUnlessATestFractionIsGiven) {
  DataOptions data = Prepare(images_);
  const auto whole = Open(data);
  EXPECT_EQ(whole->info().test_examples, 0u);
  EXPECT_EQ(whole->info().train_examples, kRows);
  for (const double fraction : {0.1, 0.25}) {  // also where it is the default of other sources
    data.test_fraction = fraction;
    const auto cut = Open(data);
    ASSERT_EQ(cut->info().clients, kClients);
    const std::set<int> test = NumbersOf(Copy(cut->CentralTest()));
    EXPECT_EQ(test.size(), cut->info().test_examples);
    EXPECT_EQ(static_cast<double>(test.size()), fraction * kRows);
    for (uint64_t c = 0; c < kClients; ++c) {
      // A client has what it had, but for the test rows.
      std::set<int> expected;
      for (const int row : NumbersOf(Copy(*whole, c, Split::kTrain))) {
        if (!test.contains(row)) expected.insert(row);
      }
      EXPECT_EQ(NumbersOf(Copy(*cut, c, Split::kTrain)), expected);
    }
    EXPECT_THAT(cut->info().notes, IsEmpty());
  }
}

TEST_F(OwnClients, GiveTheTestRowsThatTheSeedDraws) {
  DataOptions data = Prepare(images_);
  data.test_fraction = 0.3;
  const auto first = Open(data), again = Open(data);
  EXPECT_EQ(CopyAll(*first), CopyAll(*again));
  EXPECT_EQ(first->info().digest, again->info().digest);
  data.seed = 7;
  EXPECT_NE(Copy(Open(data)->CentralTest()), Copy(first->CentralTest()));
  data.seed = 0;
  data.client_test_fraction = 0.2;  // of what is left
  EXPECT_EQ(Copy(Open(data)->CentralTest()), Copy(first->CentralTest()));
  // Exported and read again, the rows are the same.
  const std::string exported = folder_.path() + "/p.json";
  ASSERT_TRUE(ExportPartition(*first, exported).ok());
  data.client_test_fraction = 0;
  EXPECT_EQ(CopyAll(*Open(data, {.scheme = "file", .path = exported})), CopyAll(*first));
}

TEST_F(OwnClients, GiveAValidationSetToo) {
  DataOptions data = Prepare(images_);
  data.test_fraction = 0.2;
  data.central_val_fraction = 0.1;
  const auto dataset = Open(data);
  EXPECT_EQ(dataset->info().test_examples, 20u);
  EXPECT_EQ(dataset->info().val_examples, 10u);
  EXPECT_EQ(dataset->info().train_examples, 70u);
}

TEST_F(OwnClients, KeepTestAndValidationRowsOfTheirOwn) {
  images_.client_test_fraction = 0.2;
  images_.val_fraction = 0.2;
  DataOptions data = Prepare(images_);
  const auto whole = Open(data);
  data.test_fraction = 0.25;
  const auto cut = Open(data);
  const uint64_t trained = whole->info().train_examples;
  EXPECT_LT(trained, kRows);
  EXPECT_EQ(cut->info().test_examples, (trained + 2) / 4) << "of the training rows, rounded";
  EXPECT_EQ(cut->info().test_examples + cut->info().train_examples, trained);
  uint64_t own = 0;
  for (uint64_t c = 0; c < kClients; ++c) {
    for (const Split split : {Split::kValidation, Split::kTest}) {
      EXPECT_EQ(Copy(*cut, c, split), Copy(*whole, c, split));
      own += cut->Examples(ClientId(c), split);
    }
  }
  EXPECT_EQ(own, kRows - trained);
  data.val_fraction = 0.1;
  EXPECT_THAT(OpenDataset(data, {}).status().message(), HasSubstr("holds its own splits"));
}

TEST_F(OwnClients, KeepTheCentralSetsOfTheirFile) {
  images_.test_fraction = 0.2;
  images_.central_val_fraction = 0.1;
  DataOptions data = Prepare(images_);
  const auto whole = Open(data);
  data.test_fraction = 0.5;
  const auto noted = Open(data);
  EXPECT_EQ(CopyAll(*noted), CopyAll(*whole));
  EXPECT_THAT(noted->info().notes, testing::Contains(HasSubstr("data.test_fraction = 0.5")));
  // A partition file that lists neither leaves both as they are; [] is none.
  data.test_fraction = std::nullopt;
  const auto divided = [&](const std::string& json) {
    return Open(data, {.scheme = "file", .path = folder_.Write("p.json", json)});
  };
  EXPECT_EQ(Copy(divided(R"({"a": [0, 1]})")->CentralTest()), Copy(whole->CentralTest()));
  EXPECT_EQ(Copy(divided(R"({"a": [0, 1]})")->CentralValidation()),
            Copy(whole->CentralValidation()));
  EXPECT_TRUE(divided(R"({"a": [0], "central_validation": []})")->CentralValidation().empty());
  const auto train_and_validation = OpenDataset(
      data, {.scheme = "file", .path = folder_.Write("p.json", R"({"a": [99], "test": []})")});
  EXPECT_THAT(train_and_validation.status().message(), HasSubstr("row 99"));
}

}  // namespace
}  // namespace macaw::data
