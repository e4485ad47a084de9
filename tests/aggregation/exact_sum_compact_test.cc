#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "aggregation/exact_sum.h"
#include "tests/aggregation/cohort.h"

namespace macaw::aggregation {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> Compact(const ExactSum& sum) {
  const AlignedBuffer buffer = *ExactSum::EncodeTogether({&sum, 1}, SumForm::kCompact);
  return {buffer.bytes().begin(), buffer.bytes().end()};
}

absl::StatusOr<ExactSum> Decode(const TestCohort& cohort, std::span<const std::byte> bytes) {
  const auto encoded = std::make_shared<AlignedBuffer>(bytes.size());
  std::ranges::copy(bytes, encoded->bytes().begin());
  return ExactSum::Decode(encoded, cohort.channels, cohort.order);
}

uint64_t Alone(const TestCohort& cohort, const TestClient& client) {
  std::vector<ConstVectorView> views;
  for (const FlatVector& vector : client.vectors) views.push_back(vector.view());
  return cohort.Empty().BytesAlone({client.id, client.weight, client.multiplicity, views});
}

// A layout with gaps between its tensors, and one that ends in the middle of a block.
LayoutPtr Tensors(DType dtype) {
  return *ParameterLayout::Make(
      {{.name = "a", .shape = {3, 7}}, {.name = "b", .shape = {1200}}, {.name = "c", .shape = {1}}},
      dtype);
}

// Every reduction in both types, over such tensors.
std::vector<ChannelSpec> AllKindsOfTensors() {
  std::vector<ChannelSpec> channels = AllKinds(1);
  for (ChannelSpec& channel : channels) channel.layout = Tensors(channel.layout->dtype());
  return channels;
}

TestCohort Cohort(std::vector<ChannelSpec> channels, uint64_t seed) {
  TestCohort cohort(channels, 8, seed);
  RandomStream random({.seed = seed});
  for (TestClient& client : cohort.clients) {
    for (size_t c = 0; c < channels.size(); ++c) {  // TestCohort does not know of gaps
      client.vectors[c] = FlatVector(channels[c].layout);
      DispatchDType(channels[c].layout->dtype(), [&]<typename T>(T) {
        for (const LayoutEntry& entry : channels[c].layout->entries()) {
          for (T& value : client.vectors[c].As<T>().subspan(entry.offset, entry.size))
            value = static_cast<T>(random.Normal() * std::ldexp(1.0, -static_cast<int>(c)));
        }
      });
    }
  }
  return cohort;
}

TEST(ExactSumCompact, GivesTheSameSumForAnyNumberOfClients) {
  const TestCohort cohort = Cohort(AllKindsOfTensors(), 3);
  ExactSum sum = cohort.Empty();
  for (const TestClient& client : cohort.clients) {
    ASSERT_TRUE(client.AddTo(sum).ok());
    const std::vector<std::byte> compact = Compact(sum);
    EXPECT_LT(compact.size(), Bytes(sum).size());
    const absl::StatusOr<ExactSum> decoded = Decode(cohort, compact);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(Bytes(*decoded), Bytes(sum)) << sum.clients();
    EXPECT_EQ(Compact(*decoded).size(), compact.size());
  }
}

TEST(ExactSumCompact, OneClientTakesFourBytesAWeight) {
  const TestCohort cohort = Cohort({{.name = "delta", .layout = Tensors(DType::kF32)}}, 5);
  for (const TestClient& client : cohort.clients) {
    ExactSum sum = cohort.Empty();
    ASSERT_TRUE(client.AddTo(sum).ok());
    const size_t blocks = 1 + 3 + 1;
    EXPECT_EQ(Compact(sum).size(), 80u + 16 + blocks + 4 * (21 + 1200 + 1));
  }
}

// In every kind of channel; values below the grid are zero.
TEST(ExactSumCompact, TheCountOfAClientAloneIsItsSize) {
  std::vector<ChannelSpec> channels = AllKindsOfTensors();
  channels.push_back({.name = "coded", .layout = Tensors(DType::kF32), .coded = true, .levels = 9});
  TestCohort cohort = Cohort(channels, 7);
  RandomStream random({.seed = 9});
  for (size_t i = 0; i < cohort.clients.size(); ++i) {
    TestClient& client = cohort.clients[i];
    for (FlatVector& vector : client.vectors) {
      DispatchDType(vector.layout()->dtype(), [&]<typename T>(T) {
        for (T& value : vector.As<T>()) {
          if (random.Below(8) < i) value = 0;
          if (random.Below(8) == 0) value *= static_cast<T>(std::ldexp(1.0, -40));
        }
      });
    }
    if (i % 2 == 0) {
      for (float& value : client.vectors.back().As<float>())
        value = value == 0 ? 0 : std::copysign(0.125f, value);
    }
    ExactSum sum = cohort.Empty();
    ASSERT_TRUE(client.AddTo(sum).ok());
    EXPECT_EQ(Alone(cohort, client), Compact(sum).size()) << i;
    const absl::StatusOr<ExactSum> decoded = Decode(cohort, Compact(sum));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(Bytes(*decoded), Bytes(sum));
    EXPECT_LE(Alone(cohort, client), cohort.Empty().MostBytesAlone());
  }
}

TEST(ExactSumCompact, WeightsThatAreNotWholeAreExact) {
  TestCohort cohort = Cohort({{.name = "delta", .layout = Tensors(DType::kF32)}}, 11);
  for (TestClient& client : cohort.clients) client.weight /= 3;
  ExactSum sum = cohort.Empty();
  ASSERT_TRUE(cohort.clients[0].AddTo(sum).ok());
  EXPECT_EQ(Compact(sum).size(), 80u + 16 + 5 + 4 * 1222);
  EXPECT_EQ(Bytes(*Decode(cohort, Compact(sum))), Bytes(sum));
}

TEST(ExactSumCompact, SignsTakeABitAWeight) {
  const TestCohort made =
      Cohort({{.name = "delta", .layout = Tensors(DType::kF32), .coded = true, .levels = 1}}, 5);
  ExactSum sum = made.Empty();
  TestClient client{made.clients[0].id, made.clients[0].weight, 1, {}};
  client.vectors.push_back(made.clients[0].vectors[0].Clone());
  for (const LayoutEntry& entry : made.channels[0].layout->entries()) {
    for (float& value : client.vectors[0].As<float>().subspan(entry.offset, entry.size))
      value = std::copysign(0.0123f, value);
  }
  ASSERT_TRUE(client.AddTo(sum).ok());
  // A step a block, and a bit a weight; the only weight of the last tensor is a float.
  EXPECT_EQ(Compact(sum).size(), 80u + 16 + 4 * 6 + 3 + 64 + 64 + 22 + 5);
  EXPECT_EQ(Bytes(*Decode(made, Compact(sum))), Bytes(sum));
  // With a second client it is a sum.
  ASSERT_TRUE(made.clients[1].AddTo(sum).ok());
  EXPECT_EQ(Bytes(*Decode(made, Compact(sum))), Bytes(sum));
}

TEST(ExactSumCompact, AClientThatWeighsNothingIsSentAsIntegers) {
  TestCohort cohort = Cohort({{.name = "mean", .layout = Tensors(DType::kF32)},
                              {.name = "plain",
                               .layout = Tensors(DType::kF32),
                               .reduction = Reduction::kMean,
                               .coded = true,
                               .levels = 3}},
                             5);
  cohort.clients[0].weight = 0;
  ExactSum sum = cohort.Empty();
  ASSERT_TRUE(cohort.clients[0].AddTo(sum).ok());
  const absl::StatusOr<ExactSum> decoded = Decode(cohort, Compact(sum));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(Bytes(*decoded), Bytes(sum));
}

TEST(ExactSumCompact, SlotsAreAddedUpOnTheWay) {
  const TestCohort cohort = Cohort(AllKindsOfTensors(), 13);
  std::vector<ExactSum> slots;
  ExactSum all = cohort.Empty();
  for (size_t s = 0; s < 3; ++s) {
    slots.push_back(cohort.Empty());
    for (size_t i = s; i < cohort.clients.size() && s < 2; i += 2) {
      ASSERT_TRUE(cohort.clients[i].AddTo(slots[s]).ok());
      ASSERT_TRUE(cohort.clients[i].AddTo(all).ok());
    }
  }
  const AlignedBuffer together = *ExactSum::EncodeTogether(slots, SumForm::kCompact);
  const absl::StatusOr<ExactSum> decoded = Decode(cohort, together.bytes());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(Bytes(*decoded), Bytes(all));
}

TEST(ExactSumCompact, ASumOfNobodyIsAligned) {
  const TestCohort cohort = Cohort(AllKindsOfTensors(), 3);
  EXPECT_EQ(Compact(cohort.Empty()), Bytes(cohort.Empty()));
}

TEST(ExactSumCompact, RefusesAWeightThatIsNotTheClients) {
  const TestCohort cohort = Cohort({{.name = "delta", .layout = Tensors(DType::kF32)}}, 5);
  ExactSum sum = cohort.Empty();
  ASSERT_TRUE(cohort.clients[0].AddTo(sum).ok());
  const std::vector<std::byte> good = Compact(sum);
  constexpr size_t kAloneWeight = 72;
  for (const double weight : {cohort.clients[0].weight * 2, -1.0, 1e300, std::nan(""), 1e-300}) {
    std::vector<std::byte> changed = good;
    std::memcpy(changed.data() + kAloneWeight, &weight, sizeof(weight));
    EXPECT_THAT(std::string(Decode(cohort, changed).status().message()),
                HasSubstr("cannot be of one client"))
        << weight;
  }
}

// Before it makes memory for so many vectors.
TEST(ExactSumCompact, RefusesMoreClientsThanArePlanned) {
  const TestCohort cohort = Cohort(
      {{.name = "each", .layout = Tensors(DType::kF32), .reduction = Reduction::kCollect}}, 5);
  ExactSum sum = cohort.Empty();
  ASSERT_TRUE(cohort.clients[0].AddTo(sum).ok());
  std::vector<std::byte> bytes = Compact(sum);
  bytes.resize(80 + 16);
  constexpr uint64_t kMany = 300'000;
  for (const size_t place : {size_t{48}, size_t{56}, size_t{80 + 8}})
    std::memcpy(bytes.data() + place, &kMany, sizeof(kMany));
  for (uint64_t id = 0; id < kMany; ++id) {  // a vector of zeros each
    const uint32_t once = 1;
    const size_t at = bytes.size();
    bytes.resize(at + 14);
    std::memcpy(bytes.data() + at, &id, sizeof(id));
    std::memcpy(bytes.data() + at + 8, &once, sizeof(once));
    bytes[at + 13] = static_cast<std::byte>(4);  // five blocks of zeros
  }
  EXPECT_THAT(std::string(Decode(cohort, bytes).status().message()), HasSubstr("it counts 300000"));
}

TEST(ExactSumCompact, RefusesValuesBeyondTheBound) {
  const TestCohort cohort = Cohort({{.name = "delta", .layout = Tensors(DType::kF32)}}, 5);
  ExactSum sum = cohort.Empty();
  ASSERT_TRUE(cohort.clients[0].AddTo(sum).ok());
  for (const float value : {1e6f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<std::byte> changed = Compact(sum);
    std::memcpy(changed.data() + 80 + 16 + 1, &value, sizeof(value));
    EXPECT_THAT(std::string(Decode(cohort, changed).status().message()), HasSubstr("bound"));
  }
}

// Whether the values stand as floats, at some places or as integers of several clients.
TEST(ExactSumCompact, RefusesALargestValueThatItsValuesExceed) {
  for (const size_t clients : {1u, 3u}) {
    TestCohort cohort =
        Cohort({{.name = "delta", .layout = Tensors(DType::kF32), .coded = true}}, 5);
    for (const bool sparse : {false, true}) {
      ExactSum sum = cohort.Empty();
      for (size_t i = 0; i < clients; ++i) {
        TestClient& client = cohort.clients[i];
        const std::span<float> values = client.vectors[0].As<float>();
        for (size_t at = 0; sparse && at < values.size(); ++at)
          values[at] = at % 100 == 7 ? -2.5f : 0;
        ASSERT_TRUE(client.AddTo(sum).ok());
      }
      std::vector<std::byte> bytes = Compact(sum);
      EXPECT_EQ(Bytes(*Decode(cohort, bytes)), Bytes(sum));
      const double claimed = 0.1;
      std::memcpy(bytes.data() + 80, &claimed, sizeof(claimed));
      EXPECT_THAT(std::string(Decode(cohort, bytes).status().message()),
                  HasSubstr("cannot have reached"))
          << clients << sparse;
    }
  }
}

// Any change gives a valid sum or an error, and never more than its clients can have sent.
TEST(ExactSumCompact, AnyBytesGiveASumOrAnError) {
  const TestCohort cohort = Cohort(AllKindsOfTensors(), 17);
  RandomStream random({.seed = 21});
  ExactSum sum = cohort.Empty();
  size_t refused = 0;
  for (size_t clients = 0; clients < 3; ++clients) {
    ASSERT_TRUE(cohort.clients[clients].AddTo(sum).ok());
    const std::vector<std::byte> good = Compact(sum);
    for (int i = 0; i < 2000; ++i) {
      std::vector<std::byte> bytes = good;
      for (uint64_t change = 0; change <= random.Below(3); ++change) {
        // Half of the changes in the headers and the first blocks.
        const uint64_t at = random.Below(random.Below(2) == 0 ? 400 : bytes.size());
        bytes[at] = static_cast<std::byte>(random.Below(256));
      }
      if (random.Below(4) == 0) bytes.resize(random.Below(bytes.size()));
      absl::StatusOr<ExactSum> decoded = Decode(cohort, bytes);
      refused += decoded.ok() ? 0 : 1;
      if (decoded.ok()) {
        EXPECT_TRUE(std::move(*decoded).Report().ok());
      }
    }
  }
  EXPECT_GT(refused, 2000u);
}

}  // namespace
}  // namespace macaw::aggregation
