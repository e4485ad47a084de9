#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "core/random.h"
#include "scheduler/plan.h"
#include "server/engine/round_engine.h"
#include "server/log/orders.h"
#include "tests/server/engine_driver.h"
#include "tests/server/fake_workers.h"
#include "training/api/metrics.h"

// For the model test of the engine: fake workers, a fake algorithm and a fake clock, driven by a
// seeded schedule of leases, commits, repeats, kills, pauses, late wake-ups, releases, refused
// parts, server restarts, and workers with vices.
namespace macaw::server {

using fixtures::Durable;
using fixtures::EngineDriver;
using fixtures::Examples;
using fixtures::Expected;
using fixtures::IsLeftOut;
using fixtures::kCohort;
using fixtures::kPopulation;
using fixtures::NodeWithEverybody;
using fixtures::RecordOf;
using fixtures::Table;
using fixtures::TestRun;

class World {
 public:
  World(uint64_t seed, uint32_t rounds, int phases, int workers,
        Division division = Division::kShared, Ends ends = {})
      : random_({.seed = seed}),
        rounds_(rounds),
        phases_(phases),
        division_(division),
        ends_(std::move(ends)),
        scheduler_(PolicyOf(seed)) {
    for (int i = 0; i < workers; ++i) workers_.push_back({.name = absl::StrCat("w", i)});
    // The last one is honest, so that there is somebody who can do the work of each round.
    for (size_t i = 0; ends_.vices && i + 1 < workers_.size(); ++i)
      workers_[i].vice = static_cast<Vice>(random_.Below(5));
    StartServer();
  }

  // Runs random actions until the run has ended. `chaos` of a thousand actions are failures.
  void Run(uint64_t chaos) {
    lost_answers_ = chaos;
    for (int step = 0; step < 200000 && !(engine_->ended.has_value()); ++step) {
      now_ += FromSeconds(0.05);
      FakeWorker& worker = workers_[random_.Below(workers_.size())];
      if (ends_.vices && step > 2000 && random_.Below(1000) == 0) GiveUp(worker);
      if (random_.Below(500) == 0)
        (void)engine_->Operate({.action = admin::Action::kResume, .by = "ada"}, now_);
      if (random_.Below(1000) < chaos) {
        Misfortune(worker);
      } else if (random_.Below(3) == 0) {
        engine_->RunOne(random_, now_);
      } else {
        Act(worker);
      }
      if (engine_->NextDeadline() <= now_) engine_->Tick(now_);
    }
    ASSERT_TRUE(engine_->ended.has_value()) << "the run never ended: " << WhatItWaitsFor();
    EXPECT_EQ(*engine_->ended, RunEnd::kFinished) << engine_->error;
    history_.Add(log::RunEnded{.rounds = rounds_, .states = state_digest()});
  }

  void ExpectEverythingCountedOnce() const {
    ASSERT_EQ(durable_.counted.size(), rounds_);
    for (uint32_t round = 1; round <= rounds_; ++round) {
      EXPECT_EQ(durable_.counted.at(round), Expected(Round(round))) << "round " << round;
      EXPECT_EQ(durable_.evaluated.contains(round), round % 2 == 0 || round == rounds_) << round;
    }
  }
  // Each client's state has one turn for each phase in which the client was counted.
  void ExpectEveryTurnInTheStates() const {
    std::map<uint64_t, uint32_t> expected;
    for (const auto& [round, clients] : durable_.counted) {
      for (const ClientId client : clients)
        expected[client.value] += static_cast<uint32_t>(phases_);
    }
    std::map<uint64_t, uint32_t> found;
    const VersionIndex& index = durable_.versions.back();
    for (uint64_t page = 0; page < index.pages(); ++page) {
      for (const Attempt& version : index.Page(page))
        found[version.client.value] = durable_.states.at(version);
    }
    EXPECT_EQ(found, expected);
    ExpectAStateDigestUnlessItWasGivenUp();
  }
  // Whoever was not waited for was given up as the rules say.
  void ExpectRoundsEndedByTheRules() const {
    const RoundRules& rules = ends_.rules;
    for (const auto& [round, phases] : history_.rounds()) {
      for (const auto& [phase, story] : phases) {
        if (!story.closed.has_value() || story.dropped) continue;
        const uint64_t counted = story.closed->counted;
        for (const auto& [client, given_up] : story.given_up) {
          if (given_up.reason == fleet::LeftOutReason::kNotNeeded) {
            EXPECT_GE(counted, rules.enough) << "round " << round;
          } else if (given_up.reason >= fleet::LeftOutReason::kTooSlow) {
            EXPECT_GE(counted, rules.Needed(kCohort)) << "round " << round;
          }
        }
      }
    }
  }
  // Whether the run has a digest of its states, as it should unless its records say otherwise.
  void ExpectAStateDigestUnlessItWasGivenUp() const {
    bool given_up = false;
    for (const auto& [round, cuts] : history_.evaluations().rounds()) {
      for (const log::EvaluationGaveUp& cut : cuts) given_up = given_up || cut.states;
    }
    EXPECT_EQ(engine_->state_digest().has_value(), !given_up);
  }
  const log::History& history() const { return history_; }
  uint64_t deleted() const { return deleted_; }
  Digest state_digest() const { return engine_->state_digest().value_or(Digest{}); }
  const Durable& durable() const { return durable_; }

 private:
  std::string WhatItWaitsFor() const {
    admin::RunStatus status;
    engine_->Describe(status, now_);
    std::string text = absl::StrCat(
        "round ", status.round, ", waiting ", status.waiting, ", leased ", status.leased,
        ", counted ", status.counted, ", given up ", status.given_up, "; evaluation ",
        status.evaluation_done, " of ", status.evaluation_tasks, "; quarantined ",
        status.quarantine.size(), "; state ", static_cast<int>(status.state));
    for (const auto& node : status.nodes) absl::StrAppend(&text, "\n", node.name, ": ", node.doing);
    for (const FakeWorker& worker : workers_) {
      absl::StrAppend(&text, "\n", worker.name, " vice ", static_cast<int>(worker.vice),
                      worker.gone ? " gone" : "", worker.asleep ? " asleep" : "",
                      worker.registered ? " registered" : "",
                      worker.poll.has_value() ? " asks" : "",
                      worker.sent.has_value() ? " commits" : "", " holds ", worker.held.size(),
                      " and ", worker.tasks.size(), " tasks");
    }
    return text;
  }
  // The seed selects the policy: policies affect placement, never which clients are counted.
  static std::unique_ptr<scheduler::Scheduler> PolicyOf(uint64_t seed) {
    const auto policies = scheduler::SchedulingPolicies();
    return *scheduler::MakeScheduler({.policy = policies[seed % policies.size()].first});
  }
  void StartServer() {
    ++durable_.epoch;
    // A checkpoint is between two rounds. An evaluation that was not complete is done again.
    std::optional<fleet::Blob> owed;
    if (durable_.owes_evaluation) owed = fixtures::BlobOf(Round(durable_.completed), Phase(9));
    std::map<std::string, admin::Quarantined> quarantine;
    for (const auto& [name, order] : orders_.quarantine) quarantine[name] = {.node = name};
    std::map<std::string, std::string> given_up;
    for (const auto& [name, order] : orders_.given_up) given_up[name] = order.by;
    engine_.reset();
    engine_ = std::make_unique<EngineDriver>(
        EngineOptions{.run = TestRun(rounds_),
                      .epoch = durable_.epoch,
                      .lease_timeout = FromSeconds(5),
                      .limits = {.deaths = 1000000, .lost_rounds = 0},
                      .waits = {.lease_limit = FromSeconds(20)},
                      .workers = WorkersToBegin(),
                      .completed = durable_.completed,
                      .evaluate_first = owed,
                      .round = ends_.rules,
                      .decisions = ends_.decisions,
                      .stateful = true,
                      .sums_states = ends_.sums_states,
                      .versions = Newest(),
                      .quarantine = std::move(quarantine),
                      .given_up = std::move(given_up),
                      .session_numbers = [this] { return ++sessions_; }},
        *scheduler_, durable_, rounds_, phases_);
    engine_->JudgeLater();
    if (ends_.sums_states) engine_->ExpectTheSumOfTheStates();
    history_.Add(log::RunOpened{.epoch = durable_.epoch, .completed = Round(durable_.completed)});
    engine_->on_record = [this](const log::Record& record) {
      history_.Add(record);
      orders_.Add(record);
    };
    if (ends_.early()) engine_->ExpectAsRecorded();
    if (ends_.vices && durable_.completed > 0) engine_->Resume(OwnersSeen(), now_);
    for (FakeWorker& worker : workers_) {
      worker.poll.reset();
      worker.sent.reset();  // the answer never comes
    }
  }

  // The owners that had registered, as a resumed run knows them.
  Restored OwnersSeen() const {
    Restored restored;
    for (const auto& [name, owner] : owners_) restored.members.push_back(owner);
    return restored;
  }
  // A run that has not begun waits for everybody.
  bool begun() const { return !history_.rounds().empty(); }
  // An operator tires of the worker.
  void GiveUp(const FakeWorker& worker) {
    if (worker.vice == Vice::kNone || !begun()) return;
    (void)engine_->Operate({.action = admin::Action::kQuarantine, .by = "ada", .node = worker.name},
                           now_);
    (void)engine_->Operate({.action = admin::Action::kGiveUp, .by = "ada", .node = worker.name},
                           now_);
  }

  uint32_t WorkersToBegin() const {
    return division_ == Division::kShared ? 1 : static_cast<uint32_t>(workers_.size());
  }

  // The clients of a worker, [begin, end).
  std::pair<uint64_t, uint64_t> ClientsOf(const FakeWorker& worker) const {
    if (division_ == Division::kShared) return {0, kPopulation};
    const auto i = static_cast<uint64_t>(&worker - workers_.data());
    if (i + 1 == workers_.size()) return {kOwned * i, kPopulation};
    return {kOwned * i, kOwned * (i + 1)};
  }

  bool IsOwner(const FakeWorker& worker) const {
    return division_ == Division::kOwned && &worker != &workers_.back();
  }
  void ForgetStatesOf(const FakeWorker& worker) {
    const auto [begin, end] = ClientsOf(worker);
    std::erase_if(durable_.states, [begin = begin, end = end](const auto& state) {
      const uint64_t client = state.first.client.value;
      return begin <= client && client < end;
    });
  }

  VersionIndex Newest() const {
    return durable_.versions.empty() ? VersionIndex() : durable_.versions.back();
  }

  // Deletes the versions that a lease allows to delete. No checkpoint has them, nor the index, and
  // none ever will.
  void Delete(const std::vector<Attempt>& versions) {
    for (const Attempt& version : versions) {
      for (const VersionIndex& checkpoint : durable_.versions)
        EXPECT_NE(checkpoint.Get(version.client), version.fence);
      deleted_ += durable_.states.erase(version);
    }
  }

  // One turn of a client: reads the leased version of its state, and writes that number plus one.
  void TakeTurn(const fleet::Assignment& assignment) {
    uint32_t turns = 0;
    if (assignment.state_version.counter != 0) {
      const auto found = durable_.states.find({assignment.client, assignment.state_version});
      if (found == durable_.states.end()) return;  // happens only to a worker that is far too late
      turns = found->second;
    }
    durable_.states[{assignment.client, assignment.fence}] = turns + 1;
    durable_.turns[{assignment.client, assignment.fence}] = {turns, turns + 1};
  }

  void Misfortune(FakeWorker& worker) {
    switch (random_.Below(8)) {
      case 0:  // kill -9 and restart
        if (ends_.volatile_states && IsOwner(worker)) ForgetStatesOf(worker);
        worker = {.name = worker.name,
                  .vice = worker.vice,
                  .incarnation = worker.incarnation + 1,
                  .gone = worker.gone};
        break;
      case 1:
        worker.asleep = !worker.asleep;
        break;  // SIGSTOP, SIGCONT
      case 2:
        now_ += FromSeconds(6);
        break;  // all leases expire
      case 3:
        // A server that dies before its first checkpoint waits for everybody again.
        if (random_.Below(4) == 0 && (!ends_.vices || durable_.completed > 0)) StartServer();
        break;
      case 4:  // releases some clients
        if (worker.registered && !worker.held.empty() && !worker.asleep &&
            !worker.sent.has_value()) {
          engine_->Release(
              {.session = worker.session,
               .attempts = {Attempt{worker.held.back().client, worker.held.back().fence}}},
              now_);
          worker.held.pop_back();
        }
        break;
      case 5:  // repeats its last commit, or sends one that does not decode
        if (worker.registered && worker.last.has_value() && worker.last->part.has_value() &&
            !worker.asleep) {
          const Ticket ticket = ++tickets_;
          engine_->Hold(ticket, {});
          fleet::CommitRequest repeat = *worker.last;
          engine_->Commit(ticket, repeat, absl::DataLossError("sums do not decode"), now_);
          EXPECT_NE(engine_->commits.at(ticket).verdict, fleet::Verdict::kAccepted);
        }
        break;
      case 6: {  // an operator drops what the open round has
        admin::RunStatus status;
        engine_->Describe(status, now_);
        (void)engine_->Operate(
            {.action = admin::Action::kAbortRound, .by = "ada", .round = status.round}, now_);
        break;
      }
      case 7:  // an operator pauses the run for a while
        (void)engine_->Operate({.action = admin::Action::kPause, .by = "ada"}, now_);
        break;
    }
  }

  void Act(FakeWorker& worker) {
    if (worker.vice == Vice::kLeaves && worker.registered && begun() && random_.Below(100) == 0)
      worker.gone = true;
    if (worker.gone) return;
    if (worker.asleep) {
      if (random_.Below(50) == 0) worker.asleep = false;
      return;
    }
    if (!worker.registered) return Register(worker);
    if (worker.sent.has_value()) return FinishCommit(worker);
    if (worker.poll.has_value()) return FinishPoll(worker);
    if (random_.Below(6) == 0) return Heartbeat(worker);
    const bool work = !worker.held.empty() || !worker.tasks.empty();
    if (worker.vice == Vice::kHolds && work) return Heartbeat(worker);
    if (!work) must_commit_.erase(worker.name);  // all that it had was taken back
    if (work && (must_commit_.contains(worker.name) || random_.Below(3) == 0))
      return SendCommit(worker);
    if (!must_commit_.contains(worker.name)) Poll(worker);
  }

  void Register(FakeWorker& worker) {
    const auto [begin, end] = ClientsOf(worker);
    fleet::ClientTable table;
    for (uint64_t client = begin; client < end; ++client) {
      table.rows.push_back(Examples()[client]);
      if (division_ == Division::kOwned) table.names.push_back(absl::StrCat("client ", client));
    }
    const bool owner = IsOwner(worker);
    fleet::RegisterRequest node = NodeWithEverybody(worker.name, /*slots=*/2);
    node.incarnation = worker.incarnation;
    node.data_digest = DigestOf(absl::StrCat(begin, " to ", end));
    node.clients = end - begin;
    node.owner = owner;
    if (owner) node.central_test_rows = 0;
    node.volatile_state = owner && ends_.volatile_states;
    if (owner) owners_[worker.name] = {.request = node, .table = table, .there = false};
    const auto reply = engine_->Register(node, table, now_);
    if (worker.vice != Vice::kNone && absl::IsUnavailable(reply.status())) return;  // quarantine
    ASSERT_TRUE(reply.ok()) << reply.status();
    worker.session = reply->session;
    worker.registered = true;
    worker.held.clear();
    worker.tasks.clear();
    must_commit_.erase(worker.name);
  }
  void Poll(FakeWorker& worker) {
    worker.poll = ++tickets_;
    engine_->Lease(*worker.poll,
                   {.session = worker.session,
                    .wanted = static_cast<uint32_t>(random_.Below(3)),
                    .running = static_cast<uint32_t>(worker.held.size() + worker.tasks.size())},
                   FromSeconds(3), now_);
  }
  void FinishPoll(FakeWorker& worker) {
    const auto it = engine_->leases.find(*worker.poll);
    if (it == engine_->leases.end()) return;
    worker.poll.reset();
    if (random_.Below(1000) < lost_answers_) return;  // the answer was lost
    const fleet::LeaseReply& reply = it->second;
    Delete(reply.deletable);
    if (reply.next == fleet::Next::kRegister) worker.registered = false;
    if (reply.next == fleet::Next::kCommit) must_commit_.insert(worker.name);
    if (reply.training.has_value()) {
      if (reply.training->round != worker.round || reply.training->phase != worker.phase)
        worker.held.clear();
      worker.round = reply.training->round;
      worker.phase = reply.training->phase;
      worker.broadcast = reply.training->broadcast.name;
      for (const auto& assignment : reply.training->assignments) {
        worker.held.push_back(assignment);
        ExpectHeldBy(worker, assignment.client, assignment.place);
      }
      if (reply.training->last) must_commit_.insert(worker.name);
    }
    if (reply.evaluation.has_value()) {
      for (const auto& task : reply.evaluation->tasks) {
        for (const Attempt& state : task.states)
          ExpectHeldBy(worker, state.client, state.client.value - ClientsOf(worker).first);
      }
      worker.evaluated = reply.evaluation->round;
      worker.tasks.insert(worker.tasks.end(), reply.evaluation->tasks.begin(),
                          reply.evaluation->tasks.end());
    }
  }
  void ExpectHeldBy(const FakeWorker& worker, ClientId client, uint64_t place) const {
    const auto [begin, end] = ClientsOf(worker);
    EXPECT_TRUE(begin <= client.value && client.value < end)
        << worker.name << " was given client " << client;
    EXPECT_EQ(place, client.value - begin);
  }
  void Heartbeat(FakeWorker& worker) {
    fleet::HeartbeatRequest request{.session = worker.session, .progress = ++progress_};
    for (const auto& a : worker.held) request.held.push_back({a.client, a.fence});
    const auto reply = engine_->Heartbeat(request, now_);
    if (!reply.known) worker.registered = false;
    for (const Attempt& dropped : reply.dropped) {
      std::erase_if(worker.held,
                    [&](const fleet::Assignment& a) { return a.fence == dropped.fence; });
    }
  }
  void SendCommit(FakeWorker& worker) {
    fleet::CommitRequest request{.session = worker.session, .commit_id = ++worker.commit_id};
    std::vector<ClientId> included;
    if (!worker.held.empty()) {
      fleet::Part part{.round = worker.round, .phase = worker.phase, .broadcast = worker.broadcast};
      for (const fleet::Assignment& a : worker.held) {
        const Attempt attempt{a.client, a.fence};
        if (worker.vice == Vice::kFails) {
          part.left_out.push_back(
              {.attempt = attempt, .reason = fleet::LeftOutReason::kFailed, .message = "no"});
        } else if (IsLeftOut(worker.round, a.client)) {
          part.left_out.push_back(
              {.attempt = attempt, .reason = fleet::LeftOutReason::kNotFinite, .message = "NaN"});
        } else {
          part.included.push_back(RecordOf(a));
          TakeTurn(a);
          included.push_back(a.client);
        }
      }
      request.part = std::move(part);
    }
    for (const auto& task : worker.tasks) {
      if (worker.vice == Vice::kHoldsEvaluation) break;
      std::vector<double> sums(training::SchemaFor(TaskKind::kClassification).sums.size());
      sums[0] = static_cast<double>(task.end - task.begin);
      request.evaluations.push_back({.task = task, .round = worker.evaluated, .sums = sums});
      if (task.kind != fleet::EvaluationKind::kStateDigest) continue;
      for (const Attempt& version : task.states) {
        const auto found = durable_.states.find(version);
        Digester digester;
        digester.Add(version.client.value);
        digester.Add(uint64_t{found == durable_.states.end() ? 0 : found->second});
        request.evaluations.back().digest ^= digester.Finish();
      }
    }
    const Ticket ticket = ++tickets_;
    engine_->Hold(ticket, included);
    const bool broken = random_.Below(40) == 0;
    worker.sent = {ticket, request};
    worker.last = request;
    engine_->Commit(ticket, request,
                    broken ? absl::DataLossError("broken on the way") : absl::OkStatus(), now_);
  }
  void FinishCommit(FakeWorker& worker) {
    const auto it = engine_->commits.find(worker.sent->first);
    if (it == engine_->commits.end()) return;
    worker.sent.reset();
    worker.held.clear();  // counted, or no longer ours
    worker.tasks.clear();
    must_commit_.erase(worker.name);
    if (it->second.verdict == fleet::Verdict::kRegister) worker.registered = false;
  }

  RandomStream random_;
  const uint32_t rounds_;
  const int phases_;
  const Division division_;
  const Ends ends_;
  log::History history_;
  log::Orders orders_;         // of operators; the next server holds to them
  uint64_t lost_answers_ = 0;  // per thousand
  const std::unique_ptr<scheduler::Scheduler> scheduler_;
  Durable durable_;
  TimePoint now_{};
  Ticket tickets_ = 0;
  uint64_t progress_ = 0;
  uint64_t sessions_ = 0;  // of all servers: no number twice
  std::map<std::string, Restored::Member> owners_;
  std::unique_ptr<EngineDriver> engine_;
  std::vector<FakeWorker> workers_;
  std::set<std::string> must_commit_;
  uint64_t deleted_ = 0;
};

}  // namespace macaw::server
