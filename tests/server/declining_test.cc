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

// Nodes whose owners do not let them work now, in virtual time.
namespace macaw::server {
namespace {

using fixtures::Durable;
using fixtures::EngineDriver;
using fixtures::Examples;
using fixtures::kCohort;
using fixtures::kPopulation;
using fixtures::NodeWithEverybody;
using fixtures::RecordOf;
using fixtures::Table;
using fixtures::TestRun;
using fleet::LeftOutReason;
using testing::HasSubstr;

class Declining : public testing::Test {
 protected:
  // Two nodes with everybody's rows, or two owners with twenty clients each.
  void Start(bool owners, RoundRules rules = {}, uint32_t rounds = 1,
             const std::string& declined = "") {
    scheduler_ = *scheduler::MakeScheduler({.policy = "round_robin"});  // all at once
    engine_ = std::make_unique<EngineDriver>(EngineOptions{.run = TestRun(rounds),
                                                           .lease_timeout = FromSeconds(1000),
                                                           .workers = 2,
                                                           .round = rules},
                                             *scheduler_, durable_, rounds, /*phases=*/1);
    engine_->ExpectAsRecorded();
    engine_->on_record = [this](const log::Record& record) { records_.push_back(record); };
    for (const uint64_t k : {0, 1}) sessions_[k] = Join(k, owners, declined);
  }
  SessionId Join(uint64_t k, bool owner, const std::string& declined = "") {
    const std::string name = k == 0 ? "phone" : "lab";
    fleet::RegisterRequest node = NodeWithEverybody(name, 1);
    node.declined_now = declined;
    fleet::ClientTable table = Table();
    if (owner) {
      node.data_digest = DigestOf(name);
      node.clients = kPopulation / 2;
      node.owner = true;
      table = {};
      for (uint64_t client = k * 20; client < k * 20 + 20; ++client) {
        table.rows.push_back(Examples()[client]);
        table.names.push_back(absl::StrCat("client ", client));
      }
    }
    const auto reply = engine_->Register(node, table, now_);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply->session;
  }
  void Work() { engine_->RunAll(random_, now_); }
  Ticket Ask(uint64_t k, const std::string& declined, uint32_t running = 0) {
    engine_->Lease(++tickets_,
                   {.session = sessions_[k], .wanted = 1, .running = running, .declined = declined},
                   FromSeconds(30), now_);
    return tickets_;
  }
  std::optional<fleet::LeaseReply> Answer(Ticket ticket) const {
    const auto found = engine_->leases.find(ticket);
    return found != engine_->leases.end() ? std::optional(found->second) : std::nullopt;
  }
  // Trains all that node `k` gets, until it gets no more.
  void TrainAll(uint64_t k) {
    for (int i = 0; i < 100; ++i) {
      const auto reply = Answer(Ask(k, ""));
      if (!reply.has_value() || reply->next != fleet::Next::kWork) return;
      Commit(k, *reply);
      Work();
    }
  }
  void Commit(uint64_t k, const fleet::LeaseReply& reply) {
    fleet::CommitRequest request{.session = sessions_[k], .commit_id = ++commits_};
    std::vector<ClientId> clients;
    if (reply.training.has_value()) {
      request.part = {.round = reply.training->round, .broadcast = reply.training->broadcast.name};
      for (const fleet::Assignment& assignment : reply.training->assignments) {
        request.part->included.push_back(RecordOf(assignment));
        request.part->included.back().has_state = false;
        clients.push_back(assignment.client);
      }
    }
    if (reply.evaluation.has_value()) {
      for (const fleet::EvaluationTask& task : reply.evaluation->tasks) {
        fleet::EvaluationResult result{.task = task, .round = reply.evaluation->round};
        result.sums = std::vector<double>(
            training::SchemaFor(TaskKind::kClassification).sums.size(), task.end - task.begin);
        request.evaluations.push_back(result);
      }
    }
    engine_->Hold(++tickets_, clients);
    engine_->Commit(tickets_, request, absl::OkStatus(), now_);
    Work();
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

  Durable durable_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  std::unique_ptr<EngineDriver> engine_;
  RandomStream random_{{.seed = 1}};
  TimePoint now_{};
  std::map<uint64_t, SessionId> sessions_;
  std::vector<log::Record> records_;
  Ticket tickets_ = 0;
  uint64_t commits_ = 0;
};

TEST_F(Declining, ItsClientsAreGivenUpWithItsReasonAndTheRoundGoesOn) {
  Start(/*owners=*/true);
  const Ticket call = Ask(0, "outside accept.hours");
  Work();
  TrainAll(1);
  EXPECT_EQ(Answer(call)->next, fleet::Next::kFinished) << "it got nothing before";
  EXPECT_EQ(engine_->completed(), 1u);
  const std::vector<log::GivenUp> given_up = GivenUp();
  ASSERT_FALSE(given_up.empty());
  for (const log::GivenUp& one : given_up) {
    EXPECT_EQ(one.reason, LeftOutReason::kDeclined);
    EXPECT_EQ(one.message, "phone: outside accept.hours");
    EXPECT_LT(one.attempt.client, ClientId(20));
  }
  EXPECT_EQ(durable_.counted.at(1).size(), kCohort - given_up.size());
}

TEST_F(Declining, TheLogHasTheReasonOnceAndWhenTheNodeWorksAgain) {
  Start(/*owners=*/true);
  Ask(0, "a");
  Ask(0, "a");
  Ask(0, "b");
  Ask(0, "");
  const auto records = All<log::NodeDeclined>();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].name, "phone");
  EXPECT_EQ(records[0].why, "a");
  EXPECT_EQ(records[1].why, "b");
  EXPECT_EQ(records[2].why, "");
  Ask(0, std::string(100'000, 'x'));
  EXPECT_LT(All<log::NodeDeclined>().back().why.size(), 1000u);
}

TEST_F(Declining, NoRoundOpensWhileEverybodyDeclines) {
  Start(/*owners=*/true, {}, /*rounds=*/1, "no");
  Work();
  EXPECT_TRUE(All<log::RoundOpened>().empty());
  ASSERT_EQ(All<log::Waiting>().size(), 1u);
  EXPECT_EQ(All<log::NodeDeclined>().size(), 2u);
  Ask(0, "no");
  Ask(1, "");
  Work();
  EXPECT_EQ(All<log::RoundOpened>().size(), 1u);
  EXPECT_TRUE(All<log::RoundLost>().empty());
}

TEST_F(Declining, ALaterRoundWaitsForSomebodyAndOpensByItself) {
  Start(/*owners=*/true, {}, /*rounds=*/2);
  Work();
  // Both take their work in the first round. While they train, their owners change their minds.
  const auto first = Answer(Ask(0, "")), second = Answer(Ask(1, ""));
  ASSERT_TRUE(first->training.has_value() && second->training.has_value());
  EXPECT_EQ(Answer(Ask(0, "no", /*running=*/1))->next, fleet::Next::kCommit);
  EXPECT_EQ(Answer(Ask(1, "no", /*running=*/1))->next, fleet::Next::kCommit);
  Commit(0, *first);
  Commit(1, *second);
  Ask(0, "no");
  Ask(1, "no");
  Work();
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_EQ(durable_.counted.at(1).size(), kCohort) << "what was trained counts";
  EXPECT_EQ(All<log::RoundOpened>().size(), 1u);
  ASSERT_EQ(All<log::Waiting>().size(), 1u);
  EXPECT_EQ(All<log::Waiting>()[0].present, 0u);
  EXPECT_EQ(All<log::Waiting>()[0].needed, 1u);
  engine_->Tick(now_ += FromSeconds(3600));
  Work();
  EXPECT_EQ(All<log::RoundOpened>().size(), 1u);
  Ask(0, "");
  Work();
  EXPECT_EQ(All<log::RoundOpened>().size(), 2u);
}

TEST_F(Declining, AQuorumThatCannotBeReachedIsWaitedFor) {
  Start(/*owners=*/true, {.deadline = 20, .quorum = 1}, /*rounds=*/2);
  Work();
  const auto first = Answer(Ask(0, "")), second = Answer(Ask(1, ""));
  Commit(0, *first);
  Ask(0, "no");
  Commit(1, *second);
  ASSERT_EQ(engine_->completed(), 1u);
  // All twenty clients of the other are enough for a cohort of twelve.
  EXPECT_TRUE(All<log::Waiting>().empty());
  EXPECT_EQ(All<log::RoundOpened>().size(), 2u);
}

TEST_F(Declining, ClientsThatOthersHaveAreTrainedByThem) {
  Start(/*owners=*/false);
  const Ticket call = Ask(0, "no");
  Work();
  TrainAll(1);
  EXPECT_EQ(Answer(call)->next, fleet::Next::kFinished);
  EXPECT_TRUE(GivenUp().empty());
  EXPECT_EQ(durable_.counted.at(1).size(), kCohort);
}

TEST_F(Declining, WithPresentWithinItsClientsAreNotDrawn) {
  Start(/*owners=*/true, {.present_within = 60}, /*rounds=*/2);
  Work();
  const auto first = Answer(Ask(0, "")), second = Answer(Ask(1, ""));
  Commit(0, *first);
  Ask(0, "no");
  Commit(1, *second);
  const auto opened = All<log::RoundOpened>();
  ASSERT_EQ(opened.size(), 2u);
  EXPECT_THAT(opened[1].present, testing::ElementsAre(ClientId(20), ClientId(40)));
  EXPECT_TRUE(GivenUp().empty());
}

TEST_F(Declining, TheEvaluationOfItsClientsIsGivenUp) {
  EvaluationBoard board(Round(1), fixtures::BlobOf(Round(1), Phase(0)),
                        {.every = 1, .chunk = 10, .clients = true},
                        /*personal_models=*/false, [] {
                          Roster roster;
                          roster.Add(NodeWithEverybody("w", 1), Table());
                          roster.Begin({});
                          return roster;
                        }());
  const auto queue = EvaluationBoard::Of(HoldingId(0));
  const uint64_t waiting = board.waiting(queue);
  ASSERT_GT(waiting, 0u);
  FenceSource fences(1);
  std::vector<fleet::EvaluationTask> taken;
  board.Take(WorkerId(1), queue, 1, TimePoint::max(), fences, taken);
  board.GiveUp(board.Waiting(queue));
  EXPECT_EQ(board.waiting(queue), 0u);
  EXPECT_FALSE(board.done()) << "one is being done, and the central test set waits";
  board.Complete(WorkerId(1), {.task = taken[0], .round = Round(1), .sums = {1, 2}});
  board.Take(WorkerId(1), EvaluationBoard::Central(), 100, TimePoint::max(), fences, taken);
  for (size_t i = 1; i < taken.size(); ++i)
    board.Complete(WorkerId(1), {.task = taken[i], .round = Round(1), .sums = {1, 2}});
  EXPECT_TRUE(board.done());
  EXPECT_EQ(board.Report().given_up.size(), waiting - 1);
}

}  // namespace
}  // namespace macaw::server
