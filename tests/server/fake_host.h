#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "server/engine/round_engine.h"
#include "tests/server/log_law.h"
#include "training/api/metrics.h"

// Fakes of what surrounds the engine, without vectors, threads, a clock or files.
namespace macaw::server::testing_support {

inline constexpr uint64_t kPopulation = 40;
inline constexpr uint64_t kCohort = 12;
inline constexpr uint64_t kCentralTestRows = 35;

inline RunPlan TestRun(uint32_t rounds) {
  RunPlan run;
  run.task = TaskKind::kClassification;
  run.rounds = rounds;
  run.model.input_shape = {2};
  run.model.classes = 2;
  run.cohort = {.size = kCohort, .seed = 5};
  run.evaluation = {.every = 2, .chunk = 10};
  return run;
}

inline std::vector<uint32_t> Examples() {
  std::vector<uint32_t> examples(kPopulation);
  for (uint64_t i = 0; i < kPopulation; ++i) examples[i] = 1 + (i * 7) % 13;
  return examples;
}

inline fleet::ClientTable Table() { return {.rows = Examples()}; }

// A node with the whole population.
inline fleet::RegisterRequest NodeWithEverybody(const std::string& name, uint32_t slots) {
  return {.name = name,
          .incarnation = 1,
          .slots = slots,
          .input_shape = {2},
          .classes = 2,
          .clients = kPopulation,
          .central_test_rows = kCentralTestRows};
}

// An honest worker's record of a client, with a new version of its state.
inline fleet::ClientRecord RecordOf(const fleet::Assignment& assignment) {
  return {.attempt = {assignment.client, assignment.fence},
          .weight = assignment.weight,
          .examples = Examples()[assignment.client.value],
          .sums = std::vector<double>(training::SchemaFor(TaskKind::kClassification).sums.size()),
          .has_state = true};
}

// Some clients cannot be trained in some rounds, on any worker.
inline bool IsLeftOut(Round round, ClientId client) {
  return (round.value * 31 + client.value * 17) % 11 == 0;
}

inline std::set<ClientId> Expected(Round round) {
  const auto examples = Examples();
  const auto sampler = *scheduler::MakeSampler(TestRun(1).cohort, examples);
  std::set<ClientId> expected;
  for (const auto& entry : sampler->Sample(round).entries) {
    if (!IsLeftOut(round, entry.client)) expected.insert(entry.client);
  }
  return expected;
}

// The state that survives a crash of the server: the content of the checkpoints.
struct Durable {
  uint32_t epoch = 0;
  uint32_t completed = 0;
  bool owes_evaluation = false;
  std::map<uint32_t, std::set<ClientId>> counted;  // by round
  std::set<uint32_t> evaluated;
  std::deque<VersionIndex> versions;  // of the newest two checkpoints
  // The store of client states: the number of turns in each version.
  std::map<Attempt, uint32_t> states;
};

// Does what the engine asks for, later and in any order. Checks the clients of each round against a
// list.
class FakeHost final : public EngineHost {
 public:
  FakeHost(Durable& durable, uint32_t rounds, int phases)
      : durable_(durable), rounds_(rounds), phases_(phases) {}
  void Bind(RoundEngine* engine) { engine_ = engine; }

  void Prepare(const PhaseOrder& order) override {
    order_ = order;
    sum_.clear();
    later_.push_back([this, order](TimePoint now) {
      engine_->BroadcastReady(order.round, order.phase,
                              fleet::Broadcast::Of({BlobOf(order.round, order.phase)}), now);
    });
  }
  void Add(Ticket ticket) override {
    const std::vector<ClientId> part = parts_.at(ticket);
    parts_.erase(ticket);
    later_.push_back([this, ticket, part](TimePoint now) {
      for (const ClientId client : part) {
        EXPECT_TRUE(sum_.insert(client).second) << "client " << client << " was added twice";
      }
      engine_->PartAdded(ticket, absl::OkStatus(), now);
    });
  }
  void Discard(Ticket ticket) override { parts_.erase(ticket); }
  void AddAgain(const fleet::Part& part) override {
    std::vector<ClientId> clients;
    for (const fleet::ClientRecord& record : part.included)
      clients.push_back(record.attempt.client);
    parts_[0] = std::move(clients);
    Add(0);
  }
  void Apply(PhaseReport report) override {
    later_.push_back([this, report](TimePoint now) {
      if (!report.dropped.empty()) sum_.clear();
      if (as_recorded_) expected_ = law.counted();
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
      const bool last = report.phase.value + 1 == phases_;
      if (on_record) {  // a coordinator would record it here
        on_record(log::Closed{
            .round = report.round, .phase = report.phase, .last = last, .counted = sum_.size()});
      }
      if (!last) return engine_->Applied(true, std::nullopt, now);
      const bool due = EvaluationDue(TestRun(rounds_), report.round);
      durable_.completed = report.round.value;
      durable_.counted[report.round.value] = sum_;
      durable_.owes_evaluation = due;
      durable_.versions.push_back(engine_->SnapshotVersions(StateVersions::Staged::kIncluded));
      if (durable_.versions.size() > 2) durable_.versions.pop_front();
      engine_->CheckpointsFrom(Round(report.round.value + 1 - durable_.versions.size()));
      engine_->Applied(false, due ? std::optional(BlobOf(report.round, Phase(9))) : std::nullopt,
                       now);
    });
  }
  std::optional<std::string> Evaluated(const EvaluationSums& sums) override {
    EXPECT_EQ(sums.central[0], kCentralTestRows);
    EXPECT_TRUE(durable_.evaluated.insert(sums.round.value).second);
    durable_.owes_evaluation = false;
    return std::nullopt;
  }
  std::optional<std::string> EvaluatedBefore(Round round) override {
    EXPECT_TRUE(durable_.evaluated.contains(round.value));
    durable_.owes_evaluation = false;
    return std::nullopt;
  }
  void AnswerLease(Ticket ticket, fleet::LeaseReply reply) override {
    EXPECT_TRUE(leases.emplace(ticket, std::move(reply)).second) << "a call was answered twice";
  }
  void AnswerCommit(Ticket ticket, fleet::CommitReply reply) override {
    if (ticket == 0) return;  // no call waits for a part that is added again
    EXPECT_TRUE(commits.emplace(ticket, std::move(reply)).second) << "a call was answered twice";
  }
  void SessionEnded(SessionId) override {}
  void Record(log::Record record) override {
    law.Add(record);
    if (on_record) on_record(record);
  }
  void Ended(RunEnd end, absl::Status status, std::string) override {
    EXPECT_FALSE(ended.has_value());
    ended = end;
    error = std::move(status);
  }

  bool RunOne(RandomStream& random, TimePoint now) {
    if (later_.empty()) return false;
    const size_t pick = random.Below(later_.size());  // an executor's order is unspecified
    auto work = std::move(later_[pick]);
    later_.erase(later_.begin() + static_cast<long>(pick));
    work(now);
    return true;
  }
  void RunAll(RandomStream& random, TimePoint now) {
    while (RunOne(random, now)) {
    }
  }
  // The clients that each sum holds from now on. Default: all clients except those of IsLeftOut.
  void Expect(std::set<ClientId> clients) { expected_ = std::move(clients); }
  // From now on, those that the records say were counted.
  void ExpectAsRecorded() { as_recorded_ = true; }
  void Hold(Ticket ticket, std::vector<ClientId> part) { parts_[ticket] = std::move(part); }
  size_t held() const { return parts_.size(); }

  static fleet::Blob BlobOf(Round round, Phase phase) {
    return {.digest = DigestOf(absl::StrCat(round.value, "/", phase.value)), .size = 1};
  }

  std::map<Ticket, fleet::LeaseReply> leases;
  std::map<Ticket, fleet::CommitReply> commits;
  LogLaw law;  // checks every record
  std::function<void(const log::Record&)> on_record;
  std::optional<RunEnd> ended;
  absl::Status error;

 private:
  Durable& durable_;
  const uint32_t rounds_;
  const int phases_;
  RoundEngine* engine_ = nullptr;
  PhaseOrder order_;
  std::set<ClientId> sum_;
  std::optional<std::set<ClientId>> expected_;
  bool as_recorded_ = false;
  std::deque<std::function<void(TimePoint)>> later_;
  std::map<Ticket, std::vector<ClientId>> parts_;
};

}  // namespace macaw::server::testing_support
