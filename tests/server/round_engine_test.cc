#include "server/engine/round_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <set>

#include "core/random.h"
#include "training/api/metrics.h"

// The model test of the engine: fake workers, a fake algorithm and a fake clock, driven by a seeded
// schedule of leases, commits, repeats, kills, pauses, late wake-ups, releases, refused parts and
// server restarts. Whatever the schedule, every round must count exactly the clients it should,
// once each.
namespace macaw::server {
namespace {

constexpr uint64_t kPopulation = 40;
constexpr uint64_t kCohort = 12;

RunConfig TestRun(uint32_t rounds) {
  RunConfig run;
  run.rounds = rounds;
  run.model.input_shape = {2};
  run.model.classes = 2;
  run.cohort = {.size = kCohort, .seed = 5};
  run.evaluation = {.every = 2, .chunk = 10};
  return run;
}

std::vector<uint32_t> Examples() {
  std::vector<uint32_t> examples(kPopulation);
  for (uint64_t i = 0; i < kPopulation; ++i) examples[i] = 1 + (i * 7) % 13;
  return examples;
}

// Some clients cannot be trained in some rounds, whoever tries.
bool IsLeftOut(Round round, ClientId client) {
  return (round.value * 31 + client.value * 17) % 11 == 0;
}

std::set<ClientId> Expected(Round round) {
  const auto examples = Examples();
  const auto sampler = *scheduler::MakeSampler(TestRun(1).cohort, examples);
  std::set<ClientId> expected;
  for (const auto& entry : sampler->Sample(round).entries) {
    if (!IsLeftOut(round, entry.client)) expected.insert(entry.client);
  }
  return expected;
}

// What survives a crash of the server: what checkpoints hold.
struct Durable {
  uint32_t epoch = 0;
  uint32_t completed = 0;
  bool owes_evaluation = false;
  std::map<uint32_t, std::set<ClientId>> counted;  // by round
  std::set<uint32_t> evaluated;
  std::deque<VersionIndex> versions;  // of the newest two checkpoints
  // The store of client states: how many turns each version counts.
  std::map<Attempt, uint32_t> states;
};

class FakeHost final : public EngineHost {
 public:
  FakeHost(Durable& durable, uint32_t rounds, int phases)
      : durable_(durable), rounds_(rounds), phases_(phases) {}
  void Bind(RoundEngine* engine) { engine_ = engine; }

  void Prepare(const PhaseOrder& order) override {
    order_ = order;
    sum_.clear();
    later_.push_back([this, order](TimePoint now) {
      engine_->BroadcastReady(order.round, order.phase, BlobOf(order.round, order.phase), now);
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
  void Apply(PhaseReport report) override {
    later_.push_back([this, report](TimePoint now) {
      EXPECT_EQ(sum_, Expected(report.round));
      std::set<ClientId> recorded;
      for (const auto& record : report.records) recorded.insert(record.attempt.client);
      EXPECT_EQ(recorded, sum_) << "records and sum must name the same clients";
      EXPECT_EQ(report.records.size(), recorded.size());
      if (report.phase.value + 1 < phases_) return engine_->Applied(true, std::nullopt, now);
      const bool due = EvaluationDue(TestRun(rounds_), report.round);
      durable_.completed = report.round.value;
      durable_.counted[report.round.value] = sum_;
      durable_.owes_evaluation = due;
      durable_.versions.push_back(engine_->SnapshotVersions(/*closing=*/true));
      if (durable_.versions.size() > 2) durable_.versions.pop_front();
      engine_->CheckpointsFrom(Round(report.round.value + 1 - durable_.versions.size()));
      engine_->Applied(false, due ? std::optional(BlobOf(report.round, Phase(9))) : std::nullopt,
                       now);
    });
  }
  std::optional<std::string> Evaluated(const EvaluationSums& sums) override {
    EXPECT_EQ(sums.central[0], 35);
    EXPECT_TRUE(durable_.evaluated.insert(sums.round.value).second);
    durable_.owes_evaluation = false;
    return std::nullopt;
  }
  void AnswerLease(Ticket ticket, fleet::LeaseReply reply) override {
    EXPECT_TRUE(leases.emplace(ticket, std::move(reply)).second) << "a call was answered twice";
  }
  void AnswerCommit(Ticket ticket, fleet::CommitReply reply) override {
    EXPECT_TRUE(commits.emplace(ticket, std::move(reply)).second) << "a call was answered twice";
  }
  void Note(Event) override {}
  void Ended(RunEnd end, absl::Status status, std::string) override {
    EXPECT_FALSE(ended.has_value());
    ended = end;
    error = std::move(status);
  }

  bool RunOne(RandomStream& random, TimePoint now) {
    if (later_.empty()) return false;
    const size_t pick = random.Below(later_.size());  // an executor's order is not ours to know
    auto work = std::move(later_[pick]);
    later_.erase(later_.begin() + static_cast<long>(pick));
    work(now);
    return true;
  }
  void Hold(Ticket ticket, std::vector<ClientId> part) { parts_[ticket] = std::move(part); }
  size_t held() const { return parts_.size(); }

  static fleet::Blob BlobOf(Round round, Phase phase) {
    return {.digest = DigestOf(absl::StrCat(round.value, "/", phase.value)), .size = 1};
  }

  std::map<Ticket, fleet::LeaseReply> leases;
  std::map<Ticket, fleet::CommitReply> commits;
  std::optional<RunEnd> ended;
  absl::Status error;

 private:
  Durable& durable_;
  const uint32_t rounds_;
  const int phases_;
  RoundEngine* engine_ = nullptr;
  PhaseOrder order_;
  std::set<ClientId> sum_;
  std::deque<std::function<void(TimePoint)>> later_;
  std::map<Ticket, std::vector<ClientId>> parts_;
};

// A worker as the engine sees one: honest, but it may stall, die, repeat itself or come back late.
struct FakeWorker {
  std::string name;
  uint64_t incarnation = 1;
  WorkerId session{};
  bool registered = false;
  bool asleep = false;
  std::optional<Ticket> poll;
  Round round{};
  Phase phase{};
  Digest broadcast;
  std::vector<fleet::Assignment> held;
  std::vector<fleet::EvaluationTask> tasks;
  Round evaluated{};
  uint64_t commit_id = 0;
  std::optional<std::pair<Ticket, fleet::CommitRequest>> sent;  // not yet answered
  std::optional<fleet::CommitRequest> last;                     // for repeats
};

class World {
 public:
  World(uint64_t seed, uint32_t rounds, int phases, int workers)
      : random_({.seed = seed}), rounds_(rounds), phases_(phases) {
    for (int i = 0; i < workers; ++i) workers_.push_back({.name = absl::StrCat("w", i)});
    StartServer();
  }

  // Runs random actions until the run has ended, with `chaos` bad luck per thousand actions.
  void Run(uint64_t chaos) {
    lost_answers_ = chaos;
    for (int step = 0; step < 200000 && !(host_->ended.has_value()); ++step) {
      now_ += FromSeconds(0.05);
      FakeWorker& worker = workers_[random_.Below(workers_.size())];
      if (random_.Below(1000) < chaos) {
        Misfortune(worker);
      } else if (random_.Below(3) == 0) {
        host_->RunOne(random_, now_);
      } else {
        Act(worker);
      }
      if (engine_->NextDeadline() <= now_) engine_->Tick(now_);
    }
    ASSERT_TRUE(host_->ended.has_value()) << "the run never ended";
    EXPECT_EQ(*host_->ended, RunEnd::kFinished) << host_->error;
  }

  void ExpectEverythingCountedOnce() const {
    ASSERT_EQ(durable_.counted.size(), rounds_);
    for (uint32_t round = 1; round <= rounds_; ++round) {
      EXPECT_EQ(durable_.counted.at(round), Expected(Round(round))) << "round " << round;
      EXPECT_EQ(durable_.evaluated.contains(round), round % 2 == 0 || round == rounds_) << round;
    }
  }
  // Every client has had as many turns as it was counted, on top of each other.
  void ExpectEveryTurnInTheStates() const {
    std::map<uint64_t, uint32_t> expected;
    for (const auto& [round, clients] : durable_.counted) {
      for (const ClientId client : clients) ++expected[client.value];
    }
    std::map<uint64_t, uint32_t> found;
    const VersionIndex& index = durable_.versions.back();
    for (uint64_t page = 0; page < index.pages(); ++page) {
      for (const Attempt& version : index.Page(page))
        found[version.client.value] = durable_.states.at(version);
    }
    EXPECT_EQ(found, expected);
    EXPECT_TRUE(engine_->state_digest().has_value());
  }
  uint64_t deleted() const { return deleted_; }
  Digest state_digest() const { return engine_->state_digest().value_or(Digest{}); }
  const Durable& durable() const { return durable_; }

 private:
  void StartServer() {
    ++durable_.epoch;
    // A checkpoint lies at a whole round; what was evaluated of an owed round is asked again.
    std::optional<fleet::Blob> owed;
    if (durable_.owes_evaluation) owed = FakeHost::BlobOf(Round(durable_.completed), Phase(9));
    engine_.reset();
    host_ = std::make_unique<FakeHost>(durable_, rounds_, phases_);
    engine_ = std::make_unique<RoundEngine>(EngineOptions{.run = TestRun(rounds_),
                                                          .epoch = durable_.epoch,
                                                          .lease_timeout = FromSeconds(5),
                                                          .max_deaths = 1000000,
                                                          .workers = 1,
                                                          .completed = durable_.completed,
                                                          .evaluate_first = owed,
                                                          .stateful = true,
                                                          .versions = Newest()},
                                            scheduler_, *host_);
    host_->Bind(engine_.get());
    for (FakeWorker& worker : workers_) {
      worker.poll.reset();
      worker.sent.reset();  // the answer never comes
    }
  }

  VersionIndex Newest() const {
    return durable_.versions.empty() ? VersionIndex() : durable_.versions.back();
  }

  // What a lease says may go. No checkpoint names it, nor the index, and never will.
  void Delete(const std::vector<Attempt>& versions) {
    for (const Attempt& version : versions) {
      for (const VersionIndex& checkpoint : durable_.versions)
        EXPECT_NE(checkpoint.Get(version.client), version.fence);
      deleted_ += durable_.states.erase(version);
    }
  }

  // A turn: reads the version it was leased with, leaves one more than that.
  void TakeTurn(const fleet::Assignment& assignment) {
    uint32_t turns = 0;
    if (assignment.state_version.counter != 0) {
      const auto found = durable_.states.find({assignment.client, assignment.state_version});
      if (found == durable_.states.end()) return;  // only who is far too late finds nothing
      turns = found->second;
    }
    durable_.states[{assignment.client, assignment.fence}] = turns + 1;
  }

  void Misfortune(FakeWorker& worker) {
    switch (random_.Below(6)) {
      case 0:  // kill -9 and restart
        worker = {.name = worker.name, .incarnation = worker.incarnation + 1};
        break;
      case 1:
        worker.asleep = !worker.asleep;
        break;  // SIGSTOP, SIGCONT
      case 2:
        now_ += FromSeconds(6);
        break;  // everybody's lease runs out
      case 3:
        if (random_.Below(4) == 0) StartServer();
        break;
      case 4:  // gives some clients back
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
          host_->Hold(ticket, {});
          fleet::CommitRequest repeat = *worker.last;
          engine_->Commit(ticket, repeat, absl::DataLossError("sums do not decode"), now_);
          EXPECT_NE(host_->commits.at(ticket).verdict, fleet::Verdict::kAccepted);
        }
        break;
    }
  }

  void Act(FakeWorker& worker) {
    if (worker.asleep) {
      if (random_.Below(50) == 0) worker.asleep = false;
      return;
    }
    if (!worker.registered) return Register(worker);
    if (worker.sent.has_value()) return FinishCommit(worker);
    if (worker.poll.has_value()) return FinishPoll(worker);
    if (random_.Below(6) == 0) return Heartbeat(worker);
    const bool work = !worker.held.empty() || !worker.tasks.empty();
    if (work && (must_commit_.contains(worker.name) || random_.Below(3) == 0))
      return SendCommit(worker);
    if (!must_commit_.contains(worker.name)) Poll(worker);
  }

  void Register(FakeWorker& worker) {
    const auto reply = engine_->Register({.name = worker.name,
                                          .incarnation = worker.incarnation,
                                          .slots = 2,
                                          .input_shape = {2},
                                          .classes = 2,
                                          .clients = kPopulation,
                                          .central_test_rows = 35},
                                         Examples(), now_);
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
                    .wanted = 2,
                    .running = static_cast<uint32_t>(worker.held.size() + worker.tasks.size())},
                   FromSeconds(3), now_);
  }
  void FinishPoll(FakeWorker& worker) {
    const auto it = host_->leases.find(*worker.poll);
    if (it == host_->leases.end()) return;
    worker.poll.reset();
    if (random_.Below(1000) < lost_answers_) return;  // on the way back
    const fleet::LeaseReply& reply = it->second;
    Delete(reply.deletable);
    if (reply.next == fleet::Next::kRegister) worker.registered = false;
    if (reply.next == fleet::Next::kCommit) must_commit_.insert(worker.name);
    if (reply.training.has_value()) {
      if (reply.training->round != worker.round || reply.training->phase != worker.phase)
        worker.held.clear();
      worker.round = reply.training->round;
      worker.phase = reply.training->phase;
      worker.broadcast = reply.training->broadcast.digest;
      for (const auto& assignment : reply.training->assignments) worker.held.push_back(assignment);
      if (reply.training->last) must_commit_.insert(worker.name);
    }
    if (reply.evaluation.has_value()) {
      worker.evaluated = reply.evaluation->round;
      worker.tasks.insert(worker.tasks.end(), reply.evaluation->tasks.begin(),
                          reply.evaluation->tasks.end());
    }
  }
  void Heartbeat(FakeWorker& worker) {
    fleet::HeartbeatRequest request{.session = worker.session};
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
        if (IsLeftOut(worker.round, a.client)) {
          part.left_out.push_back(
              {.attempt = attempt, .reason = fleet::LeftOutReason::kNotFinite, .message = "NaN"});
        } else {
          part.included.push_back({.attempt = attempt,
                                   .weight = a.weight,
                                   .examples = Examples()[a.client.value],
                                   .sums = std::vector<double>(
                                       training::SchemaFor(TaskKind::kClassification).sums.size()),
                                   .has_state = worker.phase.value + 1 == phases_});
          if (part.included.back().has_state) TakeTurn(a);
          included.push_back(a.client);
        }
      }
      request.part = std::move(part);
    }
    for (const auto& task : worker.tasks) {
      std::vector<double> sums(training::SchemaFor(TaskKind::kClassification).sums.size());
      sums[0] = static_cast<double>(task.end - task.begin);
      request.evaluations.push_back({.task = task, .round = worker.evaluated, .sums = sums});
      if (task.kind != fleet::EvaluationKind::kStateDigest) continue;
      Digester digester;
      for (const Attempt& version : task.states) {
        const auto found = durable_.states.find(version);
        digester.Add(version.client.value);
        digester.Add(uint64_t{found == durable_.states.end() ? 0 : found->second});
      }
      request.evaluations.back().digest = digester.Finish();
    }
    const Ticket ticket = ++tickets_;
    host_->Hold(ticket, included);
    const bool broken = random_.Below(40) == 0;
    worker.sent = {ticket, request};
    worker.last = request;
    engine_->Commit(ticket, request,
                    broken ? absl::DataLossError("broken on the way") : absl::OkStatus(), now_);
  }
  void FinishCommit(FakeWorker& worker) {
    const auto it = host_->commits.find(worker.sent->first);
    if (it == host_->commits.end()) return;
    worker.sent.reset();
    worker.held.clear();  // counted, or no longer ours
    worker.tasks.clear();
    must_commit_.erase(worker.name);
    if (it->second.verdict == fleet::Verdict::kRegister) worker.registered = false;
  }

  RandomStream random_;
  const uint32_t rounds_;
  const int phases_;
  uint64_t lost_answers_ = 0;  // per thousand
  const scheduler::LongestFirstScheduler scheduler_;
  Durable durable_;
  TimePoint now_{};
  Ticket tickets_ = 0;
  std::unique_ptr<FakeHost> host_;
  std::unique_ptr<RoundEngine> engine_;
  std::vector<FakeWorker> workers_;
  std::set<std::string> must_commit_;
  uint64_t deleted_ = 0;
};

TEST(RoundEngine, CountsEveryClientOnceOnAQuietDay) {
  World world(1, 4, 1, 3);
  world.Run(0);
  world.ExpectEverythingCountedOnce();
  world.ExpectEveryTurnInTheStates();
  EXPECT_EQ(world.durable().epoch, 1u);
}

TEST(RoundEngine, CountsEveryClientOnceWhateverHappens) {
  uint32_t restarts = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed, 1 + seed % 5, 1, 1 + static_cast<int>(seed % 4));
    world.Run(5 + 10 * (seed % 6));
    world.ExpectEverythingCountedOnce();
    world.ExpectEveryTurnInTheStates();
    restarts += world.durable().epoch - 1;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(restarts, 30u) << "the schedules should have restarted the server now and then";
}

TEST(RoundEngine, ASecondPhaseTrainsTheSameClientsLessThoseLeftOut) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    World world(1000 + seed, 3, 2, 2);
    world.Run(10);
    world.ExpectEverythingCountedOnce();
    world.ExpectEveryTurnInTheStates();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RoundEngine, ReplacedStatesGoAndTheDigestIsTheSameForAnyScheduleOfMisfortunes) {
  World quiet(1, 12, 1, 2);
  quiet.Run(0);
  quiet.ExpectEveryTurnInTheStates();
  EXPECT_GT(quiet.deleted(), 20u) << "of " << 12 * kCohort << " versions for 40 clients";
  for (uint64_t seed = 0; seed < 10; ++seed) {
    World troubled(seed, 12, 1, 3);
    troubled.Run(30);
    EXPECT_EQ(troubled.state_digest(), quiet.state_digest()) << seed;
  }
}

class OneRound : public testing::Test {
 protected:
  explicit OneRound(bool stateful = false)
      : host_(durable_, 1, 1),
        engine_({.run = TestRun(1), .max_deaths = 3, .workers = 1, .stateful = stateful},
                scheduler_, host_) {
    host_.Bind(&engine_);
  }
  fleet::RegisterRequest Node(uint64_t incarnation = 1) {
    return {.name = "w",
            .incarnation = incarnation,
            .slots = 2,
            .input_shape = {2},
            .classes = 2,
            .clients = kPopulation,
            .central_test_rows = 35};
  }
  WorkerId Join(const fleet::RegisterRequest& node) {
    const auto reply = engine_.Register(node, Examples(), TimePoint{});
    EXPECT_TRUE(reply.ok()) << reply.status();
    while (host_.RunOne(random_, TimePoint{})) {
    }
    return reply.ok() ? reply->session : WorkerId();
  }
  fleet::LeaseReply Lease(WorkerId session) {
    engine_.Lease(++ticket_, {.session = session, .wanted = 2, .running = running_}, FromSeconds(1),
                  TimePoint{});
    running_ = 1;
    return host_.leases.contains(ticket_) ? host_.leases.at(ticket_) : fleet::LeaseReply{};
  }

  Durable durable_;
  FakeHost host_;
  scheduler::LongestFirstScheduler scheduler_;
  RoundEngine engine_;
  RandomStream random_{{.seed = 1}};
  Ticket ticket_ = 0;
  uint32_t running_ = 0;  // after the first lease it holds something
};

TEST_F(OneRound, AClientThatKillsItsWorkerThreeTimesStopsTheRunByName) {
  std::optional<ClientId> poison;
  fleet::RegisterRequest node = Node();
  for (uint64_t incarnation = 1; incarnation <= 4 && !host_.ended.has_value(); ++incarnation) {
    node.incarnation = incarnation;
    const WorkerId session = Join(node);
    if (host_.ended.has_value()) break;
    node.died_running.clear();
    for (bool found = false; !found;) {
      const fleet::LeaseReply reply = Lease(session);
      ASSERT_TRUE(reply.training.has_value());
      for (const auto& a : reply.training->assignments) {
        if (!poison.has_value()) poison = a.client;
        if (a.client != *poison) continue;
        node.died_running = {{a.client, a.fence}};
        found = true;
      }
    }
  }
  ASSERT_TRUE(host_.ended.has_value());
  EXPECT_EQ(*host_.ended, RunEnd::kFailed);
  EXPECT_THAT(std::string(host_.error.message()),
              testing::HasSubstr(absl::StrCat("client ", poison->value)));
}

TEST_F(OneRound, ANodeWithOtherDataOrAnotherProfileIsRefusedWithTheReason) {
  Join(Node());
  fleet::RegisterRequest other = Node();
  other.name = "v";
  other.data_digest = DigestOf("other files");
  EXPECT_THAT(std::string(engine_.Register(other, Examples(), TimePoint{}).status().message()),
              testing::HasSubstr("data differs"));
  other = Node();
  other.name = "v";
  other.profile.instruction_set = "avx2";
  EXPECT_THAT(std::string(engine_.Register(other, Examples(), TimePoint{}).status().message()),
              testing::HasSubstr("numeric profile"));
  other = Node();
  other.name = "v";
  other.input_shape = {3};
  EXPECT_FALSE(engine_.Register(other, Examples(), TimePoint{}).ok());
}

TEST_F(OneRound, ACohortLargerThanThePopulationFailsTheRunNotTheProcess) {
  fleet::RegisterRequest node = Node();
  node.clients = 5;
  const auto reply = engine_.Register(node, std::vector<uint32_t>(5, 1), TimePoint{});
  ASSERT_TRUE(host_.ended.has_value());
  EXPECT_THAT(std::string(host_.error.message()), testing::HasSubstr("cohort.size is 12"));
}

TEST_F(OneRound, ARoundThatLosesEveryClientStopsWithTheFirstReason) {
  const WorkerId session = Join(Node());
  uint64_t commit = 0;
  while (!host_.ended.has_value()) {
    const fleet::LeaseReply reply = Lease(session);
    if (!reply.training.has_value()) break;
    fleet::Part part{.round = Round(1), .broadcast = reply.training->broadcast.digest};
    for (const auto& a : reply.training->assignments) {
      part.left_out.push_back({.attempt = {a.client, a.fence}, .message = "no rows"});
    }
    engine_.Commit(++ticket_, {.session = session, .commit_id = ++commit, .part = part},
                   absl::OkStatus(), TimePoint{});
  }
  ASSERT_TRUE(host_.ended.has_value());
  EXPECT_THAT(std::string(host_.error.message()),
              testing::HasSubstr("all 12 clients had to be left out"));
}

TEST_F(OneRound, AStateInARunWithoutStatesIsRefused) {
  const WorkerId session = Join(Node());
  const fleet::LeaseReply reply = Lease(session);
  fleet::Part part{.round = Round(1), .broadcast = reply.training->broadcast.digest};
  for (const auto& a : reply.training->assignments) {
    part.included.push_back(
        {.attempt = {a.client, a.fence},
         .weight = a.weight,
         .examples = Examples()[a.client.value],
         .sums = std::vector<double>(training::SchemaFor(TaskKind::kClassification).sums.size()),
         .has_state = true});
  }
  engine_.Commit(++ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_EQ(host_.commits.at(ticket_).verdict, fleet::Verdict::kRefused);
}

class OneStatefulRound : public OneRound {
 protected:
  OneStatefulRound() : OneRound(/*stateful=*/true) {}
};

TEST_F(OneStatefulRound, AStateThatCannotBeReadStopsTheRunWithTheClientsName) {
  const WorkerId session = Join(Node());
  const fleet::LeaseReply reply = Lease(session);
  const fleet::Assignment& a = reply.training->assignments.at(0);
  fleet::Part part{.round = Round(1), .broadcast = reply.training->broadcast.digest};
  part.left_out.push_back({.attempt = {a.client, {a.fence.epoch, a.fence.counter + 100}},
                           .reason = fleet::LeftOutReason::kState,
                           .message = "not in the store"});
  engine_.Commit(++ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_FALSE(host_.ended.has_value()) << "somebody who is too late may say what he wants";
  part.left_out[0].attempt.fence = a.fence;
  engine_.Commit(++ticket_, {.session = session, .commit_id = 2, .part = part}, absl::OkStatus(),
                 TimePoint{});
  ASSERT_TRUE(host_.ended.has_value());
  EXPECT_THAT(
      std::string(host_.error.message()),
      testing::AllOf(testing::HasSubstr(absl::StrCat("client ", a.client.value)),
                     testing::HasSubstr("not in the store"), testing::HasSubstr("--state-reset")));
}

TEST_F(OneStatefulRound, StatesInMemoryAllowNoSecondWorkerAndEndWithTheirs) {
  fleet::RegisterRequest node = Node();
  node.volatile_state = true;
  const WorkerId session = Join(node);
  fleet::RegisterRequest second = Node();
  second.name = "v";
  EXPECT_THAT(std::string(engine_.Register(second, Examples(), TimePoint{}).status().message()),
              testing::HasSubstr("no second worker"));
  const fleet::LeaseReply reply = Lease(session);
  fleet::Part part{.round = Round(1), .broadcast = reply.training->broadcast.digest};
  for (const auto& a : reply.training->assignments) {
    part.included.push_back(
        {.attempt = {a.client, a.fence},
         .weight = a.weight,
         .examples = Examples()[a.client.value],
         .sums = std::vector<double>(training::SchemaFor(TaskKind::kClassification).sums.size()),
         .has_state = true});
  }
  host_.Hold(++ticket_, {});
  engine_.Commit(ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  engine_.Release({.session = session, .leaving = true}, TimePoint{});
  ASSERT_TRUE(host_.ended.has_value());
  EXPECT_THAT(std::string(host_.error.message()), testing::HasSubstr("in its memory and is gone"));
}

TEST_F(OneRound, AWrongWeightIsRefusedAndTheClientsAreLeasedAgain) {
  const WorkerId session = Join(Node());
  const fleet::LeaseReply reply = Lease(session);
  fleet::Part part{.round = Round(1), .broadcast = reply.training->broadcast.digest};
  for (const auto& a : reply.training->assignments) {
    part.included.push_back(
        {.attempt = {a.client, a.fence},
         .weight = a.weight + 1,
         .examples = Examples()[a.client.value],
         .sums = std::vector<double>(training::SchemaFor(TaskKind::kClassification).sums.size())});
  }
  engine_.Commit(++ticket_, {.session = session, .commit_id = 1, .part = part}, absl::OkStatus(),
                 TimePoint{});
  EXPECT_EQ(host_.commits.at(ticket_).verdict, fleet::Verdict::kRefused);
  std::set<ClientId> again;
  for (int i = 0; i < 20; ++i) {
    const fleet::LeaseReply more = Lease(session);
    if (!more.training.has_value()) break;
    for (const auto& a : more.training->assignments) EXPECT_TRUE(again.insert(a.client).second);
  }
  EXPECT_EQ(again.size(), kCohort);
}

}  // namespace
}  // namespace macaw::server
