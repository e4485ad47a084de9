// The law of the project: the same configuration and seed give the same bytes, whoever computes
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "core/files.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing_support::Simulation;
using testing_support::WriteConfig;

struct LawBytes {
  std::string digest, metrics;
  friend bool operator==(const LawBytes&, const LawBytes&) = default;
};

LawBytes BytesOf(const std::string& name, std::vector<std::string> arguments) {
  Simulation simulation(name, std::move(arguments));
  EXPECT_EQ(simulation.Wait(), 0) << simulation.output();
  return {simulation.digest(), simulation.metrics()};
}

struct Variant {
  const char* name;
  std::vector<std::string> settings;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

class Law : public testing::TestWithParam<Variant> {};

TEST_P(Law, TheSameBytesForAnyWorkers) {
  std::vector<std::string> base = {WriteConfig("law")};
  for (const std::string& setting : GetParam().settings)
    base.insert(base.end(), {"--set", setting});
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  const LawBytes one = BytesOf("1x1", with({"--processes", "1", "--slots", "1"}));
  ASSERT_EQ(one.digest.size(), 64u);
  EXPECT_EQ(std::count(one.metrics.begin(), one.metrics.end(), '\n'), 3);
  EXPECT_EQ(BytesOf("1x2", with({"--processes", "1", "--slots", "2"})), one);
  EXPECT_EQ(BytesOf("3x2", with({"--processes", "3", "--slots", "2"})), one);
  EXPECT_EQ(BytesOf("tcp", with({"--processes", "2", "--slots", "1", "--tcp"})), one);
  EXPECT_NE(BytesOf("seed", with({"--set", "run.seed=8"})).digest, one.digest);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Law,
    testing::Values(Variant{"Plain", {}}, Variant{"Momentum", {"local.momentum=0.9"}},
                    Variant{"FedProx", {"algorithm.name=fedprox", "algorithm.fedprox.mu=0.1"}},
                    Variant{"Coded",
                            {R"(update.codec=["topk 0.1", "bits 8"])",
                             R"(broadcast.codec=["bits 8"])"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LawOfDropoutAndAugmentation, TheSameBytesForAnyWorkers) {
  const std::string config = WriteConfig("law");
  const std::vector<std::string> set = {
      config, "--set",
      R"(model.layers=["conv 4 3 pad 1", "relu", "maxpool 4", "flatten", "dropout 0.3", "linear 10"])",
      "--set", "data.augment={pad_crop = 2, flip = true}"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = set;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const LawBytes one = BytesOf("1x1", with({"--processes", "1", "--slots", "1"}));
  EXPECT_EQ(BytesOf("2x2", with({"--processes", "2", "--slots", "2"})), one);
}

// With more than four million weights sums are kept as they came (aggregation/exact_sum_state.h):
// over TCP in few bytes, else mapped.
TEST(LawOfLargeModels, TheSameBytesInMemoryAndInFiles) {
  const std::vector<std::string> base = {WriteConfig("large"),
                                         "--set",
                                         "run.rounds=2",
                                         "--set",
                                         "cohort.size=4",
                                         "--set",
                                         "local.steps=2",
                                         "--set",
                                         R"(model.layers=["flatten", "linear 5300", "linear 10"])"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  const LawBytes one = BytesOf("1x1", with({"--processes", "1", "--slots", "1"}));
  ASSERT_EQ(one.digest.size(), 64u);
  EXPECT_EQ(BytesOf("2x2", with({"--processes", "2", "--slots", "2"})), one);
  EXPECT_EQ(BytesOf("tcp", with({"--processes", "4", "--slots", "1", "--tcp"})), one);
  EXPECT_EQ(
      BytesOf("files", with({"--processes", "4", "--slots", "1", "--tcp", "--set",
                             "server.files_from=4194304", "--set", "node.files_from=4194304"})),
      one);
}

TEST(LawOfStorage, PreparedFilesGiveTheBytesOfTheSourceTheyWereMadeFrom) {
  const std::string config = WriteConfig("pooled");
  const std::string prepared = config + ".safetensors";
  const std::string command =
      std::string(MACAW_BIN_DIR "/macaw data prepare ") + config + " --out " + prepared;
  ASSERT_EQ(testing_support::RunShell(command).exit, 0);
  const LawBytes pooled = BytesOf("pooled", {config});
  const LawBytes own =
      BytesOf("prepared", {config, "--set", "data.source=prepared", "--set",
                           "data.path=" + prepared, "--set", "partition.scheme=natural"});
  EXPECT_EQ(own, pooled);

  // Every tensor of the file at an odd address: the header, which is JSON, grows by a space.
  const std::string odd = config + ".odd.safetensors";
  std::string bytes = *ReadFile(prepared);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  bytes.insert(sizeof(header) + header, 1, ' ');
  ++header;
  std::memcpy(bytes.data(), &header, sizeof(header));
  ASSERT_TRUE(AtomicWriteFile(odd, bytes).ok());
  for (const char* processes : {"1", "3"}) {
    EXPECT_EQ(BytesOf("odd", {config, "--processes", processes, "--slots", "2", "--set",
                              "data.source=prepared", "--set", "data.path=" + odd, "--set",
                              "partition.scheme=natural"}),
              pooled);
  }
}

// Time decides placement and never the result: with one of six slots five times as slow, every
// process still does its share; by speed the slow one's is 6/26.
TEST(LawOfTime, ASlowSlotChangesWhoTrainsAndNothingElse) {
  const std::string config = WriteConfig("slow", "[evaluation]\nevery = 3\n");
  const std::vector<std::string> base = {config,  "--processes",    "3", "--slots", "2",
                                         "--set", "cohort.size=100"};
  const LawBytes even = BytesOf("even", base);
  std::vector<std::string> slowed = base;
  slowed.insert(slowed.end(), {"--set", "workers.slowdown=[5.0]"});
  Simulation simulation("slow", slowed);
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  EXPECT_EQ((LawBytes{simulation.digest(), simulation.metrics()}), even);
  std::map<std::string, int> clients;
  int all = 0;
  for (const auto& event : simulation.events()) {
    if (event["event"] != "part") continue;
    clients[event["worker"]] += event["clients"].get<int>();
    all += event["clients"].get<int>();
  }
  EXPECT_EQ(clients.size(), 3u);
  EXPECT_EQ(all, 300);
  for (const auto& [worker, count] : clients) EXPECT_GE(count, all / 10) << worker;
}

TEST(LawOfTime, EveryPolicyOnUnevenHardwareGivesTheSameBytes) {
  const std::string config = WriteConfig("policies");
  const LawBytes even = BytesOf("even", {config, "--processes", "1", "--slots", "1"});
  for (const char* policy :
       {"planned_stealing", "longest_first", "random", "round_robin", "uniform"}) {
    SCOPED_TRACE(policy);
    const LawBytes uneven = BytesOf(
        policy, {config, "--processes", "2", "--slots", "2", "--set",
                 std::string("scheduler.policy=") + policy, "--set", "workers.slowdown=[1.0, 3.0]",
                 "--set", "emulation.environment=cos", "--set", "emulation.pause_probability=0.1",
                 "--set", "emulation.pause_seconds=0.01"});
    EXPECT_EQ(uneven, even);
  }
}

}  // namespace
}  // namespace macaw
