#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/policies/policies.h"
#include "server/engine/round_engine.h"
#include "tests/server/log_law.h"
#include "tests/server/small_population.h"

namespace macaw::server::fixtures {

// An engine whose rounds do not wait for each other, and its fleet: six owners with a client each,
// of which four train at a time; a round closes with two arrivals.
class Arriving : public testing::Test {
 protected:
  static constexpr double kLease = 10;  // seconds
  static constexpr uint64_t kOwners = 6;

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
    return {.rows = {Examples()[owner]}, .names = {absl::StrCat(owner)}};
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
    ASSERT_THAT(reply.training->assignments, testing::SizeIs(1));
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
    EXPECT_EQ(reply.verdict, fleet::Verdict::kAccepted) << reply.reason;
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
      } else if (reply.ticket != 0) {  // no call waits for a part that is added again
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
  void Do(AddPartAgain&) {
    if (hold_parts_) {
      ++parts_held_;
    } else {
      Carry(engine_->PartAdded(0, absl::OkStatus(), now_));
    }
  }
  void Do(ApplySum& apply) {
    const uint32_t round = apply.report.round.value;
    law_.Add(log::Closed{.round = apply.report.round, .last = true});
    reports_[round] = std::move(apply.report);
    std::optional<fleet::Blob> model;
    if (evaluated_.contains(round)) model = BlobOf(Round(round), Phase(99));
    Carry(engine_->Applied(false, std::move(model), now_));
  }
  void Do(JudgeEvaluation& judge) {
    judged_.push_back(judge.round.value);
    Carry(engine_->EvaluationJudged(judge.round, std::nullopt, now_));
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
  bool hold_parts_ = false;  // those of an earlier server
  int parts_held_ = 0;
  std::set<uint32_t> evaluated_;  // rounds whose models are to be evaluated
  std::vector<uint32_t> judged_;  // those whose evaluations are complete
  Ticket tickets_ = 0;
  uint64_t commit_ids_ = 0, incarnations_ = 0, progress_ = 0;
};

}  // namespace macaw::server::fixtures
