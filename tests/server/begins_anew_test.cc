// Runs of a rule whose server half sums what clients keep (FedDyn), on an owner that loses it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/fleet/client_table.h"
#include "server/checkpoint.h"
#include "server/coordinator.h"
#include "server/log/history.h"
#include "server/log/reader.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

using fixtures::ChannelsOf;
using fixtures::FakeWorker;
using fixtures::RunBytes;
using fixtures::StartTiny;
using fixtures::TinyExamples;
using fixtures::TinyLayout;
using fixtures::TinyOptions;
using testing::IsEmpty;
using testing_support::TemporaryFolder;

constexpr uint32_t kRounds = 6;

Options SummingOptions(const TemporaryFolder& folder) {
  Options options = TinyOptions(folder.path(), kRounds);
  options.run.algorithm = *fixtures::Registry().Complete({"feddyn", {}});
  options.run.evaluation.central = false;
  options.config.durability = "commit";
  options.config.checkpoint_every = 100;  // what a server that is started again knows is the log's
  return options;
}

// A device with all clients.
class Owner {
 public:
  // `in_memory`: it keeps their states in its memory.
  explicit Owner(bool in_memory = true) : in_memory_(in_memory) {}

  // As another process, which has no states. Else as the same one, whose server was started again.
  void Join(Coordinator& server, bool as_another_process = false) {
    if (as_another_process) ++incarnation_;
    worker_ = std::make_unique<FakeWorker>(server, "phone");
    worker_->SendOn(ChannelsOf(SummingOptions(folder_).run));
    fleet::RegisterRequest& me = worker_->identity();
    fleet::ClientTable table{.rows = TinyExamples()};
    for (size_t client = 0; client < table.rows.size(); ++client)
      table.names.push_back(absl::StrCat("client ", client));
    me.table = fleet::Blob::Of(table.Encode());
    me.owner = true;
    me.volatile_state = in_memory_;
    me.central_test_rows = 0;
    me.incarnation = incarnation_;
    const auto reply = worker_->Register();
    ASSERT_TRUE(reply.ok()) << reply.status();
  }
  // Trains until a part is due; evaluates on the way. nullopt: the run is over.
  std::optional<fleet::CommitRequest> Train() {
    while (std::optional<fleet::CommitRequest> request = worker_->Work()) {
      request->commit_id = ++commits_;
      for (fleet::EvaluationResult& result : request->evaluations) {
        if (result.task.kind != fleet::EvaluationKind::kStateDigest) continue;
        result.sums.clear();
        result.digest = DigestOf("states");
      }
      if (request->part.has_value()) {
        for (fleet::ClientRecord& record : request->part->included) record.has_state = true;
        return request;
      }
      Send(*request);
    }
    return std::nullopt;
  }
  void Send(const fleet::CommitRequest& request) {
    EXPECT_EQ(worker_->Commit(request).verdict, fleet::Verdict::kAccepted);
  }
  void WorkThrough(uint32_t last_round) {
    while (const auto request = Train()) {
      Send(*request);
      if (request->part->round.value >= last_round) return;
    }
  }

 private:
  const bool in_memory_;
  const TemporaryFolder folder_;
  std::unique_ptr<FakeWorker> worker_;
  uint64_t incarnation_ = 7, commits_ = 0;
};

std::vector<log::StatesLost> LossesIn(const TemporaryFolder& folder) {
  std::vector<log::StatesLost> losses;
  auto reader = log::Reader::Open(folder / "rounds.log");
  EXPECT_TRUE(reader.ok()) << reader.status();
  while (true) {
    const auto entry = reader->Next();
    EXPECT_TRUE(entry.ok()) << entry.status();
    if (!entry.ok() || !entry->has_value()) return losses;
    if (const auto* lost = std::get_if<log::StatesLost>(&(*entry)->record)) losses.push_back(*lost);
  }
}

// h of the newest checkpoint, and its versions.
struct Kept {
  Digest h;
  VersionIndex versions;
};
Kept NewestOf(const Options& options) {
  const auto checkpoint =
      ReadNewestCheckpoint(options.run_dir, Fingerprint(options.run), {TinyLayout()});
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  return {.h = DigestOfValues(checkpoint->state.vectors.at("h").view()),
          .versions = checkpoint->versions};
}

// The states are lost in round 3, once its clients are leased. `leave` is called where the server
// may be started again, with what has happened: it returns the server that goes on.
enum class At : uint8_t { kLost, kClosed, kLater };
template <typename Leave>
void RunWithALoss(const Options& options, const Leave& leave) {
  std::unique_ptr<Coordinator> server = StartTiny(options);
  Owner owner;
  owner.Join(*server);
  owner.WorkThrough(2);
  ASSERT_TRUE(owner.Train().has_value());
  owner.Join(*server, /*as_another_process=*/true);
  const auto maybe = [&](At at) {
    if (!leave(at, server)) return;
    owner.Join(*server);
  };
  maybe(At::kLost);
  owner.WorkThrough(3);
  maybe(At::kClosed);
  owner.WorkThrough(4);
  maybe(At::kLater);
  owner.WorkThrough(kRounds);
  EXPECT_FALSE(owner.Train().has_value());
  const auto outcome = server->Wait();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
}

const auto kStays = [](At, std::unique_ptr<Coordinator>&) { return false; };

TEST(BeginsAnewAfterALoss, TheServerHalfForgetsWhatItHasSummed) {
  const TemporaryFolder disturbed, quiet;
  Options options = SummingOptions(disturbed);
  RunWithALoss(options, kStays);
  const std::vector<log::StatesLost> losses = LossesIn(disturbed);
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_TRUE(losses[0].all);
  EXPECT_EQ(losses[0].round, Round(3));

  options.run_dir = quiet.path();
  const std::unique_ptr<Coordinator> server = StartTiny(options);
  Owner owner;
  owner.Join(*server);
  owner.WorkThrough(kRounds);
  EXPECT_FALSE(owner.Train().has_value());
  ASSERT_TRUE(server->Wait().ok());
  EXPECT_THAT(LossesIn(quiet), IsEmpty());
  EXPECT_NE(RunBytes(quiet.path()).model, RunBytes(disturbed.path()).model)
      << "h is another one in round 4, or the tests below could not fail";
}

TEST(BeginsAnewAfterALoss, AServerThatIsStartedAgainComesToTheSameModel) {
  const TemporaryFolder whole;
  RunWithALoss(SummingOptions(whole), kStays);
  for (const At when : {At::kLost, At::kClosed, At::kLater}) {
    SCOPED_TRACE(static_cast<int>(when));
    const TemporaryFolder folder;
    const Options options = SummingOptions(folder);
    RunWithALoss(options, [&](At at, std::unique_ptr<Coordinator>& server) {
      if (at != when) return false;
      server->Suspend();
      EXPECT_TRUE(server->Wait().ok());
      server.reset();
      Options again = options;
      again.resume = true;
      server = StartTiny(again);
      return true;
    });
    EXPECT_EQ(RunBytes(folder.path()), RunBytes(whole.path()));
    EXPECT_EQ(NewestOf(options).h, NewestOf(SummingOptions(whole)).h);
    EXPECT_EQ(LossesIn(folder).size(), 1u) << "the next server reads it";
  }
}

TEST(BeginsAnewAfterALoss, ARunThatIsInterruptedInThatRoundBeginsAnewWhenItIsResumed) {
  const TemporaryFolder whole, folder;
  RunWithALoss(SummingOptions(whole), kStays);
  Options options = SummingOptions(folder);
  {
    const std::unique_ptr<Coordinator> server = StartTiny(options);
    Owner owner;
    owner.Join(*server);
    owner.WorkThrough(2);
    ASSERT_TRUE(owner.Train().has_value());
    owner.Join(*server, /*as_another_process=*/true);
    server->Interrupt();
    ASSERT_TRUE(server->Wait().ok());
  }
  EXPECT_TRUE(NewestOf(options).versions.empty()) << "what is lost is not in the checkpoint";
  options.resume = true;
  {
    const std::unique_ptr<Coordinator> server = StartTiny(options);
    Owner owner;
    owner.Join(*server, /*as_another_process=*/true);
    owner.WorkThrough(kRounds);
    EXPECT_FALSE(owner.Train().has_value());
    ASSERT_TRUE(server->Wait().ok());
  }
  EXPECT_EQ(RunBytes(folder.path()), RunBytes(whole.path()));
  const std::vector<log::StatesLost> losses = LossesIn(folder);
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_THAT(losses[1].clients, IsEmpty()) << "nobody had anything left to lose";
  EXPECT_TRUE(losses[1].all);
}

TEST(BeginsAnewAfterALoss, TheRunIsRepeatedFromItsLog) {
  const TemporaryFolder whole, again;
  RunWithALoss(SummingOptions(whole), kStays);
  const auto history = log::ReadHistory(whole / "rounds.log");
  ASSERT_TRUE(history.ok()) << history.status();
  Options options = SummingOptions(again);
  options.config.durability = "checkpoint";
  options.replays = history->sessions().front().run;
  options.decisions = history->decisions();
  ASSERT_TRUE(options.decisions.at({Round(3), Phase(0)}).lost_states.all);
  const auto repeat = [&] {
    const std::unique_ptr<Coordinator> server = StartTiny(options);
    Owner owner;
    owner.Join(*server);
    owner.WorkThrough(kRounds);
    EXPECT_FALSE(owner.Train().has_value());
    ASSERT_TRUE(server->Wait().ok());
  };
  repeat();
  EXPECT_EQ(RunBytes(again.path()).model, RunBytes(whole.path()).model);

  // As the log of an earlier version, whose run went on with its sum.
  const TemporaryFolder earlier;
  options.run_dir = earlier.path();
  options.decisions.at({Round(3), Phase(0)}).lost_states.all = false;
  repeat();
  EXPECT_NE(RunBytes(earlier.path()).model, RunBytes(whole.path()).model);
}

TEST(BeginsAnewAfterALoss, SoDoesARunThatIsResumedWithoutTheStateOfAClient) {
  const auto run = [](const TemporaryFolder& folder, bool resets) {
    Options options = SummingOptions(folder);
    Owner owner(/*in_memory=*/false);
    {
      const std::unique_ptr<Coordinator> server = StartTiny(options);
      owner.Join(*server);
      owner.WorkThrough(2);
      ASSERT_TRUE(owner.Train().has_value());
      server->Interrupt();
      ASSERT_TRUE(server->Wait().ok());
    }
    const VersionIndex versions = NewestOf(options).versions;
    ASSERT_FALSE(versions.empty());
    if (resets) options.reset_states = {versions.Page(0).front().client};
    options.resume = true;
    const std::unique_ptr<Coordinator> server = StartTiny(options);
    owner.Join(*server);
    owner.WorkThrough(kRounds);
    EXPECT_FALSE(owner.Train().has_value());
    ASSERT_TRUE(server->Wait().ok());
    const std::vector<log::StatesLost> losses = LossesIn(folder);
    ASSERT_EQ(losses.size(), options.reset_states.size());
    if (resets) {
      EXPECT_EQ(losses[0].clients, options.reset_states);
      EXPECT_EQ(losses[0].round, Round(3));
      EXPECT_TRUE(losses[0].all);
    }
  };
  const TemporaryFolder whole, reset;
  run(whole, false);
  run(reset, true);
  EXPECT_NE(RunBytes(reset.path()).model, RunBytes(whole.path()).model);
}

// What was asked for holds, whether the server that was asked begins a round or the next one does.
TEST(BeginsAnewAfterALoss, AlsoWhereTheServerDiesBeforeTheFirstRoundOfTheResume) {
  const TemporaryFolder interrupted;
  {
    const std::unique_ptr<Coordinator> server = StartTiny(SummingOptions(interrupted));
    Owner owner(/*in_memory=*/false);
    owner.Join(*server);
    owner.WorkThrough(2);
    server->Interrupt();
    ASSERT_TRUE(server->Wait().ok());
  }
  const ClientId client = NewestOf(SummingOptions(interrupted)).versions.Page(0).front().client;
  const auto go_on = [&](const TemporaryFolder& folder, int deaths) {
    std::filesystem::copy(interrupted.path(), folder.path(),
                          std::filesystem::copy_options::recursive);
    Options options = SummingOptions(folder);
    options.resume = true;
    options.reset_states = {client};
    Owner owner(/*in_memory=*/false);
    // Does the rounds up to this one; 0: dies before the first. The next server is not told.
    const auto serve = [&](uint32_t last_round) {
      const std::unique_ptr<Coordinator> server = StartTiny(options);
      if (last_round > 0) owner.Join(*server);
      if (last_round > 0) owner.WorkThrough(last_round);
      if (last_round < kRounds) {
        server->Suspend();
      } else {
        EXPECT_FALSE(owner.Train().has_value());
      }
      EXPECT_TRUE(server->Wait().ok());
      options.reset_states.clear();
    };
    for (int death = 0; death < deaths; ++death) serve(0);
    serve(4);
    serve(kRounds);
    const std::vector<log::StatesLost> losses = LossesIn(folder);
    ASSERT_EQ(losses.size(), 1u) << "once, and not again in a later round";
    EXPECT_THAT(losses[0].clients, testing::ElementsAre(client));
    EXPECT_EQ(losses[0].round, Round(3));
    EXPECT_TRUE(losses[0].all);
  };
  const TemporaryFolder at_once;
  go_on(at_once, 0);
  for (const int deaths : {1, 3}) {
    const TemporaryFolder late;
    go_on(late, deaths);
    EXPECT_EQ(RunBytes(late.path()), RunBytes(at_once.path())) << deaths;
  }
}

}  // namespace
}  // namespace macaw::server
