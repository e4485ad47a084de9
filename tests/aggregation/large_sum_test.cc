// Sums of so many numbers that they are kept in fewer bytes than their integers have
// (kLargeSum in aggregation/exact_sum_state.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "core/blocks.h"
#include "core/page_pool.h"
#include "testing/disk_space.h"
#include "testing/temporary_folder.h"
#include "tests/aggregation/cohort.h"

namespace macaw::aggregation {
namespace {

// With a gap behind each tensor, and a tensor between two that ends within a block.
LayoutPtr LargeLayout() {
  return *ParameterLayout::Make({{.name = "a", .shape = {3, 7}},
                                 {.name = "b", .shape = {(1 << 22) + 700}},
                                 {.name = "c", .shape = {1}}},
                                DType::kF32);
}

// Beside the large channel there is one of each other kind. The first client's vector begins with
// zeros, and others lie in it.
TestCohort LargeCohort() {
  const LayoutPtr layout = LargeLayout();
  const auto channel = [](const char* name, DType dtype, Reduction reduction) {
    return ChannelSpec{.name = name, .layout = Vector(3, dtype), .reduction = reduction};
  };
  TestCohort cohort({channel("delta", DType::kF32, Reduction::kWeightedMean),
                     channel("rows", DType::kF32, Reduction::kCollect),
                     channel("largest", DType::kF64, Reduction::kMax),
                     channel("tau", DType::kF64, Reduction::kMean)},
                    3, 5);
  cohort.channels[0].layout = layout;
  RandomStream random({.seed = 5});
  for (size_t i = 0; i < cohort.clients.size(); ++i) {
    FlatVector vector(layout);
    for (const LayoutEntry& entry : layout->entries()) {
      for (float& value : vector.As<float>().subspan(entry.offset, entry.size))
        value = std::ldexp(static_cast<float>(random.NextU64() >> 40) - 0x1p23f, -25);
    }
    if (i == 0) {
      const LayoutEntry& entry = layout->entries()[1];
      const std::span<float> values = vector.As<float>().subspan(entry.offset, entry.size);
      std::ranges::fill(values.first(1 << 20), 0.0f);
      std::ranges::fill(values.subspan(3 << 19, 70'000), 0.0f);
    }
    cohort.clients[i].vectors[0] = std::move(vector);
  }
  return cohort;
}

class LargeSums : public testing::Test {
 protected:
  ExactSum Of(std::vector<size_t> clients) const {
    ExactSum sum = cohort_.Empty();
    for (const size_t client : clients) EXPECT_TRUE(cohort_.clients[client].AddTo(sum).ok());
    return sum;
  }
  static std::vector<std::byte> Compact(const ExactSum& sum) {
    const AlignedBuffer buffer = *ExactSum::EncodeTogether({&sum, 1}, SumForm::kCompact);
    return {buffer.bytes().begin(), buffer.bytes().end()};
  }
  static std::shared_ptr<const AlignedBuffer> Buffer(std::span<const std::byte> bytes) {
    AlignedBuffer buffer(bytes.size());
    std::ranges::copy(bytes, buffer.bytes().begin());
    return std::make_shared<const AlignedBuffer>(std::move(buffer));
  }
  absl::StatusOr<ExactSum> Decode(std::span<const std::byte> bytes) const {
    return ExactSum::Decode(Buffer(bytes), cohort_.channels, cohort_.order);
  }

  const TestCohort cohort_ = LargeCohort();
};

TEST_F(LargeSums, AClientAloneHasTheSameBytesBeforeAndAfterItsIntegersAreMade) {
  for (const size_t client : {0, 1}) {
    const ExactSum sum = Of({client});
    const std::vector<std::byte> before = Compact(sum);
    const std::vector<std::byte> aligned = Bytes(sum);  // makes them
    EXPECT_EQ(Compact(sum), before);
    EXPECT_LT(before.size(), aligned.size() * 0.51);
    const absl::StatusOr<ExactSum> decoded = Decode(before);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(Bytes(*decoded), aligned);
  }
}

TEST_F(LargeSums, AnyTreeOfDecodedAndOtherSumsGivesTheSameSum) {
  const ExactSum flat = Of({0, 1, 2});
  const std::vector<std::byte> expected = Bytes(flat);
  const std::vector<std::byte> first = Compact(Of({0})), second = Compact(Of({1}));
  const std::vector<std::byte> both = Compact(Of({1, 2})), all = Compact(flat);
  {
    ExactSum sum = *Decode(both);
    ASSERT_TRUE(sum.Merge(*Decode(first)).ok());
    EXPECT_EQ(Bytes(sum), expected);
  }
  {
    ExactSum sum = *Decode(first);
    ASSERT_TRUE(sum.Merge(Of({2})).ok());
    ASSERT_TRUE(sum.Merge(*Decode(second)).ok());
    EXPECT_EQ(Compact(sum), all);
  }
  {
    ExactSum sum = Of({2});
    ASSERT_TRUE(sum.Merge(*Decode(first)).ok());
    ASSERT_TRUE(cohort_.clients[1].AddTo(sum).ok());
    EXPECT_EQ(Bytes(sum), expected);
  }
  const ExactSum parts[] = {*Decode(first), Of({1}), Of({2})};
  const AlignedBuffer together = *ExactSum::EncodeTogether(parts, SumForm::kCompact);
  EXPECT_TRUE(std::ranges::equal(together.bytes(), all));
  const Aggregate decoded = *std::move(*Decode(all)).Report(), plain = *Of({0, 1, 2}).Report();
  for (size_t c = 0; c < plain.channels.size(); ++c) {
    EXPECT_TRUE(std::ranges::equal(decoded.channels[c].value.view().bytes,
                                   plain.channels[c].value.view().bytes));
  }
}

// The mean takes the place of the sum, unless the sum's memory is another's.
TEST_F(LargeSums, TheMeanIsTheSameInPlaceAndElsewhere) {
  const Aggregate elsewhere = *std::move(*Decode(Bytes(Of({0, 1, 2})))).Report();
  const Aggregate in_place = *Of({0, 1, 2}).Report();
  const ConstVectorView mean = in_place.channels[0].value.view();
  EXPECT_EQ(mean.bytes.size(), cohort_.channels[0].layout->bytes());
  EXPECT_TRUE(std::ranges::equal(mean.bytes, elsewhere.channels[0].value.view().bytes));
  double weight = 0, sum = 0;
  const uint64_t at = cohort_.channels[0].layout->entries()[1].offset + 4'000'000;
  for (const TestClient& client : cohort_.clients) {
    const double times = client.weight * client.multiplicity;
    weight += times;
    sum += times * client.vectors[0].As<float>()[at];
  }
  EXPECT_NEAR(mean.As<float>()[at], sum / weight, 1e-6);
}

TEST_F(LargeSums, ADecodedOneKeepsItsBytesUntilItsIntegersAreMade) {
  const std::shared_ptr<const AlignedBuffer> bytes = Buffer(Compact(Of({0})));
  ExactSum sum = *ExactSum::Decode(bytes, cohort_.channels, cohort_.order);
  EXPECT_EQ(bytes.use_count(), 2);
  ASSERT_TRUE(sum.Merge(Of({1})).ok());
  EXPECT_EQ(bytes.use_count(), 1);
}

TEST_F(LargeSums, DamagedOnesAreRefusedBeforeTheyCount) {
  const std::vector<std::byte> good = Compact(Of({1}));
  const std::span<const std::byte> bytes(good);
  EXPECT_FALSE(Decode(bytes.first(bytes.size() - 1)).ok());
  EXPECT_FALSE(Decode(bytes.first(bytes.size() / 2)).ok());
  std::vector<std::byte> bad = good;
  // Wherever a float begins, one of them is beyond 1e38.
  std::fill_n(bad.begin() + static_cast<ptrdiff_t>(bad.size() / 2), 4, std::byte{0x7f});
  EXPECT_FALSE(Decode(bad).ok());
}

// The setting is the process's, so these have processes of their own, which end with 0 if all
// holds.
void Must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

TestCohort CohortInFiles(const std::string& folder,
                         LayoutPtr layout = Vector(6 << 20, DType::kF32)) {
  constexpr size_t kFrom = size_t{4} << 20;
  Must(KeepLargeBlocksIn(folder, kFrom).ok(), "the folder takes files");
  const auto channel = [](const char* name, LayoutPtr layout, Reduction reduction) {
    return ChannelSpec{.name = name, .layout = std::move(layout), .reduction = reduction};
  };
  return TestCohort({channel("delta", std::move(layout), Reduction::kWeightedMean),
                     channel("tau", Vector(3, DType::kF64), Reduction::kMean)},
                    2, 5);
}

// A sum of its own vector, which it is given.
ExactSum SumOfGiven(const TestCohort& cohort, size_t which) {
  const TestClient& client = cohort.clients[which];
  ExactSum sum = cohort.Empty();
  std::vector<ConstVectorView> views;
  for (const FlatVector& vector : client.vectors) views.push_back(vector.view());
  const auto give = [&](size_t c) { return client.vectors[c].Clone(); };
  Must(sum.Add({.client = client.id,
                .weight = client.weight,
                .multiplicity = client.multiplicity,
                .values = views,
                .give = give})
           .ok(),
       "the client is added");
  return sum;
}

void EncodeItLast(const std::string& folder) {
  const TestCohort cohort = CohortInFiles(folder);
  const uint64_t clients = testing_support::BytesOnDisk(folder);
  ExactSum sum = SumOfGiven(cohort, 0);
  const uint64_t vector = testing_support::BytesOnDisk(folder) - clients;
  Must(vector >= (24 << 20), "its vector is on the disk");
  const AlignedBuffer stays = *ExactSum::EncodeTogether({&sum, 1}, SumForm::kCompact);
  const uint64_t both = testing_support::BytesOnDisk(folder) - clients;
  Must(both >= 2 * vector, "with its bytes there are two");
  const AlignedBuffer last = *ExactSum::EncodeLast({&sum, 1}, SumForm::kCompact);
  Must(std::ranges::equal(stays.bytes(), last.bytes()), "the bytes are the same");
  Must(testing_support::BytesOnDisk(folder) - clients <= both + (12 << 20),
       "the vector's space became that of the bytes");
  std::_Exit(0);
}

TEST(LargeSumsInFiles, TheLastEncodingTakesTheirSpace) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(EncodeItLast(folder.path()), testing::ExitedWithCode(0), "");
}

// A wave of pieces ends before a tensor of a few numbers, which lie on the vector's last page.
void EncodeASmallTensorLast(const std::string& folder) {
  constexpr int64_t kWave = 16 * int64_t{kBlocksOfPiece} * int64_t{kBlock};
  const TestCohort cohort =
      CohortInFiles(folder, *ParameterLayout::Make({{.name = "a", .shape = {4 * kWave}},
                                                    {.name = "b", .shape = {kWave - 100}},
                                                    {.name = "c", .shape = {10}}},
                                                   DType::kF32));
  const LayoutEntry& last = cohort.channels[0].layout->entries()[2];
  Must(last.offset * sizeof(float) % 4096 != 0, "it begins within a page");
  Must(BlockPiecesOf(*cohort.channels[0].layout).back().entry == 2, "it is a piece of its own");
  ExactSum sum = SumOfGiven(cohort, 0);
  const AlignedBuffer stays = *ExactSum::EncodeTogether({&sum, 1}, SumForm::kCompact);
  const AlignedBuffer encoded = *ExactSum::EncodeLast({&sum, 1}, SumForm::kCompact);
  Must(std::ranges::equal(stays.bytes(), encoded.bytes()), "the bytes are the same");
  std::_Exit(0);
}

TEST(LargeSumsInFiles, TheLastPageStaysUntilItIsRead) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(EncodeASmallTensorLast(folder.path()), testing::ExitedWithCode(0), "");
}

// With collected vectors, of several clients and in the aligned form nothing is given up before all
// of it is written.
TEST_F(LargeSums, TheLastEncodingHasTheSameBytes) {
  for (const SumForm form : {SumForm::kCompact, SumForm::kAligned}) {
    for (const std::vector<size_t>& clients : {std::vector<size_t>{0}, {1}, {0, 1, 2}}) {
      ExactSum sum = Of(clients);
      const AlignedBuffer stays = *ExactSum::EncodeTogether({&sum, 1}, form);
      const AlignedBuffer last = *ExactSum::EncodeLast({&sum, 1}, form);
      EXPECT_TRUE(std::ranges::equal(stays.bytes(), last.bytes())) << clients.size();
    }
  }
}

void Divide(const std::string& folder) {
  const TestCohort cohort = CohortInFiles(folder);
  ExactSum sum = SumOfGiven(cohort, 0);
  Must(sum.Merge(SumOfGiven(cohort, 1)).ok(), "the other one is added");
  const uint64_t before = testing_support::BytesOnDisk(folder);
  const auto mean = std::move(sum).Report();
  Must(mean.ok(), "it is divided");
  // Of 48 MiB of integers.
  Must(testing_support::BytesOnDisk(folder) + (23 << 20) <= before,
       "the mean takes half of their space");
  std::_Exit(0);
}

TEST(LargeSumsInFiles, TheMeanTakesHalfTheirSpace) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(Divide(folder.path()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace macaw::aggregation
