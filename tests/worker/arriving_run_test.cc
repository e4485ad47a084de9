// Rounds that do not wait for each other, with real workers of different speeds: what they send is
// what the clients of a simulation send that repeats the run from its log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "server/log/history.h"
#include "tests/worker/synthetic_run.h"
#include "tests/worker/whole_run.h"

namespace macaw::worker {
namespace {

using fixtures::OptionsOf;
using fixtures::Result;
using fixtures::StartServer;
using fixtures::SyntheticClients;
using fixtures::SyntheticRun;
using fixtures::Work;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

constexpr uint32_t kNodes = 4;

struct Rule {
  const char* name;
  const char* algorithm = "fedavg";
  std::vector<std::string> codec = {};
  uint32_t max_staleness = 0;
};
void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.name; }

class ArrivingRun : public testing::TestWithParam<Rule> {
 protected:
  RunPlan Plan(uint32_t rounds, uint64_t arrivals, uint64_t concurrency) const {
    RunPlan run = SyntheticRun(*dataset_, rounds);
    run.algorithm.name = GetParam().algorithm;
    run.cohort.size = arrivals;
    run.asynchronous = {
        .mode = "buffered", .concurrency = concurrency, .max_staleness = GetParam().max_staleness};
    run.update.codec = GetParam().codec;
    run.update.feedback = "none";
    return run;
  }
  // Four nodes, of which node i takes i + 1 times as long as node 0 for a client.
  void RunOn(server::Coordinator& server) const {
    std::vector<std::thread> nodes;
    for (uint32_t i = 0; i < kNodes; ++i) {
      nodes.emplace_back([&, i] {
        const absl::Status status =
            Work(server, *dataset_,
                 {.name = absl::StrCat("node-", i),
                  .slots = 2,
                  .emulation = {.pause_probability = 1, .pause_seconds = 0.02 * (i + 1)}});
        EXPECT_TRUE(status.ok()) << status;
      });
    }
    for (std::thread& node : nodes) node.join();
  }
  static server::log::History HistoryOf(const TemporaryFolder& folder) {
    const auto history = server::log::ReadHistory(folder / "rounds.log");
    EXPECT_TRUE(history.ok()) << history.status();
    return history.value_or(server::log::History());
  }
  static std::vector<Json> RowsOf(const Result& result) {
    std::vector<Json> rows;
    for (const absl::string_view line : absl::StrSplit(result.metrics, '\n', absl::SkipEmpty()))
      rows.push_back(Json::parse(line));
    return rows;
  }

  const std::unique_ptr<data::Dataset> dataset_ = SyntheticClients();
};

TEST_P(ArrivingRun, IsRepeatedFromItsLogToTheSameModel) {
  const TemporaryFolder folder, again;
  server::Options options = OptionsOf(Plan(12, 2, 5), folder.path());
  options.config.workers = kNodes;
  {
    const auto server = StartServer(options);
    RunOn(*server);
    const auto outcome = server->Wait();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
  }
  const Result live(folder.path());
  double oldest = 0;
  for (const Json& row : RowsOf(live)) oldest = std::max(oldest, row["staleness"].get<double>());
  EXPECT_GT(oldest, 0);

  const server::log::History recorded = HistoryOf(folder);
  server::Options repeating = OptionsOf(options.run, again.path());
  repeating.replays = recorded.sessions().front().run;
  repeating.decisions = recorded.decisions();
  const auto server = StartServer(repeating);
  const absl::Status status = Work(*server, *dataset_, {.slots = 3});
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_TRUE(server->Wait().ok());
  EXPECT_EQ(server::log::FirstDifference(recorded, HistoryOf(again)), std::nullopt);
  const Result repeated(again.path());
  EXPECT_EQ(repeated.digest, live.digest);
  const std::vector<Json> rows = RowsOf(live), rows_again = RowsOf(repeated);
  ASSERT_EQ(rows.size(), rows_again.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const char* column : {"clients", "staleness", "examples", "steps", "train_loss"})
      EXPECT_EQ(rows[i][column], rows_again[i][column]) << column << " of row " << i;
  }
}

TEST_P(ArrivingRun, WithAsManyPlacesAsArrivalsIsTheSynchronousRun) {
  const TemporaryFolder waits, arrives;
  RunPlan plan = Plan(4, 5, 5);
  server::Options options = OptionsOf(plan, arrives.path());
  options.config.workers = kNodes;
  {
    const auto server = StartServer(options);
    RunOn(*server);
    ASSERT_TRUE(server->Wait().ok());
  }
  plan.asynchronous = {};
  const auto server = StartServer(OptionsOf(plan, waits.path()));
  const absl::Status status = Work(*server, *dataset_, {.slots = 3});
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_TRUE(server->Wait().ok());
  EXPECT_EQ(Result(arrives.path()).digest, Result(waits.path()).digest);
}

INSTANTIATE_TEST_SUITE_P(Of, ArrivingRun,
                         testing::Values(Rule{"FedAvg"}, Rule{"FedAdam", "fedadam"},
                                         Rule{"Codec", "fedavg", {"topk 0.2", "bits 8"}},
                                         Rule{.name = "MaxStaleness", .max_staleness = 1}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace macaw::worker
