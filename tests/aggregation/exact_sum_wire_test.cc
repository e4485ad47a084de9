#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "aggregation/exact_sum.h"
#include "tests/aggregation/cohort.h"

namespace macaw::aggregation {
namespace {

class ExactSumWire : public ::testing::Test {
 protected:
  ExactSumWire() : cohort_(AllKinds(19), 12, 8) {
    ExactSum sum = cohort_.Empty();
    for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(cohort_.clients[i].AddTo(sum).ok());
    bytes_ = Bytes(sum);
  }

  absl::StatusOr<ExactSum> Decode(std::span<const std::byte> bytes) const {
    const auto encoded = std::make_shared<AlignedBuffer>(bytes.size());
    std::ranges::copy(bytes, encoded->bytes().begin());
    return ExactSum::Decode(encoded, cohort_.channels, cohort_.order);
  }
  template <typename T>
  std::vector<std::byte> With(size_t offset, T value) const {
    std::vector<std::byte> changed = bytes_;
    std::memcpy(changed.data() + offset, &value, sizeof(value));
    return changed;
  }

  TestCohort cohort_;
  std::vector<std::byte> bytes_;
};

constexpr size_t kClients = 48, kMultiplicity = 56, kWeight = 64, kFirstMaxAbs = 80;

TEST_F(ExactSumWire, DecodesToTheSameSum) {
  const ExactSum sum = *Decode(bytes_);
  EXPECT_EQ(Bytes(sum), bytes_);
  EXPECT_EQ(sum.clients(), 6u);
  const ExactSum empty = cohort_.Empty();
  EXPECT_EQ(Bytes(*Decode(Bytes(empty))), Bytes(empty));
  EXPECT_EQ(Bytes(empty).size(), empty.bytes());
}

TEST_F(ExactSumWire, ADecodedSumGoesOnAdding) {
  ExactSum sum = *Decode(bytes_);
  ExactSum rest = cohort_.Empty();
  ExactSum flat = cohort_.Empty();
  for (size_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(cohort_.clients[i].AddTo(flat).ok());
    if (i >= 6) {
      ASSERT_TRUE(cohort_.clients[i].AddTo(rest).ok());
    }
  }
  ASSERT_TRUE(sum.Merge(*Decode(Bytes(rest))).ok());
  EXPECT_EQ(Bytes(sum), Bytes(flat));
}

TEST_F(ExactSumWire, ADecodedSumLeavesTheBytesAsTheyAre) {
  const auto encoded = std::make_shared<AlignedBuffer>(bytes_.size());
  std::ranges::copy(bytes_, encoded->bytes().begin());
  ExactSum added = *ExactSum::Decode(encoded, cohort_.channels, cohort_.order);
  ExactSum merged = *ExactSum::Decode(encoded, cohort_.channels, cohort_.order);
  ExactSum rest = cohort_.Empty();
  ASSERT_TRUE(cohort_.clients[7].AddTo(rest).ok());
  ASSERT_TRUE(cohort_.clients[7].AddTo(added).ok());
  ASSERT_TRUE(merged.Merge(std::move(rest)).ok());
  EXPECT_NE(Bytes(merged), bytes_);
  EXPECT_EQ(Bytes(merged), Bytes(added));
  EXPECT_TRUE(std::ranges::equal(encoded->bytes(), bytes_));
  EXPECT_EQ(encoded.use_count(), 1) << "a sum with integers of its own lets go of them";
}

TEST_F(ExactSumWire, RefusesAnotherCohortsSum) {
  GridOrder order = cohort_.order;
  order.total_weight += 1;
  const auto encoded = std::make_shared<AlignedBuffer>(bytes_.size());
  std::ranges::copy(bytes_, encoded->bytes().begin());
  EXPECT_FALSE(ExactSum::Decode(encoded, cohort_.channels, order).ok());
  std::vector<ChannelSpec> channels = cohort_.channels;
  channels[0].name = "other";
  EXPECT_FALSE(ExactSum::Decode(encoded, channels, cohort_.order).ok());
}

TEST_F(ExactSumWire, RefusesEveryPrefixAndAnythingLonger) {
  for (size_t size = 0; size < bytes_.size(); size += size < 600 ? 1 : 37) {
    EXPECT_FALSE(Decode(std::span(bytes_).first(size)).ok()) << size;
  }
  std::vector<std::byte> longer = bytes_;
  longer.resize(longer.size() + 64);
  EXPECT_FALSE(Decode(longer).ok());
}

TEST_F(ExactSumWire, RefusesCountsThatThePlanDoesNotAllow) {
  EXPECT_FALSE(Decode(With<uint64_t>(kClients, 0)).ok());
  EXPECT_FALSE(Decode(With<uint64_t>(kClients, 1)).ok());
  EXPECT_FALSE(Decode(With<uint64_t>(kClients, UINT64_MAX)).ok());
  EXPECT_FALSE(Decode(With<uint64_t>(kMultiplicity, 0)).ok());
  EXPECT_FALSE(Decode(With<uint64_t>(kMultiplicity, cohort_.order.total_multiplicity + 1)).ok());
  EXPECT_FALSE(Decode(With<int64_t>(kWeight, -1)).ok());
  EXPECT_FALSE(
      Decode(With<int64_t>(kWeight, 0)).ok());  // such sums are impossible with so little weight
  EXPECT_FALSE(Decode(With<int64_t>(kWeight, INT64_MAX)).ok());
  EXPECT_FALSE(Decode(With<double>(kFirstMaxAbs, -1)).ok());
  EXPECT_FALSE(Decode(With<double>(kFirstMaxAbs, std::nan(""))).ok());
  EXPECT_FALSE(Decode(With<double>(kFirstMaxAbs, 65537)).ok());
  // A channel that sums has no collected vectors.
  EXPECT_FALSE(Decode(With<uint64_t>(kFirstMaxAbs + 8, 1)).ok());
  EXPECT_FALSE(Decode(With<uint64_t>(kFirstMaxAbs + 4 * 16 + 8, 7))
                   .ok());  // a collecting channel holds as many vectors as it counts
  EXPECT_FALSE(Decode(With<uint64_t>(kFirstMaxAbs + 4 * 16 + 8, UINT64_MAX)).ok());
}

TEST_F(ExactSumWire, RefusesSumsThatNoClientsCanHaveReached) {
  const size_t first = 256;  // 80 + 10 · 16, padded
  ASSERT_TRUE(Decode(With<int64_t>(first, 0)).ok());
  for (const int64_t forged : {INT64_MAX, INT64_MIN, int64_t{1} << 62, -(int64_t{1} << 61)}) {
    EXPECT_FALSE(Decode(With(first, forged)).ok()) << forged;
  }
}

TEST_F(ExactSumWire, AnyByteStringDecodesOrIsRefused) {
  RandomStream random({.seed = 9});
  size_t accepted = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::vector<std::byte> forged = bytes_;
    const uint64_t changes = 1 + random.Below(4);
    for (uint64_t i = 0; i < changes; ++i) {
      // Half of the changes are in the header, which decides most.
      const size_t place = random.Below(2) == 0 ? random.Below(320) : random.Below(forged.size());
      forged[place] = static_cast<std::byte>(random.Below(256));
    }
    if (random.Below(4) == 0) forged.resize(random.Below(forged.size() + 200));
    absl::StatusOr<ExactSum> sum = Decode(forged);
    if (!sum.ok()) continue;
    ++accepted;
    // Whatever Decode accepts can be merged and reported safely.
    ExactSum total = cohort_.Empty();
    if (total.Merge(*std::move(sum)).ok()) {
      EXPECT_TRUE(std::move(total).Report().ok());
    }
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_LT(accepted, 4000u);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::byte> noise(random.Below(4096));
    for (std::byte& b : noise) b = static_cast<std::byte>(random.Below(256));
    EXPECT_FALSE(Decode(noise).ok());
  }
}

}  // namespace
}  // namespace macaw::aggregation
