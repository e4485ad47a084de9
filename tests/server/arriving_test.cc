// Rounds of a fleet that do not wait for each other, as (state, event) → Effects: six owners with a
// client each, of which four train at a time; a round closes with two arrivals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/policies/policies.h"
#include "server/engine/round_engine.h"
#include "tests/server/log_law.h"
#include "tests/server/small_population.h"

namespace macaw::server {
namespace {

using fleet::LeftOutReason;
using fleet::Next;
using fleet::Verdict;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;
using testing_support::BlobOf;
using testing_support::LogLaw;
using testing_support::NodeWithEverybody;
using testing_support::RecordOf;
using testing_support::TestRun;

constexpr double kLease = 10;  // seconds
constexpr uint64_t kOwners = 6;

class Arriving : public testing::Test {
 protected:
  static RunPlan Run(uint64_t arrivals = 2, uint64_t concurrency = 4) {
    RunPlan run = TestRun(/*rounds=*/20);
    run.cohort.size = arrivals;
    run.asynchronous = {.mode = "buffered", .concurrency = concurrency};
    run.evaluation.every = 0;
    return run;
  }
  void Start(EngineOptions options) {
    if (options.run.model.input_shape.empty()) options.run = Run();
    options.lease_timeout = FromSeconds(kLease);
    options.workers = kOwners;
    engine_.emplace(std::move(options), scheduler_);
    for (uint64_t owner = 0; owner < kOwners; ++owner) Join(owner);
  }
  void Start() { Start({}); }

  static fleet::RegisterRequest Owner(uint64_t owner, uint64_t incarnation) {
    fleet::RegisterRequest node = NodeWithEverybody(absl::StrCat("device-", owner), 1);
    node.owner = true;
    node.data_digest = DigestOf(node.name);
    node.clients = 1;
    node.central_test_rows = 0;
    node.incarnation = incarnation;
    node.arrives = true;
    return node;
  }
  static fleet::ClientTable TableOf(uint64_t owner) {
    return {.rows = {testing_support::Examples()[owner]}, .names = {absl::StrCat(owner)}};
  }
  void Join(uint64_t owner) {
    auto registered = engine_->Register(Owner(owner, ++incarnations_), TableOf(owner), now_);
    ASSERT_TRUE(registered.answer.ok()) << registered.answer.status();
    sessions_[owner] = registered.answer->session;
    Carry(std::move(registered.effects));
  }

  // ---- a device's calls. A device has the client of its number.
  struct Asked {
    Ticket ticket = 0;
    std::optional<fleet::LeaseReply> reply;  // none: the call waits
  };
  Asked Call(uint64_t owner, fleet::LeaseRequest request) {
    request.session = sessions_.at(owner);
    request.wait = FromSeconds(30);
    Carry(engine_->Lease(++tickets_, request, now_));
    return {tickets_, AnswerTo(tickets_)};
  }
  std::optional<fleet::LeaseReply> AnswerTo(Ticket ticket) const {
    const auto found = leases_.find(ticket);
    return found != leases_.end() ? std::optional(found->second) : std::nullopt;
  }
  // Asks for work, unless a call waits or was answered meanwhile. True: its client is leased.
  bool Begin(uint64_t owner) {
    if (const auto poll = polls_.find(owner); poll != polls_.end()) {
      const auto answer = AnswerTo(poll->second);
      if (!answer.has_value()) return false;
      polls_.erase(poll);
      if (answer->training.has_value()) {
        Take(owner, *answer);
        return true;
      }
    }
    const Asked asked = Call(owner, {.wanted = 1});
    if (!asked.reply.has_value()) polls_[owner] = asked.ticket;
    if (!asked.reply.has_value() || !asked.reply->training.has_value()) return false;
    Take(owner, *asked.reply);
    return true;
  }
  void Take(uint64_t owner, const fleet::LeaseReply& reply) {
    ASSERT_THAT(reply.training->assignments, SizeIs(1));
    EXPECT_EQ(reply.training->assignments[0].client, ClientId(owner));
    EXPECT_EQ(reply.training->assignments[0].staleness, 0u);
    EXPECT_TRUE(reply.training->arrives);
    EXPECT_TRUE(reply.training->last);
    begun_[owner] = *reply.training;
  }
  // Everybody asks; those that are drawn begin. Returns them.
  std::vector<uint64_t> BeginAll() {
    std::vector<uint64_t> begun;
    for (uint64_t owner = 0; owner < kOwners; ++owner) {
      if (Begin(owner)) begun.push_back(owner);
    }
    return begun;
  }
  Attempt AttemptOf(uint64_t owner) const {
    const fleet::Assignment& one = begun_.at(owner).assignments.at(0);
    return {one.client, one.fence};
  }
  Asked Arrive(uint64_t owner, const std::string& declined = "") {
    return Call(owner, {.running = 1, .declined = declined, .trained = {AttemptOf(owner)}});
  }
  // Arrives and commits. Returns by how many rounds the client's model was older.
  uint32_t Count(uint64_t owner) {
    const Asked asked = Arrive(owner);
    EXPECT_TRUE(asked.reply.has_value() && asked.reply->training.has_value());
    if (!asked.reply.has_value() || !asked.reply->training.has_value()) return ~0u;
    const fleet::CommitReply reply = Commit(owner, *asked.reply->training);
    EXPECT_EQ(reply.verdict, Verdict::kAccepted) << reply.reason;
    return asked.reply->training->assignments[0].staleness;
  }
  static fleet::Part PartOf(const fleet::TrainingLease& lease) {
    fleet::Part part{.round = lease.round, .broadcast = lease.broadcast.name};
    for (const fleet::Assignment& one : lease.assignments) {
      part.included.push_back(RecordOf(one));
      part.included.back().has_state = false;
    }
    return part;
  }
  fleet::CommitReply Commit(uint64_t owner, const fleet::TrainingLease& lease) {
    return Commit(owner, PartOf(lease));
  }
  fleet::CommitReply Commit(uint64_t owner, fleet::Part part) {
    fleet::CommitRequest request{.session = sessions_.at(owner), .commit_id = ++commit_ids_};
    request.part = std::move(part);
    Carry(engine_->Commit(++tickets_, std::move(request), absl::OkStatus(), now_));
    return commits_.at(tickets_);
  }
  void Heartbeat(uint64_t owner) {
    Carry(engine_->Heartbeat({.session = sessions_.at(owner), .progress = ++progress_}, now_)
              .effects);
  }
  // Time passes, and these devices are heard.
  void Pass(double seconds, const std::vector<uint64_t>& heard) {
    for (double passed = 0; passed < seconds; ++passed) {
      now_ += FromSeconds(1);
      for (const uint64_t owner : heard) Heartbeat(owner);
      Carry(engine_->Tick(now_));
    }
  }

  template <typename T>
  std::vector<T> All() const {
    std::vector<T> all;
    for (const log::Record& record : records_) {
      if (const auto* one = std::get_if<T>(&record)) all.push_back(*one);
    }
    return all;
  }
  const PhaseReport& Report(uint32_t round) const { return reports_.at(round); }
  std::vector<uint64_t> CountedIn(uint32_t round) const {
    std::vector<uint64_t> clients;
    for (const fleet::ClientRecord& record : Report(round).records)
      clients.push_back(record.attempt.client.value);
    return clients;
  }

  void Carry(Effects effects) {
    for (Recorded& recorded : effects.records) {
      law_.Add(recorded.record);
      records_.push_back(std::move(recorded.record));
    }
    for (Reply& reply : effects.replies) {
      if (auto* lease = std::get_if<fleet::LeaseReply>(&reply.answer)) {
        EXPECT_TRUE(leases_.emplace(reply.ticket, std::move(*lease)).second);
      } else {
        EXPECT_TRUE(
            commits_.emplace(reply.ticket, std::get<fleet::CommitReply>(std::move(reply.answer)))
                .second);
      }
    }
    for (Order& order : effects.orders) std::visit([&](auto& one) { Do(one); }, order);
  }
  void Do(PrepareBroadcast& prepare) {
    orders_[prepare.order.round.value] = prepare.order;
    if (hold_broadcast_) return;
    Carry(engine_->BroadcastReady(
        prepare.order.round, prepare.order.phase,
        fleet::Broadcast::Of({BlobOf(prepare.order.round, prepare.order.phase)}), now_));
  }
  void Do(AddPart& add) { Carry(engine_->PartAdded(add.commit, absl::OkStatus(), now_)); }
  void Do(AddPartAgain&) { Carry(engine_->PartAdded(0, absl::OkStatus(), now_)); }
  void Do(ApplySum& apply) {
    const uint32_t round = apply.report.round.value;
    law_.Add(log::Closed{.round = apply.report.round, .last = true});
    reports_[round] = std::move(apply.report);
    Carry(engine_->Applied(false, std::nullopt, now_));
  }
  void Do(EndRun& end) { ended_ = end.status; }
  template <typename T>
  void Do(T&) {}

  TimePoint now_{};
  scheduler::PlannedStealingScheduler scheduler_;
  std::optional<RoundEngine> engine_;
  LogLaw law_;
  std::vector<log::Record> records_;
  std::map<Ticket, fleet::LeaseReply> leases_;
  std::map<Ticket, fleet::CommitReply> commits_;
  std::map<uint32_t, PhaseReport> reports_;
  std::map<uint32_t, PhaseOrder> orders_;
  std::map<uint64_t, SessionId> sessions_;
  std::map<uint64_t, Ticket> polls_;
  std::map<uint64_t, fleet::TrainingLease> begun_;
  std::optional<absl::Status> ended_;
  bool hold_broadcast_ = false;
  Ticket tickets_ = 0;
  uint64_t commit_ids_ = 0, incarnations_ = 0, progress_ = 0;
};

TEST_F(Arriving, AClientThatTrainsOnCountsInALaterRoundWithTheAgeOfItsModel) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  ASSERT_THAT(first, SizeIs(4));
  EXPECT_EQ(Count(first[0]), 0u);
  EXPECT_EQ(engine_->completed(), 0u);
  EXPECT_EQ(Count(first[1]), 0u);
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_THAT(CountedIn(1), ElementsAre(first[0], first[1]));
  EXPECT_EQ(Report(1).mean_staleness, 0);
  // In round 2 four train: those that go on, and two of the four others.
  EXPECT_THAT(orders_.at(2).staleness, ElementsAre(1));
  EXPECT_EQ(Report(1).cohort, 4u);
  EXPECT_EQ(Count(first[3]), 1u);
  std::vector<uint64_t> second;
  for (uint64_t owner = 0; owner < kOwners; ++owner) {
    if (owner != first[2] && owner != first[3] && Begin(owner)) second.push_back(owner);
  }
  ASSERT_THAT(second, SizeIs(2));
  EXPECT_EQ(begun_.at(second[0]).round, Round(2));
  EXPECT_EQ(Count(second[0]), 0u);
  EXPECT_EQ(engine_->completed(), 2u);
  EXPECT_EQ(Report(2).mean_staleness, 0.5);
  EXPECT_EQ(Count(first[2]), 2u);
  EXPECT_EQ(Count(second[1]), 1u);
  EXPECT_EQ(engine_->completed(), 3u);
  EXPECT_EQ(Report(3).mean_staleness, 1.5);
  // The log says it, and who goes on.
  std::map<ClientId, uint64_t> ages;
  for (const log::Accepted& accepted : All<log::Accepted>()) {
    if (accepted.round == Round(3)) {
      ASSERT_THAT(accepted.included, SizeIs(1));
      ages[accepted.included[0].client] = accepted.staleness.at(0);
    }
  }
  EXPECT_EQ(ages,
            (std::map<ClientId, uint64_t>{{ClientId(first[2]), 2}, {ClientId(second[1]), 1}}));
  EXPECT_EQ(All<log::RoundOpened>().at(2).arrivals, 2u);
  EXPECT_TRUE(All<log::Requeued>().empty());
  EXPECT_TRUE(All<log::GaveUp>().empty());
}

TEST_F(Arriving, WhoComesWhileARoundHasItsArrivalsCountsInTheNextOne) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  const Asked one = Arrive(first[0]), two = Arrive(first[1]), three = Arrive(first[2]);
  ASSERT_TRUE(one.reply.has_value() && two.reply.has_value());
  EXPECT_FALSE(three.reply.has_value());
  EXPECT_TRUE(one.reply->training->broadcast.channels.at(0).bytes == nullptr);
  EXPECT_EQ(Commit(first[1], *two.reply->training).verdict, Verdict::kAccepted);
  EXPECT_EQ(engine_->completed(), 0u) << "another one is arriving";
  EXPECT_EQ(Commit(first[0], *one.reply->training).verdict, Verdict::kAccepted);
  EXPECT_EQ(engine_->completed(), 1u);
  const auto answer = AnswerTo(three.ticket);
  ASSERT_TRUE(answer.has_value() && answer->training.has_value());
  EXPECT_EQ(answer->training->round, Round(2));
  EXPECT_EQ(answer->training->assignments.at(0).staleness, 1u);
  EXPECT_FALSE(answer->training->arrives) << "it is trained";
  EXPECT_EQ(Commit(first[2], *answer->training).verdict, Verdict::kAccepted);
}

TEST_F(Arriving, ThoseThatWaitAreServedInTheirOrderAndOnceACallIsRepeated) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  const Asked one = Arrive(first[0]), two = Arrive(first[1]);
  const Asked four = Arrive(first[3]), three = Arrive(first[2]);
  Pass(31, first);  // their calls are answered, and they ask again
  ASSERT_TRUE(AnswerTo(four.ticket).has_value());
  EXPECT_EQ(AnswerTo(four.ticket)->next, Next::kWait);
  const Asked again = Arrive(first[0]);
  ASSERT_TRUE(again.reply.has_value() && again.reply->training.has_value()) << "a lost answer";
  EXPECT_EQ(again.reply->training->round, Round(1));
  const Asked fourth = Arrive(first[3]), third = Arrive(first[2]);
  EXPECT_FALSE(fourth.reply.has_value() || third.reply.has_value());
  Commit(first[0], *again.reply->training);
  Commit(first[1], *two.reply->training);
  EXPECT_TRUE(AnswerTo(fourth.ticket).has_value());
  EXPECT_TRUE(AnswerTo(third.ticket).has_value());
}

TEST_F(Arriving, AnUpdateOfAModelThatIsTooOldDoesNotCountAndFreesItsPlace) {
  EngineOptions options{.run = Run(/*arrivals=*/1, /*concurrency=*/2)};
  options.run.asynchronous.max_staleness = 1;
  Start(std::move(options));
  const std::vector<uint64_t> first = BeginAll();
  ASSERT_THAT(first, SizeIs(2));
  EXPECT_EQ(Count(first[0]), 0u);
  for (uint32_t round = 2; round <= 3; ++round) {  // others step on
    for (uint64_t owner = 0; owner < kOwners && engine_->completed() < round; ++owner) {
      if (owner != first[1] && Begin(owner)) Count(owner);
    }
    ASSERT_EQ(engine_->completed(), round);
  }
  const Asked late = Arrive(first[1]);
  ASSERT_TRUE(late.reply.has_value());
  EXPECT_EQ(late.reply->next, Next::kCommit);
  EXPECT_FALSE(late.reply->training.has_value());
  ASSERT_THAT(All<log::GaveUp>(), SizeIs(1));
  const log::GivenUp gave_up = All<log::GaveUp>()[0].given_up.at(0);
  EXPECT_EQ(gave_up.attempt, AttemptOf(first[1]));
  EXPECT_EQ(gave_up.reason, LeftOutReason::kTooSlow);
  EXPECT_THAT(gave_up.message, HasSubstr("round.max_staleness = 1"));
  // It may be drawn again.
  const bool before = Begin(first[1]);
  EXPECT_FALSE(before) << "not in this round";
}

TEST_F(Arriving, ADeviceThatIsLostFreesItsPlaceWhereverItWas) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  const Asked arriving = Arrive(first[0]);
  ASSERT_TRUE(arriving.reply.has_value());
  EXPECT_EQ(Count(first[1]), 0u);
  const Asked waits = Arrive(first[2]);
  EXPECT_FALSE(waits.reply.has_value()) << "the round has its arrivals";
  // The arriving device falls silent: another one counts in its place.
  std::vector<uint64_t> others;
  for (uint64_t owner = 0; owner < kOwners; ++owner) {
    if (owner != first[0]) others.push_back(owner);
  }
  Pass(kLease + 3, others);
  const auto answer = AnswerTo(waits.ticket);
  ASSERT_TRUE(answer.has_value() && answer->training.has_value());
  EXPECT_EQ(answer->training->round, Round(1));
  EXPECT_EQ(Commit(first[2], *answer->training).verdict, Verdict::kAccepted);
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_THAT(CountedIn(1), UnorderedElementsAre(first[1], first[2]));
  // It comes back, with a part of a round that is over.
  Join(first[0]);
  EXPECT_EQ(Commit(first[0], *arriving.reply->training).verdict, Verdict::kStale);
  const Asked late = Arrive(first[0]);
  ASSERT_TRUE(late.reply.has_value());
  EXPECT_EQ(late.reply->next, Next::kCommit) << "what it has trained does not count any more";
}

TEST_F(Arriving, ADeviceThatWaitsToCountKeepsItsLease) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  const Asked one = Arrive(first[0]), two = Arrive(first[1]), three = Arrive(first[2]);
  polls_[first[2]] = three.ticket;
  // It does nothing for longer than any other lease would last. The others make progress.
  for (double passed = 0; passed < 20 * kLease; passed += 4) {
    now_ += FromSeconds(4);
    for (const uint64_t owner : first) {
      const uint64_t progress = owner == first[2] ? 0 : ++progress_;
      Carry(
          engine_->Heartbeat({.session = sessions_.at(owner), .progress = progress}, now_).effects);
    }
    Carry(engine_->Tick(now_));
    if (AnswerTo(polls_.at(first[2])).has_value()) polls_[first[2]] = Arrive(first[2]).ticket;
  }
  EXPECT_THAT(All<log::Requeued>(), IsEmpty());
  Commit(first[0], *one.reply->training);
  Commit(first[1], *two.reply->training);
  const auto answer = AnswerTo(polls_.at(first[2]));
  ASSERT_TRUE(answer.has_value() && answer->training.has_value());
  EXPECT_EQ(answer->training->round, Round(2));
}

TEST_F(Arriving, ADeviceCannotHoldARoundByAskingAgain) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  Arrive(first[0]);
  Count(first[1]);
  for (double passed = 0; passed < (WaitLimits::kLeastLeases + 2) * kLease; passed += 4) {
    now_ += FromSeconds(4);
    Carry(engine_->Heartbeat({.session = sessions_.at(first[0])}, now_).effects);
    for (const uint64_t owner : {first[2], first[3]}) Heartbeat(owner);
    if (All<log::Requeued>().empty()) Arrive(first[0]);
    Carry(engine_->Tick(now_));
  }
  ASSERT_THAT(All<log::Requeued>(), SizeIs(1));
  EXPECT_THAT(All<log::Requeued>()[0].attempts, ElementsAre(AttemptOf(first[0])));
  EXPECT_EQ(Count(first[2]), 0u);
  EXPECT_EQ(engine_->completed(), 1u);
}

TEST_F(Arriving, WhatADeviceHasBegunCountsAlthoughItDeclines) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  const Asked asked = Arrive(first[0], "not at night");
  ASSERT_TRUE(asked.reply.has_value() && asked.reply->training.has_value());
  EXPECT_EQ(Commit(first[0], *asked.reply->training).verdict, Verdict::kAccepted);
  EXPECT_EQ(Count(first[1]), 0u);
  EXPECT_EQ(engine_->completed(), 1u);
  for (const log::Member& member : All<log::RoundOpened>().at(1).cohort)
    EXPECT_NE(member.client, ClientId(first[0])) << "it is not drawn while it declines";
}

TEST_F(Arriving, AtTheDeadlineARoundClosesWithItsQuorumAndTheOthersTrainOn) {
  EngineOptions options;
  options.round = {.deadline = 20, .quorum = 0.5};
  Start(std::move(options));
  const std::vector<uint64_t> first = BeginAll(), everybody = {0, 1, 2, 3, 4, 5};
  Pass(21, everybody);
  EXPECT_EQ(engine_->completed(), 0u) << "nobody has arrived";
  ASSERT_THAT(All<log::Extended>(), SizeIs(1));
  EXPECT_EQ(All<log::Extended>()[0].needed, 1u);
  EXPECT_EQ(Count(first[0]), 0u);
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_EQ(Count(first[1]), 1u);
  // One of the second round is too slow with its upload.
  const Asked slow = Arrive(first[2]);
  ASSERT_TRUE(slow.reply.has_value());
  Pass(21, everybody);
  EXPECT_EQ(engine_->completed(), 2u);
  ASSERT_THAT(All<log::GaveUp>(), SizeIs(1));
  EXPECT_EQ(All<log::GaveUp>()[0].given_up.at(0).attempt, AttemptOf(first[2]));
  EXPECT_EQ(Commit(first[2], *slow.reply->training).verdict, Verdict::kStale);
  EXPECT_EQ(Count(first[3]), 2u);
}

TEST_F(Arriving, ALeaseThatIsLostBetweenTwoRoundsIsNotTakenOver) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  Count(first[0]);
  hold_broadcast_ = true;
  Count(first[1]);
  ASSERT_EQ(engine_->completed(), 1u);
  Carry(engine_->Release({.session = sessions_.at(first[2]), .leaving = true}, now_));
  hold_broadcast_ = false;
  PrepareBroadcast prepare{.order = orders_.at(2)};
  Do(prepare);
  std::vector<Attempt> taken_over;
  for (const log::Leased& leased : All<log::Leased>()) {
    if (!leased.staleness.empty())
      taken_over.insert(taken_over.end(), leased.attempts.begin(), leased.attempts.end());
  }
  EXPECT_THAT(taken_over, ElementsAre(AttemptOf(first[3])));
  EXPECT_EQ(Count(first[3]), 1u);
}

TEST_F(Arriving, WithAsManyPlacesAsArrivalsARoundDrawsTheCohortOfASynchronousOne) {
  Start({.run = Run(/*arrivals=*/3, /*concurrency=*/0)});
  for (int turn = 0; turn < 20 && engine_->completed() < 3; ++turn) {
    for (const uint64_t owner : BeginAll()) Count(owner);
  }
  EXPECT_GE(engine_->completed(), 3u);
  std::vector<uint32_t> rows = testing_support::Examples();
  rows.resize(kOwners);
  const auto sampler = *scheduler::MakeSampler({.size = 3, .seed = 5}, rows);
  for (const log::RoundOpened& opened : All<log::RoundOpened>()) {
    std::vector<log::Member> drawn;
    for (const scheduler::CohortEntry& entry : sampler->Sample(opened.round).entries)
      drawn.push_back({.client = entry.client});
    EXPECT_EQ(opened.cohort, drawn) << opened.round.value;
  }
}

TEST_F(Arriving, AnAbortedRoundBeginsAgainWithoutWhatWasLeased) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  Count(first[0]);
  Count(first[1]);
  const auto changed = engine_->Operate(
      {.action = admin::Action::kAbortRound, .by = "an operator", .round = 2}, now_);
  ASSERT_TRUE(changed.answer.ok()) << changed.answer.status();
  Carry(changed.effects);
  const Asked late = Arrive(first[2]);
  ASSERT_TRUE(late.reply.has_value());
  EXPECT_EQ(late.reply->next, Next::kCommit);
}

// A false question in which round a client counts, of device `owner`.
struct ArrivalLie {
  std::string name;
  Next next = Next::kCommit;
  bool keeps = true;  // whether it keeps its lease
  std::function<void(fleet::LeaseRequest&, const Attempt& another)> change;
};

std::vector<ArrivalLie> ArrivalLies() {
  using fleet::LeaseRequest;
  return {
      {.name = "AnotherFence",
       .change = [](LeaseRequest& ask, const Attempt&) { ++ask.trained[0].fence.counter; }},
      {.name = "AnotherEpoch",
       .change = [](LeaseRequest& ask, const Attempt&) { ++ask.trained[0].fence.epoch; }},
      {.name = "AnotherDevicesLease",
       .change = [](LeaseRequest& ask, const Attempt& another) { ask.trained = {another}; }},
      {.name = "AnotherDevicesClientUnderItsFence",
       .change = [](LeaseRequest& ask,
                    const Attempt& another) { ask.trained[0].client = another.client; }},
      {.name = "AnotherDevicesLeaseBesideItsOwn",
       .change = [](LeaseRequest& ask, const Attempt& another) { ask.trained.push_back(another); }},
      {.name = "AClientThatThereIsNot",
       .change = [](LeaseRequest& ask,
                    const Attempt&) { ask.trained[0].client = ClientId(1'000'000); }},
      {.name = "ManyClientsThatThereAreNot",
       .change = [](LeaseRequest& ask, const Attempt&) { ask.trained.resize(100'000); }},
      {.name = "ThatItHoldsNothing",
       .keeps = false,
       .change = [](LeaseRequest& ask, const Attempt&) { ask.running = 0; }},
      {.name = "AnotherSession",
       .next = Next::kRegister,
       .change = [](LeaseRequest& ask, const Attempt&) { ask.session = SessionId(4711); }},
  };
}

class ArrivalLieTest : public Arriving, public testing::WithParamInterface<ArrivalLie> {};

TEST_P(ArrivalLieTest, IsToldNoRoundAndCostsNoOtherDeviceAnything) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  fleet::LeaseRequest ask{
      .session = sessions_.at(first[0]), .running = 1, .trained = {AttemptOf(first[0])}};
  GetParam().change(ask, AttemptOf(first[1]));
  Carry(engine_->Lease(++tickets_, ask, now_));
  const auto answer = AnswerTo(tickets_);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->next, GetParam().next);
  EXPECT_FALSE(answer->training.has_value());
  // The others count as if nothing had been said, and so does it, if it has a lease.
  EXPECT_EQ(Count(first[1]), 0u);
  EXPECT_EQ(Count(first[2]), 0u);
  EXPECT_THAT(CountedIn(1), ElementsAre(first[1], first[2]));
  EXPECT_THAT(All<log::Requeued>(), SizeIs(GetParam().keeps ? 0 : 1));
  if (GetParam().keeps) {
    EXPECT_EQ(Count(first[0]), 1u);
  } else {
    const Asked late = Arrive(first[0]);
    ASSERT_TRUE(late.reply.has_value());
    EXPECT_EQ(late.reply->next, Next::kCommit);
  }
  EXPECT_EQ(Count(first[3]), 1u);
  EXPECT_EQ(engine_->completed(), GetParam().keeps ? 2u : 1u);
}

INSTANTIATE_TEST_SUITE_P(Every, ArrivalLieTest, testing::ValuesIn(ArrivalLies()),
                         [](const auto& info) { return info.param.name; });

// A false part of a client that was told in which round it counts.
struct ToldLie {
  std::string name;
  Verdict verdict = Verdict::kRefused;
  std::string reason;  // part of the answer
  bool keeps = false;  // whether the client still has its lease, and its place in the round
  // `begun`: the lease with which it began; `another`: what another device has.
  std::function<void(fleet::Part&, const fleet::TrainingLease& begun, const Attempt& another)>
      change;
};

std::vector<ToldLie> ToldLies() {
  using fleet::Part;
  using fleet::TrainingLease;
  return {
      {.name = "TheRoundInWhichItBegan",
       .verdict = Verdict::kStale,
       .reason = "not open",
       .keeps = true,
       .change = [](Part& part, const TrainingLease& begun,
                    const Attempt&) { part.round = begun.round; }},
      {.name = "TheNextRound",
       .verdict = Verdict::kStale,
       .reason = "not open",
       .keeps = true,
       .change = [](Part& part, const TrainingLease&, const Attempt&) { ++part.round.value; }},
      {.name = "TheModelFromWhichItBegan",
       .reason = "another broadcast",
       .change = [](Part& part, const TrainingLease& begun,
                    const Attempt&) { part.broadcast = begun.broadcast.name; }},
      {.name = "AnotherDevicesClient",
       .verdict = Verdict::kStale,
       .reason = "not current",
       .keeps = true,
       .change = [](Part& part, const TrainingLease&,
                    const Attempt& another) { part.included[0].attempt = another; }},
      {.name = "AnotherDevicesClientBesideItsOwn",
       .verdict = Verdict::kStale,
       .reason = "not current",
       .change =
           [](Part& part, const TrainingLease&, const Attempt& another) {
             part.included.push_back(part.included[0]);
             part.included.back().attempt = another;
           }},
      {.name = "ThatAnotherDevicesClientIsLeftOut",
       .verdict = Verdict::kStale,
       .reason = "not current",
       .change = [](Part& part, const TrainingLease&,
                    const Attempt& another) { part.left_out.push_back({.attempt = another}); }},
      {.name = "ItsClientTwice",
       .reason = "twice",
       .change = [](Part& part, const TrainingLease&,
                    const Attempt&) { part.included.push_back(part.included[0]); }},
      {.name = "ItsClientInAndLeftOut",
       .reason = "twice",
       .change =
           [](Part& part, const TrainingLease&, const Attempt&) {
             part.left_out.push_back({.attempt = part.included[0].attempt});
           }},
      {.name = "TheWeightOfTwo",
       .reason = "another weight",
       .change = [](Part& part, const TrainingLease&,
                    const Attempt&) { part.included[0].weight *= 2; }},
      {.name = "ThatItsModelIsTooOld",
       .reason = "only the server gives",
       .change =
           [](Part& part, const TrainingLease&, const Attempt&) {
             part.left_out.push_back({.attempt = part.included[0].attempt,
                                      .reason = LeftOutReason::kTooSlow,
                                      .message = "old"});
             part.included.clear();
           }},
  };
}

class ToldLieTest : public Arriving, public testing::WithParamInterface<ToldLie> {};

TEST_P(ToldLieTest, IsTurnedDownAndTheRoundClosesWithOthers) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  Count(first[0]);
  Count(first[1]);
  const Asked told = Arrive(first[2]);
  ASSERT_TRUE(told.reply.has_value() && told.reply->training.has_value());
  ASSERT_EQ(told.reply->training->round, Round(2));
  fleet::Part part = PartOf(*told.reply->training);
  GetParam().change(part, begun_.at(first[2]), AttemptOf(first[3]));
  const fleet::CommitReply reply = Commit(first[2], std::move(part));
  EXPECT_EQ(reply.verdict, GetParam().verdict) << reply.reason;
  EXPECT_THAT(reply.reason, HasSubstr(GetParam().reason));
  ASSERT_THAT(All<log::TurnedDown>(), SizeIs(1));

  EXPECT_EQ(Count(first[3]), 1u) << "what the other one has is still its own";
  EXPECT_EQ(engine_->completed(), 1u);
  const fleet::CommitReply honest = Commit(first[2], *told.reply->training);
  EXPECT_EQ(honest.verdict, GetParam().keeps ? Verdict::kAccepted : Verdict::kStale);
  if (!GetParam().keeps) {
    uint64_t other = 0;
    while (other == first[2] || other == first[3] || !Begin(other)) ASSERT_LT(++other, kOwners);
    EXPECT_EQ(Count(other), 0u);
    EXPECT_THAT(CountedIn(2), UnorderedElementsAre(first[3], other));
  }
  EXPECT_EQ(engine_->completed(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Every, ToldLieTest, testing::ValuesIn(ToldLies()),
                         [](const auto& info) { return info.param.name; });

// The server that told it its round may have been another one (steps_test.cc), so nothing is asked
// of a part but its lease. How old its model is, the server knows by itself.
TEST_F(Arriving, WhoHasNotAskedCountsInTheOpenRoundWithTheAgeThatTheServerKnows) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  Count(first[0]);
  Count(first[1]);
  const Asked told = Arrive(first[3]);
  ASSERT_TRUE(told.reply.has_value() && told.reply->training.has_value());
  fleet::TrainingLease guessed = *told.reply->training;
  guessed.assignments = begun_.at(first[2]).assignments;
  EXPECT_EQ(Commit(first[2], guessed).verdict, Verdict::kAccepted);
  EXPECT_EQ(Commit(first[2], guessed).verdict, Verdict::kStale) << "once";
  EXPECT_EQ(Commit(first[3], *told.reply->training).verdict, Verdict::kAccepted);
  EXPECT_EQ(engine_->completed(), 2u);
  EXPECT_THAT(CountedIn(2), UnorderedElementsAre(first[2], first[3]));
  EXPECT_EQ(Report(2).mean_staleness, 1);
}

TEST_F(Arriving, AProgramThatDoesNotArriveIsRefusedInWords) {
  engine_.emplace(EngineOptions{.run = Run(), .workers = 2}, scheduler_);
  fleet::RegisterRequest old = Owner(0, 1);
  old.arrives = false;
  old.program = "macaw-worker 0.1.0";
  const auto refused = engine_->Register(old, TableOf(0), now_);
  EXPECT_THAT(std::string(refused.answer.status().message()),
              testing::AllOf(HasSubstr("macaw-worker 0.1.0"), HasSubstr("update it")));
  // One without clients evaluates, which is as ever.
  fleet::RegisterRequest tester = old;
  tester.clients = 0;
  tester.owner = false;
  tester.central_test_rows = 5;
  EXPECT_TRUE(engine_->Register(tester, {}, now_).answer.ok());
}

TEST(DecideStep, ClosesWithItsArrivalsAndNotBeforeThoseThatComeAreSettled) {
  const RoundRules rules{.deadline = 5, .quorum = 0.5};
  const auto decide = [&](Standing standing) { return DecideStep(rules, 4, standing); };
  EXPECT_EQ(decide({.leased = 9, .counted = 3}), Course::kWait);
  EXPECT_EQ(decide({.leased = 9, .counted = 4}), Course::kClose);
  EXPECT_EQ(decide({.leased = 9, .counted = 4, .arriving = 1}), Course::kWait);
  EXPECT_EQ(decide({.counted = 1, .given_up = 8}), Course::kClose) << "nobody trains";
  EXPECT_EQ(decide({.leased = 9, .counted = 1, .overdue = true}), Course::kWait);
  EXPECT_EQ(decide({.leased = 9, .counted = 2, .overdue = true}), Course::kClose);
  EXPECT_EQ(decide({.leased = 9, .counted = 2, .arriving = 1, .overdue = true}),
            Course::kCloseAtDeadline);
}

TEST(CheckLiveSteps, NamesTheKeyThatAFleetCannotHave) {
  RunPlan run;
  run.asynchronous.mode = "buffered";
  const auto why = [&](const RunPlan& plan, const RoundRules& rules = {}, bool stateful = false) {
    return std::string(CheckLiveSteps(plan, rules, stateful).message());
  };
  EXPECT_EQ(why(run), "");
  EXPECT_EQ(why(run, {.deadline = 3, .quorum = 0.5, .present_within = 9}), "");
  EXPECT_THAT(why(run, {.enough = 3}), HasSubstr("round.enough"));
  EXPECT_THAT(why(run, {.below_quorum = RoundRules::BelowQuorum::kDrop}),
              HasSubstr("round.below_quorum"));
  EXPECT_THAT(why(run, {}, true), HasSubstr("feedback"));
  run.asynchronous.refill = 2;
  EXPECT_THAT(why(run), HasSubstr("round.refill"));
  run.asynchronous = {.mode = "mixed"};
  EXPECT_THAT(why(run), HasSubstr("buffered"));
  run.devices.family = "phones";
  EXPECT_EQ(why(run, {.enough = 3}), "") << "a simulation";
}

}  // namespace
}  // namespace macaw::server
