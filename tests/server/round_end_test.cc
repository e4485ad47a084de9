#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/random.h"
#include "scheduler/plan.h"
#include "server/engine/round_engine.h"
#include "tests/server/engine_driver.h"

// Rounds that end without all their clients ([round]), in virtual time.
namespace macaw::server {
namespace {

using fixtures::Durable;
using fixtures::EngineDriver;
using fixtures::kCohort;
using fixtures::NodeWithEverybody;
using fixtures::RecordOf;
using fixtures::Table;
using fixtures::TestRun;
using fleet::LeftOutReason;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

// A worker with what it has leased.
struct HoldingNode {
  SessionId session;
  fleet::TrainingLease lease;
  uint64_t commits = 0;

  std::vector<ClientId> clients() const {
    std::vector<ClientId> clients;
    for (const fleet::Assignment& a : lease.assignments) clients.push_back(a.client);
    return clients;
  }
  std::vector<Attempt> attempts() const {
    std::vector<Attempt> attempts;
    for (const fleet::Assignment& a : lease.assignments) attempts.push_back({a.client, a.fence});
    return attempts;
  }
};

// Two workers that have everybody's rows. Each gets half of a cohort of twelve.
class RoundEnd : public testing::Test {
 protected:
  void Start(const RoundRules& rules, uint32_t rounds = 2, int phases = 1,
             log::Decisions decisions = {}, std::optional<std::set<ClientId>> expected = {}) {
    scheduler_ = *scheduler::MakeScheduler({.policy = "round_robin"});
    engine_ = std::make_unique<EngineDriver>(EngineOptions{.run = TestRun(rounds),
                                                           .lease_timeout = FromSeconds(30),
                                                           .workers = 2,
                                                           .round = rules,
                                                           .decisions = std::move(decisions),
                                                           .stateful = true},
                                             *scheduler_, durable_, rounds, phases);
    if (expected.has_value()) engine_->Expect(*expected);
    engine_->on_record = [this](const log::Record& record) { records_.push_back(record); };
    anna_.session = Join("anna");
    bert_.session = Join("bert");
    engine_->RunAll(random_, now_);
  }
  SessionId Join(const std::string& name) {
    return engine_->Register(NodeWithEverybody(name, /*slots=*/1), Table(), now_)->session;
  }
  // Asks for work. `running`: clients that the worker has leased and not committed.
  fleet::LeaseReply Ask(HoldingNode& holder, uint32_t running = 0) {
    engine_->Lease(++tickets_, {.session = holder.session, .wanted = 1, .running = running},
                   FromSeconds(30), now_);
    const fleet::LeaseReply reply = Answer(tickets_);
    if (reply.training.has_value()) holder.lease = *reply.training;
    return reply;
  }
  fleet::LeaseReply Answer(Ticket ticket) const {
    const auto found = engine_->leases.find(ticket);
    return found != engine_->leases.end() ? found->second : fleet::LeaseReply{};
  }
  // Commits what the worker has leased, but for the first `without` clients of it.
  fleet::Verdict Commit(HoldingNode& holder, size_t without = 0) {
    fleet::Part part{.round = holder.lease.round,
                     .phase = holder.lease.phase,
                     .broadcast = holder.lease.broadcast.name};
    std::vector<ClientId> clients;
    for (size_t i = without; i < holder.lease.assignments.size(); ++i) {
      part.included.push_back(RecordOf(holder.lease.assignments[i]));
      clients.push_back(holder.lease.assignments[i].client);
    }
    engine_->Hold(++tickets_, clients);
    engine_->Commit(tickets_,
                    {.session = holder.session, .commit_id = ++holder.commits, .part = part},
                    absl::OkStatus(), now_);
    // The part is added, but the round is not applied before Work() is called.
    if (!engine_->commits.contains(tickets_)) engine_->RunOne(random_, now_);
    return engine_->commits.at(tickets_).verdict;
  }
  void Work() { engine_->RunAll(random_, now_); }
  void Expect(const std::vector<ClientId>& clients) {
    engine_->Expect({clients.begin(), clients.end()});
  }
  void Pass(double seconds) {
    now_ += FromSeconds(seconds);
    if (engine_->NextDeadline() <= now_) engine_->Tick(now_);
  }
  // The same, while both workers are heard.
  void PassInTouch(double seconds) {
    now_ += FromSeconds(seconds);
    for (const HoldingNode* holder : {&anna_, &bert_})
      engine_->Heartbeat({.session = holder->session}, now_);
    engine_->Tick(now_);
  }
  template <typename T>
  std::vector<T> All() const {
    std::vector<T> found;
    for (const log::Record& record : records_) {
      if (const auto* one = std::get_if<T>(&record)) found.push_back(*one);
    }
    return found;
  }
  // The reason of each client that the server gave up.
  std::map<ClientId, LeftOutReason> GivenUp() const {
    std::map<ClientId, LeftOutReason> reasons;
    for (const log::GaveUp& gave_up : All<log::GaveUp>()) {
      for (const log::GivenUp& one : gave_up.given_up) reasons[one.attempt.client] = one.reason;
    }
    return reasons;
  }
  static std::map<ClientId, LeftOutReason> Each(const HoldingNode& holder, LeftOutReason reason) {
    std::map<ClientId, LeftOutReason> reasons;
    for (const ClientId client : holder.clients()) reasons[client] = reason;
    return reasons;
  }

  Durable durable_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  std::unique_ptr<EngineDriver> engine_;
  RandomStream random_{{.seed = 1}};
  TimePoint now_{};
  Ticket tickets_ = 0;
  HoldingNode anna_, bert_;
  std::vector<log::Record> records_;
};

TEST_F(RoundEnd, AtItsDeadlineARoundWithItsQuorumClosesWithoutTheMissingClients) {
  Start({.deadline = 20, .quorum = 0.5});
  Ask(anna_);
  Ask(bert_);
  Expect(anna_.clients());
  EXPECT_EQ(Commit(anna_), fleet::Verdict::kAccepted);
  PassInTouch(19.9);
  Work();
  EXPECT_EQ(engine_->completed(), 0u);
  PassInTouch(0.1);
  EXPECT_EQ(GivenUp(), Each(bert_, LeftOutReason::kTooSlow));
  Work();
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_EQ(durable_.counted.at(1).size(), kCohort / 2);
}

TEST_F(RoundEnd, ANodeThatWasSilentAtTheDeadlineIsGoneAndNotSlow) {
  Start({.deadline = 20, .quorum = 0.5});
  Ask(anna_);
  Ask(bert_);
  Expect(anna_.clients());
  Commit(anna_);
  Pass(20);
  EXPECT_EQ(GivenUp(), Each(bert_, LeftOutReason::kGone));
}

TEST_F(RoundEnd, ClientsThatNobodyAskedForAreGivenUpAtTheDeadlineToo) {
  Start({.deadline = 20, .quorum = 0.5});
  Ask(anna_);
  Expect(anna_.clients());
  Commit(anna_);
  PassInTouch(20);
  EXPECT_EQ(GivenUp().size(), kCohort / 2);
  Work();
  EXPECT_EQ(engine_->completed(), 1u);
}

TEST_F(RoundEnd, TheFirstNOfMCloseTheRoundAndTheOthersAreNotNeeded) {
  Start({.enough = 6});
  Ask(anna_);
  Ask(bert_);
  Expect(bert_.clients());
  Commit(bert_);
  EXPECT_EQ(GivenUp(), Each(anna_, LeftOutReason::kNotNeeded));
  Work();
  EXPECT_EQ(engine_->completed(), 1u);
}

TEST_F(RoundEnd, WhoComesTooLateIsToldBeforeAnyByteMovesAndCountsNothing) {
  Start({.enough = 6});
  Ask(anna_);
  Ask(bert_);
  Expect(bert_.clients());
  const fleet::UploadOffer offer{.session = anna_.session, .round = Round(1), .commit_id = 1};
  EXPECT_EQ(engine_->Offer(offer), fleet::UploadVerdict::kSend);
  engine_->Lease(++tickets_, {.session = anna_.session, .wanted = 1, .running = 6}, FromSeconds(30),
                 now_);
  const Ticket waiting = tickets_;
  Commit(bert_);
  EXPECT_EQ(engine_->Offer(offer), fleet::UploadVerdict::kStale);
  EXPECT_EQ(engine_->Heartbeat({.session = anna_.session, .held = anna_.attempts()}, now_).dropped,
            anna_.attempts());
  EXPECT_EQ(Answer(waiting).next, fleet::Next::kCommit);
  EXPECT_EQ(Commit(anna_), fleet::Verdict::kStale);
  Work();
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_EQ(Commit(anna_), fleet::Verdict::kStale) << "also in the next round";
}

// A worker that still trains a client of the round before must not mix its result with new ones.
TEST_F(RoundEnd, WhoHoldsWorkOfAClosedRoundCommitsBeforeItGetsMore) {
  Start({.enough = 6});
  Ask(anna_);
  Ask(bert_);
  Expect(bert_.clients());
  Commit(bert_);
  Work();
  EXPECT_EQ(Ask(anna_, /*running=*/6).next, fleet::Next::kCommit);
  EXPECT_EQ(Commit(anna_), fleet::Verdict::kStale);
  EXPECT_TRUE(Ask(anna_, /*running=*/0).training.has_value());
}

TEST_F(RoundEnd, BelowItsQuorumARoundIsExtendedUntilTheQuorumIsThere) {
  Start({.deadline = 20, .quorum = 0.75});
  Ask(anna_);
  Ask(bert_);
  std::vector<ClientId> everybody = anna_.clients();
  Commit(anna_);
  PassInTouch(20);
  PassInTouch(20);
  const auto extended = All<log::Extended>();
  ASSERT_EQ(extended.size(), 2u) << "one for each deadline that passed";
  EXPECT_EQ(extended[0].counted, 6u);
  EXPECT_EQ(extended[0].needed, 9u);
  EXPECT_EQ(extended[0].missing, 6u);
  EXPECT_TRUE(GivenUp().empty());
  for (const ClientId client : bert_.clients()) everybody.push_back(client);
  Expect(everybody);
  EXPECT_EQ(Commit(bert_), fleet::Verdict::kAccepted);
  Work();
  EXPECT_EQ(engine_->completed(), 1u);
}

TEST_F(RoundEnd, AfterItsDeadlineARoundClosesWithTheQuorumAndNotWithTheNextDeadline) {
  Start({.deadline = 20, .quorum = 0.75});
  Ask(anna_);
  Ask(bert_);
  PassInTouch(20);
  Commit(anna_);
  EXPECT_TRUE(GivenUp().empty());
  // Half of Bert's clients come; he still has the others.
  std::vector<ClientId> counted = anna_.clients();
  const std::vector<ClientId> his = bert_.clients();
  counted.insert(counted.end(), his.begin() + 3, his.end());
  Expect(counted);
  EXPECT_EQ(Commit(bert_, /*without=*/3), fleet::Verdict::kAccepted);
  EXPECT_EQ(GivenUp().size(), 3u);
  Work();
  EXPECT_EQ(engine_->completed(), 1u);
}

TEST_F(RoundEnd, ADroppedRoundLeavesNothingBehind) {
  Start({.deadline = 20, .quorum = 0.75, .below_quorum = RoundRules::BelowQuorum::kDrop});
  Ask(anna_);
  Ask(bert_);
  Commit(anna_);
  Expect({});
  PassInTouch(20);
  const auto lost = All<log::RoundLost>();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_TRUE(lost[0].dropped);
  EXPECT_THAT(lost[0].why, HasSubstr("6 of 12 clients counted, 9 needed"));
  Work();
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_TRUE(engine_->SnapshotVersions(StateVersions::Staged::kIncluded).empty());
  EXPECT_EQ(All<log::RoundLost>().size(), 1u);
}

TEST_F(RoundEnd, WithDropARoundWhoseClientsFailedIsDroppedWhenNobodyIsMissing) {
  Start({.quorum = 0.75, .below_quorum = RoundRules::BelowQuorum::kDrop});
  Ask(anna_);
  Ask(bert_);
  Expect({});
  Commit(anna_);
  const auto leave_out = [&](HoldingNode& holder) {
    fleet::Part part{.round = Round(1), .broadcast = holder.lease.broadcast.name};
    for (const Attempt& attempt : holder.attempts())
      part.left_out.push_back({.attempt = attempt, .reason = LeftOutReason::kDeclined});
    engine_->Commit(++tickets_,
                    {.session = holder.session, .commit_id = ++holder.commits, .part = part},
                    absl::OkStatus(), now_);
    Work();
  };
  leave_out(bert_);
  EXPECT_EQ(engine_->completed(), 0u) << "the other worker may train them";
  while (engine_->completed() == 0 && Ask(anna_).training.has_value()) leave_out(anna_);
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_TRUE(durable_.counted.at(1).empty());
  EXPECT_EQ(All<log::Accepted>().back().given_up[0].reason, LeftOutReason::kDeclined);
}

TEST_F(RoundEnd, AReasonThatOnlyTheServerGivesIsRefusedFromANode) {
  Start({});
  Ask(anna_);
  fleet::Part part{.round = Round(1), .broadcast = anna_.lease.broadcast.name};
  for (const Attempt& attempt : anna_.attempts())
    part.left_out.push_back({.attempt = attempt, .reason = LeftOutReason::kTooSlow});
  engine_->Commit(++tickets_, {.session = anna_.session, .commit_id = 1, .part = part},
                  absl::OkStatus(), now_);
  EXPECT_EQ(engine_->commits.at(tickets_).verdict, fleet::Verdict::kRefused);
}

TEST_F(RoundEnd, EachPhaseHasTheDeadlineAndGoesOnWithThoseThatCame) {
  Start({.deadline = 20, .quorum = 0.5}, /*rounds=*/1, /*phases=*/2);
  Ask(anna_);
  Ask(bert_);
  Expect(anna_.clients());
  Commit(anna_);
  PassInTouch(20);
  Work();
  const std::vector<ClientId> first = anna_.clients();
  Ask(anna_);
  EXPECT_EQ(anna_.lease.phase, Phase(1));
  EXPECT_TRUE(std::ranges::includes(first, anna_.clients()));
  PassInTouch(19);
  EXPECT_TRUE(All<log::Extended>().empty());
  PassInTouch(1);
  ASSERT_EQ(All<log::Extended>().size(), 1u);
  EXPECT_EQ(All<log::Extended>()[0].phase, Phase(1));
  EXPECT_EQ(All<log::Extended>()[0].needed, 6u) << "of the round's cohort";
}

TEST_F(RoundEnd, ARunThatRepeatsAnotherDropsTheRoundsThatThatOneDropped) {
  Start({}, /*rounds=*/2, /*phases=*/1, {{{Round(1), Phase(0)}, {.dropped = true}}},
        std::set<ClientId>());
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_TRUE(All<log::Leased>().empty());
  EXPECT_TRUE(All<log::RoundLost>()[0].dropped);
}

// What a server leaves that is killed right after a decision about round 1.
class KilledAtTheDeadline : public RoundEnd {
 protected:
  // `counted`: the clients that its round 1 counts.
  void StartAgain(const std::vector<ClientId>& counted) {
    Restored restored{.newest = WorkerId(2), .begun = true};
    for (uint32_t id = 1; id <= 2; ++id) {
      restored.members.push_back({.node = WorkerId(id),
                                  .session = id == 1 ? anna_.session : bert_.session,
                                  .request = NodeWithEverybody(id == 1 ? "anna" : "bert", 1),
                                  .table = Table()});
    }
    fleet::Part part{.round = Round(1), .broadcast = anna_.lease.broadcast.name};
    for (const fleet::Assignment& a : anna_.lease.assignments) part.included.push_back(RecordOf(a));
    Restored::PhaseStory& story = restored.phases[{Round(1), Phase(0)}];
    story = {.broadcast = anna_.lease.broadcast.name,
             .accepted = {{.node = WorkerId(1), .node_name = "anna", .part = part}},
             .gave_up = All<log::GaveUp>().at(0).given_up};
    for (const log::RoundLost& lost : All<log::RoundLost>()) story.dropped = lost.why;
    // By its own rules the next server would wait for everybody.
    engine_ = std::make_unique<EngineDriver>(
        EngineOptions{.run = TestRun(2), .epoch = 2, .workers = 2, .stateful = true}, *scheduler_,
        durable_, /*rounds=*/2, /*phases=*/1);
    Expect(counted);
    engine_->Resume(std::move(restored), now_);
  }
};

TEST_F(KilledAtTheDeadline, TheNextServerClosesTheRoundWithTheSameClients) {
  Start({.deadline = 20, .quorum = 0.5});
  Ask(anna_);
  Ask(bert_);
  Commit(anna_);
  PassInTouch(20);
  StartAgain(anna_.clients());
  Work();
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_THAT(durable_.counted.at(1), UnorderedElementsAreArray(anna_.clients()));
}

TEST_F(KilledAtTheDeadline, TheNextServerDropsTheRoundAsWell) {
  Start({.deadline = 20, .quorum = 0.75, .below_quorum = RoundRules::BelowQuorum::kDrop});
  Ask(anna_);
  Ask(bert_);
  Commit(anna_);
  PassInTouch(20);
  StartAgain({});
  Work();
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_TRUE(durable_.counted.at(1).empty());
  EXPECT_TRUE(engine_->SnapshotVersions(StateVersions::Staged::kIncluded).empty());
}

}  // namespace
}  // namespace macaw::server
