#include "scheduler/availability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/cohort.h"
#include "scheduler/over_selection.h"
#include "tests/scheduler/surprise.h"

namespace macaw::scheduler {
namespace {

using fixtures::Surprise;

TEST(AvailableSampler, DrawsOnlyAvailableClientsAllEquallyLikely) {
  const std::vector<uint32_t> examples(40, 3);
  const AvailabilityOptions options{.probability = 0.3, .seed = 5};
  const auto sampler = *MakeAvailableSampler(options, 6, Trainable(examples));
  std::vector<double> counts(40);
  double total = 0;
  for (uint32_t round = 1; round <= 6000; ++round) {
    const Cohort cohort = sampler->Sample(Round(round));
    uint64_t there = 0;
    for (uint64_t id = 0; id < 40; ++id) there += IsAvailable(options, Round(round), ClientId(id));
    EXPECT_EQ(cohort.entries.size(), std::min<uint64_t>(there, 6));
    for (size_t i = 0; i < cohort.entries.size(); ++i) {
      EXPECT_TRUE(IsAvailable(options, Round(round), cohort.entries[i].client));
      EXPECT_TRUE(i == 0 || cohort.entries[i - 1].client < cohort.entries[i].client);
      ++counts[cohort.entries[i].client.value];
      ++total;
    }
  }
  EXPECT_LT(std::abs(Surprise(counts, std::vector<double>(40, total / 40))), 4);
}

TEST(AvailableSampler, IsExactOverTenMillionClientsWithoutLookingAtThem) {
  const std::vector<uint32_t> examples(10'000'000, 1);
  const auto sampler =
      *MakeAvailableSampler({.probability = 0.2, .seed = 6}, 1000, Trainable(examples));
  std::vector<double> counts(50);
  for (uint32_t round = 1; round <= 50; ++round) {
    const Cohort cohort = sampler->Sample(Round(round));
    ASSERT_EQ(cohort.entries.size(), 1000u);
    for (const CohortEntry& entry : cohort.entries)
      ++counts[entry.client.value * 50 / examples.size()];
  }
  EXPECT_LT(std::abs(Surprise(counts, std::vector<double>(50, 1000.0))), 4);
}

TEST(AvailableSampler, FollowsTheDay) {
  const AvailabilityOptions options{.probability = 0.5, .swing = 1, .day = 10, .seed = 7};
  for (uint64_t client = 0; client < 5; ++client) {
    std::vector<double> by_hour(10);
    for (uint32_t round = 0; round < 4000; ++round)
      by_hour[round % 10] += IsAvailable(options, Round(round), ClientId(client));
    EXPECT_GT(*std::ranges::max_element(by_hour), 350);  // of 400: nearly always there
    EXPECT_LT(*std::ranges::min_element(by_hour), 50);
  }
}

// Where the clock goes on within a step, it is as good as another step's draw.
TEST(AvailableSampler, DrawsAnewAtEachPause) {
  const AvailabilityOptions options{.probability = 0.3, .seed = 7};
  int there = 0, again = 0;
  for (uint64_t client = 0; client < 4000; ++client) {
    const bool before = IsAvailable(options, Round(1), ClientId(client));
    const bool after = IsAvailable(options, Round(1), ClientId(client), /*pauses=*/1);
    there += after ? 1 : 0;
    again += before && after ? 1 : 0;
  }
  EXPECT_NEAR(there, 1200, 120);
  EXPECT_NEAR(again, 360, 80) << "independent of the draw before";
}

TEST(AvailableSampler, NamesTheOptionThatIsWrong) {
  const std::vector<uint32_t> examples(10, 1);
  const auto message = [&](const AvailabilityOptions& options, uint64_t size) {
    return std::string(MakeAvailableSampler(options, size, Trainable(examples)).status().message());
  };
  EXPECT_THAT(message({.probability = 0}, 1), testing::HasSubstr("cohort.availability is 0"));
  EXPECT_THAT(message({.swing = 2}, 1), testing::HasSubstr("cohort.availability_swing is 2"));
  EXPECT_THAT(message({.probability = 0.8, .swing = 0.5}, 1), testing::HasSubstr("is 1.2, more"));
  EXPECT_THAT(message({.day = 0}, 1), testing::HasSubstr("cohort.availability_day is 0"));
}

TEST(OverSelection, KeepsTheShortestOfTheCandidates) {
  std::vector<uint32_t> examples(200);
  for (size_t i = 0; i < examples.size(); ++i) examples[i] = static_cast<uint32_t>(1 + i % 17);
  const OverSelectionOptions options{.keep = 20, .seed = 3};
  const auto candidates = *MakeSampler({.size = 30, .seed = 3}, examples);
  const auto sampler = *MakeOverSelection(options, *MakeSampler({.size = 30, .seed = 3}, examples));
  for (uint32_t round = 1; round <= 50; ++round) {
    const Cohort all = candidates->Sample(Round(round)), kept = sampler->Sample(Round(round));
    ASSERT_EQ(kept.entries.size(), 20u);
    double longest_kept = 0, shortest_left = INFINITY;
    for (const CohortEntry& entry : all.entries) {
      const double seconds = EmulatedDuration(options, Round(round), entry);
      const bool in = std::ranges::any_of(
          kept.entries, [&](const CohortEntry& other) { return other.client == entry.client; });
      (in ? longest_kept : shortest_left) =
          in ? std::max(longest_kept, seconds) : std::min(shortest_left, seconds);
    }
    EXPECT_LE(longest_kept, shortest_left);
    EXPECT_TRUE(std::ranges::is_sorted(kept.entries, {}, &CohortEntry::client));
  }
}

TEST(OverSelection, ASlowDeviceIsSlowInEveryRound) {
  const OverSelectionOptions options{.keep = 1, .device_spread = 1, .round_spread = 0.1, .seed = 9};
  const CohortEntry one{.client = ClientId(1), .load = 100},
      two{.client = ClientId(2), .load = 100};
  const bool slower =
      EmulatedDuration(options, Round(1), one) > EmulatedDuration(options, Round(1), two);
  for (uint32_t round = 2; round < 30; ++round) {
    EXPECT_EQ(
        EmulatedDuration(options, Round(round), one) > EmulatedDuration(options, Round(round), two),
        slower);
  }
}

TEST(MakeSampler, OverSelectsAmongAvailableClients) {
  const std::vector<uint32_t> examples(1000, 10);
  const CohortConfig config{
      .size = 40, .sampling = "available", .seed = 5, .availability = 0.3, .over_selection = 1.5};
  const auto sampler = *MakeSampler(config, examples);
  const auto candidates =
      *MakeAvailableSampler({.probability = 0.3, .swing = 0, .seed = 5}, 60, Trainable(examples));
  const auto expected = *MakeOverSelection(
      {.keep = 40, .seed = 5},
      *MakeAvailableSampler({.probability = 0.3, .swing = 0, .seed = 5}, 60, Trainable(examples)));
  const auto ids = [](const Cohort& cohort) {
    std::vector<uint64_t> out;
    for (const CohortEntry& entry : cohort.entries) out.push_back(entry.client.value);
    return out;
  };
  for (uint32_t round = 1; round <= 20; ++round) {
    const std::vector<uint64_t> kept = ids(sampler->Sample(Round(round)));
    EXPECT_EQ(kept, ids(expected->Sample(Round(round))));
    EXPECT_EQ(kept.size(), 40u);
    EXPECT_TRUE(std::ranges::includes(ids(candidates->Sample(Round(round))), kept));
  }
}

TEST(MakeSampler, RefusesImpossibleOverSelection) {
  const std::vector<uint32_t> examples(10, 1);
  const auto message = [&](const CohortConfig& config) {
    return std::string(MakeSampler(config, examples).status().message());
  };
  EXPECT_THAT(message({.size = 5, .over_selection = 0.5}),
              testing::HasSubstr("cohort.over_selection is 0.5"));
  EXPECT_THAT(message({.size = 5, .over_selection = 3}),
              testing::HasSubstr("cohort.size times cohort.over_selection is 15"));
  EXPECT_THAT(message({.size = 5, .over_selection = 1e300}),
              testing::HasSubstr("population has 10"));
  for (const char* sampling : {"proportional", "poisson", "sweep"}) {
    EXPECT_THAT(message({.size = 5, .sampling = sampling, .over_selection = 2}),
                testing::HasSubstr(sampling));
  }
  EXPECT_THAT(message({.size = 5, .over_selection = 2, .device_spread = -1}),
              testing::HasSubstr("cohort.device_spread"));
}

TEST(OverSelection, KeepsAllCandidatesIfThereAreTooFew) {
  const std::vector<uint32_t> examples(10, 1);
  const auto sampler = *MakeOverSelection({.keep = 8}, *MakeSampler({.size = 5}, examples));
  EXPECT_EQ(sampler->Sample(Round(1)).entries.size(), 5u);
  EXPECT_FALSE(MakeOverSelection({.keep = 0}, *MakeSampler({.size = 5}, examples)).ok());
}

// Even clients are there in the first half of each hundred seconds, odd ones in the second half.
class HalfAndHalf final : public virtual_time::Presence {
 public:
  bool On(ClientId client, double seconds) const override {
    return (client.value % 2 == 0) == (std::fmod(seconds, 100) < 50);
  }
  double NextOn(ClientId client, double seconds) const override {
    return On(client, seconds) ? seconds : 50 * (std::floor(seconds / 50) + 1);
  }
  double ShareOn(ClientId) const override { return 0.5; }
};

TEST(PresentSampler, DrawsThoseWhoAreThereAtTheVirtualTime) {
  const std::vector<uint32_t> examples(40, 3);
  const HalfAndHalf presence;
  const auto sampler = MakePresentSampler(5, 6, Trainable(examples), presence);
  std::vector<double> counts(40);
  for (uint32_t round = 1; round <= 4000; ++round) {
    const double seconds = 37.0 * round;
    const Cohort cohort = sampler->Sample({Round(round), seconds});
    ASSERT_EQ(cohort.entries.size(), 6u);
    for (const CohortEntry& entry : cohort.entries) {
      EXPECT_TRUE(presence.On(entry.client, seconds));
      ++counts[entry.client.value];
    }
  }
  EXPECT_LT(std::abs(Surprise(counts, std::vector<double>(40, 4000.0 * 6 / 40))), 4);
}

TEST(PresentSampler, DrawsEverybodyWhoIsThereIfTheyAreFew) {
  const std::vector<uint32_t> examples(10, 3);
  const HalfAndHalf presence;
  const auto sampler = MakePresentSampler(5, 8, Trainable(examples), presence);
  const Cohort cohort = sampler->Sample({Round(1), 10});
  ASSERT_EQ(cohort.entries.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(cohort.entries[i].client.value, 2 * i);
}

TEST(PresentSampler, SaysWhenAClientIsThereThatCanBeDrawn) {
  std::vector<uint32_t> examples(10, 3);
  const HalfAndHalf presence;
  EXPECT_EQ(MakePresentSampler(5, 8, Trainable(examples), presence)->NextThere({Round(1), 10}), 10);
  for (size_t client = 0; client < 10; client += 2) examples[client] = 0;  // the even ones
  const auto odd = MakePresentSampler(5, 8, Trainable(examples), presence);
  EXPECT_EQ(odd->NextThere({Round(1), 10}), 50);
  const std::vector<ClientId> busy = {ClientId(1), ClientId(3), ClientId(5), ClientId(7),
                                      ClientId(9)};
  Moment moment(Round(1), 10);
  moment.busy = busy;
  EXPECT_EQ(odd->NextThere(moment), INFINITY);
  const auto drawn = *MakeAvailableSampler({.probability = 0.3, .seed = 5}, 6, Trainable(examples));
  EXPECT_EQ(drawn->NextThere({Round(1), 10}), std::nullopt) << "no table says it";
}

TEST(MakeCandidates, AsksForMoreThanTheCohortAndKeepsThemAll) {
  const std::vector<uint32_t> examples(100, 3);
  const CohortConfig config{.size = 10, .over_selection = 1.5};
  const auto candidates = *MakeCandidates(config, examples, nullptr);
  const auto chosen = *MakeSampler(config, examples);
  const Cohort asked = candidates->Sample(Round(4));
  EXPECT_EQ(asked.entries.size(), 15u);
  const Cohort kept = chosen->Sample(Round(4));
  ASSERT_EQ(kept.entries.size(), 10u);
  for (const CohortEntry& entry : kept.entries)
    EXPECT_TRUE(std::ranges::count(asked.entries, entry.client, &CohortEntry::client) == 1);
}

TEST(MakeCandidates, TakesPresenceOnlyWhereClientsAreDrawnByAvailability) {
  const std::vector<uint32_t> examples(100, 3);
  const HalfAndHalf presence;
  const auto available = *MakeCandidates({.size = 10, .sampling = "available", .over_selection = 2},
                                         examples, &presence);
  const Cohort cohort = available->Sample({Round(1), 75});
  ASSERT_EQ(cohort.entries.size(), 20u);
  for (const CohortEntry& entry : cohort.entries) EXPECT_EQ(entry.client.value % 2, 1u);
  const auto uniform = *MakeCandidates({.size = 60}, examples, &presence);
  EXPECT_EQ(uniform->Sample({Round(1), 75}).entries.size(), 60u);
}

TEST(MakeCandidates, RefusesWhatOverSelectionWouldBreak) {
  const std::vector<uint32_t> examples(100, 3);
  EXPECT_FALSE(
      MakeCandidates({.size = 10, .sampling = "sweep", .over_selection = 2}, examples, nullptr)
          .ok());
  EXPECT_FALSE(MakeCandidates({.size = 60, .over_selection = 2}, examples, nullptr).ok());
}

}  // namespace
}  // namespace macaw::scheduler
