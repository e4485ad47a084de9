#include "data/subset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/options.h"
#include "data/prepared.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

std::unique_ptr<Dataset> Ten() {
  auto dataset = OpenDataset({.source = "synthetic", .synthetic = {.clients = 10}}, {});
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

TEST(Subset, HasTheRowsOfItsClientsUnderTheirNumbers) {
  const std::unique_ptr<Dataset> whole = Ten();
  const auto subset = SubsetOf(*whole, {.begin = 3, .end = 7});
  ASSERT_TRUE(subset.ok()) << subset.status();
  EXPECT_EQ((*subset)->info().clients, 4u);
  uint64_t rows = 0;
  for (uint64_t k = 0; k < 4; ++k) {
    const ClientId here(k), there(k + 3);
    EXPECT_EQ((*subset)->ClientName(here), absl::StrCat(k + 3));
    for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest})
      EXPECT_EQ(Copy(**subset, here.value, split), Copy(*whole, there.value, split)) << k;
    rows += (*subset)->Examples(here, Split::kTrain);
  }
  EXPECT_EQ((*subset)->info().train_examples, rows);
  EXPECT_EQ((*subset)->CentralTest().size(), whole->CentralTest().size());
  EXPECT_EQ((*subset)->info().test_digest, whole->info().digest);
}

TEST(Subset, WithoutTheTestSetHasNone) {
  const std::unique_ptr<Dataset> whole = Ten();
  ASSERT_GT(whole->info().test_examples, 0u);
  const auto subset = *SubsetOf(*whole, {.begin = 0, .end = 1, .central_test = false});
  EXPECT_EQ(subset->info().test_examples, 0u);
  EXPECT_TRUE(subset->CentralTest().empty());
}

TEST(Subset, ItsNameSaysTheDatasetAndTheRange) {
  const std::unique_ptr<Dataset> whole = Ten();
  const auto digest = [&](uint64_t begin, uint64_t end) {
    return (*SubsetOf(*whole, {.begin = begin, .end = end}))->info().digest;
  };
  EXPECT_EQ(digest(2, 5), digest(2, 5));
  EXPECT_NE(digest(2, 5), digest(2, 6));
  EXPECT_NE(digest(2, 5), digest(3, 5));
  EXPECT_NE(digest(0, 10), whole->info().digest);
}

TEST(Subset, GivesNoRowsOfClientsOutsideOfIt) {
  const std::unique_ptr<Dataset> whole = Ten();
  const auto subset = *SubsetOf(*whole, {.begin = 3, .end = 7});
  for (const uint64_t outside : {uint64_t{4}, uint64_t{6}, ~uint64_t{0} - 2}) {
    EXPECT_EQ(subset->Examples(ClientId(outside), Split::kTrain), 0u);
    EXPECT_TRUE(absl::IsOutOfRange(subset->Client(ClientId(outside), Split::kTrain).status()));
  }
}

TEST(Subset, OutsideTheDataIsRefused) {
  EXPECT_THAT(std::string(TakeSubset(Ten(), {.begin = 5, .end = 11}).status().message()),
              testing::HasSubstr("clients 5:11 do not lie within the data's 10"));
  EXPECT_FALSE(TakeSubset(Ten(), {.begin = 6, .end = 5}).ok());
  const auto none = TakeSubset(Ten(), {.begin = 10, .end = 10});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ((*none)->info().clients, 0u);
}

}  // namespace
}  // namespace macaw::data
