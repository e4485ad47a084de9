#include "data/foreign_token.h"

#include <gtest/gtest.h>

#include <vector>

namespace macaw::data {
namespace {

// Two clients with rows of three tokens: the first trains on rows 0 and 2 of a block, the second
// tests on row 3, and row 1 is nobody's. The central test set is another block.
class TokenRows final : public Dataset {
 public:
  TokenRows(std::vector<int32_t> rows, std::vector<int32_t> central)
      : rows_(std::move(rows)), central_(std::move(central)) {
    info_.feature_type = FeatureType::kI32;
    info_.input_shape = {3};
    info_.clients = 2;
  }
  DatasetInfo& info() { return info_; }
  const DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId client, Split split) const override {
    if (client.value == 0) return split == Split::kTrain ? 2 : 0;
    return split == Split::kTest ? 1 : 0;
  }
  absl::StatusOr<Rows> Client(ClientId client, Split) const override {
    Rows rows{.block = BlockOf(rows_)};
    rows.index = client.value == 0 ? std::span<const uint32_t>(first_) : second_;
    return rows;
  }
  Rows CentralTest() const override { return {.block = BlockOf(central_)}; }

 private:
  static ExampleBlock BlockOf(const std::vector<int32_t>& tokens) {
    return {.type = FeatureType::kI32,
            .features = reinterpret_cast<const std::byte*>(tokens.data()),
            .row_bytes = 3 * sizeof(int32_t),
            .count = tokens.size() / 3};
  }

  DatasetInfo info_;
  const std::vector<int32_t> rows_, central_;
  const std::vector<uint32_t> first_ = {0, 2}, second_ = {3};
};

std::optional<ForeignToken> Find(const Dataset& dataset, int64_t known,
                                 uint64_t most = UINT64_MAX) {
  const auto found = FindForeignToken(dataset, known, most);
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? *found : std::nullopt;
}

TEST(ForeignToken, IsTheLargestAndSaysWhereItIs) {
  //                    row 0     nobody's     row 2        row 3        central test set
  const TokenRows data({1, 2, 3, 999, 0, 0, 80, 0, 79, 0, 90, 0}, {4, 5, 6, 7, 8, 80});
  EXPECT_FALSE(Find(data, 91).has_value()) << "it knows 0 to 90";
  const auto found = Find(data, 90);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->token, 90);
  EXPECT_FALSE(found->central);
  EXPECT_EQ(found->client, ClientId(1));
  EXPECT_EQ(found->split, Split::kTest);
  EXPECT_EQ(found->row, 0u);
  const TokenRows central({1, 2, 3, 999, 0, 0, 80, 0, 79, 0, 9, 0}, {4, 5, 6, 7, 8, 81});
  ASSERT_TRUE(Find(central, 80).has_value());
  EXPECT_TRUE(Find(central, 80)->central);
  EXPECT_EQ(Find(central, 80)->row, 1u);
  const auto second_row = Find(TokenRows({1, 2, 3, 999, 0, 0, 80, 0, 79, 0, 9, 0}, {}), 80);
  ASSERT_TRUE(second_row.has_value());
  EXPECT_EQ(second_row->client, ClientId(0));
  EXPECT_EQ(second_row->row, 1u) << "of the client's own";
}

TEST(ForeignToken, IsLookedForFromAPositionOn) {
  const TokenRows data({99, 2, 3, 0, 0, 0, 80, 40, 0, 0, 1, 0}, {4, 5, 6});
  const auto found = FindForeignToken(data, 40, UINT64_MAX, 1);
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->token, 40);
  EXPECT_EQ((*found)->row, 1u);
  EXPECT_FALSE(FindForeignToken(data, 41, UINT64_MAX, 1)->has_value());
}

TEST(ForeignToken, ANegativeOneIsNoToken) {
  const auto found = Find(TokenRows({1, 2, 3, 0, 0, 0, 95, 0, -7, 0, 1, 0}, {}), 80);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->token, -7);
}

TEST(ForeignToken, IsLookedForInAPartOfLargeDataAndNotInOtherRows) {
  TokenRows data({1, 2, 3, 0, 0, 0, 4, 5, 6, 7, 99, 8}, {});
  EXPECT_TRUE(Find(data, 80).has_value());
  EXPECT_FALSE(Find(data, 80, /*most=*/6).has_value()) << "the first two rows have six";
  data.info().declared = true;
  EXPECT_FALSE(Find(data, 80).has_value());
  data.info().declared = false;
  data.info().feature_type = FeatureType::kF32;
  EXPECT_FALSE(Find(data, 80).has_value());
}

}  // namespace
}  // namespace macaw::data
