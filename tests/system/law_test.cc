// The law of the project: the same configuration and seed give the same bytes, whoever computes
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing_support::Simulation;
using testing_support::WriteConfig;

struct Bytes {
  std::string digest, metrics;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

Bytes BytesOf(const std::string& name, std::vector<std::string> arguments) {
  Simulation simulation(name, std::move(arguments));
  EXPECT_EQ(simulation.Wait(), 0) << simulation.output();
  return {simulation.digest(), simulation.metrics()};
}

class Law : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Law, TheSameBytesForAnyWorkers) {
  const std::string config = WriteConfig("law", GetParam().second);
  const Bytes one = BytesOf("1x1", {config, "--processes", "1", "--slots", "1"});
  ASSERT_EQ(one.digest.size(), 64u);
  EXPECT_EQ(std::count(one.metrics.begin(), one.metrics.end(), '\n'), 3);
  EXPECT_EQ(BytesOf("1x2", {config, "--processes", "1", "--slots", "2"}), one);
  EXPECT_EQ(BytesOf("3x2", {config, "--processes", "3", "--slots", "2"}), one);
  EXPECT_EQ(BytesOf("tcp", {config, "--processes", "2", "--slots", "1", "--tcp"}), one);
  EXPECT_NE(BytesOf("seed", {config, "--set", "run.seed=8"}).digest, one.digest);
}

INSTANTIATE_TEST_SUITE_P(
    All, Law,
    testing::Values(std::pair("Plain", ""), std::pair("Momentum", "momentum = 0.9\n"),
                    std::pair("FedProx",
                              "[algorithm]\nname = \"fedprox\"\n[algorithm.fedprox]\nmu = 0.1\n")),
    [](const auto& info) { return std::string(info.param.first); });

TEST(LawOfDropoutAndAugmentation, TheSameBytesForAnyWorkers) {
  const std::string config = WriteConfig("law");
  const std::vector<std::string> set = {
      config,
      "--set",
      "model.name=layers",
      "--set",
      R"(model.layers=["conv 4 3 pad 1", "relu", "maxpool 4", "flatten", "dropout 0.3", "linear 10"])",
      "--set",
      "data.augment={pad_crop = 2, flip = true}"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = set;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Bytes one = BytesOf("1x1", with({"--processes", "1", "--slots", "1"}));
  EXPECT_EQ(BytesOf("2x2", with({"--processes", "2", "--slots", "2"})), one);
}

TEST(LawOfStorage, PreparedFilesGiveTheBytesOfTheSourceTheyWereMadeFrom) {
  const std::string config = WriteConfig("pooled");
  const std::string prepared = config + ".safetensors";
  const std::string command =
      std::string(MACAW_BIN_DIR "/macaw data prepare ") + config + " --out " + prepared;
  ASSERT_EQ(std::system(command.c_str()), 0);
  const Bytes pooled = BytesOf("pooled", {config});
  const Bytes own =
      BytesOf("prepared", {config, "--set", "data.source=prepared", "--set",
                           "data.path=" + prepared, "--set", "partition.scheme=natural"});
  EXPECT_EQ(own, pooled);
}

// Time decides placement and never the result: with one slot five times as slow, every process
// still does its share.
TEST(LawOfTime, ASlowSlotChangesWhoTrainsAndNothingElse) {
  const std::string config = WriteConfig("slow", "[evaluation]\nevery = 3\n");
  const std::vector<std::string> base = {config,  "--processes",    "3", "--slots", "1",
                                         "--set", "cohort.size=100"};
  const Bytes even = BytesOf("even", base);
  std::vector<std::string> slowed = base;
  slowed.insert(slowed.end(), {"--set", "workers.slowdown=[5.0]"});
  Simulation simulation("slow", slowed);
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  EXPECT_EQ((Bytes{simulation.digest(), simulation.metrics()}), even);
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

}  // namespace
}  // namespace macaw
