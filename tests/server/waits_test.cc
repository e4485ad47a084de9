// The table of waits in server/README.md, a test a line, in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/random.h"
#include "scheduler/plan.h"
#include "server/engine/round_engine.h"
#include "tests/server/engine_driver.h"

namespace macaw::server {
namespace {

using fleet::LeftOutReason;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing_support::Durable;
using testing_support::EngineDriver;
using testing_support::Examples;
using testing_support::kCentralTestRows;
using testing_support::kCohort;
using testing_support::kPopulation;
using testing_support::NodeWithEverybody;
using testing_support::RecordOf;
using testing_support::Table;
using testing_support::TestRun;

constexpr double kLease = 10, kLimit = 200;  // seconds
constexpr double kLeast = WaitLimits::kLeastLeases * kLease;

using Names = std::vector<std::string>;

class Waits : public testing::Test {
 protected:
  void Start(EngineOptions options = {}, const std::string& policy = "round_robin") {
    scheduler_ = *scheduler::MakeScheduler({.policy = policy});
    if (options.run.rounds == 0) options.run = TestRun(1);
    options.lease_timeout = FromSeconds(kLease);
    options.waits.lease_limit = FromSeconds(kLimit);
    stateful_ = options.stateful;
    const uint32_t rounds = options.run.rounds;
    engine_ = std::make_unique<EngineDriver>(std::move(options), *scheduler_, durable_, rounds,
                                             /*phases=*/1);
    engine_->ExpectAsRecorded();
    engine_->on_record = [this](const log::Record& record) { records_.push_back(record); };
  }
  // Nodes "a" and "b" have everything, and so share all clients.
  void StartShared(EngineOptions options = {}, const std::string& policy = "round_robin") {
    options.workers = 2;
    Start(std::move(options), policy);
    for (const char* name : {"a", "b"}) Join(NodeWithEverybody(name, 1), Table());
    Work();
  }
  // Owners "phone" and "lab" with twenty clients each, and "tester" with the central test set.
  void StartOwned(EngineOptions options = {}) {
    options.workers = 3;
    Start(std::move(options));
    JoinOwner("phone");
    JoinOwner("lab");
    JoinTester();
    Work();
  }
  static Restored::Member Owner(const std::string& name) {
    Restored::Member owner{.request = NodeWithEverybody(name, 1), .there = false};
    owner.request.owner = true;
    owner.request.data_digest = DigestOf(name);
    owner.request.clients = kPopulation / 2;
    owner.request.central_test_rows = 0;
    const uint64_t first = name == "phone" ? 0 : kPopulation / 2;
    for (uint64_t client = first; client < first + kPopulation / 2; ++client) {
      owner.table.rows.push_back(Examples()[client]);
      owner.table.names.push_back(absl::StrCat("client ", client));
    }
    return owner;
  }
  void JoinOwner(const std::string& name) {
    Restored::Member owner = Owner(name);
    owner.request.volatile_state = volatile_;
    owner.request.incarnation = ++incarnations_;
    Join(owner.request, owner.table);
  }
  void JoinTester() {
    fleet::RegisterRequest node = NodeWithEverybody("tester", 1);
    node.data_digest = DigestOf("tests");
    node.clients = 0;
    node.incarnation = ++incarnations_;
    Join(node, {});
  }
  void Join(const fleet::RegisterRequest& node, const fleet::ClientTable& table) {
    const auto reply = engine_->Register(node, table, now_);
    ASSERT_TRUE(reply.ok()) << reply.status();
    sessions_[node.name] = reply->session;
    Work();
  }
  void Leave(const std::string& name) {
    engine_->Release({.session = sessions_.at(name), .leaving = true}, now_);
    Work();
  }

  void Work() { engine_->RunAll(random_, now_); }
  fleet::LeaseReply Ask(const std::string& name, uint32_t running = 0,
                        const std::string& declined = "") {
    engine_->Lease(++tickets_,
                   {.session = sessions_.at(name),
                    .wanted = 1,
                    .running = running,
                    .declined = declined},
                   FromSeconds(30), now_);
    Work();
    const auto found = engine_->leases.find(tickets_);
    return found != engine_->leases.end() ? found->second
                                          : fleet::LeaseReply{.next = fleet::Next::kWait};
  }
  // Commits what was leased. `fails`: all clients are left out. `evaluates`: the tasks are done.
  fleet::CommitReply Commit(const std::string& name, const fleet::LeaseReply& lease,
                            bool fails = false, bool evaluates = true) {
    fleet::CommitRequest request{.session = sessions_.at(name), .commit_id = ++commits_};
    std::vector<ClientId> clients;
    if (lease.training.has_value()) {
      fleet::Part& part = request.part.emplace();
      part.round = lease.training->round;
      part.broadcast = lease.training->broadcast.name;
      for (const fleet::Assignment& one : lease.training->assignments) {
        if (fails) {
          part.left_out.push_back({.attempt = {one.client, one.fence},
                                   .reason = LeftOutReason::kFailed,
                                   .message = "it fails"});
          continue;
        }
        part.included.push_back(RecordOf(one));
        part.included.back().has_state = stateful_;
        part.included.back().train_seconds = 1;
        clients.push_back(one.client);
      }
    }
    if (lease.evaluation.has_value() && evaluates) {
      for (const fleet::EvaluationTask& task : lease.evaluation->tasks) {
        fleet::EvaluationResult result{.task = task, .round = lease.evaluation->round};
        result.sums = std::vector<double>(
            training::SchemaFor(TaskKind::kClassification).sums.size(), task.end - task.begin);
        if (task.kind == fleet::EvaluationKind::kStateDigest) result.digest = DigestOf("states");
        request.evaluations.push_back(std::move(result));
      }
    }
    const Ticket ticket = ++tickets_;
    engine_->Hold(ticket, clients);
    engine_->Commit(ticket, request, absl::OkStatus(), now_);
    Work();
    return engine_->commits.contains(ticket) ? engine_->commits.at(ticket) : fleet::CommitReply{};
  }
  // Does all that there is for these nodes.
  void Serve(const Names& names) {
    for (bool more = true; more && !engine_->ended.has_value();) {
      more = false;
      for (const std::string& name : names) {
        const fleet::LeaseReply lease = Ask(name);
        if (lease.next != fleet::Next::kWork) continue;
        Commit(name, lease);
        more = true;
      }
    }
  }
  // Time passes. These nodes send heartbeats, and say that they make progress.
  void Pass(double seconds, const Names& alive) {
    for (const TimePoint end = now_ + FromSeconds(seconds); now_ < end;) {
      now_ = std::min(end, now_ + FromSeconds(2));
      for (const std::string& name : alive)
        engine_->Heartbeat({.session = sessions_.at(name), .progress = ++progress_}, now_);
      if (engine_->NextDeadline() <= now_) engine_->Tick(now_);
      Work();
    }
  }
  absl::StatusOr<std::string> Operate(admin::Action action, const std::string& node = "",
                                      uint32_t round = 0) {
    auto said =
        engine_->Operate({.action = action, .by = "ada", .node = node, .round = round}, now_);
    Work();
    return said;
  }

  template <typename T>
  std::vector<T> All() const {
    std::vector<T> found;
    for (const log::Record& record : records_) {
      if (const auto* one = std::get_if<T>(&record)) found.push_back(*one);
    }
    return found;
  }
  std::vector<log::GivenUp> GivenUp() const {
    std::vector<log::GivenUp> all;
    for (const log::GaveUp& gave_up : All<log::GaveUp>())
      all.insert(all.end(), gave_up.given_up.begin(), gave_up.given_up.end());
    return all;
  }
  bool Finished() const { return engine_->ended == RunEnd::kFinished; }

  bool stateful_ = false, volatile_ = false;
  Durable durable_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;  // default: hands a node its share at once
  std::unique_ptr<EngineDriver> engine_;
  RandomStream random_{{.seed = 1}};
  TimePoint now_{};
  std::map<std::string, SessionId> sessions_;
  std::vector<log::Record> records_;
  Ticket tickets_ = 0;
  uint64_t commits_ = 0, progress_ = 0, incarnations_ = 0;
};

// ---- leases

TEST_F(Waits, ALeaseEndsWhateverProgressItsNodeReportsAndOthersGetTheClients) {
  StartShared();
  const fleet::LeaseReply held = Ask("a");
  ASSERT_TRUE(held.training.has_value());
  const size_t clients = held.training->assignments.size();
  Serve({"b"});
  const double limit = kLimit * static_cast<double>(1 + clients);  // nothing is known of its speed
  Pass(limit - kLease, {"a", "b"});
  EXPECT_THAT(All<log::Requeued>(), IsEmpty());
  Pass(2 * kLease, {"a", "b"});
  ASSERT_THAT(All<log::Requeued>(), SizeIs(1));
  EXPECT_THAT(All<log::Requeued>()[0].attempts, SizeIs(clients));
  EXPECT_EQ(All<log::Requeued>()[0].why, "lease ran out");
  EXPECT_FALSE(Ask("a", 1).training.has_value()) << "it had its turn";
  EXPECT_EQ(Commit("a", held).verdict, fleet::Verdict::kStale);
  Serve({"b"});
  EXPECT_TRUE(Finished());
  EXPECT_EQ(durable_.counted.at(1).size(), kCohort);
}

TEST_F(Waits, ALeaseOfANodeWhoseSpeedIsKnownEndsAfterTenLeaseTimes) {
  StartShared({.run = TestRun(2)});
  for (const char* name : {"a", "b"}) Commit(name, Ask(name));
  ASSERT_EQ(engine_->completed(), 1u) << "each client took a second";
  ASSERT_TRUE(Ask("a").training.has_value());
  Pass(kLeast - kLease, {"a", "b"});
  EXPECT_THAT(All<log::Requeued>(), IsEmpty());
  Pass(2 * kLease, {"a", "b"});
  EXPECT_THAT(All<log::Requeued>(), SizeIs(1));
  Serve({"b"});
  EXPECT_TRUE(Finished());
}

TEST_F(Waits, ASlowClientGetsTwiceTheTimeAtEachTurn) {
  Start();
  Join(NodeWithEverybody("a", 1), Table());
  const double limit = kLimit * (1 + kCohort);
  fleet::LeaseReply lease = Ask("a");
  Pass(limit + kLease, {"a"});
  ASSERT_THAT(All<log::Requeued>(), SizeIs(1));
  std::vector<fleet::LeaseReply> leases;  // the node is on trial: one client at a time
  for (uint64_t client = 0; client < kCohort; ++client)
    leases.push_back(Ask("a", static_cast<uint32_t>(client)));
  const double again = 2 * kLimit * 2 * kCohort;
  Pass(again - 2 * kLease, {"a"});
  EXPECT_THAT(All<log::Requeued>(), SizeIs(1));
  Pass(4 * kLease, {"a"});
  EXPECT_THAT(All<log::Requeued>(), SizeIs(2));
}

TEST_F(Waits, ANodeThatIsSilentForALeasesTimeIsLost) {
  StartShared();
  ASSERT_TRUE(Ask("a").training.has_value());
  Pass(kLease + 2, {"b"});
  ASSERT_THAT(All<log::NodeLost>(), SizeIs(1));
  Serve({"b"});
  EXPECT_TRUE(Finished());
}

TEST_F(Waits, ANodeWithManySlotsGetsAFewClientsUntilItHasShownResults) {
  RunPlan run = TestRun(1);
  run.cohort.size = kPopulation;
  Start({.run = run, .workers = 2});
  Join(NodeWithEverybody("a", 4096), Table());
  Join(NodeWithEverybody("b", 1), Table());
  uint64_t leased = 0;
  for (int call = 0; call < 10; ++call) {
    const fleet::LeaseReply lease = Ask("a", leased > 0 ? 1 : 0);
    if (lease.training.has_value()) leased += lease.training->assignments.size();
  }
  EXPECT_GT(leased, 0u);
  EXPECT_LE(leased, 32u);
  uint64_t others = 0;
  for (int call = 0; call < 10; ++call) {
    const fleet::LeaseReply lease = Ask("b", others > 0 ? 1 : 0);
    if (lease.training.has_value()) others += lease.training->assignments.size();
  }
  EXPECT_EQ(others, kPopulation - leased) << "the others are for the other node";
}

// ---- clients that a node leaves out

TEST_F(Waits, WhatOneNodeLeavesOutIsTriedElsewhere) {
  StartShared();
  for (int turn = 0; turn < 20; ++turn) {
    const fleet::LeaseReply lease = Ask("a");
    if (lease.next == fleet::Next::kWork) Commit("a", lease, /*fails=*/true);
  }
  Serve({"b"});
  EXPECT_TRUE(Finished());
  EXPECT_EQ(durable_.counted.at(1).size(), kCohort);
  EXPECT_THAT(All<log::Requeued>().at(0).why, HasSubstr("a has left them out"));
}

TEST_F(Waits, WhatTwoNodesLeaveOutIsGivenUp) {
  StartShared();
  for (int turn = 0; turn < 40 && !engine_->ended.has_value(); ++turn) {
    const std::string name = turn % 2 == 0 ? "a" : "b";
    const fleet::LeaseReply lease = Ask(name);
    if (lease.next == fleet::Next::kWork) Commit(name, lease, /*fails=*/true);
  }
  const auto lost = All<log::RoundLost>();
  ASSERT_THAT(lost, SizeIs(1));
  EXPECT_EQ(lost[0].alone, "");
}

TEST_F(Waits, ANodeThatNeverAsksIsNotWaitedForAndOneNodesWordLosesRoundsWithoutEndingTheRun) {
  StartShared({.run = TestRun(3), .limits = {.lost_rounds = 2}}, "planned_stealing");
  for (int turn = 0; turn < 600 && !engine_->ended.has_value(); ++turn) {
    const fleet::LeaseReply lease = Ask("a");
    if (lease.next == fleet::Next::kWork) {
      Commit("a", lease, /*fails=*/true);
    } else {
      Pass(kLease, {"a", "b"});
    }
  }
  EXPECT_TRUE(Finished()) << engine_->error;
  const auto lost = All<log::RoundLost>();
  ASSERT_THAT(lost, SizeIs(3));
  for (const log::RoundLost& round : lost) EXPECT_EQ(round.alone, "a");
}

TEST_F(Waits, WhatWaitsForNodesThatAllDeclineIsGivenUpWhenTheLastOtherLeaves) {
  StartShared();
  EXPECT_EQ(Ask("a", 0, "not now").next, fleet::Next::kWait);
  EXPECT_THAT(GivenUp(), IsEmpty()) << "the other works";
  Leave("b");
  ASSERT_THAT(GivenUp(), SizeIs(kCohort));
  EXPECT_EQ(GivenUp()[0].reason, LeftOutReason::kDeclined);
}

// ---- owners

TEST_F(Waits, AnOwnerIsGivenUpByAnOperatorUntilItComesBack) {
  StartOwned({.run = TestRun(4)});
  EXPECT_EQ(Operate(admin::Action::kGiveUp, "phone").status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "it is there";
  EXPECT_EQ(Operate(admin::Action::kGiveUp, "nobody").status().code(),
            absl::StatusCode::kNotFound);
  Leave("phone");
  Serve({"lab", "tester"});
  Pass(1000, {"lab", "tester"});
  EXPECT_EQ(engine_->completed(), 0u) << "rounds wait for all their clients";
  ASSERT_TRUE(Operate(admin::Action::kGiveUp, "phone").ok());
  EXPECT_EQ(engine_->completed(), 1u);
  ASSERT_FALSE(GivenUp().empty());
  EXPECT_EQ(GivenUp()[0].reason, LeftOutReason::kGone);
  EXPECT_THAT(GivenUp()[0].message, HasSubstr("ada"));
  const size_t before = GivenUp().size();
  Commit("lab", Ask("lab"));
  ASSERT_EQ(engine_->completed(), 2u);
  EXPECT_GT(GivenUp().size(), before) << "in each round";
  const size_t then = GivenUp().size();
  JoinOwner("phone");
  Serve({"phone", "lab", "tester"});
  EXPECT_TRUE(Finished());
  EXPECT_EQ(GivenUp().size(), then);
}

TEST_F(Waits, ADrainedRunEndsWhenItsOpenRoundWaitsForNodesThatAreGone) {
  StartOwned({.run = TestRun(2)});
  Leave("phone");
  Serve({"lab", "tester"});
  ASSERT_TRUE(Operate(admin::Action::kDrain).ok());
  EXPECT_FALSE(engine_->ended.has_value()) << "it may come back";
  Pass(kLease + 2, {"lab", "tester"});
  EXPECT_EQ(engine_->ended, RunEnd::kInterrupted);
}

TEST_F(Waits, AResumedRunBeginsWithoutAnOwnerThatIsGivenUp) {
  Start({.run = TestRun(2), .workers = 3, .completed = 1});
  durable_.completed = 1;
  Restored owners;
  for (const char* name : {"phone", "lab"}) owners.members.push_back(Owner(name));
  engine_->Resume(std::move(owners), now_);
  JoinOwner("lab");
  JoinTester();
  Pass(1000, {"lab", "tester"});
  EXPECT_THAT(All<log::RoundOpened>(), IsEmpty());
  ASSERT_TRUE(Operate(admin::Action::kGiveUp, "phone").ok());
  EXPECT_THAT(All<log::RoundOpened>(), SizeIs(1));
  Serve({"lab", "tester"});
  EXPECT_TRUE(Finished());
}

TEST_F(Waits, AResumedRunBeginsAtItsDeadlineWithEnoughOfItsClients) {
  for (const double quorum : {0.5, 0.9}) {
    records_.clear();
    durable_ = {};
    durable_.completed = 1;
    Start({.run = TestRun(2),
           .workers = 3,
           .completed = 1,
           .round = {.deadline = 60, .quorum = quorum}});
    Restored owners;
    for (const char* name : {"phone", "lab"}) owners.members.push_back(Owner(name));
    engine_->Resume(std::move(owners), now_);
    JoinOwner("lab");
    JoinTester();
    Pass(50, {"lab", "tester"});
    EXPECT_THAT(All<log::RoundOpened>(), IsEmpty());
    Pass(20, {"lab", "tester"});
    EXPECT_THAT(All<log::RoundOpened>(), SizeIs(quorum < 0.6 ? 1 : 0));
  }
}

// ---- evaluations

RunPlan WithClientsEvaluated(uint32_t rounds) {
  RunPlan run = TestRun(rounds);
  run.evaluation.clients = true;
  return run;
}

TEST_F(Waits, TheEvaluationDoesWithoutClientsWhoseNodeIsGoneForALeasesTime) {
  StartOwned({.run = WithClientsEvaluated(1)});
  for (const char* name : {"phone", "lab"}) Commit(name, Ask(name));
  Leave("phone");
  Serve({"lab", "tester"});
  EXPECT_FALSE(engine_->ended.has_value());
  Pass(kLease + 2, {"lab", "tester"});
  EXPECT_TRUE(Finished());
  const auto gave_up = All<log::EvaluationGaveUp>();
  ASSERT_THAT(gave_up, SizeIs(1));
  EXPECT_THAT(gave_up[0].given_up, SizeIs(kPopulation / 2));
  EXPECT_EQ(gave_up[0].given_up[0].reason, LeftOutReason::kGone);
  EXPECT_FALSE(gave_up[0].states);
}

TEST_F(Waits, AnOfflineTesterDoesNotStallTheRun) {
  StartOwned({.run = TestRun(4)});
  Leave("tester");
  Serve({"phone", "lab"});
  Pass(kLease + 2, {"phone", "lab"});
  Serve({"phone", "lab"});
  EXPECT_TRUE(Finished());
  const auto gave_up = All<log::EvaluationGaveUp>();
  ASSERT_THAT(gave_up, SizeIs(2)) << "after rounds 2 and 4";
  EXPECT_THAT(gave_up[0].given_up, IsEmpty()) << "the rows are of no client";
  EXPECT_THAT(gave_up[0].tasks, testing::ElementsAre(0, 4));
}

TEST_F(Waits, NothingIsGoneWhileNoNodeIsThereAtAll) {
  StartOwned({.run = WithClientsEvaluated(1)});
  for (const char* name : {"phone", "lab"}) Commit(name, Ask(name));
  for (const char* name : {"phone", "lab", "tester"}) Leave(name);
  Pass(10 * kLease, {});
  for (const char* name : {"phone", "lab"}) JoinOwner(name);
  JoinTester();
  Serve({"phone", "lab", "tester"});
  EXPECT_TRUE(Finished());
  EXPECT_THAT(All<log::EvaluationGaveUp>(), IsEmpty());
}

TEST_F(Waits, AnEvaluationThatANodeHoldsEndsAtItsDeadline) {
  for (const double deadline : {0.0, 30.0, 150.0}) {
    records_.clear();
    durable_ = {};
    StartOwned({.run = TestRun(1), .round = {.deadline = deadline}});
    for (const char* name : {"phone", "lab"}) Commit(name, Ask(name));
    ASSERT_TRUE(Ask("tester").evaluation.has_value());
    const double ends = deadline > 0 ? std::max(deadline, kLeast) : 2 * kLimit;
    Pass(ends - 4, {"phone", "lab", "tester"});
    EXPECT_FALSE(engine_->ended.has_value()) << deadline;
    Pass(8, {"phone", "lab", "tester"});
    EXPECT_TRUE(Finished()) << deadline;
    ASSERT_THAT(All<log::EvaluationGaveUp>(), SizeIs(1));
    EXPECT_THAT(All<log::EvaluationGaveUp>()[0].why, HasSubstr("deadline"));
  }
}

TEST_F(Waits, AnOperatorSkipsAnEvaluation) {
  StartOwned({.run = TestRun(1)});
  EXPECT_EQ(Operate(admin::Action::kSkipEvaluation, "", 1).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "none is open";
  for (const char* name : {"phone", "lab"}) Commit(name, Ask(name));
  EXPECT_EQ(Operate(admin::Action::kSkipEvaluation, "", 2).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "of another round";
  ASSERT_TRUE(Operate(admin::Action::kSkipEvaluation, "", 1).ok());
  EXPECT_TRUE(Finished());
  EXPECT_THAT(All<log::EvaluationGaveUp>().at(0).why, HasSubstr("ada"));
}

// ---- client states

TEST_F(Waits, TheDigestOfTheStatesIsLeftOutWhenAnOwnerIsGone) {
  StartOwned({.run = TestRun(1), .stateful = true});
  for (const char* name : {"phone", "lab"}) Commit(name, Ask(name));
  Leave("phone");
  Serve({"lab", "tester"});
  EXPECT_FALSE(engine_->ended.has_value());
  Pass(kLease + 2, {"lab", "tester"});
  EXPECT_TRUE(Finished());
  EXPECT_FALSE(engine_->state_digest().has_value());
  ASSERT_THAT(All<log::EvaluationGaveUp>(), SizeIs(1));
  EXPECT_TRUE(All<log::EvaluationGaveUp>()[0].states);
}

TEST_F(Waits, AnOwnerThatKeptStatesInItsMemoryLosesItsOwnAndTheRunGoesOn) {
  volatile_ = true;
  StartOwned({.run = TestRun(3), .stateful = true});
  for (const char* name : {"phone", "lab"}) Commit(name, Ask(name));
  ASSERT_EQ(engine_->completed(), 1u);
  const std::set<ClientId> counted = durable_.counted.at(1);
  JoinOwner("phone");  // another process
  const auto lost = All<log::StatesLost>();
  ASSERT_THAT(lost, SizeIs(1));
  EXPECT_EQ(lost[0].name, "phone");
  EXPECT_EQ(lost[0].round, Round(2)) << "round 2 is open, and has not trained";
  std::set<ClientId> gone(lost[0].clients.begin(), lost[0].clients.end());
  gone.insert(lost[0].counted.begin(), lost[0].counted.end());
  for (const ClientId client : counted) EXPECT_EQ(gone.contains(client), client.value < 20) << client;
  const fleet::LeaseReply phone = Ask("phone"), lab = Ask("lab");
  for (const fleet::Assignment& one : phone.training.value_or(fleet::TrainingLease{}).assignments)
    EXPECT_EQ(one.state_version.counter, 0u);
  bool reads = false;
  for (const fleet::Assignment& one : lab.training.value_or(fleet::TrainingLease{}).assignments)
    reads = reads || one.state_version.counter != 0;
  EXPECT_EQ(reads, std::ranges::any_of(lab.training->assignments, [&](const auto& one) {
    return counted.contains(one.client);
  }));
  Commit("phone", phone);
  Commit("lab", lab);
  Serve({"phone", "lab", "tester"});
  EXPECT_TRUE(Finished()) << engine_->error;
}

TEST_F(Waits, StatesThatWereLostAfterTheirClientHadTrainedAreLostAfterTheRound) {
  volatile_ = true;
  StartOwned({.run = TestRun(2), .stateful = true});
  Commit("phone", Ask("phone"));
  Leave("phone");
  const auto lost = All<log::StatesLost>();
  ASSERT_THAT(lost, SizeIs(1));
  EXPECT_EQ(lost[0].round, Round(1));
  EXPECT_THAT(lost[0].clients, IsEmpty());
  EXPECT_FALSE(lost[0].counted.empty());
  JoinOwner("phone");
  Commit("lab", Ask("lab"));
  ASSERT_EQ(engine_->completed(), 1u) << "what they had trained counts";
  for (uint64_t page = 0; page < durable_.versions.back().pages(); ++page) {
    for (const Attempt& version : durable_.versions.back().Page(page))
      EXPECT_GE(version.client.value, 20u);
  }
  Serve({"phone", "lab", "tester"});
  EXPECT_TRUE(Finished());
  EXPECT_TRUE(engine_->state_digest().has_value());
}

}  // namespace
}  // namespace macaw::server
