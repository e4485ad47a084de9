#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/coordinator.h"
#include "tests/server/tiny_run.h"
#include "training/api/metrics.h"

// Commits that are not a valid part of the open round, and the server's answers to them.
namespace macaw::server {
namespace {

using fixtures::CutTo;
using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::RunBytes;
using fixtures::StartTiny;
using fixtures::Summand;
using fixtures::TinyOptions;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

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
         std::vector<fixtures::Summand> summands;
         for (const auto& record : request.part->included)
           summands.push_back({record.attempt.client});
         request.part->sums = worker.Sums(summands, channels);
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
      {"ALargestValueBelowItsSums", Verdict::kRefused, "cannot have reached",
       [](FakeWorker&, CommitRequest& request) {
         const double small = 1e-12;
         request.part->sums = Patched(request.part->sums, 80, std::as_bytes(std::span(&small, 1)));
       }},
      {"TruncatedSums", Verdict::kRefused, "bytes",
       [](FakeWorker&, CommitRequest& request) {
         request.part->sums = CutTo(request.part->sums, request.part->sums.size / 2);
       }},
      {"NoSumsAtAll", Verdict::kRefused, "brings no sums",
       [](FakeWorker&, CommitRequest& request) { request.part->sums = {}; }},
      {"MoreClientsInTheSumsThanNamed", Verdict::kRefused, "clients but its sums hold",
       [](FakeWorker& worker, CommitRequest& request) {
         auto& included = request.part->included;
         if (included.size() > 1) return included.pop_back();
         const ClientId client = included[0].attempt.client, other(client.value == 0 ? 1 : 0);
         request.part->sums = worker.Sums({{client, included[0].weight}, {other}});
       }},
      {"OtherWeightsInTheSumsThanNamed", Verdict::kRefused, "weigh",
       [](FakeWorker& worker, CommitRequest& request) {
         std::vector<fixtures::Summand> summands;
         for (const auto& record : request.part->included)
           summands.push_back({record.attempt.client, 1});
         request.part->sums = worker.Sums(summands);
       }},
      {"WrongWeight", Verdict::kRefused, "weigh",
       [](FakeWorker&, CommitRequest& request) { request.part->included.back().weight -= 1; }},
      {"WrongMultiplicity", Verdict::kRefused, "weigh",
       [](FakeWorker&, CommitRequest& request) { request.part->included.back().multiplicity = 2; }},
      {"WrongNumberOfMetrics", Verdict::kRefused, "metric sums",
       [](FakeWorker&, CommitRequest& request) { request.part->included[0].sums.pop_back(); }},
      {"NotANumberAsLoss", Verdict::kRefused, "no examples can give",
       [](FakeWorker&, CommitRequest& request) {
         request.part->included[0].sums[1] = std::nan("");
       }},
      {"ALossBeyondEveryFloat", Verdict::kRefused, "no examples can give",
       [](FakeWorker&, CommitRequest& request) { request.part->included[0].sums[1] = 1e308; }},
      {"ALossJustBeyondTheLimit", Verdict::kRefused, "no examples can give",
       [](FakeWorker&, CommitRequest& request) {
         request.part->included[0].sums[1] = 1.001 * training::kLargestSum;
       }},
      {"MoreCorrectThanExamples", Verdict::kRefused, "no examples can give",
       [](FakeWorker&, CommitRequest& request) {
         request.part->included[0].sums[2] = request.part->included[0].sums[0] + 1;
       }},
      {"MoreExamplesThanLeased", Verdict::kRefused, "more work",
       [](FakeWorker&, CommitRequest& request) { request.part->included[0].sums[0] = 1e12; }},
      {"MoreStepsThanLeased", Verdict::kRefused, "more work",
       [](FakeWorker&, CommitRequest& request) { request.part->included[0].steps = UINT64_MAX; }},
      {"MoreBytesThanAnyUpdateHas", Verdict::kRefused, "1152921504606846976 bytes of its update",
       [](FakeWorker&, CommitRequest& request) {
         request.part->included[0].bytes_up = uint64_t{1} << 60;
       }},
      {"NobodyAtAll", Verdict::kAccepted, "",
       [](FakeWorker&, CommitRequest& request) {
         request.part->included.clear();
         request.part->sums = {};
       }},
      {"AStateThatTheRunDoesNotHave", Verdict::kRefused, "keeps none",
       [](FakeWorker&, CommitRequest& request) {
         for (const fleet::ClientRecord& record : request.part->included) {
           request.part->left_out.push_back({.attempt = record.attempt,
                                             .reason = fleet::LeftOutReason::kState,
                                             .message = "its state is gone"});
         }
         request.part->included.clear();
         request.part->sums = {};
       }},
      {"AnotherBroadcast", Verdict::kRefused, "another broadcast",
       [](FakeWorker&, CommitRequest& request) { request.part->broadcast = DigestOf("another"); }},
      {"OneClientTwice", Verdict::kRefused, "twice",
       [](FakeWorker&, CommitRequest& request) {
         auto& included = request.part->included;
         if (included.size() > 1) included.pop_back();
         included.push_back(included.front());
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
       [](FakeWorker&, CommitRequest& request) { request.session = SessionId(4711); }},
  };
}

// Whether rounds wait for each other. If not, as many clients train as a round counts, so that its
// clients do not depend on their order; a part has one of them.
enum class Mode : uint8_t { kWaits, kDoesNotWait };

class HostileCommit : public testing::TestWithParam<std::tuple<Mode, Hostility>> {
 protected:
  static Mode mode() { return std::get<Mode>(GetParam()); }
  static const Hostility& lie() { return std::get<Hostility>(GetParam()); }
  static Options Run(const std::string& run_dir) {
    Options options = TinyOptions(run_dir, 2);
    options.run.evaluation.every = 0;
    if (mode() == Mode::kDoesNotWait) options.run.asynchronous.mode = "buffered";
    return options;
  }
};

TEST_P(HostileCommit, IsAnsweredWithATypeAndCountsNothing) {
  const TemporaryFolder undisturbed, disturbed;
  Finish(Run(undisturbed.path()));

  const auto coordinator = StartTiny(Run(disturbed.path()));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  auto request = worker.WorkOnPart();
  ASSERT_TRUE(request.has_value());
  const size_t clients = mode() == Mode::kWaits ? 4 : 1;
  ASSERT_EQ(request->part->included.size(), clients);
  lie().change(worker, *request);
  const fleet::CommitReply reply = worker.Commit(*request);
  EXPECT_EQ(reply.verdict, lie().verdict) << reply.reason;
  EXPECT_THAT(reply.reason, HasSubstr(lie().reason));

  worker.GiveBackEverything();  // all leases that the refusal has not ended already
  const auto again = worker.WorkOnPart();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->part->included.size(), clients) << "all have to be trained again";
  EXPECT_EQ(worker.Commit(*again).verdict, fleet::Verdict::kAccepted);
  worker.RunToEnd();
  ASSERT_TRUE(coordinator->Wait().ok());
  EXPECT_EQ(RunBytes(undisturbed.path()), RunBytes(disturbed.path()));
}

INSTANTIATE_TEST_SUITE_P(Every, HostileCommit,
                         testing::Combine(testing::Values(Mode::kWaits, Mode::kDoesNotWait),
                                          testing::ValuesIn(Hostilities())),
                         [](const auto& info) {
                           const bool waits = std::get<Mode>(info.param) == Mode::kWaits;
                           return std::get<Hostility>(info.param).name +
                                  (waits ? "" : "WhereRoundsDoNotWait");
                         });

struct HostileEvaluation {
  std::string name;
  std::string reason;  // part of the answer
  std::function<void(fleet::EvaluationResult&)> change;
};

std::vector<HostileEvaluation> HostileEvaluations() {
  using fleet::EvaluationResult;
  return {
      {"RowsThatNobodyAskedFor", "rows it was asked for",
       [](EvaluationResult& result) {
         result.task.begin = 0, result.task.end = 1000000000000;
         result.sums = {1e12, 0.5e12, 1e12};
       }},
      {"MoreCorrectThanRows", "rows it was asked for",
       [](EvaluationResult& result) { result.sums[2] = 1000 * result.sums[0]; }},
      {"NegativeCounts", "rows it was asked for",
       [](EvaluationResult& result) { result.sums[2] = -1; }},
      {"CountsOfClassesThatNobodyAskedFor", "counts of classes",
       [](EvaluationResult& result) { result.counted = {0}, result.counts = {1}; }},
      {"AStateThatCannotBeRead", "reads no client state",
       [](EvaluationResult& result) { result.failure = "client 3's state is gone"; }},
  };
}

class HostileEvaluationTest : public testing::TestWithParam<HostileEvaluation> {};

TEST_P(HostileEvaluationTest, IsRefusedAndNeitherEndsNorChangesTheRun) {
  const TemporaryFolder undisturbed, disturbed;
  Finish(TinyOptions(undisturbed.path(), 2));
  const auto coordinator = StartTiny(TinyOptions(disturbed.path(), 2));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  bool tried = false;
  while (auto request = worker.Work()) {
    if (!tried && !request->evaluations.empty()) {
      tried = true;
      fleet::CommitRequest lie{.session = request->session,
                               .commit_id = request->commit_id,
                               .evaluations = request->evaluations};
      GetParam().change(lie.evaluations.front());
      const fleet::CommitReply reply = worker.Commit(lie);
      EXPECT_EQ(reply.verdict, fleet::Verdict::kRefused);
      EXPECT_THAT(reply.reason, HasSubstr(GetParam().reason));
      request->evaluations.clear();  // these tasks have been queued again
    }
    EXPECT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
  }
  EXPECT_TRUE(tried);
  ASSERT_TRUE(coordinator->Wait().ok());
  EXPECT_EQ(RunBytes(undisturbed.path()), RunBytes(disturbed.path()));
}

// A worker of 0.1.0 tells such losses as they are.
TEST(HostileEvaluation, ALossBeyondTheLimitIsTakenAsAnInfiniteOne) {
  const auto bytes = [](double loss) {
    const TemporaryFolder folder;
    const auto coordinator = StartTiny(TinyOptions(folder.path(), 2));
    FakeWorker worker(*coordinator);
    EXPECT_TRUE(worker.Register().ok());
    while (auto request = worker.Work()) {
      for (fleet::EvaluationResult& result : request->evaluations) {
        if (result.sums[0] > 0) result.sums[1] = loss;
      }
      EXPECT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
    }
    EXPECT_TRUE(coordinator->Wait().ok());
    return RunBytes(folder.path());
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(bytes(1e60), bytes(kInfinity));
  EXPECT_NE(bytes(1e49), bytes(kInfinity)) << "a value that a model may have";
}

INSTANTIATE_TEST_SUITE_P(Every, HostileEvaluationTest, testing::ValuesIn(HostileEvaluations()),
                         [](const auto& info) { return info.param.name; });

// A part with a lease that nobody has, and one of a session that there is not.
void CommitRequestLies(FakeWorker& worker, const fleet::CommitRequest& honest) {
  fleet::CommitRequest lie = honest;
  lie.part->included[0].attempt.fence.counter += 1000;
  fleet::CommitReply reply = worker.Commit(lie);
  EXPECT_EQ(reply.verdict, fleet::Verdict::kStale);
  EXPECT_THAT(reply.reason, HasSubstr("not current"));
  lie = honest;
  lie.session = SessionId(4711);
  EXPECT_EQ(worker.Commit(lie).verdict, fleet::Verdict::kRegister);
}

TEST(Coordinator, RefusesATestSetThatNoMemoryCouldHoldTheTasksOf) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  FakeWorker worker(*coordinator);
  worker.identity().central_test_rows = uint64_t{1} << 40;
  EXPECT_THAT(worker.Register().status().ToString(), HasSubstr("evaluation.chunk"));
  FakeWorker honest(*coordinator);
  ASSERT_TRUE(honest.Register().ok());
  honest.RunToEnd();
  EXPECT_TRUE(coordinator->Wait().ok());
}

TEST(Coordinator, GivesSessionsThatNobodyCanGuess) {
  const TemporaryFolder folder;
  const auto coordinator = StartTiny(TinyOptions(folder.path(), 1));
  std::set<uint64_t> sessions;
  for (int i = 0; i < 8; ++i) {
    FakeWorker worker(*coordinator, absl::StrCat("worker-", i));
    ASSERT_TRUE(worker.Register().ok());
    sessions.insert(worker.session().value >> 32);  // small numbers would share this half
  }
  EXPECT_EQ(sessions.size(), 8u);
}

// Where the vectors of clients are kept, nothing is made of a part before its clients are known to
// be leased to its node.
TEST(Coordinator, TakesPartsOfClientsWhoseVectorsAreKept) {
  const TemporaryFolder undisturbed, disturbed;
  const auto work = [](const std::string& folder, bool lies) {
    Options options = TinyOptions(folder, 2);
    options.run.evaluation.every = 0;
    options.run.algorithm = *fixtures::Registry().Complete({"median", {}});
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    worker.SendOn(fixtures::ChannelsOf(options.run));
    ASSERT_TRUE(worker.Register().ok());
    if (lies) {
      auto request = worker.WorkOnPart();
      ASSERT_TRUE(request.has_value());
      ASSERT_EQ(request->part->included.size(), 4u);
      CommitRequestLies(worker, *request);
      worker.GiveBackEverything();
    }
    worker.RunToEnd();
    ASSERT_TRUE(coordinator->Wait().ok());
  };
  work(undisturbed.path(), false);
  work(disturbed.path(), true);
  EXPECT_EQ(RunBytes(undisturbed.path()), RunBytes(disturbed.path()));
}

// A device of one client would take the room that the uploads of others need.
TEST(Coordinator, TakesNoUploadOfMoreClientsThanItsNodeHas) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 1);
  options.run.algorithm = *fixtures::Registry().Complete({"median", {}});
  const auto coordinator = StartTiny(options);
  FakeWorker worker(*coordinator);
  worker.SendOn(fixtures::ChannelsOf(options.run));
  ASSERT_TRUE(worker.Register().ok());
  const auto request = worker.WorkOnPart();
  ASSERT_TRUE(request.has_value());
  const std::vector<fleet::ClientRecord>& all = request->part->included;
  ASSERT_EQ(all.size(), 4u);
  const auto asked = [&](uint64_t size) {
    absl::Notification answered;
    fleet::UploadVerdict verdict{};
    coordinator->Offer({},
                       {.purpose = fleet::BlobPurpose::kSums,
                        .session = worker.session(),
                        .digest = DigestOf("sums"),
                        .size = size,
                        .round = Round(1),
                        .commit_id = request->commit_id},
                       [&](absl::StatusOr<fleet::UploadVerdict> answer) {
                         verdict = answer.value_or(fleet::UploadVerdict::kBusy);
                         answered.Notify();
                       });
    answered.WaitForNotification();
    return verdict;
  };
  const uint64_t of_four = request->part->sums.size,
                 of_one = worker.Sums({{all[0].attempt.client, all[0].weight}}).size;
  ASSERT_LT(of_one, of_four);
  EXPECT_EQ(asked(of_four), fleet::UploadVerdict::kSend);
  EXPECT_EQ(asked(of_four + 1), fleet::UploadVerdict::kTooLarge);
  fleet::ReleaseRequest release{.session = worker.session()};
  for (size_t i = 1; i < all.size(); ++i) release.attempts.push_back(all[i].attempt);
  ASSERT_TRUE(worker.link().Release(release).ok());
  EXPECT_EQ(asked(of_four), fleet::UploadVerdict::kStale);
  EXPECT_EQ(asked(of_one), fleet::UploadVerdict::kSend);
  worker.GiveBackEverything();
  worker.RunToEnd();
  EXPECT_TRUE(coordinator->Wait().ok());
}

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
  EXPECT_EQ(RunBytes(undisturbed.path()), RunBytes(disturbed.path()));
}

}  // namespace
}  // namespace macaw::server
