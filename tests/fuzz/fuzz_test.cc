// Feeds each decoder with valid examples, with what once broke it (the corpus), and with damaged
// copies of both, for a moment. `./dev fuzz` searches for longer, and with libFuzzer.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/files.h"
#include "core/random.h"
#include "tests/fuzz/targets.h"

namespace macaw::fuzz {
namespace {

constexpr int kDamaged = 400;  // copies for each target
constexpr char kCorpus[] = MACAW_SOURCE_DIR "/tests/fuzz/corpus/";

// A few bytes changed, removed, doubled or cut off.
std::string Damaged(RandomStream& random, std::string bytes) {
  for (uint64_t n = 1 + random.Below(4); n > 0 && !bytes.empty(); --n) {
    const size_t at = random.Below(bytes.size());
    switch (random.Below(6)) {
      case 0:
        bytes[at] = static_cast<char>(random.NextU32());
        break;
      case 1:
        bytes[at] ^= static_cast<char>(1 << random.Below(8));
        break;
      case 2:
        bytes.erase(at, 1 + random.Below(8));
        break;
      case 3:
        bytes.insert(at, bytes.substr(random.Below(bytes.size()), 1 + random.Below(8)));
        break;
      case 4:
        bytes.insert(at, 1 + random.Below(8), static_cast<char>(random.NextU32()));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

std::vector<std::string> CorpusOf(const Target& target) {
  const std::string folder = std::string(kCorpus) + target.name;
  std::set<std::string> files;  // in one order on every machine
  if (std::filesystem::exists(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      files.insert(entry.path().string());
  }
  std::vector<std::string> corpus;
  for (const std::string& file : files) corpus.push_back(*ReadFile(file));
  return corpus;
}

class Fuzz : public testing::TestWithParam<Target> {};

TEST_P(Fuzz, ADecoderSurvivesDamagedExamplesAndWhatOnceBrokeIt) {
  const Target target = GetParam();
  std::vector<std::string> inputs = target.examples();
  ASSERT_FALSE(inputs.empty());
  for (const std::string& example : inputs) EXPECT_TRUE(target.feed(example)) << example;
  const std::vector<std::string> corpus = CorpusOf(target);
  inputs.insert(inputs.end(), corpus.begin(), corpus.end());
  int executions = 0;
  for (const std::string& input : inputs) {
    target.feed(input);
    ++executions;
  }
  RandomStream random({.seed = 29});
  for (int i = 0; i < kDamaged; ++i) {
    target.feed(Damaged(random, inputs[random.Below(inputs.size())]));
    ++executions;
  }
  EXPECT_EQ(executions, static_cast<int>(inputs.size()) + kDamaged);
  RecordProperty("executions", executions);
}

INSTANTIATE_TEST_SUITE_P(All, Fuzz, testing::ValuesIn(AllTargets()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Fuzz, EachFolderOfTheCorpusHasATarget) {
  std::set<std::string> names;
  for (const Target& target : AllTargets()) EXPECT_TRUE(names.insert(target.name).second);
  if (!std::filesystem::exists(kCorpus)) return;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus))
    EXPECT_TRUE(names.contains(entry.path().filename().string())) << entry.path();
}

}  // namespace
}  // namespace macaw::fuzz
