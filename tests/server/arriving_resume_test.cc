// Rounds that do not wait for each other, and a server that goes on where an earlier one died.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/server/arriving_fleet.h"

namespace macaw::server {
namespace {

using fixtures::Arriving;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::SizeIs;

// The records of both servers are held to one law.
class ArrivingResumed : public Arriving {
 protected:
  // What the log and a journal tell of the round.
  Restored::PhaseStory StoryOf(uint32_t round) const {
    Restored::PhaseStory story{.closed = reports_.contains(round)};
    for (const log::Record& record : records_) {
      if (const auto* opened = std::get_if<log::RoundOpened>(&record);
          opened != nullptr && opened->round == Round(round)) {
        story.broadcast = opened->broadcast;
        story.present = opened->present;
        for (const log::Member& member : opened->cohort) story.cohort.push_back(member.client);
      } else if (const auto* leased = std::get_if<log::Leased>(&record);
                 leased != nullptr && leased->round == Round(round)) {
        for (size_t i = 0; i < leased->attempts.size(); ++i) {
          story.leased[leased->attempts[i]] = leased->node;
          if (!leased->staleness.empty() && leased->staleness[i] > 0) {
            story.staleness[leased->attempts[i].client] =
                static_cast<uint32_t>(leased->staleness[i]);
          }
        }
      } else if (const auto* accepted = std::get_if<log::Accepted>(&record);
                 accepted != nullptr && accepted->round == Round(round)) {
        for (const Attempt& attempt : accepted->included) {
          story.leased.erase(attempt);
          fleet::Part part = PartOf(begun_.at(attempt.client.value));
          part.round = Round(round);
          story.accepted.push_back({.node = accepted->node, .node_name = "n", .part = part});
        }
      }
    }
    return story;
  }
  // The next server; it has a checkpoint after round `completed`.
  void Restart(uint32_t completed, Restored before) {
    before.begun = true;
    before.newest = WorkerId(kOwners);
    for (uint32_t owner = 0; owner < kOwners; ++owner) {
      before.members.push_back({.node = WorkerId(owner + 1),
                                .session = sessions_.at(owner),
                                .request = Owner(owner, owner + 1),
                                .table = TableOf(owner)});
    }
    polls_.clear();
    restarted_ = records_.size();
    EngineOptions options{.run = Run()};
    options.epoch = 2;
    options.lease_timeout = FromSeconds(kLease);
    options.workers = kOwners;
    options.completed = completed;
    engine_.emplace(std::move(options), scheduler_);
    Carry(engine_->Resume(std::move(before), now_));
  }
  template <typename T>
  std::vector<T> Since() const {
    std::vector<T> since = All<T>();
    const auto before =
        std::count_if(records_.begin(), records_.begin() + static_cast<std::ptrdiff_t>(restarted_),
                      [](const log::Record& record) { return std::holds_alternative<T>(record); });
    since.erase(since.begin(), since.begin() + before);
    return since;
  }
  std::vector<uint64_t> Drawn(uint32_t round) const {
    std::vector<uint64_t> drawn;
    for (const log::RoundOpened& opened : All<log::RoundOpened>()) {
      if (opened.round != Round(round)) continue;
      for (const log::Member& member : opened.cohort) drawn.push_back(member.client.value);
    }
    return drawn;
  }

  size_t restarted_ = 0;  // records before
};

// Round 1 was closed without the fourth of its clients, which nobody had asked for. While the round
// is done again, a lease of it would be for nothing, and stand behind round 2 in the log.
TEST_F(ArrivingResumed, NobodyIsLeasedOfAClosedRoundThatIsDoneAgain) {
  Start();
  const std::vector<uint64_t> drawn = Drawn(1);
  ASSERT_THAT(drawn, SizeIs(4));
  for (const size_t i : {0, 1, 2}) ASSERT_TRUE(Begin(drawn[i]));
  Count(drawn[0]);
  Count(drawn[1]);
  ASSERT_EQ(engine_->completed(), 1u);
  const std::vector<uint64_t> second = Drawn(2);
  ASSERT_THAT(second, Contains(drawn[2]));
  Restored before;
  before.phases.emplace(std::pair(Round(1), Phase(0)), StoryOf(1));
  before.phases.emplace(std::pair(Round(2), Phase(0)), StoryOf(2));
  ASSERT_THAT(before.phases.at({Round(2), Phase(0)}).leased, SizeIs(1));

  hold_parts_ = true;
  Restart(/*completed=*/0, std::move(before));
  ASSERT_TRUE(engine_->redoing());
  const Asked idle = Call(drawn[3], {.wanted = 1});
  EXPECT_FALSE(idle.reply.has_value()) << "it waits for a round that is open";
  EXPECT_THAT(Since<log::Leased>(), SizeIs(0));
  hold_parts_ = false;
  while (parts_held_ > 0) {
    --parts_held_;
    Carry(engine_->PartAdded(0, absl::OkStatus(), now_));
  }
  EXPECT_TRUE(engine_->caught_up());
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_EQ(Count(drawn[2]), 1u) << "it trains on with the lease that it had";
  for (uint64_t owner = 0; owner < kOwners; ++owner) {
    if (owner != drawn[3] && owner != drawn[2]) Begin(owner);
  }
  EXPECT_THAT(Since<log::Leased>(), Each(Field(&log::Leased::round, Round(2))));
  const auto answer = AnswerTo(idle.ticket);
  EXPECT_EQ(answer.has_value(), std::ranges::find(second, drawn[3]) != second.end());
  EXPECT_THAT(Since<log::RoundOpened>(), SizeIs(0)) << "as the earlier server drew them";
}

// The log has gone on, so it is not told of leases of that round that end now.
TEST_F(ArrivingResumed, ADeviceThatIsLostMeanwhileIsMissingInTheOpenRound) {
  Start();
  const std::vector<uint64_t> drawn = Drawn(1);
  for (const size_t i : {0, 1, 2, 3}) ASSERT_TRUE(Begin(drawn[i]));
  Count(drawn[0]);
  Count(drawn[1]);
  Restored before;
  before.phases.emplace(std::pair(Round(1), Phase(0)), StoryOf(1));
  before.phases.emplace(std::pair(Round(2), Phase(0)), StoryOf(2));
  hold_parts_ = true;
  Restart(/*completed=*/0, std::move(before));
  Carry(engine_->Release({.session = sessions_.at(drawn[2]), .leaving = true}, now_));
  Call(drawn[3], {.wanted = 1});  // it holds nothing
  EXPECT_THAT(Since<log::Requeued>(), SizeIs(0));
  hold_parts_ = false;
  while (parts_held_ > 0) {
    --parts_held_;
    Carry(engine_->PartAdded(0, absl::OkStatus(), now_));
  }
  const std::vector<log::Requeued> requeued = Since<log::Requeued>();
  EXPECT_THAT(requeued, SizeIs(2));
  EXPECT_THAT(requeued, Each(Field(&log::Requeued::round, Round(2))));
}

TEST_F(ArrivingResumed, WhoTrainedBetweenTwoRoundsTrainsOnInTheNextOne) {
  Start();
  const std::vector<uint64_t> drawn = Drawn(1);
  for (const size_t i : {0, 1, 2}) ASSERT_TRUE(Begin(drawn[i]));
  Count(drawn[0]);
  hold_broadcast_ = true;
  Count(drawn[1]);
  ASSERT_EQ(engine_->completed(), 1u);
  Restored before;
  before.train_on.push_back(
      {.attempt = AttemptOf(drawn[2]), .node = WorkerId(static_cast<uint32_t>(drawn[2] + 1))});
  Restart(/*completed=*/1, std::move(before));
  const Asked trained = Arrive(drawn[2]);
  EXPECT_FALSE(trained.reply.has_value()) << "until the round is open";
  hold_broadcast_ = false;
  PrepareBroadcast prepare{.order = orders_.at(2)};
  Do(prepare);
  ASSERT_THAT(Drawn(2), SizeIs(4));
  EXPECT_THAT(Drawn(2), Contains(drawn[2]));
  ASSERT_THAT(Since<log::Leased>(), SizeIs(testing::Ge(1)));
  const log::Leased taken_over = Since<log::Leased>().front();
  EXPECT_THAT(taken_over.attempts, ElementsAre(AttemptOf(drawn[2])));
  EXPECT_THAT(taken_over.staleness, ElementsAre(1));
  const auto told = AnswerTo(trained.ticket);
  ASSERT_TRUE(told.has_value() && told->training.has_value());
  EXPECT_EQ(told->training->round, Round(2));
  EXPECT_EQ(told->training->assignments.at(0).staleness, 1u);
  EXPECT_EQ(Commit(drawn[2], *told->training).verdict, fleet::Verdict::kAccepted);
}

}  // namespace
}  // namespace macaw::server
