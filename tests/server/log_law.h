#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "server/log/record.h"

namespace macaw::server::fixtures {

// A law for the records of every session: at every moment they say for each client of an open phase
// whether it waits, which node has it leased, or how it was settled. So the state of a round can be
// restored from the records.
class LogLaw {
 public:
  void Add(const log::Record& record) {
    if (const auto* joined = std::get_if<log::NodeJoined>(&record)) {
      EXPECT_TRUE(nodes_.insert(joined->node).second);
    } else if (const auto* lost = std::get_if<log::NodeLost>(&record)) {
      EXPECT_EQ(nodes_.erase(lost->node), 1u);
    } else if (const auto* opened = std::get_if<log::RoundOpened>(&record)) {
      if (aborted_) {
        waiting_.clear();
        leased_.clear();
      }
      if (opened->arrivals > 0) {  // who trains goes on, and is leased again by a record
        waiting_.clear();
        train_on_ = std::exchange(leased_, {});
      }
      EXPECT_TRUE(waiting_.empty() && leased_.empty()) << "the phase before has not ended";
      const bool again = std::exchange(aborted_, false);
      if (again) {
        EXPECT_EQ(std::pair(opened->round, opened->phase), std::pair(round_, phase_));
      } else {
        EXPECT_EQ(opened->phase.value > 0, opened->round == round_ && rounds_ > 0);
        rounds_ += opened->phase.value == 0 ? 1 : 0;
      }
      round_ = opened->round;
      arrivals_ = opened->arrivals > 0;
      counted_.clear();
      phase_ = opened->phase;
      for (const log::Member& member : opened->cohort) {
        waiting_.insert(member.client);
        EXPECT_TRUE(opened->arrivals > 0 || opened->present.empty() ||
                    Contains(opened->present, member.client))
            << "client " << member.client;
      }
      EXPECT_TRUE(opened->phase.value == 0 || opened->present.empty());
      EXPECT_TRUE(std::ranges::is_sorted(opened->present));
      EXPECT_FALSE(opened->eligible.IsZero());
      EXPECT_FALSE(opened->broadcast.IsZero());
    } else if (const auto* waits = std::get_if<log::Waiting>(&record)) {
      EXPECT_TRUE(arrivals_ || (waiting_.empty() && leased_.empty()))
          << "the round before has not ended";
      EXPECT_LT(waits->present, waits->needed);
      EXPECT_GT(waits->round, std::exchange(waited_, waits->round)) << "once a round";
    } else if (const auto* leased = std::get_if<log::Leased>(&record)) {
      ExpectHere(*leased);
      EXPECT_TRUE(nodes_.contains(leased->node));
      for (const Attempt& attempt : leased->attempts) {
        EXPECT_EQ(waiting_.erase(attempt.client), 1u) << "client " << attempt.client;
        const bool goes_on = train_on_.contains(attempt);
        const size_t at = static_cast<size_t>(&attempt - leased->attempts.data());
        const uint64_t age = at < leased->staleness.size() ? leased->staleness[at] : 0;
        EXPECT_EQ(age > 0, goes_on) << "client " << attempt.client;
        if (goes_on) {
          EXPECT_EQ(train_on_.at(attempt), leased->node);
        }
        leased_[attempt] = leased->node;
      }
    } else if (const auto* accepted = std::get_if<log::Accepted>(&record)) {
      ExpectHere(*accepted);
      for (const Attempt& attempt : accepted->included) Settle(attempt, accepted->node);
      for (const Attempt& attempt : accepted->included) counted_.insert(attempt.client);
      for (const log::GivenUp& given_up : accepted->given_up)
        Settle(given_up.attempt, accepted->node);
      settled_ += accepted->included.size() + accepted->given_up.size();
    } else if (const auto* gave_up = std::get_if<log::GaveUp>(&record)) {
      ExpectHere(*gave_up);
      for (const log::GivenUp& given_up : gave_up->given_up) {
        EXPECT_EQ(waiting_.erase(given_up.attempt.client) + leased_.erase(given_up.attempt), 1u)
            << "client " << given_up.attempt.client;
      }
      settled_ += gave_up->given_up.size();
    } else if (const auto* extended = std::get_if<log::Extended>(&record)) {
      ExpectHere(*extended);
      EXPECT_EQ(extended->missing, waiting_.size() + leased_.size());
      EXPECT_EQ(extended->counted, counted_.size());
      EXPECT_LT(extended->counted, extended->needed);
    } else if (const auto* lost_round = std::get_if<log::RoundLost>(&record)) {
      ExpectHere(*lost_round);
      if (lost_round->dropped) {
        settled_ += waiting_.size() + leased_.size();
        waiting_.clear();
        leased_.clear();
        counted_.clear();
      }
      EXPECT_TRUE(counted_.empty());
    } else if (const auto* requeued = std::get_if<log::Requeued>(&record)) {
      ExpectHere(*requeued);
      for (const Attempt& attempt : requeued->attempts) {
        EXPECT_EQ(leased_.erase(attempt), 1u) << "client " << attempt.client;
        waiting_.insert(attempt.client);
      }
    } else if (const auto* operated = std::get_if<log::Operated>(&record)) {
      if (operated->action != log::Operation::kAbortRound) return;
      EXPECT_EQ(operated->round, round_);
      aborted_ = true;
    }
  }

  uint32_t rounds() const { return rounds_; }                     // opened
  uint64_t settled() const { return settled_; }                   // clients, over all phases
  const std::set<ClientId>& counted() const { return counted_; }  // in the open phase

 private:
  template <typename T>
  void ExpectHere(const T& record) {
    EXPECT_EQ(record.round, round_);
    EXPECT_EQ(record.phase, phase_);
  }
  static bool Contains(const std::vector<ClientId>& ranges, ClientId client) {
    const auto after = std::ranges::upper_bound(ranges, client);
    return (after - ranges.begin()) % 2 == 1;
  }
  void Settle(const Attempt& attempt, WorkerId node) {
    const auto lease = leased_.find(attempt);
    ASSERT_NE(lease, leased_.end()) << "client " << attempt.client;
    EXPECT_EQ(lease->second, node);
    leased_.erase(lease);
  }

  std::set<WorkerId> nodes_;
  Round round_, waited_;
  Phase phase_;
  bool aborted_ = false;   // the open phase begins again
  bool arrivals_ = false;  // rounds do not wait for each other
  std::set<ClientId> waiting_;
  std::map<Attempt, WorkerId> leased_, train_on_;
  uint32_t rounds_ = 0;
  uint64_t settled_ = 0;
  std::set<ClientId> counted_;  // in the open phase
};

}  // namespace macaw::server::fixtures
