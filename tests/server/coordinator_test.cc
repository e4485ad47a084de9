#include "server/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "core/safetensors.h"
#include "proto/fleet/once.h"
#include "scheduler/cohort.h"
#include "testing/local_link.h"
#include "tests/server/tiny_run.h"

// Tests of a real coordinator with its threads, files and algorithm. Only the workers are fakes.
namespace macaw::server {
namespace {

namespace fs = std::filesystem;
using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::Lines;
using fixtures::RunBytes;
using fixtures::Slurp;
using fixtures::StartError;
using fixtures::StartTiny;
using fixtures::TinyLayout;
using fixtures::TinyOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

std::vector<float> ModelIn(const std::string& run_dir) {
  const auto model = ReadModel(run_dir + "/model.safetensors", TinyLayout());
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<float> numbers;
  for (const LayoutEntry& entry : TinyLayout()->entries()) {
    for (uint64_t i = 0; i < entry.size; ++i)
      numbers.push_back(model->As<float>()[entry.offset + i]);
  }
  return numbers;
}

// A fleet's last answer is that the run is over. Many of them are still on their way through the
// writer when the run has ended.
TEST(Coordinator, EndsAWaitOnceEverybodyWhoAsksForWorkHasBeenTold) {
  constexpr uint32_t kWorkers = 300;
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 1);
  options.config.durability = "commit";
  options.config.workers = kWorkers + 1;  // the last one never comes
  const auto coordinator = StartTiny(std::move(options));
  std::atomic<uint32_t> told = 0;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    FakeWorker worker(*coordinator, absl::StrCat("worker-", i));
    ASSERT_TRUE(worker.Register().ok());
    coordinator->Lease({}, {.session = worker.session(), .wanted = 1, .wait = FromSeconds(60)},
                       [&told](const absl::StatusOr<fleet::LeaseReply>& reply) {
                         if (reply.ok() && reply->next == fleet::Next::kFinished) ++told;
                       });
  }
  coordinator->Interrupt();
  EXPECT_TRUE(coordinator->Wait().ok());
  EXPECT_EQ(told, kWorkers);
}

// A node that may choose takes what the server tells here, so that it is let in.
TEST(Coordinator, TellsWithWhichInstructionsTheRunTrains) {
  const auto told = [](Coordinator& coordinator) {
    std::string set = "no answer";
    coordinator.Hello({}, {}, [&set](const absl::StatusOr<fleet::HelloReply>& reply) {
      if (reply.ok()) set = reply->instruction_set;
    });
    return set;
  };
  const TemporaryFolder folder, named, mixed;
  {
    const auto coordinator = StartTiny(TinyOptions(folder.path(), 2));
    EXPECT_EQ(told(*coordinator), "") << "nobody has registered";
    FakeWorker first(*coordinator), other(*coordinator, "other");
    first.identity().profile.instruction_set = "sse4";
    other.identity().profile.instruction_set = "avx2";
    ASSERT_TRUE(first.Register().ok());
    EXPECT_EQ(told(*coordinator), "sse4");
    EXPECT_TRUE(absl::IsFailedPrecondition(other.Register().status()));
    first.RunThrough(1);
    coordinator->Interrupt();
    EXPECT_TRUE(coordinator->Wait().ok());
  }
  Options resumed = TinyOptions(folder.path(), 2);
  resumed.resume = true;
  EXPECT_EQ(told(*StartTiny(std::move(resumed))), "sse4");
  Options options = TinyOptions(named.path(), 2);
  options.config.instruction_set = "avx2";
  EXPECT_EQ(told(*StartTiny(std::move(options))), "avx2");
  options = TinyOptions(mixed.path(), 2);
  options.config.mixed_profiles = true;
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  EXPECT_EQ(told(*coordinator), "");
}

// ---- a whole run

TEST(Coordinator, MovesTheModelByTheWeightedMeanOfTheCohort) {
  const TemporaryFolder folder;
  const Options options = TinyOptions(folder.path(), 3);
  EXPECT_EQ(Finish(options).rounds, 3u);

  const std::vector<uint32_t> examples = fixtures::TinyExamples();
  const auto sampler = *scheduler::MakeSampler(options.run.cohort, examples);
  std::vector<double> x = {1, 2, 3, 4};
  for (uint32_t round = 1; round <= 3; ++round) {
    double weight = 0;
    std::vector<double> sum(4, 0.0);
    const scheduler::Cohort cohort = sampler->Sample(Round(round));
    ASSERT_EQ(cohort.entries.size(), 4u);
    for (const scheduler::CohortEntry& entry : cohort.entries) {
      const double w = examples[entry.client.value];
      weight += w;
      for (size_t j = 0; j < 4; ++j)
        sum[j] += w * (static_cast<double>(entry.client.value + j) - x[j]) / 2;
    }
    for (size_t j = 0; j < 4; ++j) x[j] += sum[j] / weight;
  }
  const std::vector<float> model = ModelIn(folder.path());
  for (size_t j = 0; j < 4; ++j) EXPECT_NEAR(model[j], x[j], 1e-5 * std::fabs(x[j])) << j;
}

TEST(Coordinator, LeavesTheFilesThatTheDocumentationNames) {
  const TemporaryFolder folder;
  EXPECT_EQ(Finish(TinyOptions(folder.path(), 4)).kind, Outcome::Kind::kFinished);

  const std::vector<std::string> rows = Lines(folder / "metrics.jsonl");
  ASSERT_EQ(rows.size(), 4u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json row = Json::parse(rows[i]);
    EXPECT_EQ(row["round"], i + 1);
    EXPECT_EQ(row["clients"], 4);
    EXPECT_EQ(row["steps"], 8);
    EXPECT_EQ(row["train_accuracy"], 0.5);
    EXPECT_EQ(row["test_accuracy"], 0.5);
    EXPECT_EQ(row["test_loss"], 0.5);
  }
  const Json summary = Json::parse(Slurp(folder / "summary.json"));
  EXPECT_EQ(summary["end"], "finished");
  EXPECT_EQ(summary["rounds"], 4);
  EXPECT_EQ(summary["parameters"], 4);
  EXPECT_EQ(summary["best"]["metric"], "test_accuracy");
  EXPECT_EQ(summary["rounds_to"]["0.5"], 1);
  EXPECT_GT(summary["peak_memory_bytes"]["server"], 0);
  const auto model = ReadModel(folder / "model.safetensors", TinyLayout());
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(summary["model_digest"], DigestOfValues(model->view()).Hex());
  EXPECT_EQ(Slurp(folder / "epoch"), "1\n");
  EXPECT_TRUE(fs::exists(folder / "checkpoints/round-00000003.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "checkpoints/round-00000004.safetensors"));
  EXPECT_FALSE(fs::exists(folder / "checkpoints/round-00000002.safetensors"));
  for (const std::string& line : Lines(folder / "events.jsonl"))
    EXPECT_TRUE(Json::parse(line).contains("event")) << line;
}

TEST(Coordinator, SummaryTellsOfWhichExperimentTheRunIs) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  options.run.seed = 5;
  options.settings = R"({"local.lr":0.05})";
  Finish(std::move(options));
  const Json summary = Json::parse(Slurp(folder / "summary.json"));
  EXPECT_EQ(summary["algorithm"], "fedavg");
  EXPECT_EQ(summary["seed"], 5);
  EXPECT_EQ(summary["settings"]["local.lr"], 0.05);
  EXPECT_EQ(summary["data_digest"].get<std::string>().size(), 64u);
  EXPECT_NE(summary["data_digest"], Digest().Hex());
  EXPECT_EQ(summary["bests"]["test_accuracy"], Json({{"value", 0.5}, {"round", 1}}));
}

TEST(Coordinator, GivesTheSameBytesWhoeverTrains) {
  const TemporaryFolder one, two;
  Finish(TinyOptions(one.path(), 3));
  {
    Options options = TinyOptions(two.path(), 3);
    options.config.workers = 2;
    const auto coordinator = StartTiny(std::move(options));
    FakeWorker first(*coordinator, "first"), second(*coordinator, "second");
    ASSERT_TRUE(first.Register().ok());
    ASSERT_TRUE(second.Register().ok());
    std::thread beside([&] { second.RunToEnd(); });
    first.RunToEnd();
    beside.join();
    ASSERT_TRUE(coordinator->Wait().ok());
  }
  EXPECT_EQ(RunBytes(one.path()), RunBytes(two.path()));
}

// ---- uploads

fleet::UploadVerdict Offered(Coordinator& coordinator, const fleet::UploadOffer& offer) {
  absl::Notification answered;
  absl::StatusOr<fleet::UploadVerdict> verdict;
  coordinator.Offer({}, offer, [&](absl::StatusOr<fleet::UploadVerdict> answer) {
    verdict = std::move(answer);
    answered.Notify();
  });
  answered.WaitForNotification();
  return *verdict;
}

TEST(Coordinator, KnowsACommitThatItHasAcceptedAlsoWhenItsRoundIsOver) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 2));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  const auto request = worker.WorkOnPart();
  ASSERT_TRUE(request.has_value());
  const fleet::UploadOffer offer{.session = worker.session(),
                                 .digest = request->part->sums.digest,
                                 .size = request->part->sums.size,
                                 .round = Round(1),
                                 .commit_id = request->commit_id};
  EXPECT_EQ(Offered(*coordinator, offer), fleet::UploadVerdict::kSend);
  EXPECT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
  // The answer was lost, and the worker offers the same upload again: in the open round, and after
  // it.
  EXPECT_EQ(Offered(*coordinator, offer), fleet::UploadVerdict::kNotNeeded);
  EXPECT_EQ(worker.WorkOnPart()->part->round, Round(2));
  EXPECT_EQ(Offered(*coordinator, offer), fleet::UploadVerdict::kNotNeeded);
  fleet::UploadOffer late = offer;  // of another commit, which is too late for its round
  late.commit_id = 1000;
  EXPECT_EQ(Offered(*coordinator, late), fleet::UploadVerdict::kStale);
  worker.GiveBackEverything();
  worker.RunToEnd();
  EXPECT_TRUE(coordinator->Wait().ok());
}

TEST(Coordinator, TakesUploadsThatTheOpenRoundCanNeedAndNoLargerOnes) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  FakeWorker worker(*coordinator);
  fleet::UploadOffer offer{.session = SessionId(3), .digest = DigestOf("sums"), .size = 1};
  EXPECT_EQ(Offered(*coordinator, offer), fleet::UploadVerdict::kStale);
  EXPECT_FALSE(coordinator->Knows(SessionId(3)));
  ASSERT_TRUE(worker.Register().ok());
  EXPECT_TRUE(coordinator->Knows(worker.session()));
  const auto request = worker.WorkOnPart();
  ASSERT_TRUE(request.has_value());
  offer = {.session = worker.session(),
           .digest = request->part->sums.digest,
           .size = request->part->sums.size,
           .round = Round(1),
           .commit_id = request->commit_id};
  EXPECT_EQ(Offered(*coordinator, offer), fleet::UploadVerdict::kSend);
  ++offer.size;
  EXPECT_EQ(Offered(*coordinator, offer), fleet::UploadVerdict::kTooLarge);
  EXPECT_TRUE(worker.link().Release({.session = worker.session(), .leaving = true}).ok());
  EXPECT_FALSE(coordinator->Knows(worker.session()));
}

// ---- heartbeats

TEST(Coordinator, AFloodOfHeartbeatsDoesNotReachTheEngine) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  const Attempt never{ClientId(1), {1, 1000}};  // the engine answers that the node does not hold it
  int heard = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto reply = worker.link().Heartbeat({.session = worker.session(), .held = {never}});
    ASSERT_TRUE(reply.ok());
    EXPECT_TRUE(reply->known);
    heard += reply->dropped.empty() ? 0 : 1;
  }
  EXPECT_GE(heard, 20);  // a short burst is allowed
  EXPECT_LT(heard, 500);
  EXPECT_FALSE(worker.link().Heartbeat({.session = SessionId(3)})->known);
  worker.RunToEnd();
  EXPECT_TRUE(coordinator->Wait().ok());
}

// ---- a commit that asks for the next work

fleet::CommitRequest Asking(fleet::CommitRequest request) {
  request.ask = fleet::LeaseRequest{.wanted = 1, .wait = FromSeconds(20)};
  return request;
}

TEST(Coordinator, AnswersACommitThatAsksWithTheNextWork) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  const fleet::CommitRequest part = Asking(*worker.WorkOnPart());
  const fleet::CommitReply first = worker.Commit(part);
  EXPECT_EQ(first.verdict, fleet::Verdict::kAccepted);
  ASSERT_TRUE(first.lease.has_value());
  ASSERT_TRUE(first.lease->evaluation.has_value());

  // The answer was lost. The repeated commit gets the same work again, with new fences.
  const fleet::CommitReply again = worker.Commit(part);
  EXPECT_EQ(again.verdict, fleet::Verdict::kDuplicate);
  ASSERT_TRUE(again.lease.has_value());
  ASSERT_TRUE(again.lease->evaluation.has_value());
  EXPECT_NE(again.lease->evaluation->tasks.at(0).fence, first.lease->evaluation->tasks.at(0).fence);

  const std::optional<fleet::CommitRequest> evaluated = worker.Work();
  ASSERT_TRUE(evaluated.has_value());
  const fleet::CommitReply last = worker.Commit(Asking(*evaluated));
  EXPECT_EQ(last.verdict, fleet::Verdict::kAccepted);
  ASSERT_TRUE(last.lease.has_value());
  EXPECT_EQ(last.lease->next, fleet::Next::kFinished);
  EXPECT_TRUE(coordinator->Wait().ok());
}

// The connection breaks while a part is being added, and the worker repeats the commit. The work
// that the second call gets must not be taken back by the first call.
TEST(Coordinator, AnswersTheAskOfTheNewestCallOnly) {
  constexpr int kRounds = 300;
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), kRounds);
  options.run.evaluation.every = 0;
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  const auto fence = [](const fleet::CommitReply& reply) {
    if (!reply.lease.has_value() || !reply.lease->training.has_value()) return uint64_t{0};
    return reply.lease->training->assignments.at(0).fence.counter;
  };
  for (int round = 1; round < kRounds; ++round) {
    const fleet::CommitRequest part = Asking(*worker.WorkOnPart());
    fleet::CommitReply replies[2];
    absl::Notification answered[2];
    for (int call = 0; call < 2; ++call) {
      const auto take = [&replies, &answered, call](absl::StatusOr<fleet::CommitReply> reply) {
        if (reply.ok()) replies[call] = *std::move(reply);
        answered[call].Notify();
      };
      coordinator->Commit({}, part, fleet::AnswerOnce<fleet::CommitReply>(take));
    }
    for (absl::Notification& one : answered) one.WaitForNotification();
    EXPECT_EQ(replies[1].verdict, fleet::Verdict::kDuplicate);
    ASSERT_GT(fence(replies[1]), fence(replies[0])) << "round " << round;
  }
}

TEST(Coordinator, LeasesNothingWithACommitThatItRefuses) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  fleet::CommitRequest wrong = Asking(*worker.WorkOnPart());
  wrong.part->included.at(0).weight += 1;
  const fleet::CommitReply refused = worker.Commit(wrong);
  EXPECT_EQ(refused.verdict, fleet::Verdict::kRefused);
  EXPECT_FALSE(refused.lease.has_value());
  wrong.session = SessionId(99);
  const fleet::CommitReply unknown = worker.Commit(wrong);
  EXPECT_EQ(unknown.verdict, fleet::Verdict::kRegister);
  EXPECT_FALSE(unknown.lease.has_value());
}

TEST(Coordinator, WritesOneRecordPerClientAndRoundWhenAsked) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  options.config.client_records = true;
  Finish(options);
  const std::vector<std::string> rows = Lines(folder / "clients.jsonl");
  ASSERT_EQ(rows.size(), 8u);
  int64_t former = -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json row = Json::parse(rows[i]);
    if (i == 4) former = -1;
    EXPECT_EQ(row["round"], 1 + i / 4);
    EXPECT_GT(row["client"], former) << "by client id";
    former = row["client"];
    EXPECT_EQ(row["examples"], former + 3);
    EXPECT_EQ(row["weight"], former + 3);
    EXPECT_EQ(row["loss"], 0.25 * static_cast<double>(former));
  }
}

TEST(Coordinator, RefusesAWorkerWithOtherDataAndGoesOn) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  FakeWorker worker(*coordinator), stranger(*coordinator, "stranger");
  ASSERT_TRUE(worker.Register().ok());
  stranger.identity().data_digest = DigestOf("something else");
  EXPECT_THAT(stranger.Register().status().ToString(),
              AllOf(HasSubstr("stranger"), HasSubstr("data differs")));
  stranger.identity() = worker.identity();
  stranger.identity().name = "stranger";
  stranger.identity().profile.instruction_set = "other";
  EXPECT_THAT(stranger.Register().status().ToString(), HasSubstr("numeric profile"));
  worker.RunToEnd();
  EXPECT_TRUE(coordinator->Wait().ok());
}

TEST(Coordinator, StopsWithTheReasonWhenNobodyCouldBeTrained) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 9));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  uint32_t rounds = 0;
  for (; auto request = worker.WorkOnPart(); ++rounds) {
    for (const auto& record : request->part->included) {
      request->part->left_out.push_back({.attempt = record.attempt, .message = "its disk is gone"});
    }
    request->part->included.clear();
    request->part->sums = {};
    EXPECT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
  }
  EXPECT_EQ(rounds, 5u) << "in a row";
  EXPECT_THAT(coordinator->Wait().status().ToString(),
              AllOf(HasSubstr("round 5"), HasSubstr("its disk is gone")));
  EXPECT_FALSE(fs::exists(folder / "summary.json"));
}

TEST(Coordinator, StopsNamingTheClientThatKillsItsWorkers) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  options.config.max_deaths = 2;
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  ClientId victim;
  for (uint64_t death = 1; death <= 2; ++death) {
    const auto request = worker.WorkOnPart();  // the worker dies before it commits
    ASSERT_TRUE(request.has_value());
    Attempt running = request->part->included[0].attempt;
    for (const auto& record : request->part->included) {
      if (death == 2 && record.attempt.client == victim) running = record.attempt;
    }
    victim = running.client;
    ++worker.identity().incarnation;
    worker.identity().died_running = {running};
    ASSERT_TRUE(worker.Register().ok());
  }
  EXPECT_FALSE(worker.Work().has_value());
  EXPECT_THAT(coordinator->Wait().status().ToString(),
              HasSubstr(absl::StrCat("client ", victim.value, ": ")));
}

// ---- the disk

TEST(Coordinator, SaysWhichFolderItCannotWrite) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "in the way";
  EXPECT_THAT(StartError(TinyOptions(folder / "file/run", 2)).ToString(), HasSubstr("file/run"));
}

TEST(Coordinator, EndsWithTheReasonWhenTheDiskFailsInMidRun) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 1000);
  options.config.checkpoint_every = 2;
  options.run.evaluation.every = 0;
  // Called before the first checkpoint, on the thread that will write it.
  options.on_row = [&, done = false](const std::string&) mutable {
    if (std::exchange(done, true)) return;
    fs::remove_all(folder / "checkpoints");
    std::ofstream(folder / "checkpoints") << "in the way";
  };
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  while (const auto request = worker.Work()) (void)worker.Commit(*request);
  EXPECT_THAT(coordinator->Wait().status().ToString(), HasSubstr("checkpoints"));
  EXPECT_FALSE(fs::exists(folder / "summary.json"));
}

}  // namespace
}  // namespace macaw::server
