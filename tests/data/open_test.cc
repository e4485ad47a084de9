#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "data/partition.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Open : public testing::Test {
 protected:
  void SetUp() override {
    images_ = folder_.Write("m-images-idx3-ubyte", IdxImages(200));
    folder_.Write("m-labels-idx1-ubyte", IdxLabels(200, 10));
  }
  absl::StatusOr<std::unique_ptr<Dataset>> With(DataOptions data,
                                                PartitionOptions partition = {.clients = 10}) {
    data.source = "idx";
    data.path = images_;
    return OpenDataset(data, partition);
  }
  TemporaryFolder folder_;
  std::string images_;
};

TEST_F(Open, SaysWhichPathDoesNotExist) {
  for (const char* source :
       {"idx", "libsvm", "leaf", "cifar10", "cifar100", "csv", "npz", "hdf5", "prepared"}) {
    const auto refusal = [&](DataOptions data, PartitionOptions partition = {}) {
      data.source = source;
      return std::string(OpenDataset(data, partition).status().message());
    };
    EXPECT_THAT(refusal({.path = "/nope"}), HasSubstr("data.path: /nope does not exist")) << source;
    EXPECT_THAT(refusal({}), HasSubstr("data.path is missing")) << source;
    EXPECT_THAT(refusal({.path = images_, .test_path = "/nope"}),
                HasSubstr("data.test_path: /nope does not exist"))
        << source;
  }
  EXPECT_THAT(With({}, {.scheme = "file", .path = "/nope"}).status().message(),
              HasSubstr("partition.path: /nope does not exist"));
}

TEST_F(Open, RefusesOptionsOutOfRangeByTheirKey) {
  EXPECT_THAT(OpenDataset({.source = "mnist"}, {}).status().message(),
              HasSubstr("synthetic, idx, libsvm"));
  EXPECT_THAT(With({.test_fraction = 1.0}).status().message(), HasSubstr("data.test_fraction"));
  EXPECT_THAT(With({.val_fraction = -0.1}).status().message(), HasSubstr("data.val_fraction"));
  EXPECT_THAT(With({.heldout_clients = NAN}).status().message(), HasSubstr("data.heldout_clients"));
  EXPECT_THAT(With({.resident = "maybe"}).status().message(), HasSubstr("data.resident"));
  EXPECT_THAT(With({}, {.scheme = "dirichlet"}).status().message(),
              HasSubstr("dirichlet-class, dirichlet-client"));
  EXPECT_THAT(With({}, {.scheme = "natural"}).status().message(),
              HasSubstr("does not say which rows"));
}

TEST_F(Open, EveryRowIsInExactlyOnePlace) {
  for (const double heldout : {0.0, 0.25}) {
    const auto dataset = With({.test_fraction = 0.1,
                               .client_test_fraction = 0.2,
                               .val_fraction = 0.3,
                               .heldout_clients = heldout});
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    std::vector<RowCopy> all;
    for (const std::vector<RowCopy>& rows : CopyAll(**dataset))
      all.insert(all.end(), rows.begin(), rows.end());
    EXPECT_EQ(all.size(), 200u);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
  }
}

TEST_F(Open, ValidationIsThatFractionOfEachClient) {
  const auto dataset = With({.test_fraction = 0, .val_fraction = 0.3});
  for (uint64_t c = 0; c < 10; ++c) {
    EXPECT_EQ((*dataset)->Examples(ClientId(c), Split::kTrain), 14u);
    EXPECT_EQ((*dataset)->Examples(ClientId(c), Split::kValidation), 6u);
  }
}

TEST_F(Open, OwnTestRowsAreThatFractionOfEachClientUnderEveryScheme) {
  for (const char* scheme : {"iid", "dirichlet-class", "dirichlet-client", "k-classes", "shards",
                             "sorted", "lognormal", "power-law", "dirichlet-quantity"}) {
    const data::PartitionOptions partition = {.scheme = scheme, .clients = 10};
    const auto whole = With({.test_fraction = 0}, partition);
    const auto cut =
        With({.test_fraction = 0, .client_test_fraction = 0.25, .val_fraction = 0.5}, partition);
    ASSERT_TRUE(cut.ok()) << cut.status();
    for (uint64_t c = 0; c < 10; ++c) {
      const uint32_t rows = (*whole)->Examples(ClientId(c), Split::kTrain);
      // One of the two whole numbers beside the product.
      EXPECT_NEAR((*cut)->Examples(ClientId(c), Split::kTest), rows / 4.0, 0.76) << scheme;
      EXPECT_NEAR((*cut)->Examples(ClientId(c), Split::kValidation), rows / 2.0, 0.51) << scheme;
    }
  }
}

// Forty clients of five rows: a tenth of them is half a row.
TEST_F(Open, SmallClientsHaveTheirShareOfTestRows) {
  int tests = 0, with_tests = 0, validation = 0;
  constexpr int kSeeds = 20;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto cut =
        With({.seed = seed, .test_fraction = 0, .client_test_fraction = 0.1, .val_fraction = 0.3},
             {.scheme = "iid", .clients = 40});
    ASSERT_TRUE(cut.ok()) << cut.status();
    for (uint64_t c = 0; c < 40; ++c) {
      const uint32_t own = (*cut)->Examples(ClientId(c), Split::kTest);
      EXPECT_LE(own, 1u);
      tests += static_cast<int>(own);
      with_tests += own > 0 ? 1 : 0;
      validation += static_cast<int>((*cut)->Examples(ClientId(c), Split::kValidation));
      EXPECT_GE((*cut)->Examples(ClientId(c), Split::kTrain), 1u);
    }
  }
  constexpr double kClients = 40.0 * kSeeds;
  EXPECT_NEAR(with_tests, 0.5 * kClients, 4 * std::sqrt(kClients * 0.25));
  EXPECT_EQ(tests, with_tests);
  EXPECT_NEAR(validation, 1.5 * kClients, 4 * std::sqrt(kClients * 0.25));
}

TEST_F(Open, OneRowIsLeftToTrainOn) {
  const auto cut = With({.test_fraction = 0, .client_test_fraction = 0.5, .val_fraction = 0.49},
                        {.scheme = "iid", .clients = 100});  // two rows each
  ASSERT_TRUE(cut.ok()) << cut.status();
  for (uint64_t c = 0; c < 100; ++c) {
    EXPECT_EQ((*cut)->Examples(ClientId(c), Split::kTest), 1u);
    EXPECT_EQ((*cut)->Examples(ClientId(c), Split::kTrain), 1u);
  }
}

TEST_F(Open, FractionsThatLeaveNothingToTrainOnAreRefused) {
  EXPECT_THAT(With({.client_test_fraction = 0.5, .val_fraction = 0.5}).status().message(),
              AllOf(HasSubstr("data.client_test_fraction"), HasSubstr("data.val_fraction")));
  EXPECT_THAT(With({.client_test_fraction = 1}).status().message(),
              HasSubstr("data.client_test_fraction"));
  EXPECT_THAT(
      OpenDataset({.source = "synthetic", .client_test_fraction = 0.1}, {}).status().message(),
      HasSubstr("data.test_fraction"));
}

TEST_F(Open, HeldoutClientsNeverTrainAndAreAllTest) {
  const auto dataset = With({.test_fraction = 0, .val_fraction = 0.3, .heldout_clients = 0.35});
  int heldout = 0;
  for (uint64_t c = 0; c < 10; ++c) {
    if ((*dataset)->Examples(ClientId(c), Split::kTrain) > 0) continue;
    ++heldout;
    EXPECT_EQ((*dataset)->Examples(ClientId(c), Split::kValidation), 0u);
    EXPECT_EQ((*dataset)->Examples(ClientId(c), Split::kTest), 20u);
  }
  EXPECT_EQ(heldout, 3);
  EXPECT_EQ((*dataset)->info().train_clients, 7u);
}

TEST_F(Open, AFractionIsTheDecimalThatWasWritten) {
  // In binary .29 · 100 is 28.999999999999996.
  const auto dataset =
      With({.test_fraction = 0, .heldout_clients = 0.29}, {.scheme = "iid", .clients = 100});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().train_clients, 71u);
}

TEST_F(Open, HeldoutClientsKeepRowsToTuneOnForWhenTheyHaveJoined) {
  const auto plain = With({.test_fraction = 0, .heldout_clients = 0.35});
  const auto dataset = With({.test_fraction = 0, .heldout_clients = 0.35, .heldout_tuning = 0.26});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  for (uint64_t c = 0; c < 10; ++c) {
    const bool heldout = (*dataset)->Examples(ClientId(c), Split::kTrain) == 0;
    EXPECT_EQ(heldout, (*plain)->Examples(ClientId(c), Split::kTrain) == 0);
    const uint32_t tuning = (*dataset)->Examples(ClientId(c), Split::kValidation);  // of 5.2
    EXPECT_TRUE(heldout ? tuning == 5 || tuning == 6 : tuning == 0) << tuning;
    EXPECT_EQ((*dataset)->Examples(ClientId(c), Split::kTest), heldout ? 20 - tuning : 0);
  }
  EXPECT_NE((*dataset)->info().digest, (*plain)->info().digest);
  EXPECT_THAT(With({.heldout_tuning = 0.5}).status().message(), HasSubstr("data.heldout_clients"));
}

TEST_F(Open, RowsAndDigestFollowTheSeeds) {
  const auto base = With({.seed = 1, .val_fraction = 0.2});
  const auto same = With({.seed = 1, .val_fraction = 0.2});
  EXPECT_EQ(CopyAll(**base), CopyAll(**same));
  EXPECT_EQ((*base)->info().digest, (*same)->info().digest);
  const auto other_split = With({.seed = 2, .val_fraction = 0.2});
  EXPECT_NE(CopyAll(**base), CopyAll(**other_split));
  EXPECT_NE((*base)->info().digest, (*other_split)->info().digest);
  const auto other_partition = With({.seed = 1, .val_fraction = 0.2}, {.clients = 10, .seed = 5});
  EXPECT_NE((*base)->info().digest, (*other_partition)->info().digest);
  std::string changed = IdxImages(200);
  changed.back() ^= 1;
  folder_.Write("m-images-idx3-ubyte", changed);
  EXPECT_NE((*base)->info().digest, (*With({.seed = 1, .val_fraction = 0.2}))->info().digest);
}

TEST_F(Open, AClientThatDoesNotExistIsAnError) {
  const auto dataset = With({});
  EXPECT_THAT((*dataset)->Client(ClientId(10), Split::kTrain).status().message(),
              HasSubstr("client 10 does not exist"));
  EXPECT_EQ((*dataset)->Examples(ClientId(10), Split::kTrain), 0u);
}

TEST(Choices, AreNamedOnceAndDescribed) {
  for (const std::vector<Choice>& choices : {DataSources(), PartitionSchemes()}) {
    std::set<std::string> names;
    for (const Choice& choice : choices) {
      EXPECT_TRUE(names.insert(choice.name).second) << choice.name;
      EXPECT_FALSE(choice.description.empty());
    }
    EXPECT_GE(names.size(), 8u);
  }
}

}  // namespace
}  // namespace macaw::data
