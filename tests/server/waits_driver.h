#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "scheduler/plan.h"
#include "server/engine/round_engine.h"
#include "tests/server/engine_driver.h"

// For the tests of the table of waits in server/README.md: an engine, some nodes and a clock.
namespace macaw::server {

using fixtures::Durable;
using fixtures::EngineDriver;
using fixtures::Examples;
using fixtures::kCentralTestRows;
using fixtures::kCohort;
using fixtures::kPopulation;
using fixtures::NodeWithEverybody;
using fixtures::RecordOf;
using fixtures::Table;
using fixtures::TestRun;
using fleet::LeftOutReason;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

inline constexpr double kLease = 10, kLimit = 200;  // seconds
inline constexpr double kLeast = WaitLimits::kLeastLeases * kLease;

using Names = std::vector<std::string>;

class Waits : public testing::Test {
 protected:
  void Start(EngineOptions options = {}, const std::string& policy = "round_robin") {
    scheduler_ = *scheduler::MakeScheduler({.policy = policy});
    if (options.run.model.input_shape.empty()) options.run = TestRun(1);
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
    engine_->Lease(
        ++tickets_,
        {.session = sessions_.at(name), .wanted = 1, .running = running, .declined = declined},
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

}  // namespace macaw::server
