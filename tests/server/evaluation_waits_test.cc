// The table of waits in server/README.md, in virtual time: evaluations and client states.
#include "tests/server/waits_driver.h"

namespace macaw::server {
namespace {

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
  for (const ClientId client : counted)
    EXPECT_EQ(gone.contains(client), client.value < 20) << client;
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

TEST_F(Waits, AnEvaluationReadsStatesOnlyWhereTheRuleHasPersonalModels) {
  for (const bool reads : {true, false}) {
    durable_ = {};
    StartOwned({.run = WithClientsEvaluated(1), .stateful = true, .evaluates_states = reads});
    for (const char* name : {"phone", "lab"}) Commit(name, Ask(name));
    bool seen = false;
    for (const char* name : {"phone", "lab"}) {
      const fleet::LeaseReply lease = Ask(name);
      ASSERT_TRUE(lease.evaluation.has_value()) << name;
      for (const fleet::EvaluationTask& task : lease.evaluation->tasks)
        seen = seen || task.state_version.counter > 0;
    }
    EXPECT_EQ(seen, reads);
  }
}

// Of a lease: clients that have a state, and those that have none.
std::pair<std::set<ClientId>, std::set<ClientId>> ByState(const fleet::LeaseReply& lease) {
  std::pair<std::set<ClientId>, std::set<ClientId>> clients;
  for (const auto& one : lease.training.value_or(fleet::TrainingLease{}).assignments)
    (one.state_version.counter > 0 ? clients.first : clients.second).insert(one.client);
  return clients;
}

TEST_F(Waits, AnOwnerThatCannotReadStatesTrainsTheirClientsWithoutThem) {
  StartOwned({.run = TestRun(4), .stateful = true});
  // The owner trains all clients of the lease but these.
  const auto commit_without = [&](const fleet::TrainingLease& lease,
                                  const std::set<ClientId>& unreadable) {
    fleet::CommitRequest request{.session = sessions_.at("phone"), .commit_id = ++commits_};
    request.part = fleet::Part{.round = lease.round, .broadcast = lease.broadcast.name};
    std::vector<ClientId> included;
    for (const fleet::Assignment& one : lease.assignments) {
      if (unreadable.contains(one.client)) {
        request.part->left_out.push_back({.attempt = {one.client, one.fence},
                                          .reason = LeftOutReason::kState,
                                          .message = "not in the store"});
      } else {
        request.part->included.push_back(RecordOf(one));
        included.push_back(one.client);
      }
    }
    engine_->Hold(++tickets_, included);
    engine_->Commit(tickets_, request, absl::OkStatus(), now_);
    Work();
    EXPECT_EQ(engine_->commits.at(tickets_).verdict, fleet::Verdict::kAccepted);
  };
  fleet::LeaseReply phone = Ask("phone");
  while (ByState(phone).first.empty()) {
    Commit("phone", phone);
    Commit("lab", Ask("lab"));
    ASSERT_FALSE(Finished()) << "nobody was drawn twice";
    phone = Ask("phone");
  }
  const std::set<ClientId> gone = ByState(phone).first;
  commit_without(*phone.training, gone);
  const auto lost = All<log::StatesLost>();
  ASSERT_THAT(lost, SizeIs(1));
  EXPECT_EQ(std::set(lost[0].clients.begin(), lost[0].clients.end()), gone);
  EXPECT_THAT(lost[0].counted, IsEmpty());
  EXPECT_EQ(lost[0].round, phone.training->round);
  EXPECT_THAT(All<log::Accepted>().back().given_up, IsEmpty());

  // The same round trains them without a state. Whoever cannot read that either is left out.
  std::set<ClientId> left;
  while (left.size() < gone.size()) {
    const fleet::LeaseReply again = Ask("phone");
    ASSERT_TRUE(again.training.has_value());
    EXPECT_EQ(again.training->round, phone.training->round);
    EXPECT_THAT(ByState(again).first, IsEmpty());
    commit_without(*again.training, gone);
    const auto accepted = All<log::Accepted>();
    for (const log::GivenUp& one : accepted.back().given_up)
      EXPECT_TRUE(left.insert(one.attempt.client).second) << one.attempt.client;
  }
  EXPECT_EQ(left, gone);
  EXPECT_THAT(All<log::StatesLost>(), SizeIs(1));
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

// ---- states of which the algorithm keeps a sum

class WaitsWithSums : public Waits {
 protected:
  void StartSumming(EngineOptions options = {}, bool in_memory = true) {
    volatile_ = in_memory;
    if (options.run.model.input_shape.empty()) options.run = TestRun(4);
    options.stateful = options.sums_states = true;
    StartOwned(std::move(options));
    engine_->ExpectTheSumOfTheStates();
  }
  // Does the open round. Returns the clients that have read a state.
  std::set<ClientId> Round() {
    std::set<ClientId> read;
    for (const uint32_t round = engine_->completed(); engine_->completed() == round;) {
      for (const char* name : {"phone", "lab", "tester"}) {
        if (engine_->completed() != round) break;
        const fleet::LeaseReply lease = Ask(name);
        read.merge(ByState(lease).first);
        if (lease.next == fleet::Next::kWork) Commit(name, lease);
      }
    }
    return read;
  }
  // How many clients have a state after the round.
  uint64_t Kept() const { return durable_.versions.back().size(); }
};

TEST_F(WaitsWithSums, NoClientHasAStateAfterTheRoundInWhichSomeWereLost) {
  StartSumming();
  Round();
  EXPECT_GT(Kept(), 0u);
  Commit("lab", Ask("lab"));  // counts in round 2
  JoinOwner("phone");
  ASSERT_THAT(All<log::StatesLost>(), SizeIs(1));
  EXPECT_TRUE(All<log::StatesLost>()[0].all);
  EXPECT_EQ(All<log::StatesLost>()[0].round, macaw::Round(2));
  Round();
  ASSERT_EQ(engine_->completed(), 2u);
  EXPECT_EQ(Kept(), 0u);
  EXPECT_THAT(engine_->begun_anew, testing::ElementsAre(macaw::Round(2)));
  EXPECT_THAT(Round(), IsEmpty()) << "in round 3";
  EXPECT_GT(Kept(), 0u) << "the rounds that follow keep states again";
  EXPECT_THAT(engine_->begun_anew, SizeIs(1));
  Serve({"phone", "lab", "tester"});
  EXPECT_TRUE(Finished()) << engine_->error;
}

TEST_F(WaitsWithSums, ClientsThatHaveStatesUseThemInThatRound) {
  StartSumming();
  Round();
  JoinOwner("phone");
  const std::set<ClientId> read = Round();
  EXPECT_FALSE(read.empty());
  for (const ClientId client : read) EXPECT_GE(client.value, 20u) << "the phone's are lost";
  EXPECT_EQ(Kept(), 0u);
}

TEST_F(WaitsWithSums, WhatIsLostWhileTheSumIsAppliedCountsForTheNextRound) {
  StartSumming();
  Commit("phone", Ask("phone"));
  const fleet::LeaseReply lab = Ask("lab");
  ASSERT_TRUE(lab.training.has_value());
  fleet::CommitRequest request{.session = sessions_.at("lab"), .commit_id = ++commits_};
  request.part =
      fleet::Part{.round = lab.training->round, .broadcast = lab.training->broadcast.name};
  std::vector<ClientId> clients;
  for (const fleet::Assignment& one : lab.training->assignments) {
    request.part->included.push_back(RecordOf(one));
    clients.push_back(one.client);
  }
  engine_->Hold(++tickets_, clients);
  engine_->Commit(tickets_, request, absl::OkStatus(), now_);
  ASSERT_TRUE(engine_->RunOne(random_, now_)) << "the part is added, and its sum is to be applied";
  ASSERT_EQ(engine_->completed(), 0u);
  engine_->Release({.session = sessions_.at("phone"), .leaving = true}, now_);
  EXPECT_THAT(All<log::StatesLost>(), IsEmpty());
  Work();
  ASSERT_EQ(engine_->completed(), 1u);
  EXPECT_GT(Kept(), 0u) << "the sum of round 1 has them";
  ASSERT_THAT(All<log::StatesLost>(), SizeIs(1));
  EXPECT_EQ(All<log::StatesLost>()[0].round, macaw::Round(2));
  EXPECT_THAT(All<log::StatesLost>()[0].counted, IsEmpty());
  JoinOwner("phone");
  Serve({"phone", "lab", "tester"});
  EXPECT_THAT(engine_->begun_anew, testing::ElementsAre(macaw::Round(2)));
  EXPECT_TRUE(Finished()) << engine_->error;
}

TEST_F(WaitsWithSums, TheLastRoundMayBeTheOneAfterWhichAllBeginAnew) {
  StartSumming({.run = TestRun(1)});
  Commit("phone", Ask("phone"));
  JoinOwner("phone");
  Commit("lab", Ask("lab"));
  EXPECT_EQ(Kept(), 0u);
  Serve({"phone", "lab", "tester"});
  EXPECT_TRUE(Finished()) << engine_->error;
  EXPECT_TRUE(engine_->state_digest().has_value()) << "of no states";
}

TEST_F(WaitsWithSums, AResumedRunThatHadLostStatesSaysSoAndBeginsAnewAfterItsFirstRound) {
  VersionIndex versions;
  versions.Set(ClientId(30), {1, 7});
  durable_.completed = 2;
  StartSumming(
      {.run = TestRun(4), .epoch = 2, .completed = 2, .versions = versions, .begins_anew = true},
      /*in_memory=*/false);
  ASSERT_THAT(All<log::StatesLost>(), SizeIs(1));
  EXPECT_EQ(All<log::StatesLost>()[0].round, macaw::Round(3));
  EXPECT_TRUE(All<log::StatesLost>()[0].all);
  EXPECT_THAT(All<log::StatesLost>()[0].clients, IsEmpty());
  Round();
  EXPECT_EQ(Kept(), 0u);
  EXPECT_THAT(engine_->begun_anew, testing::ElementsAre(macaw::Round(3)));
}

TEST_F(WaitsWithSums, StatesThatAreGivenUpForAResumeAreLostOnes) {
  VersionIndex versions;
  versions.Set(ClientId(30), {1, 7});
  durable_.completed = 2;
  StartSumming({.run = TestRun(4),
                .epoch = 2,
                .completed = 2,
                .versions = versions,
                .reset_states = {ClientId(3)}},
               /*in_memory=*/false);
  ASSERT_THAT(All<log::StatesLost>(), SizeIs(1));
  EXPECT_THAT(All<log::StatesLost>()[0].clients, testing::ElementsAre(ClientId(3)));
  EXPECT_TRUE(All<log::StatesLost>()[0].all);
  EXPECT_THAT(All<log::StatesLost>()[0].why, HasSubstr("--state-reset"));
  Round();
  EXPECT_THAT(engine_->begun_anew, testing::ElementsAre(macaw::Round(3)));
}

TEST_F(Waits, WhereNothingIsSummedOnlyTheStatesThatWereLostAreForgotten) {
  volatile_ = true;
  StartOwned({.run = TestRun(3), .stateful = true});
  for (const char* name : {"phone", "lab"}) Commit(name, Ask(name));
  JoinOwner("phone");
  for (const char* name : {"phone", "lab"}) Commit(name, Ask(name));
  ASSERT_THAT(All<log::StatesLost>(), SizeIs(1));
  EXPECT_FALSE(All<log::StatesLost>()[0].all);
  EXPECT_FALSE(durable_.versions.back().empty());
  EXPECT_THAT(engine_->begun_anew, IsEmpty());
}

}  // namespace
}  // namespace macaw::server
