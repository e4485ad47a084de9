#include "server/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/safetensors.h"
#include "scheduler/cohort.h"
#include "tests/server/tiny_run.h"

// A real coordinator with its threads, files and algorithm; only the workers are made by hand.
namespace macaw::server {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::FakeWorker;
using testing_support::Lines;
using testing_support::Registry;
using testing_support::Slurp;
using testing_support::StartTiny;
using testing_support::TemporaryFolder;
using testing_support::TinyLayout;
using testing_support::TinyModel;
using testing_support::TinyOptions;
using Json = nlohmann::json;

Outcome Finish(Options options) {
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(*coordinator);
  EXPECT_TRUE(worker.Register().ok());
  worker.RunToEnd();
  const auto outcome = coordinator->Wait();
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *outcome : Outcome{};
}

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

absl::Status StartError(Options options) {
  return Coordinator::Start(std::move(options), TinyModel(), Registry()).status();
}

// Everything of a run that must not depend on how it was carried out.
struct Bytes {
  explicit Bytes(const std::string& run_dir)
      : metrics(Slurp(run_dir + "/metrics.jsonl")),
        model(Slurp(run_dir + "/model.safetensors")),
        digest(Json::parse(Slurp(run_dir + "/summary.json"))["model_digest"]) {}
  std::string metrics, model, digest;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

// ---- a whole run

TEST(Coordinator, MovesTheModelByTheWeightedMeanOfTheCohort) {
  const TemporaryFolder folder;
  const Options options = TinyOptions(folder.path(), 3);
  EXPECT_EQ(Finish(options).rounds, 3u);

  const std::vector<uint32_t> examples = testing_support::TinyExamples();
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

TEST(Coordinator, GivesTheSameBytesWhoeverTrains) {
  const TemporaryFolder one, two;
  Finish(TinyOptions(one.path(), 3));
  {
    Options options = TinyOptions(two.path(), 3);
    options.workers = 2;
    const auto coordinator = StartTiny(std::move(options));
    FakeWorker first(*coordinator, "first"), second(*coordinator, "second");
    ASSERT_TRUE(first.Register().ok());
    ASSERT_TRUE(second.Register().ok());
    std::thread beside([&] { second.RunToEnd(); });
    first.RunToEnd();
    beside.join();
    ASSERT_TRUE(coordinator->Wait().ok());
  }
  EXPECT_EQ(Bytes(one.path()), Bytes(two.path()));
}

TEST(Coordinator, WritesOneRecordPerClientAndRoundWhenAsked) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  options.client_records = true;
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

// ---- what is sent to it

struct Hostility {
  std::string name;
  fleet::Verdict verdict;
  std::string reason;  // part of the answer
  std::function<void(FakeWorker&, fleet::CommitRequest&)> change;
};

fleet::Blob Patched(const fleet::Blob& blob, size_t offset, std::span<const std::byte> bytes) {
  AlignedBuffer buffer(blob.size);
  std::memcpy(buffer.bytes().data(), blob.bytes->bytes().data(), blob.size);
  std::memcpy(buffer.bytes().data() + offset, bytes.data(), bytes.size());
  return fleet::Blob::Of(std::move(buffer));
}

std::vector<Hostility> Hostilities() {
  using fleet::CommitRequest;
  using fleet::Verdict;
  return {
      {"WrongLayout", Verdict::kRefused, "other channels",
       [](FakeWorker& worker, CommitRequest& request) {
         auto channels = worker.channels();
         channels[0].layout =
             *ParameterLayout::Make({{.name = "0.weight", .shape = {3, 1}}}, DType::kF32);
         request.part->sums = worker.Sums({{request.part->included[0].attempt.client}}, channels);
       }},
      {"GarbageForSums", Verdict::kRefused, "not an encoded sum",
       [](FakeWorker&, CommitRequest& request) {
         AlignedBuffer garbage(request.part->sums.size);
         std::ranges::fill(garbage.bytes(), std::byte{0x5a});
         request.part->sums = fleet::Blob::Of(std::move(garbage));
       }},
      {"NotANumberAsLargestValue", Verdict::kRefused, "largest value",
       [](FakeWorker&, CommitRequest& request) {
         const double nan = std::nan("");
         request.part->sums = Patched(request.part->sums, 80, std::as_bytes(std::span(&nan, 1)));
       }},
      {"SumsThatNobodyCanReach", Verdict::kRefused, "cannot have reached",
       [](FakeWorker&, CommitRequest& request) {
         const int64_t huge = INT64_MAX;
         request.part->sums = Patched(request.part->sums, 128, std::as_bytes(std::span(&huge, 1)));
       }},
      {"TruncatedSums", Verdict::kRefused, "bytes",
       [](FakeWorker&, CommitRequest& request) {
         AlignedBuffer half(request.part->sums.size / 2);
         std::memcpy(half.bytes().data(), request.part->sums.bytes->bytes().data(), half.size());
         request.part->sums = fleet::Blob::Of(std::move(half));
       }},
      {"NoSumsAtAll", Verdict::kRefused, "brings no sums",
       [](FakeWorker&, CommitRequest& request) { request.part->sums = {}; }},
      {"MoreClientsInTheSumsThanNamed", Verdict::kRefused, "clients but its sums hold",
       [](FakeWorker&, CommitRequest& request) { request.part->included.pop_back(); }},
      {"OtherWeightsInTheSumsThanNamed", Verdict::kRefused, "weigh",
       [](FakeWorker& worker, CommitRequest& request) {
         std::vector<testing_support::Summand> summands;
         for (const auto& record : request.part->included)
           summands.push_back({record.attempt.client, 1});
         request.part->sums = worker.Sums(summands);
       }},
      {"WrongWeight", Verdict::kRefused, "weigh",
       [](FakeWorker&, CommitRequest& request) { request.part->included[1].weight -= 1; }},
      {"WrongMultiplicity", Verdict::kRefused, "weigh",
       [](FakeWorker&, CommitRequest& request) { request.part->included[1].multiplicity = 2; }},
      {"WrongNumberOfMetrics", Verdict::kRefused, "metric sums",
       [](FakeWorker&, CommitRequest& request) { request.part->included[0].sums.pop_back(); }},
      {"AnotherBroadcast", Verdict::kRefused, "another broadcast",
       [](FakeWorker&, CommitRequest& request) { request.part->broadcast = DigestOf("another"); }},
      {"OneClientTwice", Verdict::kRefused, "twice",
       [](FakeWorker&, CommitRequest& request) {
         request.part->included.back() = request.part->included.front();
       }},
      {"StaleFence", Verdict::kStale, "not current",
       [](FakeWorker&, CommitRequest& request) {
         request.part->included[0].attempt.fence.counter += 1000;
       }},
      {"OtherEpoch", Verdict::kStale, "not current",
       [](FakeWorker&, CommitRequest& request) {
         for (auto& record : request.part->included) ++record.attempt.fence.epoch;
       }},
      {"ForeignClient", Verdict::kStale, "not current",
       [](FakeWorker&, CommitRequest& request) {
         request.part->included[0].attempt.client = ClientId(1000);
       }},
      {"RoundThatIsNotOpen", Verdict::kStale, "not open",
       [](FakeWorker&, CommitRequest& request) { request.part->round = Round(7); }},
      {"PhaseThatIsNotOpen", Verdict::kStale, "not open",
       [](FakeWorker&, CommitRequest& request) { request.part->phase = Phase(1); }},
      {"UnknownSession", Verdict::kRegister, "unknown session",
       [](FakeWorker&, CommitRequest& request) { request.session = WorkerId(4711); }},
  };
}

class HostileCommit : public testing::TestWithParam<Hostility> {};

TEST_P(HostileCommit, IsAnsweredWithATypeAndCountsNothing) {
  const TemporaryFolder undisturbed, disturbed;
  Options options = TinyOptions(undisturbed.path(), 2);
  options.run.evaluation.every = 0;
  Finish(options);

  options.run_dir = disturbed.path();
  const auto coordinator = StartTiny(options);
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  auto request = worker.WorkOnPart();
  ASSERT_TRUE(request.has_value());
  ASSERT_EQ(request->part->included.size(), 4u);
  GetParam().change(worker, *request);
  const fleet::CommitReply reply = worker.Commit(*request);
  EXPECT_EQ(reply.verdict, GetParam().verdict) << reply.reason;
  EXPECT_THAT(reply.reason, HasSubstr(GetParam().reason));

  worker.GiveBackEverything();  // what the refusal has not taken back already
  const auto again = worker.WorkOnPart();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->part->included.size(), 4u) << "all four have to be trained again";
  EXPECT_EQ(worker.Commit(*again).verdict, fleet::Verdict::kAccepted);
  worker.RunToEnd();
  ASSERT_TRUE(coordinator->Wait().ok());
  EXPECT_EQ(Bytes(undisturbed.path()), Bytes(disturbed.path()));
}

INSTANTIATE_TEST_SUITE_P(Every, HostileCommit, testing::ValuesIn(Hostilities()),
                         [](const auto& info) { return info.param.name; });

TEST(Coordinator, CountsARepeatedCommitOnce) {
  const TemporaryFolder undisturbed, disturbed;
  Finish(TinyOptions(undisturbed.path(), 2));
  const auto coordinator = StartTiny(TinyOptions(disturbed.path(), 2));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  while (const auto request = worker.Work()) {
    EXPECT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
    EXPECT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kDuplicate);
  }
  ASSERT_TRUE(coordinator->Wait().ok());
  EXPECT_EQ(Bytes(undisturbed.path()), Bytes(disturbed.path()));
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
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 2));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  auto request = worker.WorkOnPart();
  ASSERT_TRUE(request.has_value());
  for (const auto& record : request->part->included) {
    request->part->left_out.push_back({.attempt = record.attempt, .message = "its disk is gone"});
  }
  request->part->included.clear();
  request->part->sums = {};
  EXPECT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
  EXPECT_FALSE(worker.Work().has_value());
  EXPECT_THAT(coordinator->Wait().status().ToString(),
              AllOf(HasSubstr("round 1"), HasSubstr("its disk is gone")));
  EXPECT_FALSE(fs::exists(folder / "summary.json"));
}

TEST(Coordinator, StopsNamingTheClientThatKillsItsWorkers) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  options.max_deaths = 2;
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  ClientId victim;
  for (uint64_t death = 1; death <= 2; ++death) {
    const auto request = worker.WorkOnPart();  // and dies before it commits
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
              HasSubstr(absl::StrCat("client ", victim.value, " ")));
}

TEST(Coordinator, RefusesAnotherProtocolAndServesOlderMinors) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  const auto link = fleet::MakeLocalLink(*coordinator);
  EXPECT_TRUE(link->Hello({.major = 1, .minor = 0, .program = "test"}).ok());
  EXPECT_THAT(link->Hello({.major = 2, .program = "test"}).status().ToString(),
              HasSubstr("protocol"));
}

// ---- interrupted, and carried on

class Interrupted : public testing::TestWithParam<uint32_t> {};

TEST_P(Interrupted, AndResumedGivesTheBytesOfAnUndisturbedRun) {
  const TemporaryFolder whole, parts;
  Options options = TinyOptions(whole.path(), 4);
  options.client_records = true;
  options.checkpoint_every = 3;
  Finish(options);

  options.run_dir = parts.path();
  const uint32_t committed = GetParam();
  {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    if (committed > 0) worker.RunThrough(committed);
    ASSERT_TRUE(worker.WorkOnPart().has_value());  // in mid-round, with the row before still owed
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
    const auto outcome = coordinator->Wait();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->kind, Outcome::Kind::kInterrupted);
    EXPECT_EQ(outcome->rounds, committed);
  }
  options.resume = true;
  const Outcome outcome = Finish(options);
  EXPECT_EQ(outcome.kind, Outcome::Kind::kFinished);
  EXPECT_EQ(outcome.rounds, 4u);
  EXPECT_EQ(Bytes(whole.path()), Bytes(parts.path()));
  EXPECT_EQ(Slurp(whole / "clients.jsonl"), Slurp(parts / "clients.jsonl"));
  EXPECT_EQ(Slurp(parts / "epoch"), "2\n");
}

INSTANTIATE_TEST_SUITE_P(After, Interrupted, testing::Values(0u, 1u, 2u, 3u));

TEST(Coordinator, GoesBackToTheCheckpointAfterACrash) {
  const TemporaryFolder whole, parts;
  Options options = TinyOptions(whole.path(), 4);
  options.checkpoint_every = 2;
  options.client_records = true;
  Finish(options);
  options.run_dir = parts.path();
  {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(3);
    // A crash keeps no last checkpoint: the folder is copied while the run is on, and only the copy
    // is used.
    ASSERT_TRUE(worker.WorkOnPart().has_value());
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
    ASSERT_TRUE(coordinator->Wait().ok());
    fs::remove(parts / "checkpoints/round-00000003.safetensors");
    ASSERT_TRUE(fs::exists(parts / "checkpoints/round-00000002.safetensors"));
    fs::remove(parts / "summary.json");
  }
  options.resume = true;
  Finish(options);
  EXPECT_EQ(Bytes(whole.path()), Bytes(parts.path()));
  EXPECT_EQ(Slurp(whole / "clients.jsonl"), Slurp(parts / "clients.jsonl"));
}

// Two rounds of four, then an interruption.
void RunHalf(const Options& options) {
  const auto coordinator = StartTiny(options);
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  worker.RunThrough(2);
  ASSERT_TRUE(worker.WorkOnPart().has_value());
  coordinator->Interrupt();
  EXPECT_FALSE(worker.Work().has_value());
  ASSERT_TRUE(coordinator->Wait().ok());
}

TEST(Resume, RefusesAnotherConfigurationByTheKeyThatDiffers) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  RunHalf(options);
  options.resume = true;
  options.run.local.lr = 0.25;
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr("local.lr"), HasSubstr("0.1"), HasSubstr("0.25")));
  EXPECT_EQ(Slurp(folder / "epoch"), "1\n") << "a refused start is no start";
  options.run = testing_support::TinyRun(4);
  options.run.algorithm.name = "fedprox";
  EXPECT_THAT(StartError(options).ToString(), HasSubstr("algorithm."));
  options.run = testing_support::TinyRun(6);  // longer is no other configuration
  EXPECT_EQ(Finish(options).rounds, 6u);
}

TEST(Resume, RefusesADamagedCheckpointAndSaysWhatToDo) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  RunHalf(options);
  const std::string path = folder / "checkpoints/round-00000002.safetensors";
  std::string bytes = Slurp(path);
  bytes[bytes.size() - 3] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  options.resume = true;
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr(path), HasSubstr("damaged"), HasSubstr("remove it to resume from"),
                    HasSubstr("round-00000001")));
  fs::remove(path);
  EXPECT_EQ(Finish(options).rounds, 4u) << "the advice helps";
}

TEST(Resume, RefusesAnEmptyFolderAndAFinishedRun) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  options.resume = true;
  EXPECT_THAT(StartError(options).ToString(), HasSubstr("no checkpoint"));
  options.resume = false;
  Finish(options);
  options.resume = true;
  EXPECT_THAT(StartError(options).ToString(), AllOf(HasSubstr("2 rounds"), HasSubstr("--rounds")));
  options.run.rounds = 3;
  EXPECT_EQ(Finish(options).rounds, 3u);
}

TEST(Resume, RefusesWorkersWithOtherDataOrAnotherProfile) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  RunHalf(options);
  options.resume = true;
  const auto coordinator = StartTiny(options);
  FakeWorker data(*coordinator, "data"), profile(*coordinator, "profile"), fits(*coordinator);
  data.identity().data_digest = DigestOf("something else");
  EXPECT_THAT(data.Register().status().ToString(), HasSubstr("what the checkpoint was trained on"));
  profile.identity().profile.libraries = "2";
  EXPECT_THAT(profile.Register().status().ToString(), HasSubstr("differs from the checkpoint's"));
  ASSERT_TRUE(fits.Register().ok());
  fits.RunToEnd();
  EXPECT_TRUE(coordinator->Wait().ok());
}

TEST(Coordinator, CountsTheEpochUpWithEachStart) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 3);
  for (uint32_t epoch = 1; epoch <= 3; ++epoch) {
    options.resume = epoch > 1;
    const auto coordinator = StartTiny(options);
    EXPECT_EQ(Slurp(folder / "epoch"), absl::StrCat(epoch, "\n")) << "before the first lease";
    FakeWorker worker(*coordinator);
    const auto reply = worker.Register();
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply->epoch, epoch);
    const auto request = worker.WorkOnPart();
    ASSERT_TRUE(request.has_value());
    EXPECT_EQ(request->part->included[0].attempt.fence.epoch, epoch);
    ASSERT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
    if (epoch == 3) break;
    ASSERT_TRUE(worker.WorkOnPart().has_value());
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
  }
}

TEST(Coordinator, DoesNotStartAfreshOverTheCheckpointsOfAnotherRun) {
  const TemporaryFolder folder;
  const Options options = TinyOptions(folder.path(), 4);
  RunHalf(options);
  const std::string rows = Slurp(folder / "metrics.jsonl");
  EXPECT_THAT(StartError(options).ToString(), AllOf(HasSubstr(folder.path()), HasSubstr("resume")));
  EXPECT_EQ(Slurp(folder / "metrics.jsonl"), rows);
  EXPECT_EQ(Slurp(folder / "epoch"), "1\n");
}

// ---- the rule that ends a run early

// Runs with these accuracies after rounds 1, 2, …; interrupted in each of `interruptions` first.
Outcome RunWithRule(const std::string& run_dir, const StopRule& rule,
                    const std::vector<double>& accuracies,
                    const std::vector<uint32_t>& interruptions = {}) {
  Options options = TinyOptions(run_dir, static_cast<uint32_t>(accuracies.size()));
  options.stop = rule;
  const auto accuracy = [&](Round round) { return accuracies.at(round.value - 1); };
  for (const uint32_t round : interruptions) {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    worker.accuracy = accuracy;
    EXPECT_TRUE(worker.Register().ok());
    worker.RunThrough(round);
    coordinator->Interrupt();
    while (worker.Work().has_value()) {
    }
    EXPECT_TRUE(coordinator->Wait().ok());
    options.resume = true;
  }
  const auto coordinator = StartTiny(options);
  FakeWorker worker(*coordinator);
  worker.accuracy = accuracy;
  EXPECT_TRUE(worker.Register().ok());
  worker.RunToEnd();
  const auto outcome = coordinator->Wait();
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *outcome : Outcome{};
}

TEST(StopRule, EndsTheRunWhenTheMetricIsGoodEnough) {
  const TemporaryFolder folder;
  const StopRule rule{.metric = "test_accuracy", .at_least = 0.7, .has_at_least = true};
  const Outcome outcome = RunWithRule(folder.path(), rule, {0.1, 0.6, 0.7, 0.9, 0.9});
  EXPECT_EQ(outcome.kind, Outcome::Kind::kStopped);
  EXPECT_EQ(outcome.rounds, 3u);
  EXPECT_THAT(outcome.reason, AllOf(HasSubstr("test_accuracy"), HasSubstr("0.7")));
  const Json summary = Json::parse(Slurp(folder / "summary.json"));
  EXPECT_EQ(summary["end"], "stopped");
  EXPECT_EQ(summary["reason"], outcome.reason);
  EXPECT_EQ(summary["best"]["round"], 3);
  EXPECT_EQ(Lines(folder / "metrics.jsonl").size(), 3u);
}

TEST(StopRule, EndsTheRunWhenPatienceRunsOutAlsoAcrossAResume) {
  const StopRule rule{.metric = "test_accuracy", .patience = 3};
  const std::vector<double> accuracies = {0.2, 0.5, 0.4, 0.5, 0.3, 0.9, 0.9};
  const TemporaryFolder whole;
  const Outcome outcome = RunWithRule(whole.path(), rule, accuracies);
  EXPECT_EQ(outcome.kind, Outcome::Kind::kStopped);
  EXPECT_EQ(outcome.rounds, 5u) << "rounds 3, 4 and 5 are no better than 2";
  for (uint32_t round = 1; round <= 4; ++round) {
    const TemporaryFolder parts;
    EXPECT_EQ(RunWithRule(parts.path(), rule, accuracies, {round}).rounds, 5u) << round;
    EXPECT_EQ(Bytes(whole.path()), Bytes(parts.path())) << round;
  }
  const TemporaryFolder often;
  EXPECT_EQ(RunWithRule(often.path(), rule, accuracies, {2, 3, 4}).rounds, 5u);
}

TEST(StopRule, LetsARunFinishThatNeverGetsThere) {
  const TemporaryFolder folder;
  const StopRule rule{.metric = "test_accuracy", .at_least = 0.99, .has_at_least = true};
  const Outcome outcome = RunWithRule(folder.path(), rule, {0.1, 0.2, 0.3});
  EXPECT_EQ(outcome.kind, Outcome::Kind::kFinished);
  EXPECT_EQ(outcome.rounds, 3u);
}

TEST(StopRule, DoesNotLetAStoppedRunBeResumedUnderTheSameRule) {
  const TemporaryFolder folder;
  const StopRule rule{.metric = "test_accuracy", .at_least = 0.5, .has_at_least = true};
  EXPECT_EQ(RunWithRule(folder.path(), rule, {0.1, 0.6, 0.7, 0.9}).rounds, 2u);
  Options options = TinyOptions(folder.path(), 4);
  options.resume = true;
  options.stop = rule;
  EXPECT_THAT(StartError(options).ToString(), AllOf(HasSubstr("stopped"), HasSubstr("run.stop")));
  options.stop.at_least = 0.65;
  EXPECT_EQ(Finish(options).rounds, 4u) << "another rule may carry it on";
}

TEST(StopRule, IsCheckedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  options.stop = {.metric = "test_acuracy", .patience = 2};
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr("test_acuracy"), HasSubstr("test_accuracy")));
  EXPECT_TRUE(fs::is_empty(folder.path()));
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
  options.checkpoint_every = 2;
  options.run.evaluation.every = 0;
  // Before the first checkpoint, on the thread that will ask for it.
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
