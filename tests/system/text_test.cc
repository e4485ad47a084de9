// The next-token task from end to end: speakers of a play as clients, tokens as weights.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/public_data.h"
#include "testing/temporary_folder.h"
#include "tests/system/libtorch.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using nlohmann::json;
using testing_support::Simulation;

constexpr size_t kLength = 40;  // characters a row
constexpr size_t kRows = 24;    // a speaker, at most
constexpr size_t kSpeakers = 12;

// LEAF's form of the play: "NAME:" begins a speech, an empty line ends it. The last row of a
// speaker is a short one.
json SpeakersOf(const std::string& play) {
  std::vector<std::string> order;
  std::map<std::string, std::string> speech;
  for (const absl::string_view paragraph : absl::StrSplit(play, "\n\n")) {
    const size_t colon = paragraph.find(":\n");
    if (colon == absl::string_view::npos) continue;
    const std::string name(paragraph.substr(0, colon));
    if (!speech.contains(name)) order.push_back(name);
    absl::StrAppend(&speech[name], paragraph.substr(colon + 2), "\n");
  }
  json leaf = {{"users", json::array()}, {"user_data", json::object()}};
  for (const std::string& name : order) {
    const std::string& text = speech[name];
    if (leaf["users"].size() == kSpeakers) break;
    if (text.size() < 4 * kLength) continue;
    json x = json::array(), y = json::array();
    for (size_t at = 0; at + 2 < text.size() && x.size() < kRows; at += kLength) {
      const size_t used = std::min(kLength, text.size() - at - 1);
      x.push_back(text.substr(at, used));
      y.push_back(text.substr(at + used, 1));
    }
    leaf["users"].push_back(name);
    leaf["user_data"][name] = {{"x", x}, {"y", y}};
  }
  return leaf;
}

std::string WriteJob(const std::string& folder, const json& leaf) {
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(AtomicWriteFile(folder + "/play.json", leaf.dump()).ok());
  const std::string config = folder + "/text.toml";
  EXPECT_TRUE(AtomicWriteFile(config, R"([run]
name = "text"
rounds = 4
seed = 3
[data]
source = "leaf"
path = "play.json"
test_fraction = 0.1
[model]
layers = ["embedding 97 8", "lstm 48 layers 2", "linear 97"]
[cohort]
size = 6
weight = "tokens"
[local]
epochs = 2
batch_size = 8
optimizer = "adam"
lr = 0.01
[evaluation]
every = 1
splits = ["test", "train"]
)")
                  .ok());
  return config;
}

double Column(const Simulation& run, const std::string& column, size_t row) {
  const std::vector<std::string> rows = absl::StrSplit(run.metrics(), '\n', absl::SkipEmpty());
  return json::parse(rows.at(row)).at(column).get<double>();
}

TEST(Text, IsLearntByItsSpeakersForAnyNumberOfWorkers) {
  MACAW_NEEDS_LIBTORCH();
  const std::string play = testing_support::PublicText("tinyshakespeare.txt.gz");
  const std::string folder = absl::StrCat(testing::TempDir(), "/macaw-text-", ::getpid());
  const std::string config = WriteJob(folder, SpeakersOf(play));
  Simulation run("one", {config, "--quiet", "--set", "workers.slots=1"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  // Among 97 tokens a guess costs 4.57; most of a text is blanks and a few letters.
  EXPECT_LT(Column(run, "test_loss", 3), 3.4);
  EXPECT_LT(Column(run, "test_loss", 3), Column(run, "test_loss", 0));
  EXPECT_GT(Column(run, "test_accuracy", 3), 0.12);
  EXPECT_NEAR(Column(run, "clients_train_loss", 3), Column(run, "test_loss", 3), 0.3);

  Simulation other("two",
                   {config, "--quiet", "--set", "workers.processes=2", "--set", "workers.slots=1"});
  ASSERT_EQ(other.Wait(), 0) << other.output();
  EXPECT_EQ(run.digest(), other.digest());
  EXPECT_EQ(run.metrics(), other.metrics());
  // Rows are of several lengths, also in the files of owners.
  Simulation owners("owners", {config, "--quiet", "--owners", "3", "--set", "workers.slots=1"});
  ASSERT_EQ(owners.Wait(), 0) << owners.output();
  EXPECT_EQ(run.digest(), owners.digest());
  EXPECT_EQ(run.metrics(), owners.metrics());
  std::filesystem::remove_all(folder);
}

// Without a server's file the check has a small model of its own, which must know such rows.
TEST(Text, ANodeWithItIsReady) {
  MACAW_NEEDS_LIBTORCH();
  const testing_support::TemporaryFolder folder;
  const json texts = {{"x", {"to be, or", "not to be", "the rest "}}, {"y", {" ", ",", "i"}}};
  folder.Write("play.json", json{{"users", {"hamlet"}}, {"user_data", {{"hamlet", texts}}}}.dump());
  const std::string node =
      folder.Write("node.toml", "[data]\nsource = \"leaf\"\npath = \"play.json\"\n");
  const testing_support::Printed checked =
      testing_support::RunProgram(MACAW_BIN_DIR "/macaw-worker", "check --config " + node);
  EXPECT_EQ(checked.exit, 0) << checked.text;
  EXPECT_NE(checked.text.find("ready      for runs on such data"), std::string::npos)
      << checked.text;
}

// One token of a large number would make an embedding of 64 GiB.
TEST(Text, ANodeWithAVeryLargeTokenIsToldOfIt) {
  const testing_support::TemporaryFolder folder;
  json header;
  std::string bytes;
  const auto add = [&](const std::string& name, const std::string& type, const json& shape,
                       const auto& numbers) {
    const size_t begin = bytes.size();
    bytes.append(reinterpret_cast<const char*>(numbers.data()), std::span(numbers).size_bytes());
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, bytes.size()}}};
  };
  add("train_offsets", "I64", {2}, std::vector<int64_t>{0, 2});
  add("features", "I32", {2, 2}, std::vector<int32_t>{1, INT32_MAX, 2, 3});
  add("labels", "I32", {2}, std::vector<int32_t>{0, 1});
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  folder.Write(
      "rows.safetensors",
      absl::StrCat(std::string(reinterpret_cast<const char*>(&size), sizeof(size)), text, bytes));
  const std::string node =
      folder.Write("node.toml", "[data]\nsource = \"prepared\"\npath = \"rows.safetensors\"\n");
  const testing_support::Printed checked =
      testing_support::RunProgram(MACAW_BIN_DIR "/macaw-worker", "check --config " + node);
  EXPECT_EQ(checked.exit, 2) << checked.text;
  EXPECT_NE(checked.text.find("the data have the token number 2147483647"), std::string::npos)
      << checked.text;
}

}  // namespace
}  // namespace macaw
