#include "aggregation/exact_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "aggregation/plan.h"
#include "tests/aggregation/cohort.h"

namespace macaw::aggregation {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TestClient Client(uint64_t id, double weight, const LayoutPtr& layout,
                  const std::vector<double>& values, uint32_t multiplicity = 1) {
  TestClient client{ClientId(id), weight, multiplicity, {}};
  client.vectors.push_back(Filled(layout, values));
  return client;
}

TEST(MakeGrid, FollowsTheFormula) {
  ChannelSpec channel{.name = "w", .layout = Vector(4, DType::kF32), .bound = 65536};
  // min(50 − log2 1024, 61 − log2 2^20) − 16
  EXPECT_EQ(MakeGrid(channel, {1024, 1 << 20, 1, 100})->bits, 24);
  EXPECT_EQ(MakeGrid(channel, {1025, 1 << 20, 1, 100})->bits, 23);  // logarithms are rounded up
  // Here the total is the stricter limit.
  EXPECT_EQ(MakeGrid(channel, {1, std::ldexp(1, 30), 1, 1})->bits, 15);
  channel.reduction = Reduction::kMean;  // weights do not matter, multiplicities do
  EXPECT_EQ(MakeGrid(channel, {1024, 1 << 20, 4, 100})->bits, 32);
  EXPECT_EQ(MakeGrid(channel, {1024, 1 << 20, 4, 100})->limbs, 1);
  channel.layout = Vector(4, DType::kF64);
  EXPECT_EQ(MakeGrid(channel, {1, 1, 1, 1 << 10})->limbs, 3);
  EXPECT_EQ(MakeGrid(channel, {1, 1, 1, 1 << 10})->limb_bits, 48);
  EXPECT_EQ(MakeGrid(channel, {1, 1, 1, 1 << 20})->limb_bits, 41);  // a million clients
}

TEST(MakeGrid, RefusesWhatCannotBeAGrid) {
  const ChannelSpec channel{.name = "w", .layout = Vector(4, DType::kF32)};
  const auto with = [&](auto change) {
    ChannelSpec changed = channel;
    change(changed);
    return MakeGrid(changed, {}).ok();
  };
  EXPECT_TRUE(MakeGrid(channel, {}).ok());
  EXPECT_FALSE(with([](ChannelSpec& c) { c.bound = 0; }));
  EXPECT_FALSE(with([](ChannelSpec& c) { c.bound = std::nan(""); }));
  EXPECT_FALSE(with([](ChannelSpec& c) { c.bound = kInfinity; }));
  EXPECT_FALSE(with([](ChannelSpec& c) { c.layout = nullptr; }));
  EXPECT_FALSE(with([](ChannelSpec& c) { c.reduction = Reduction::kFixedSum, c.divisor = 0; }));
  EXPECT_FALSE(MakeGrid(channel, {.max_weight = 0}).ok());
  EXPECT_FALSE(MakeGrid(channel, {.max_weight = std::nan("")}).ok());
  EXPECT_FALSE(MakeGrid(channel, {.max_weight = 2, .total_weight = 1}).ok());
  EXPECT_FALSE(MakeGrid(channel, {.total_weight = kInfinity}).ok());
  EXPECT_FALSE(MakeGrid(channel, {.max_multiplicity = 2, .total_multiplicity = 1}).ok());
  EXPECT_FALSE(ExactSum::Make({channel}, {std::ldexp(1, 51), std::ldexp(1, 52), 1, 2}).ok());
  EXPECT_FALSE(ExactSum::Make({}, {}).ok());
}

TEST(ExactSum, ReducesNumbersByHand) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const LayoutPtr layout = Vector(2, dtype);
    std::vector<ChannelSpec> channels;
    for (const Reduction reduction : {Reduction::kWeightedMean, Reduction::kMean,
                                      Reduction::kFixedSum, Reduction::kMax, Reduction::kCollect}) {
      channels.push_back({.name = "c", .layout = layout, .reduction = reduction, .divisor = 10});
    }
    ExactSum sum = *ExactSum::Make(channels, {6, 7, 2, 3});
    // Client 9 has weight 3 and was drawn twice; client 4 weighs 1.
    for (const auto& [id, weight, m, values] :
         {std::tuple{9, 3.0, 2u, std::vector<double>{1, -2}}, {4, 1.0, 1u, {8, 5}}}) {
      TestClient client{ClientId(id), weight, m, {}};
      for (size_t c = 0; c < channels.size(); ++c) client.vectors.push_back(Filled(layout, values));
      ASSERT_TRUE(client.AddTo(sum).ok());
    }
    const Aggregate result = *std::move(sum).Report();
    EXPECT_EQ(result.clients, 2u);
    DispatchDType(dtype, [&]<typename T>(T) {
      const auto value = [&](size_t c, size_t i) { return result.channels[c].value.As<T>()[i]; };
      EXPECT_EQ(value(0, 0), T(14.0 / 7));
      EXPECT_EQ(value(0, 1), T(-7.0 / 7));
      EXPECT_EQ(result.channels[0].weight, 7);
      EXPECT_EQ(value(1, 0), T(10.0 / 3));
      EXPECT_EQ(value(1, 1), T(1.0 / 3));
      EXPECT_EQ(result.channels[1].weight, 3);
      EXPECT_EQ(value(2, 0), T(1.0));
      EXPECT_EQ(value(2, 1), T(0.1));
      EXPECT_EQ(value(3, 0), T(8));
      EXPECT_EQ(value(3, 1), T(5));
    });
    std::vector<uint64_t> collected;  // sorted; a client drawn twice is listed twice
    for (const auto& [client, vector] : result.channels[4].collected)
      collected.push_back(client.value);
    EXPECT_THAT(collected, ElementsAre(4, 9, 9));
    EXPECT_EQ(result.channels[0].max_abs, 8);
  }
}

TEST(ExactSum, WithoutContributionsThereIsNoMeanAndTheSumIsZero) {
  ExactSum sum = *ExactSum::Make(AllKinds(5), {});
  const Aggregate result = *std::move(sum).Report();
  EXPECT_EQ(result.clients, 0u);
  for (const size_t c : {0, 1, 3, 4, 5, 6, 8, 9})
    EXPECT_TRUE(result.channels[c].value.empty()) << c;
  for (const size_t c : {2, 7}) {
    ASSERT_FALSE(result.channels[c].value.empty());
    for (const std::byte b : result.channels[c].value.view().bytes) EXPECT_EQ(b, std::byte{0});
  }
}

TEST(ExactSum, ReportsOnce) {
  ExactSum sum = *ExactSum::Make(AllKinds(1), {});
  EXPECT_TRUE(std::move(sum).Report().ok());
  EXPECT_FALSE(std::move(sum).Report().ok());  // NOLINT(bugprone-use-after-move): that is the point
}

TEST(ExactSum, OrderAndTreeDoNotMatter) {
  const TestCohort cohort(AllKinds(37), 40, 1);
  ExactSum flat = cohort.Empty();
  for (const TestClient& client : cohort.clients) ASSERT_TRUE(client.AddTo(flat).ok());
  const std::vector<std::byte> expected = Bytes(flat);

  RandomStream random({.seed = 2});
  for (int trial = 0; trial < 30; ++trial) {
    std::vector<size_t> permutation(cohort.clients.size());
    for (size_t i = 0; i < permutation.size(); ++i) permutation[i] = i;
    random.Shuffle(std::span(permutation));
    // Workers with several slots each; some slots get no client.
    const size_t slots = 1 + random.Below(9);
    std::vector<ExactSum> parts;
    for (size_t i = 0; i < slots; ++i) parts.push_back(cohort.Empty());
    for (const size_t i : permutation) {
      ASSERT_TRUE(cohort.clients[i].AddTo(parts[random.Below(slots)]).ok());
    }
    while (parts.size() > 1) {  // any tree
      random.Shuffle(std::span(parts));
      ASSERT_TRUE(parts[0].Merge(std::move(parts.back())).ok());
      parts.pop_back();
    }
    EXPECT_EQ(Bytes(parts[0]), expected) << "trial " << trial;
  }
}

TEST(ExactSum, EncodesSeveralTogetherAsTheirSum) {
  // So large that several threads share the work.
  const TestCohort cohort(AllKinds(300'001), 4, 3);
  std::vector<ExactSum> sums;
  for (int i = 0; i < 4; ++i) sums.push_back(cohort.Empty());  // the last one stays empty
  ExactSum flat = cohort.Empty();
  for (size_t i = 0; i < cohort.clients.size(); ++i) {
    ASSERT_TRUE(cohort.clients[i].AddTo(sums[i % 3]).ok());
    ASSERT_TRUE(cohort.clients[i].AddTo(flat).ok());
  }
  const std::vector<std::byte> first = Bytes(sums[0]);
  const absl::StatusOr<AlignedBuffer> together = ExactSum::EncodeTogether(sums);
  ASSERT_TRUE(together.ok()) << together.status();
  EXPECT_TRUE(std::ranges::equal(together->bytes(), Bytes(flat)));
  EXPECT_EQ(Bytes(sums[0]), first) << "the sums stay as they are";

  sums.push_back(cohort.Empty());
  ASSERT_TRUE(cohort.clients[0].AddTo(sums.back()).ok());
  EXPECT_FALSE(ExactSum::EncodeTogether(sums).ok()) << "the first client is in two of them";
}

TEST(ExactSum, TheFirstVectorOfASumNeedsNoZeroes) {
  // Buffers of this size come from a pool, with what was written to them before.
  constexpr int64_t kCount = 1 << 20;
  const LayoutPtr layout = Vector(kCount, DType::kF32);
  const ChannelSpec mean{.name = "w", .layout = layout, .reduction = Reduction::kMean};
  const TestClient client = Client(1, 1, layout, std::vector<double>(kCount, 0.5));
  for (int round = 0; round < 2; ++round) {
    ExactSum sum = *ExactSum::Make({mean}, {1, 2, 1, 2});
    ASSERT_TRUE(client.AddTo(sum).ok());
    ASSERT_TRUE(client.AddTo(sum).ok());
    const Aggregate result = *std::move(sum).Report();
    const auto values = result.channels[0].value.As<float>();
    EXPECT_EQ(std::ranges::count(values, 0.5F), kCount) << "round " << round;
  }
}

TEST(ExactSum, F32MeanIsWithinTheGridOfTheExactOne) {
  const TestCohort cohort({{.name = "w", .layout = Vector(1000, DType::kF32)}}, 100, 4);
  ExactSum sum = cohort.Empty();
  for (const TestClient& client : cohort.clients) ASSERT_TRUE(client.AddTo(sum).ok());
  const Aggregate result = *std::move(sum).Report();
  const double step = std::ldexp(1.0, -MakeGrid(cohort.channels[0], cohort.order)->bits);
  for (size_t i = 0; i < 1000; ++i) {
    long double exact = 0;
    for (const TestClient& client : cohort.clients) {
      exact += static_cast<long double>(client.weight) * client.multiplicity *
               client.vectors[0].As<float>()[i];
    }
    exact /= cohort.order.total_weight;
    const long double tolerance =
        step * 100 / 2 / cohort.order.total_weight + std::fabs(exact) * 0x1p-24L;
    EXPECT_LE(std::fabs(result.channels[0].value.As<float>()[i] - exact), tolerance);
  }
}

TEST(ExactSum, F64MeanIsTheRoundedExactOne) {
  TestCohort cohort({{.name = "w", .layout = Vector(1000, DType::kF64)}}, 100, 5);
  RandomStream random({.seed = 6});
  for (TestClient& client : cohort.clients) {
    // Sizes from 1 down to 1e-12: one grid must serve them all.
    const std::span<double> values = client.vectors[0].As<double>();
    for (size_t i = 0; i < 1000; ++i)
      values[i] = random.Normal() * std::pow(10.0, -static_cast<double>(i % 13));
  }
  ExactSum sum = cohort.Empty();
  for (const TestClient& client : cohort.clients) ASSERT_TRUE(client.AddTo(sum).ok());
  const Aggregate result = *std::move(sum).Report();
  for (size_t i = 0; i < 1000; ++i) {
    _Float128 exact = 0;  // a type of glibc's, for every processor
    for (const TestClient& client : cohort.clients) {
      exact += static_cast<decltype(exact)>(client.weight * client.multiplicity) *
               client.vectors[0].As<double>()[i];
    }
    exact /= cohort.order.total_weight;
    // Correctly rounded: no double is nearer, however much the clients cancelled.
    EXPECT_EQ(result.channels[0].value.As<double>()[i], static_cast<double>(exact)) << i;
  }
}

TEST(ExactSum, F64SurvivesCancellationInsideAMillion) {
  const LayoutPtr layout = Vector(1, DType::kF64);
  ExactSum sum = *ExactSum::Make({{.name = "w", .layout = layout}}, {1000, 2001, 1, 3});
  ASSERT_TRUE(Client(1, 1000, layout, {60000.1}).AddTo(sum).ok());
  ASSERT_TRUE(Client(2, 1000, layout, {-60000.1}).AddTo(sum).ok());
  ASSERT_TRUE(Client(3, 1, layout, {1e-15}).AddTo(sum).ok());
  EXPECT_EQ(std::move(sum).Report()->channels[0].value.As<double>()[0], 1e-15 / 2001);
}

TEST(ExactSum, WeightsThatAreNotWholeAreExactToTheirGrid) {
  const LayoutPtr layout = Vector(1, DType::kF64);
  ExactSum sum = *ExactSum::Make({{.name = "w", .layout = layout}}, {0.7, 0.1 + 0.2 + 0.7, 1, 3});
  for (const double weight : {0.1, 0.2, 0.7}) {
    ASSERT_TRUE(
        Client(static_cast<uint64_t>(weight * 10), weight, layout, {weight}).AddTo(sum).ok());
  }
  const Aggregate result = *std::move(sum).Report();
  EXPECT_NEAR(result.channels[0].weight, 1.0, 1e-15);
  EXPECT_NEAR(result.channels[0].value.As<double>()[0], 0.01 + 0.04 + 0.49, 1e-15);
}

TEST(ExactSum, MultiplicityCountsLikeThatManyClients) {
  const LayoutPtr layout = Vector(3, DType::kF32);
  const std::vector<ChannelSpec> channels = {{.name = "w", .layout = layout}};
  const GridOrder order{12, 24, 3, 6};
  ExactSum once = *ExactSum::Make(channels, order);
  ExactSum thrice = *ExactSum::Make(channels, order);
  ASSERT_TRUE(Client(1, 4, layout, {0.25, -3, 7}, 3).AddTo(once).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Client(1, 4, layout, {0.25, -3, 7}).AddTo(thrice).ok());
  EXPECT_EQ(DigestOfValues(std::move(once).Report()->channels[0].value.view()),
            DigestOfValues(std::move(thrice).Report()->channels[0].value.view()));
}

TEST(ExactSum, ARefusedContributionLeavesNoTrace) {
  const LayoutPtr f32 = *ParameterLayout::Make(
      {{.name = "bias", .shape = {3}}, {.name = "head", .shape = {2}}}, DType::kF32);
  const LayoutPtr f64 = Vector(4, DType::kF64);
  const std::vector<ChannelSpec> channels = {
      {.name = "robust", .layout = f64, .reduction = Reduction::kCollect},
      {.name = "delta", .layout = f32, .bound = 100},
      {.name = "control", .layout = f64, .reduction = Reduction::kMean, .bound = 100}};
  ExactSum sum = *ExactSum::Make(channels, {10, 20, 2, 3});
  TestClient good{ClientId(1), 10, 1, {}};
  good.vectors.push_back(Filled(f64, {1, 2, 3, 4}));
  good.vectors.push_back(Filled(f32, {1, 2, 3}));
  good.vectors.push_back(Filled(f64, {-100, 100, 0, 1e-300}));
  ASSERT_TRUE(good.AddTo(sum).ok());
  const std::vector<std::byte> before = Bytes(sum);

  const auto refuses = [&](auto change, const std::string& why) {
    TestClient bad{ClientId(77), 10, 1, {}};
    for (const FlatVector& vector : good.vectors) bad.vectors.push_back(vector.Clone());
    change(bad);
    const absl::Status status = bad.AddTo(sum);
    EXPECT_FALSE(status.ok()) << why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_THAT(std::string(status.message()), HasSubstr("client "));
    EXPECT_EQ(Bytes(sum), before) << why;
  };
  // In the last channel: an implementation that checks too late has added the other channels by
  // then.
  refuses([](TestClient& c) { c.vectors[2].As<double>()[3] = std::nan(""); },
          "channel 'control', tensor 'w' element 3");
  refuses([](TestClient& c) { c.vectors[2].As<double>()[0] = -kInfinity; }, "is -inf");
  refuses([](TestClient& c) { c.vectors[2].As<double>()[1] = std::nextafter(100, 200); },
          "up to 100");
  refuses([](TestClient& c) { c.vectors[1].As<float>()[16] = NAN; },
          "channel 'delta', tensor 'head' element 0");
  refuses([](TestClient& c) { c.vectors[1].As<float>()[5] = INFINITY; }, "padding");
  refuses([](TestClient& c) { c.vectors[0].As<double>()[0] = 1e9; }, "channel 'robust'");
  refuses([](TestClient& c) { c.weight = std::nextafter(10, 11); }, "weight");
  refuses([](TestClient& c) { c.weight = -1; }, "weight");
  refuses([](TestClient& c) { c.weight = std::nan(""); }, "weight");
  refuses([](TestClient& c) { c.weight = kInfinity; }, "weight");
  refuses([](TestClient& c) { c.multiplicity = 0; }, "multiplicity");
  refuses([](TestClient& c) { c.multiplicity = 3; }, "multiplicity");
  refuses([](TestClient& c) { c.vectors.pop_back(); }, "2 channels instead of 3");
  refuses([&](TestClient& c) { c.vectors[1] = FlatVector(f64); }, "another layout");
  refuses([](TestClient& c) { c.vectors[1] = FlatVector(Vector(5, DType::kF32)); },
          "another layout");
  refuses([](TestClient& c) { c.vectors[1] = FlatVector(); }, "no vector");
  refuses([](TestClient& c) { c.id = ClientId(1), c.weight = 1; }, "has its vector already");
}

TEST(ExactSum, AcceptsAnEqualLayoutThatIsAnotherObject) {
  ExactSum sum = *ExactSum::Make({{.name = "w", .layout = Vector(3, DType::kF32)}}, {});
  EXPECT_TRUE(Client(1, 1, Vector(3, DType::kF32), {1, 2, 3}).AddTo(sum).ok());
}

TEST(ExactSum, RefusesViewsThatAreCut) {
  const LayoutPtr layout = Vector(3, DType::kF32);
  ExactSum sum = *ExactSum::Make({{.name = "w", .layout = layout}}, {});
  const FlatVector vector(layout);
  ConstVectorView view = vector.view();
  view.bytes = view.bytes.first(view.bytes.size() - 4);
  EXPECT_FALSE(sum.Add({ClientId(1), 1, 1, {&view, 1}}).ok());
}

TEST(ExactSum, KeepsGapsZeroWhateverWasSent) {
  const LayoutPtr layout = Vector(3, DType::kF32);
  ExactSum sum = *ExactSum::Make({{.name = "w", .layout = layout}}, {});
  TestClient client = Client(1, 1, layout, {1, 2, 3});
  client.vectors[0].As<float>()[3] = 42;
  ASSERT_TRUE(client.AddTo(sum).ok());
  EXPECT_EQ(std::move(sum).Report()->channels[0].value.As<float>()[3], 0);
}

TEST(ExactSum, ALargeOneIsEncodedWhereOthersCanMapIt) {
  const ChannelSpec mean{.name = "m", .layout = Vector(200'000, DType::kF32)};
  EXPECT_GE(ExactSum::Make({mean}, {1, 1, 1, 1})->Encode().memory_file(), 0);
}

// The largest values, weights and counts that a plan allows, all with the same sign: nothing may
// overflow, and one more contribution is refused.
TEST(ExactSum, HoldsAtTheLimits) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const double max_weight : {1.0, 1000.0, 0x1p40}) {
      const LayoutPtr layout = Vector(2, dtype);
      const ChannelSpec weighted{.name = "w", .layout = layout};
      const ChannelSpec mean{.name = "m", .layout = layout, .reduction = Reduction::kMean};
      constexpr uint64_t kClients = 3000;
      const GridOrder order{max_weight, max_weight * kClients, 1, kClients};
      ExactSum sum = *ExactSum::Make({weighted, mean}, order);
      ExactSum other = *ExactSum::Make({weighted, mean}, order);
      TestClient client{ClientId(1), max_weight, 1, {}};
      for (int c = 0; c < 2; ++c) client.vectors.push_back(Filled(layout, {65536, -65536}));
      for (uint64_t i = 0; i < kClients; ++i)
        ASSERT_TRUE(client.AddTo(i % 2 == 0 ? sum : other).ok());
      ASSERT_TRUE(
          ExactSum::Decode(std::make_shared<AlignedBuffer>(sum.Encode()), {weighted, mean}, order)
              .ok());
      ExactSum extra = *ExactSum::Make({weighted, mean}, order);
      ASSERT_TRUE(client.AddTo(extra).ok());

      ASSERT_TRUE(sum.Merge(std::move(other)).ok());
      ASSERT_TRUE(
          ExactSum::Decode(std::make_shared<AlignedBuffer>(sum.Encode()), {weighted, mean}, order)
              .ok());
      const std::vector<std::byte> full = Bytes(sum);
      EXPECT_FALSE(client.AddTo(sum).ok());
      EXPECT_FALSE(sum.Merge(std::move(extra)).ok());
      EXPECT_EQ(Bytes(sum), full);
      EXPECT_EQ(extra.clients(), 1u);  // a refused merge leaves both as they were
      const Aggregate result = *std::move(sum).Report();
      for (size_t c = 0; c < 2; ++c) {
        DispatchDType(dtype, [&]<typename T>(T) {
          EXPECT_EQ(result.channels[c].value.As<T>()[0], T(65536));
          EXPECT_EQ(result.channels[c].value.As<T>()[1], T(-65536));
        });
      }
    }
  }
}

TEST(Plan, KeepsEverySumBelowTheTopOfAnInteger) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const GridOrder& order :
         {GridOrder{1, 1, 1, 1}, GridOrder{0x1p50, 0x1p61, 1, uint64_t{1} << 40},
          GridOrder{3, 7e9, 5, uint64_t{1} << 33}, GridOrder{1e-9, 0.3, 1, 1000000000}}) {
      for (const double bound : {1e-30, 1.0, 65536.0, 1e30}) {
        const auto plan =
            *Plan::Make({{.name = "w", .layout = Vector(1, dtype), .bound = bound}}, order);
        for (int limb = 0; limb < plan->grids[0].limbs; ++limb) {
          const int64_t limit =
              plan->LimbLimit(0, limb, order.total_multiplicity, order.total_multiplicity,
                              plan->weight_limit, bound);
          EXPECT_GT(limit, 0);
          EXPECT_LT(limit, int64_t{1} << 62);
        }
        EXPECT_LT(plan->weight_limit, int64_t{1} << 62);
      }
    }
  }
}

TEST(ExactSum, MergesOnlySumsOfTheSamePlan) {
  const ChannelSpec channel{.name = "w", .layout = Vector(3, DType::kF32)};
  ChannelSpec narrower = channel;
  narrower.bound = 1;
  const GridOrder order{1, 10, 1, 10};
  ExactSum sum = *ExactSum::Make({channel}, order);
  EXPECT_FALSE(sum.Merge(*ExactSum::Make({narrower}, order)).ok());
  EXPECT_FALSE(sum.Merge(*ExactSum::Make({channel}, {1, 11, 1, 11})).ok());
  EXPECT_FALSE(sum.Merge(*ExactSum::Make({channel, channel}, order)).ok());
  EXPECT_TRUE(sum.Merge(*ExactSum::Make({channel}, order)).ok());
}

TEST(ExactSum, ACollectedClientMergesOnce) {
  const LayoutPtr layout = Vector(1, DType::kF32);
  const std::vector<ChannelSpec> channels = {
      {.name = "w", .layout = layout, .reduction = Reduction::kCollect}};
  ExactSum a = *ExactSum::Make(channels, {1, 10, 1, 10});
  ExactSum b = *ExactSum::Make(channels, {1, 10, 1, 10});
  ASSERT_TRUE(Client(5, 1, layout, {1}).AddTo(a).ok());
  ASSERT_TRUE(Client(5, 1, layout, {1}).AddTo(b).ok());
  EXPECT_EQ(a.Merge(std::move(b)).code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace macaw::aggregation
