#pragma once

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "core/memory.h"
#include "core/random.h"
#include "proto/fleet/client_table.h"
#include "proto/wire/bulk_stream.h"
#include "proto/wire/chunk.h"
#include "proto/wire/convert.h"
#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"
#include "proto/wire/remote.h"
#include "server/log/history.h"
#include "testing/random_message.h"
#include "testing/test_address.h"
#include "tests/server/tiny_run.h"

// The false values that a lying worker sends, and the honest workers beside it
// (hostile_worker_test.cc, hostile_device_test.cc).
namespace macaw::server {

using fixtures::CutTo;
using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::RunBytes;
using fixtures::StartTiny;
using fixtures::TinyOptions;
using fleet::CommitRequest;
using testing_support::TemporaryFolder;

constexpr int kCalls = 10'000;
constexpr uint32_t kRounds = 50;
// Memory of the server, the workers and the liar together. A sanitizer keeps freed memory for a
// while.
#ifdef MACAW_SANITIZED
constexpr uint64_t kMemoryBound = uint64_t{3} << 30;
#else
constexpr uint64_t kMemoryBound = uint64_t{384} << 20;
#endif

// Whether rounds wait for each other. If not, they have two arrivals, and four clients train at a
// time.
enum class Rounds : uint8_t { kWait, kDoNotWait };

inline std::string NameOf(const testing::TestParamInfo<Rounds>& info) {
  return info.param == Rounds::kWait ? "InRoundsThatWait" : "InRoundsThatDoNotWait";
}

inline Options HostileOptions(const std::string& run_dir, Rounds rounds) {
  Options options = TinyOptions(run_dir, kRounds);
  if (rounds == Rounds::kWait) return options;
  options.run.cohort.size = 2;
  options.run.asynchronous = {.mode = "buffered", .concurrency = 4};
  return options;
}

inline log::History HistoryOf(const TemporaryFolder& folder) {
  const auto history = log::ReadHistory(folder / "rounds.log");
  EXPECT_TRUE(history.ok()) << history.status();
  return history.value_or(log::History());
}

// Repeats the run of `disturbed` from its log with an honest worker that has all clients, and
// expects the same model. `options`: those of the run, with another folder.
inline void ExpectTheSameRepeated(const TemporaryFolder& disturbed, Options options,
                                  const std::vector<uint32_t>& examples) {
  const log::History history = HistoryOf(disturbed);
  const std::string repeated = options.run_dir;
  options.replays = history.sessions().front().run;
  options.decisions = history.decisions();
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(*coordinator);
  worker.identity().clients = examples.size();
  worker.identity().table = fleet::Blob::Of(fleet::ClientTable{.rows = examples}.Encode());
  ASSERT_TRUE(worker.Register().ok());
  worker.RunToEnd();
  ASSERT_TRUE(coordinator->Wait().ok());
  const auto again = log::ReadHistory(repeated + "/rounds.log");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(log::FirstDifference(history, *again), std::nullopt);
  EXPECT_EQ(RunBytes(disturbed.path()).model, RunBytes(repeated).model);
  EXPECT_EQ(RunBytes(disturbed.path()).digest, RunBytes(repeated).digest);
}

// Slows the rounds down to the speed of the lies, so that the run lasts until the last lie.
class Pace {
 public:
  void CountCalls(int calls) {
    absl::MutexLock lock(&mutex_);
    calls_ += calls;
  }
  int calls() {
    absl::MutexLock lock(&mutex_);
    return calls_;
  }
  void AwaitRound(uint32_t round) {
    const int least = static_cast<int>(round - 1) * (kCalls / static_cast<int>(kRounds));
    absl::MutexLock lock(&mutex_);
    const auto due = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return calls_ >= least; };
    mutex_.Await(absl::Condition(&due));
  }

 private:
  absl::Mutex mutex_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

inline void WorkHonestly(FakeWorker& worker, Pace& pace) {
  uint32_t round = 1;
  while (true) {
    pace.AwaitRound(std::min(round, kRounds));
    const auto request = worker.Work();
    if (!request.has_value()) return;
    const fleet::CommitReply reply = worker.Commit(*request);
    EXPECT_EQ(reply.verdict, fleet::Verdict::kAccepted) << reply.reason;
    if (request->part.has_value()) round = request->part->round.value + 1;
  }
}

// One detectable lie in an otherwise correct part.
using Lie = std::function<void(CommitRequest&, RandomStream&)>;

inline fleet::ClientRecord& Any(CommitRequest& request, RandomStream& random) {
  return request.part->included[random.Below(request.part->included.size())];
}

inline const std::vector<Lie>& Lies() {
  static const auto* const lies = new std::vector<Lie>{
      [](CommitRequest& r, RandomStream& x) { Any(r, x).examples += 1 + x.Below(1 << 30); },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).weight *= 1.5 + x.Uniform(); },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).weight = x.Below(2) ? 1e308 : -1; },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).multiplicity = x.Below(2) ? 0 : 7; },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).steps = UINT64_MAX - x.Below(9); },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).bytes_up = UINT64_MAX - x.Below(9); },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).bytes_up = uint64_t{1} << 60; },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).sums[0] = 1e12; },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).sums[1] = std::nan(""); },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).sums[1] = 1e308; },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).sums[2] = -1; },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).sums[2] = Any(r, x).sums[0] + 1e6; },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).sums.resize(x.Below(3)); },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).personal_sums = {1}; },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).has_state = true; },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).train_seconds = std::nan(""); },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).attempt.client = ClientId(x.NextU64()); },
      // Beyond all fences of the run: a near one may be that of a lease of its own whose answer was
      // lost.
      [](CommitRequest& r, RandomStream& x) {
        Any(r, x).attempt.fence.counter += 1'000'000 + x.Below(9);
      },
      [](CommitRequest& r, RandomStream& x) { Any(r, x).attempt.fence.epoch += 1 + x.Below(9); },
      [](CommitRequest& r, RandomStream&) { r.part->included.push_back(r.part->included[0]); },
      [](CommitRequest& r, RandomStream&) { r.part->included.pop_back(); },
      [](CommitRequest& r, RandomStream&) {
        r.part->included.clear();
        r.part->sums = {};
      },
      [](CommitRequest& r, RandomStream&) { r.part->included.resize(900, r.part->included[0]); },
      [](CommitRequest& r, RandomStream& x) {
        r.part->left_out.push_back({.attempt = Any(r, x).attempt, .message = "twice"});
      },
      [](CommitRequest& r, RandomStream& x) {
        r.part->left_out.push_back({.attempt = {ClientId(x.Below(8)), {1, x.NextU64()}},
                                    .reason = fleet::LeftOutReason::kState});
      },
      [](CommitRequest& r, RandomStream& x) { r.part->round = Round(x.NextU32()); },
      [](CommitRequest& r, RandomStream&) { r.part->round.value += 1; },
      [](CommitRequest& r, RandomStream& x) { r.part->phase = Phase(1 + x.Below(255)); },
      [](CommitRequest& r, RandomStream&) { r.part->broadcast = DigestOf("another"); },
      [](CommitRequest& r, RandomStream&) { r.part->sums = {}; },
      [](CommitRequest& r, RandomStream& x) {
        r.part->sums = CutTo(r.part->sums, 1 + x.Below(r.part->sums.size - 1));
      },
      [](CommitRequest& r, RandomStream& x) {
        r.part->sums = fleet::RandomBlob(1 + x.Below(5000), x.NextU64());
      },
      [](CommitRequest& r, RandomStream&) {
        r.part->sums = {.digest = DigestOf("not uploaded"), .size = r.part->sums.size};
      },
      [](CommitRequest& r, RandomStream&) { r.part->sums.bytes = nullptr; },
      [](CommitRequest& r, RandomStream& x) {
        r.part->sums.bytes = nullptr;
        r.part->sums.size = x.NextU64();
      },
      [](CommitRequest& r, RandomStream& x) { r.session = SessionId(x.NextU64()); },
  };
  return *lies;
}

// One lie in a question in which round a leased client counts (LeaseRequest::trained). There is no
// such round.
using ArrivalLie = std::function<void(fleet::LeaseRequest&, RandomStream&)>;

inline const std::vector<ArrivalLie>& ArrivalLies() {
  using fleet::LeaseRequest;
  static const auto* const lies = new std::vector<ArrivalLie>{
      [](LeaseRequest& r, RandomStream& x) {
        r.trained[0].fence.counter += 1'000'000 + x.Below(9);
      },
      [](LeaseRequest& r, RandomStream& x) { r.trained[0].fence.epoch += 1 + x.Below(9); },
      [](LeaseRequest& r, RandomStream& x) { r.trained[0].client = ClientId(x.NextU64()); },
      // A fence belongs to one client.
      [](LeaseRequest& r, RandomStream& x) {
        r.trained[0].client = ClientId((r.trained[0].client.value + 1 + x.Below(7)) % 9);
      },
      [](LeaseRequest& r, RandomStream& x) {
        r.trained.push_back({ClientId(x.Below(9)), {1, 1'000'000 + x.Below(9)}});
      },
      [](LeaseRequest& r, RandomStream&) { r.trained.resize(5000); },
      [](LeaseRequest& r, RandomStream&) { r.running = 0; },
      [](LeaseRequest& r, RandomStream& x) { r.session = SessionId(x.NextU64()); },
  };
  return *lies;
}

inline void LieAboutAnEvaluation(fleet::EvaluationResult& result, RandomStream& random) {
  switch (random.Below(8)) {
    case 0:
      result.sums = {1e12, 0.5e12, 1e12};
      break;
    case 1:
      result.sums[2] = 1000 * result.sums[0] + 1;
      break;
    case 2:
      result.sums[2] = -1;
      break;
    case 3:
      result.sums[0] = std::nan("");
      break;
    case 4:
      result.failure = "client 3's state is gone";
      break;
    case 5:
      result.sums.clear();
      break;
    case 6:
      result.sums[0] += 1;
      break;
    default:
      result.task.fence.counter = random.NextU64();
  }
}

inline std::string TokenOf(const std::string& node) { return "token of " + node; }

// A device that owns the client "8".
inline constexpr char kDevice[] = "phone-8";

inline fleet::CallerPtr Identify(absl::string_view token) {
  if (token == TokenOf(kDevice)) {
    return std::make_shared<const fleet::Caller>(fleet::Caller{
        .role = fleet::Role::kDevice, .node = kDevice, .owns_any = false, .owns = {"8"}});
  }
  for (const std::string node : {"liar", "worker-0", "worker-1", "worker-2"}) {
    if (token == TokenOf(node)) {
      return std::make_shared<const fleet::Caller>(
          fleet::Caller{.role = fleet::Role::kNode, .node = node});
    }
  }
  return std::make_shared<const fleet::Caller>(fleet::Caller{.role = fleet::Role::kStranger});
}

}  // namespace macaw::server
