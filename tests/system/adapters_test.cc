// [model] adapters beside the other sections of a configuration, in whole runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/blocks.h"
#include "core/safetensors.h"
#include "testing/temporary_folder.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"
#include "tests/system/small_run.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::Plus;
using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::SmallPrivacy;
using testing_support::SmallRun;
using testing_support::StateBytesOf;
using testing_support::WithSettings;
using testing_support::WriteConfig;

const std::vector<std::string> kPlain = SmallRun(40, 12);
// 784-200-200-10, with adapters on both hidden layers; the last layer is trained as it is.
std::vector<std::string> AdaptedBy(const std::string& first) {
  return Plus(kPlain, {absl::StrCat(R"(model.adapters=[")", first, R"(", "lora 2 3.*"])"),
                       R"(model.trained=["5.*"])"});
}
const std::vector<std::string> kAdapted = AdaptedBy("lora 4 alpha 8 1.*");

struct With {
  const char* name;
  std::vector<std::string> settings;
  const char* still = "";  // the adapters of the common model that do not move
};
void PrintTo(const With& with, std::ostream* out) { *out << with.name; }

std::map<std::string, std::string> TensorsOf(const std::string& path) {
  std::map<std::string, std::string> tensors;
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return tensors;
  for (const auto& [name, tensor] : file->tensors())
    tensors[name] = {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
  return tensors;
}

class Adapters : public testing::TestWithParam<With> {};

TEST_P(Adapters, GiveTheSameBytesForAnyWorkersAndInAReplay) {
  const std::vector<std::string> settings = Plus(kAdapted, GetParam().settings);
  if (!MACAW_HAS_LIBTORCH && absl::StrContains(GetParam().name, "LibTorch")) GTEST_SKIP();
  const std::string config = WriteConfig("adapters");
  Simulation one("one", WithSettings(config, settings, {"--processes", "1", "--slots", "1"}));
  ASSERT_EQ(one.Wait(), 0) << one.output();
  Simulation three("three", WithSettings(config, settings, {"--processes", "3", "--slots", "1"}));
  ASSERT_EQ(three.Wait(), 0) << three.output();
  EXPECT_EQ(StateBytesOf(three), StateBytesOf(one));
  const auto replay =
      RunMacaw(absl::StrCat("replay ", three.folder(), " --out ", three.folder(), "-again"));
  EXPECT_EQ(replay.exit, 0) << replay.text;
  EXPECT_THAT(replay.text,
              HasSubstr(absl::StrCat("same       3 rounds, and the same model: ", one.digest())));

  // Adapters and the last layer have moved, and nothing else has.
  Simulation start("start", WithSettings(config, settings, {"--rounds", "0"}));
  ASSERT_EQ(start.Wait(), 0) << start.output();
  const auto before = TensorsOf(start.folder() + "/model.safetensors");
  for (const auto& [name, bytes] : TensorsOf(one.folder() + "/model.safetensors")) {
    const std::string still = GetParam().still;  // of the adapters
    const bool moves =
        absl::StartsWith(name, "5.") ||
        (absl::StrContains(name, "lora_") && (still.empty() || !absl::StrContains(name, still)));
    EXPECT_EQ(bytes != before.at(name), moves) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, Adapters,
    testing::Values(
        With{"FedAvg", {}}, With{"FrozenA", {R"(model.frozen=["*.lora_A.weight"])"}, "lora_A"},
        With{"EachItsOwnB",
             {"algorithm.name=fedbn", R"(algorithm.fedbn.local="*.lora_B.weight")"},
             "lora_B"},
        With{"Pissa", {R"(model.adapters=["lora 4 start pissa 1.*"])"}},
        With{"LibTorch", {"workers.backend=torch"}}, With{"Scaffold", {"algorithm.name=scaffold"}},
        With{"Ditto", {"algorithm.name=ditto"}}, With{"FedAdam", {"algorithm.name=fedadam"}},
        With{"MedianWithHostileClients",
             {"algorithm.name=median", "attack.kind=sign-flip", "attack.fraction=0.3"}},
        With{"Topk", {R"(update.codec=["topk 0.1"])"}},
        With{"PowerSgd", {R"(update.codec=["powersgd 1"])"}},
        With{"Majority", {R"(update.codec=["majority 0.001"])"}},
        With{"CodedBroadcast", {R"(broadcast.codec=["bits 8"])"}},
        With{"OverSelection", {"cohort.over_selection=1.3"}}),
    [](const auto& info) { return std::string(info.param.name); });

// Rows without a zero, tanh, and several steps a turn: each number of what is trained moves.
constexpr char kDense[] = R"([run]
rounds = 3
seed = 11
[data]
source = "synthetic"
[data.synthetic]
clients = 14
max_size = 60
[model]
layers = ["linear 200", "tanh", "linear 24", "tanh", "linear 10"]
[cohort]
size = 7
[local]
epochs = 2
batch_size = 10
lr = 0.05
)";

const std::vector<std::string> kDenseAdapters = {
    R"(model.adapters=["lora 4 alpha 8 0.*", "lora 2 2.*"])", R"(model.trained=["4.*"])"};

// What a client moves in a round of FedAvg that trains tensors of these sizes.
struct Moved {
  explicit Moved(const std::vector<uint64_t>& tensors) {
    for (const uint64_t size : tensors) {
      up += 4 * size + (size + kBlock - 1) / kBlock;  // a byte a block
      down += (4 * size + 63) / 64 * 64;
    }
  }
  uint64_t up = 80 + 16;  // aggregation/exact_sum_header.h
  uint64_t down = 64;     // proto/fleet/vector_codec.cc
};

void ExpectMoves(const Simulation& run, const Moved& each) {
  const std::vector<nlohmann::json> rows = testing_support::RowsOf(run);
  EXPECT_EQ(rows.size(), 3u);
  for (const nlohmann::json& row : rows) {
    const auto clients = row.at("clients").get<uint64_t>();
    EXPECT_EQ(clients, 7u);
    EXPECT_EQ(row.at("bytes_up").get<double>(), static_cast<double>(clients * each.up));
    EXPECT_EQ(row.at("bytes_down").get<double>(), static_cast<double>(clients * each.down));
  }
}

TEST(AdaptersSent, AreAllThatMovesBesideTheHead) {
  const testing_support::TemporaryFolder folder;
  const std::string config = folder.Write("dense.toml", kDense);
  const std::vector<uint64_t> adapters = {4 * 60, 200 * 4, 2 * 200, 24 * 2}, head = {10 * 24, 10};
  std::vector<uint64_t> trained = adapters;
  trained.insert(trained.end(), head.begin(), head.end());
  for (const char* backend : {"fused", "torch"}) {
    if (!MACAW_HAS_LIBTORCH && std::string(backend) == "torch") continue;
    Simulation run(
        backend,
        WithSettings(config, Plus(kDenseAdapters, {absl::StrCat("workers.backend=", backend)})));
    ASSERT_EQ(run.Wait(), 0) << run.output();
    ExpectMoves(run, Moved(trained));
    std::vector<uint64_t> sizes;
    for (const auto& [name, bytes] : TensorsOf(run.folder() + "/trained.safetensors"))
      sizes.push_back(bytes.size() / 4);
    EXPECT_THAT(sizes, testing::UnorderedElementsAreArray(trained)) << backend;
  }
  // A head alone, and a model without adapters.
  Simulation alone("alone", WithSettings(config, {R"(model.trained=["4.*"])"}));
  ASSERT_EQ(alone.Wait(), 0) << alone.output();
  ExpectMoves(alone, Moved(head));
  Simulation whole("whole", WithSettings(config, {}));
  ASSERT_EQ(whole.Wait(), 0) << whole.output();
  ExpectMoves(whole, Moved({200 * 60, 200, 24 * 200, 24, 10 * 24, 10}));
}

TEST(AdaptersState, HasTheSizeOfWhatIsTrained) {
  const std::string config = WriteConfig("state");
  Simulation run(
      "run", WithSettings(config, Plus(kAdapted, {"algorithm.name=scaffold", "cohort.size=40"})));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::string out = run.folder() + "/client.safetensors";
  const auto exported = RunMacaw(absl::StrCat("state export ", run.folder(), " 3 --out ", out));
  ASSERT_EQ(exported.exit, 0) << exported.text;
  std::vector<std::string> names;
  for (const auto& [name, bytes] : TensorsOf(out)) {
    EXPECT_FALSE(absl::EndsWith(name, "/1.weight")) << name;
    names.push_back(name.substr(name.find('/') + 1));
  }
  EXPECT_THAT(names, ElementsAre("1.lora_A.weight", "1.lora_B.weight", "3.lora_A.weight",
                                 "3.lora_B.weight", "5.bias", "5.weight"));
}

// The norm is that of what is trained, so a clip leaves the base as it is.
TEST(AdaptersPrivacy, ClipsAndNoisesWhatIsTrained) {
  const std::string config = WriteConfig("private");
  Simulation run("run", WithSettings(config, Plus(kAdapted, SmallPrivacy())));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  Simulation start("start", WithSettings(config, kAdapted, {"--rounds", "0"}));
  ASSERT_EQ(start.Wait(), 0) << start.output();
  const auto before = TensorsOf(start.folder() + "/model.safetensors");
  for (const auto& [name, bytes] : TensorsOf(run.folder() + "/model.safetensors")) {
    const bool moves = absl::StrContains(name, "lora_") || absl::StartsWith(name, "5.");
    EXPECT_EQ(bytes != before.at(name), moves) << name;
  }
}

TEST(AdaptersInit, OfTheModelWithoutThemOrWithThem) {
  const std::string config = WriteConfig("init");
  Simulation base("base", WithSettings(config, kPlain));
  ASSERT_EQ(base.Wait(), 0) << base.output();
  const std::string weights = base.folder() + "/model.safetensors";
  Simulation tuned("tuned", WithSettings(config, Plus(kAdapted, {"model.init=" + weights})));
  ASSERT_EQ(tuned.Wait(), 0) << tuned.output();
  const auto first = TensorsOf(weights), second = TensorsOf(tuned.folder() + "/model.safetensors");
  EXPECT_EQ(second.at("1.weight"), first.at("1.weight"));
  EXPECT_NE(second.at("5.weight"), first.at("5.weight"));
  // Without a round, the run ends with what it starts from.
  Simulation again("again", WithSettings(config,
                                         Plus(kAdapted, {absl::StrCat("model.init=", tuned.folder(),
                                                                      "/model.safetensors")}),
                                         {"--rounds", "0"}));
  ASSERT_EQ(again.Wait(), 0) << again.output();
  EXPECT_EQ(TensorsOf(again.folder() + "/model.safetensors"), second);
  // The same A and B under another α are another model.
  const std::vector<std::string> other = AdaptedBy("lora 4 1.*");
  for (const char* file : {"/model.safetensors", "/trained.safetensors"}) {
    const absl::StatusOr<SafetensorsFile> opened = SafetensorsFile::Open(tuned.folder() + file);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->metadata().at("adapters"), "lora 4 alpha 8 1.*\nlora 2 3.*");
  }
  Simulation changed("changed",
                     WithSettings(config, Plus(other, {absl::StrCat("model.init=", tuned.folder(),
                                                                    "/model.safetensors")})));
  EXPECT_EQ(changed.Wait(), 2) << changed.output();
  EXPECT_THAT(changed.output(),
              AllOf(HasSubstr("model.init"), HasSubstr("1.weight"), HasSubstr("lora 4 alpha 8")));
}

TEST(AdaptersInput, ThatDoesNotFitIsRefusedBeforeTheRunHasAFolder) {
  const std::string config = WriteConfig("refused");
  struct Refused {
    std::vector<std::string> settings;
    const char *key, *why;
  };
  for (const Refused& refused : std::vector<Refused>{
           {{R"(model.adapters=["lora 4 2.*"])"}, "model.adapters", "1.weight, 3.weight, 5.weight"},
           {{R"(model.adapters=["lora 11 5.*"])"}, "model.adapters", "larger than a side"},
           {{R"(model.adapters=["lora 2 start hdpissa 1.*"])"}, "model.adapters", "start pissa"},
           {{R"(model.trained=["7.*"])"}, "model.trained", "5.bias"},
           {{R"(model.frozen=["*"])"}, "model.frozen", "nothing to train"}}) {
    Simulation run("refused", WithSettings(config, Plus(kAdapted, refused.settings)));
    EXPECT_EQ(run.Wait(), 2) << run.output();
    EXPECT_THAT(run.output(), AllOf(HasSubstr(refused.key), HasSubstr(refused.why)));
    EXPECT_FALSE(std::filesystem::exists(run.folder())) << refused.why;
  }
}

}  // namespace
}  // namespace macaw
