#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/random.h"
#include "server/engine/round_engine.h"
#include "tests/server/log_law.h"
#include "tests/server/small_population.h"

namespace macaw::server::fixtures {

// A round engine and the world around it, as a loop over (event) → Effects. Events come from the
// test. Records go to the law, replies to maps. Orders wait until the test carries one out; what it
// results in is the next event. There are no vectors: the sum of a phase is the set of its clients,
// which is checked against a list.
class EngineDriver {
 public:
  // `scheduler` and `durable` must outlive the driver. `phases`: of each round.
  EngineDriver(EngineOptions options, const scheduler::Scheduler& scheduler, Durable& durable,
               uint32_t rounds, int phases)
      : engine_(std::move(options), scheduler),
        durable_(durable),
        rounds_(rounds),
        phases_(phases) {}

  // ---- events; the methods of RoundEngine
  void Resume(Restored restored, TimePoint now) {
    Carry(engine_.Resume(std::move(restored), now), now);
  }
  absl::StatusOr<fleet::RegisterReply> Register(const fleet::RegisterRequest& request,
                                                fleet::ClientTable table, TimePoint now) {
    return After(engine_.Register(request, std::move(table), now), now);
  }
  void Lease(Ticket ticket, fleet::LeaseRequest request, Duration wait, TimePoint now) {
    request.wait = wait;
    Carry(engine_.Lease(ticket, request, now), now);
  }
  fleet::HeartbeatReply Heartbeat(const fleet::HeartbeatRequest& request, TimePoint now) {
    return After(engine_.Heartbeat(request, now), now);
  }
  void Commit(Ticket ticket, const fleet::CommitRequest& request, const absl::Status& decoded,
              TimePoint now) {
    Carry(engine_.Commit(ticket, request, decoded, now), now);
  }
  void Release(const fleet::ReleaseRequest& request, TimePoint now) {
    Carry(engine_.Release(request, now), now);
  }
  void NoteWaited(const std::string& name, Duration time) { engine_.NoteWaited(name, time); }
  void Tick(TimePoint now) { Carry(engine_.Tick(now), now); }
  void Interrupt(TimePoint now) { Carry(engine_.Interrupt(), now); }
  absl::StatusOr<std::string> Operate(const admin::Change& change, TimePoint now) {
    return After(engine_.Operate(change, now), now);
  }

  void GoOnTo(Round round, TimePoint now) { Carry(engine_.GoOnTo(round, now), now); }
  void StopHere(std::string reason, TimePoint now) {
    Carry(engine_.StopHere(std::move(reason), now), now);
  }

  // ---- questions
  fleet::UploadVerdict Offer(const fleet::UploadOffer& offer) const { return engine_.Offer(offer); }
  bool Leases(SessionId session, const fleet::Part& part) const {
    return engine_.Leases(session, part);
  }
  TimePoint NextDeadline() const { return engine_.NextDeadline(); }
  void Describe(admin::RunStatus& status, TimePoint now) const { engine_.Describe(status, now); }
  uint32_t completed() const { return engine_.completed(); }
  const std::vector<NumericProfile>& profiles() const { return engine_.profiles(); }
  const std::optional<Digest>& state_digest() const { return engine_.state_digest(); }
  VersionIndex SnapshotVersions(StateVersions::Staged staged) {
    return engine_.SnapshotVersions(staged);
  }

  // ---- orders
  // Carries out one of the orders that wait, in no particular order, as an executor would. False:
  // none waits.
  bool RunOne(RandomStream& random, TimePoint now) {
    if (waiting_.empty()) return false;
    const size_t pick = random.Below(waiting_.size());
    Order order = std::move(waiting_[pick]);
    waiting_.erase(waiting_.begin() + static_cast<long>(pick));
    std::visit([&](auto& one) { Do(one, now); }, order);
    return true;
  }
  void RunAll(RandomStream& random, TimePoint now) {
    while (RunOne(random, now)) {
    }
  }
  // From now on, evaluations are judged when RunOne picks them. Default: at once, as by the server.
  void JudgeLater() { judge_later_ = true; }
  // What judgements say from now on: the run stops, for this reason.
  void Stop(std::string why) { stop_ = std::move(why); }
  // The clients that each sum holds from now on. Default: all clients except those of IsLeftOut.
  void Expect(std::set<ClientId> clients) { expected_ = std::move(clients); }
  // From now on, those that the records say were counted.
  void ExpectAsRecorded() { as_recorded_ = true; }
  // The decoded sum of the commit that comes with this ticket.
  void Hold(Ticket ticket, std::vector<ClientId> part) { parts_[ticket] = std::move(part); }

  // From now on, the sum of what clients have added is that of the states of each checkpoint.
  void ExpectTheSumOfTheStates() { sums_states_ = true; }
  std::vector<Round> begun_anew;  // the rounds after which the algorithm had to forget its sums

  std::map<Ticket, fleet::LeaseReply> leases;
  std::vector<fleet::CompactForm> compact;  // of every broadcast
  std::map<Ticket, fleet::CommitReply> commits;
  LogLaw law;  // checks every record
  std::function<void(const log::Record&)> on_record;
  std::optional<RunEnd> ended;
  absl::Status error;

 private:
  template <typename T>
  T After(Answered<T> answered, TimePoint now) {
    Carry(std::move(answered.effects), now);
    return std::move(answered.answer);
  }

  void Carry(Effects effects, TimePoint now) {
    for (const Recorded& recorded : effects.records) {
      law.Add(recorded.record);
      ExpectJournalData(recorded);
      if (on_record) on_record(recorded.record);
    }
    for (Reply& reply : effects.replies)
      std::visit([&](auto& answer) { Keep(reply.ticket, std::move(answer)); }, reply.answer);
    for (Order& order : effects.orders) {
      std::visit([&](auto& one) { Begin(one); }, order);
    }
    if (judge_later_) return;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      if (!std::holds_alternative<JudgeEvaluation>(waiting_[i])) continue;
      const JudgeEvaluation judge = std::get<JudgeEvaluation>(std::move(waiting_[i]));
      waiting_.erase(waiting_.begin() + static_cast<long>(i));
      return Do(judge, now);
    }
  }

  // The data of each decision is that of its record, so that the next server can act on both.
  static void ExpectJournalData(const Recorded& recorded) {
    if (const auto* joined = std::get_if<log::NodeJoined>(&recorded.record)) {
      const auto& node = std::get<JournalNode>(recorded.journal);
      EXPECT_EQ(node.node, joined->node);
      EXPECT_EQ(node.request.name, joined->name);
      EXPECT_NE(node.session, SessionId());
    } else if (const auto* accepted = std::get_if<log::Accepted>(&recorded.record)) {
      const auto& data = std::get<JournalPart>(recorded.journal);
      EXPECT_EQ(std::pair(data.node, data.commit), std::pair(accepted->node, accepted->commit));
      std::vector<Attempt> included;
      for (const fleet::ClientRecord& record : data.part.included)
        included.push_back(record.attempt);
      EXPECT_EQ(included, accepted->included);
      EXPECT_EQ(data.part.left_out.size(), accepted->given_up.size());
    } else {
      EXPECT_TRUE(std::holds_alternative<std::monostate>(recorded.journal));
    }
  }

  void Keep(Ticket ticket, fleet::LeaseReply reply) {
    EXPECT_TRUE(leases.emplace(ticket, std::move(reply)).second) << "a call was answered twice";
  }
  void Keep(Ticket ticket, fleet::CommitReply reply) {
    if (ticket == 0) return;  // no call waits for a part that is added again
    EXPECT_TRUE(commits.emplace(ticket, std::move(reply)).second) << "a call was answered twice";
  }

  // What happens to an order when it is given.
  template <typename T>
  void Begin(T& order) {
    EXPECT_FALSE(ended.has_value()) << "work after the end of the run";
    waiting_.push_back(std::move(order));
  }
  void Begin(PrepareBroadcast& order) {
    sum_.clear();
    waiting_.push_back(order);
  }
  void Begin(ApplySum& order) {
    EXPECT_TRUE(std::ranges::none_of(waiting_, [](const Order& other) {
      return std::holds_alternative<JudgeEvaluation>(other);
    })) << "a phase closes before the evaluation is judged";
    EXPECT_FALSE(ended.has_value());
    waiting_.push_back(std::move(order));
  }
  void Begin(DiscardPart& order) { parts_.erase(order.commit); }
  void Begin(EndSession&) {}
  void Begin(EndRun& order) {
    EXPECT_FALSE(ended.has_value());
    ended = order.end;
    error = std::move(order.status);
  }

  // Carries the order out, and gives the engine its result.
  void Do(const PrepareBroadcast& prepare, TimePoint now) {
    const PhaseOrder& order = prepare.order;
    fleet::Blob blob = BlobOf(order.round, order.phase);
    blob.compact = compact;
    Carry(engine_.BroadcastReady(order.round, order.phase, fleet::Broadcast::Of({std::move(blob)}),
                                 now),
          now);
  }
  void Do(const AddPart& order, TimePoint now) {
    const std::vector<ClientId> part = parts_.at(order.commit);
    parts_.erase(order.commit);
    Add(part);
    Carry(engine_.PartAdded(order.commit, absl::OkStatus(), now), now);
  }
  void Do(const AddPartAgain& order, TimePoint now) {
    std::vector<ClientId> part;
    for (const fleet::ClientRecord& record : order.part.included)
      part.push_back(record.attempt.client);
    Add(part);
    Carry(engine_.PartAdded(0, absl::OkStatus(), now), now);
  }
  void Do(const ApplySum& order, TimePoint now) {
    const PhaseReport& report = order.report;
    if (!report.dropped.empty()) sum_.clear();
    if (as_recorded_) expected_ = law.counted();
    ExpectWhole(report, now);
    ExpectBytes(report);
    const bool last = report.phase.value + 1 == phases_;
    for (const fleet::ClientRecord& record : report.records) state_sum_ += Added(record.attempt);
    if (on_record) {  // the server records it here
      on_record(log::Closed{
          .round = report.round, .phase = report.phase, .last = last, .counted = sum_.size()});
    }
    if (!last) return Carry(engine_.Applied(true, std::nullopt, now), now);
    const bool due = RegularEvaluationDue(TestRun(rounds_), report.round);
    durable_.completed = report.round.value;
    durable_.counted[report.round.value] = sum_;
    durable_.owes_evaluation = due;
    durable_.versions.push_back(engine_.SnapshotVersions(StateVersions::Staged::kIncluded));
    if (order.begins_anew) begun_anew.push_back(report.round);
    if (order.begins_anew) state_sum_ = 0;
    durable_.sum = state_sum_;
    if (sums_states_) ExpectSum(durable_.versions.back());
    if (durable_.versions.size() > 2) durable_.versions.pop_front();
    engine_.CheckpointsFrom(Round(report.round.value + 1 - durable_.versions.size()));
    Carry(engine_.Applied(false, due ? std::optional(BlobOf(report.round, Phase(9))) : std::nullopt,
                          now),
          now);
  }
  void Do(const JudgeEvaluation& order, TimePoint now) {
    if (order.sums.has_value()) {
      EXPECT_EQ(order.sums->round, order.round);
      if (order.sums->without_central) {
        EXPECT_TRUE(order.sums->central.empty());
      } else {
        EXPECT_EQ(order.sums->central.at(0), kCentralTestRows);
      }
      EXPECT_TRUE(durable_.evaluated.insert(order.round.value).second);
    } else {
      EXPECT_TRUE(durable_.evaluated.contains(order.round.value));
    }
    durable_.owes_evaluation = false;
    Carry(engine_.EvaluationJudged(order.round, stop_, now), now);
  }
  template <typename T>
  void Do(const T&, TimePoint) {}  // the others are done when they are given

  void Add(const std::vector<ClientId>& part) {
    for (const ClientId client : part)
      EXPECT_TRUE(sum_.insert(client).second) << "client " << client << " was added twice";
  }

  int64_t Added(const Attempt& turn) const {
    const auto found = durable_.turns.find(turn);
    if (found == durable_.turns.end()) return 0;
    return int64_t{found->second.second} - int64_t{found->second.first};
  }
  void ExpectSum(const VersionIndex& versions) const {
    int64_t sum = 0;
    for (uint64_t page = 0; page < versions.pages(); ++page) {
      for (const Attempt& version : versions.Page(page)) {
        const auto found = durable_.turns.find(version);
        if (found != durable_.turns.end()) sum += found->second.second;
      }
    }
    EXPECT_EQ(durable_.sum, sum) << "round " << durable_.completed;
  }

  // The sum, the records and the clients that were left out make the whole cohort.
  void ExpectWhole(const PhaseReport& report, TimePoint now) const {
    EXPECT_EQ(sum_, expected_.value_or(Expected(report.round)));
    std::set<ClientId> recorded;
    for (const auto& record : report.records) recorded.insert(record.attempt.client);
    EXPECT_EQ(recorded, sum_) << "records and sum must name the same clients";
    EXPECT_EQ(report.records.size(), recorded.size());
    std::set<ClientId> turns;
    for (const Turn& turn : report.turns) turns.insert(turn.client);
    EXPECT_EQ(turns, sum_);
    EXPECT_EQ(report.turns.size(), turns.size());
    EXPECT_LE(report.times.opened, report.times.ready);
    EXPECT_LE(report.times.ready, report.times.gathered);
    EXPECT_LE(report.times.gathered, now);
    // Clients are left out in the first phase. Every later report of the round lists them.
    std::set<ClientId> left_out;
    for (const auto* part : {&report.left_out_before, &report.left_out}) {
      for (const fleet::LeftOut& left : *part) left_out.insert(left.attempt.client);
    }
    EXPECT_EQ(left_out.size(), kCohort - sum_.size());
    for (const ClientId client : left_out)
      EXPECT_TRUE(expected_.has_value() || IsLeftOut(report.round, client));
  }

  // Over the phases of a round: what the counted clients sent, and a byte for each drawn client,
  // since each phase has a broadcast of its own.
  void ExpectBytes(const PhaseReport& report) {
    if (report.phase == Phase(0)) bytes_up_ = bytes_down_ = 0;
    for (const fleet::ClientRecord& record : report.records) bytes_up_ += record.bytes_up;
    bytes_down_ += report.cohort;
    EXPECT_EQ(report.bytes_up, bytes_up_);
    EXPECT_EQ(report.bytes_down, bytes_down_);
  }

  RoundEngine engine_;
  Durable& durable_;
  const uint32_t rounds_;
  const int phases_;
  std::deque<Order> waiting_;
  std::map<Ticket, std::vector<ClientId>> parts_;  // decoded sums of commits
  std::set<ClientId> sum_;                         // of the open phase
  int64_t state_sum_ = durable_.sum;
  bool sums_states_ = false;
  uint64_t bytes_up_ = 0, bytes_down_ = 0;  // of the round so far
  std::optional<std::set<ClientId>> expected_;
  bool as_recorded_ = false;
  bool judge_later_ = false;
  std::optional<std::string> stop_;
};

}  // namespace macaw::server::fixtures
