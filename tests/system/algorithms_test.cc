// Every built-in algorithm through the real programs: the same bytes of model, client states and
// metrics for any workers and owners, in a replay of the log, with a worker killed in the middle,
// and after everything was killed and resumed. And what SCAFFOLD and FedDyn keep on both sides
// stays one thing, whoever is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "testing/temporary_folder.h"
#include "tests/system/libtorch.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::AllGone;
using testing_support::ResumeWithoutPauses;
using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::TemporaryFolder;
using Arguments = std::vector<std::string>;

// What a run must give again, to the byte. Algorithms without client states have no state digest.
struct Bytes {
  std::string model, states, metrics;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};
void PrintTo(const Bytes& bytes, std::ostream* out) {
  *out << "model " << bytes.model.substr(0, 12) << ", states " << bytes.states.substr(0, 12) << "\n"
       << bytes.metrics;
}

Bytes BytesOf(const Simulation& simulation) {
  const nlohmann::json summary = simulation.summary();
  return {simulation.digest(), summary.is_object() ? summary.value("state_digest", "") : "",
          simulation.metrics()};
}

auto RoundOver(uint32_t round) {
  return [round](const nlohmann::json& event) {
    return event["event"] == "round" && event["round"].get<uint32_t>() >= round;
  };
}

Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// A few clients of a few dozen rows. Half of them come to a round, so most come more than once.
constexpr char kSmall[] = R"([run]
name = "small"
rounds = 9
seed = 11
checkpoint_every = 2
[data]
source = "synthetic"
val_fraction = 0.1
[data.synthetic]
clients = 14
max_size = 80
[model]
layers = [LAYERS]
[cohort]
size = 7
[local]
epochs = 2
batch_size = 20
lr = 0.05
[evaluation]
clients = true
splits = ["test", "validation", "train"]
[server]
lease_timeout = 5
)";

std::string Small(const TemporaryFolder& folder, const std::string& layers) {
  std::string text = kSmall;
  text.replace(text.find("LAYERS"), 6, layers);
  return folder.Write("small.toml", text);
}

// So slow, whatever the machine, that a signal finds somebody at work: a second for a round.
const Arguments kSlowly = {"--processes", "2",
                           "--slots",     "1",
                           "--set",       "emulation.pause_probability=1",
                           "--set",       "emulation.pause_seconds=0.25"};

struct Case {
  std::string name;  // of the test
  Arguments arguments;
};

Case Of(const std::string& name, const Arguments& parameters = {},
        const std::string& algorithm = "") {
  const std::string rule = algorithm.empty() ? name : algorithm;
  Arguments arguments = {"--set", "algorithm.name=" + rule};
  for (const std::string& parameter : parameters)
    arguments = arguments + Arguments{"--set", absl::StrCat("algorithm.", rule, ".", parameter)};
  return {name, arguments};
}

// Solved for instead of trained: no step has a loss.
bool SumsRows(const std::string& name) {
  return name == "ridge" || name == "kmeans" || name == "daef";
}

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      Of("fedavg"),
      Of("gd"),
      Of("fedprox", {"mu=0.5"}),
      Of("scaffold"),
      Of("scaffold_one", {"option=1", "weighted=true"}, "scaffold"),
      Of("feddyn", {"alpha=0.1"}),
      Of("feddyn_weighted", {"alpha=0.1", "weighted=true"}, "feddyn"),
      Of("fedadagrad", {"server_lr=0.03"}),
      Of("fedadam", {"server_lr=0.03"}),
      Of("fedyogi", {"server_lr=0.03"}),
      Of("fedavgm"),
      Of("fednova", {"mu=0.1"}),
      Of("fednova_momentum", {"server_momentum=0.5"}, "fednova"),
      Of("qfedavg"),
      Of("mime"),
      Of("mimelite", {"base=adam"}),
      Of("local"),
      Of("pooled"),
      Of("ditto"),
      Of("fedbn"),
      Of("fedrep", {"head_epochs=1"}),
      Of("fedper"),
      Of("moon", {"mu=2"}),
      Of("median"),
      Of("trimmed_mean", {"beta=0.2"}),
      Of("krum", {"f=2"}),
      Of("geometric_median"),
      Of("centered_clipping"),
      Of("norm_bound", {"weighted=true"}),
      Of("rfa_in_buckets", {"weighted=true", "bucket_size=2"}, "geometric_median"),
      Of("krum_in_buckets", {"f=0", "bucket_size=2"}, "krum"),
      Of("fltrust", {"root=3"}),
      Of("fedexp", {"epsilon=0.01"}),
      Of("term", {"t=0.5"}),
      Of("afl", {"mixture_lr=0.02"}),
      Of("fedsam"),
      Of("pfedme", {"lambda=5", "personal_steps=3"}),
      Of("apfl", {"alpha_lr=0.01"}),
      Of("perfedavg"),
      Of("heterofl", {R"(rates="1 0.5 0.25")", "evaluate=0.5"}),
      Of("ridge"),
      Of("kmeans"),
      Of("daef"),
      Of("heterofl_drawn", {R"(rates="0.75 0.25")", "assign=dynamic", R"(shares="1 3")"},
         "heterofl"),
      Of("ifca", {"clusters=3"}),
  };
  // Norms and hooks are LibTorch's.
  if (!testing_support::kHasLibTorch) {
    const std::set<std::string> without = {"fedbn",  "mime", "mimelite",  "fedsam",
                                           "pfedme", "apfl", "perfedavg", "moon"};
    std::erase_if(cases, [&](const Case& c) { return without.contains(c.name); });
  }
  // A rule under a codec, whose feedback is client state and a sum of the server's.
  const auto coded = [&](const std::string& name, const std::string& algorithm,
                         const std::string& codec, const std::string& feedback) {
    cases.push_back({name, Of(algorithm).arguments +
                               Arguments{"--set", absl::StrCat("update.codec=[", codec, "]"),
                                         "--set", "update.feedback=" + feedback}});
  };
  coded("ef21", "fedavg", R"("topk 0.1", "bits 8")", "ef21");
  coded("residual", "fedadam", R"("sign")", "residual");
  coded("random", "fedprox", R"("randomk 0.3", "qsgd 7")", "none");
  coded("scaffold_coded", "scaffold", R"("bits 6")", "none");
  coded("median_coded", "median", R"("terngrad")", "none");
  coded("rotated", "fedadam", R"("rotate", "terngrad")", "none");
  coded("rotated_unbiased", "fedavg", R"("rotate", "sign unbiased")", "none");
  coded("rotated_ef21", "fedavg", R"("rotate", "sign")", "ef21");
  coded("rotated_median", "median", R"("rotate", "bits 2")", "none");
  coded("acpsgd", "fedavg", R"("acpsgd 2")", "residual");
  coded("powersgd", "fedavgm", R"("powersgd 2")", "residual");
  coded("heterofl_coded", "heterofl", R"("topk 0.3", "bits 6")", "none");
  coded("majority", "fedavgm", R"("majority 0.01")", "none");
  for (const char* codec : {"acpsgd", "powersgd"}) {
    coded(absl::StrCat(codec, "_adapt"), "fedavg", absl::StrCat("\"", codec, " 2\""), "residual");
    cases.back().arguments = cases.back().arguments + Arguments{"--set", "update.adapt=2"};
  }
  const auto broadcast = [&](const std::string& name, const std::string& codec,
                             const Arguments& more) {
    cases.push_back({name, Of("fedavg").arguments +
                               Arguments{"--set", absl::StrCat("broadcast.codec=[", codec, "]")} +
                               more});
  };
  broadcast("broadcast_model", R"("bits 6")", {"--set", R"(update.codec=["bits 6"])"});
  broadcast("broadcast_change", R"("topk 0.1", "bits 8")",
            {"--set", "cohort.size=14", "--set", R"(update.codec=["topk 0.1"])"});
  cases.push_back(
      {"residual_decay", Of("fedavg").arguments + Arguments{"--set", R"(update.codec=["topk 0.1"])",
                                                            "--set", "update.feedback=residual",
                                                            "--set", "update.residual_decay=0.5"}});
  // Rounds of 2, 2, 4, 8, 16 and more steps, and stragglers with fewer.
  cases.push_back(
      {"quadratic",
       Of("fednova").arguments + Arguments{"--set", "local.steps=2", "--set", "local.qsr=0.1",
                                           "--set", "local.lr_schedule.kind=exponential", "--set",
                                           "local.lr_schedule.gamma=0.70710678118654746", "--set",
                                           "local.lr_schedule.warmup_rounds=2", "--set",
                                           "cohort.straggler_fraction=0.3"}});
  // Attacks that are made of each honest update, against sums, rows and a state.
  const auto attacked = [&](const std::string& name, const Arguments& rule,
                            const std::string& kind) {
    cases.push_back(
        {name, rule + Arguments{"--set", "attack.kind=" + kind, "--set", "attack.fraction=0.3"}});
  };
  attacked("min_max", Of("fedavg").arguments, "min-max");
  attacked("min_sum", Of("median", {"bucket_size=2"}).arguments, "min-sum");
  attacked("mimic", Of("scaffold").arguments, "mimic");
  attacked("backdoor",
           Of("norm_bound").arguments + Arguments{"--set", "data.input_shape=[1, 6, 10]", "--set",
                                                  "data.test_fraction=0.2", "--set",
                                                  R"(model.layers=["flatten", "linear 10"])"},
           "backdoor");
  for (Case& c : cases) {
    if (c.name == "daef") {
      c.arguments =
          c.arguments +
          Arguments{"--set", "run.task=reconstruction", "--set",
                    R"(model.layers=["linear 5", "tanh", "linear 8", "sigmoid", "linear 60"])"};
    } else if (SumsRows(c.name)) {
      c.arguments = c.arguments + Arguments{"--set", R"(model.layers=["linear 10"])"};
    }
    if (c.name == "local") {  // the server's model does not move
      c.arguments = c.arguments + Arguments{"--set", R"(evaluation.splits=["test", "validation"])"};
    }
    if (c.name == "fltrust") c.arguments = c.arguments + Arguments{"--set", "cohort.size=14"};
    if (c.name == "fednova") c.arguments = c.arguments + Arguments{"--set", "local.momentum=0.9"};
  }
  return cases;
}

class AlgorithmLaw : public testing::TestWithParam<Case> {
 protected:
  // FedBN needs norms, and LibTorch trains those. The other rules stay with the fused kernels.
  std::string Config() const {
    return Small(folder_, GetParam().name == "fedbn"
                              ? R"("linear 12", "batchnorm", "relu", "linear 10")"
                              : R"("linear 12", "relu", "linear 10")");
  }
  Arguments With(const Arguments& more) const {
    return Arguments{Config()} + GetParam().arguments + more;
  }
  Bytes After(const std::string& name, const Arguments& more) const {
    Simulation simulation(name, With(more));
    EXPECT_EQ(simulation.Wait(), 0) << simulation.output();
    return BytesOf(simulation);
  }

  const TemporaryFolder folder_;
};

TEST_P(AlgorithmLaw, TheSameBytesForAnyWorkersOwnersAndAfterKills) {
  const Bytes one = After("1x1", {"--processes", "1", "--slots", "1"});
  ASSERT_EQ(one.model.size(), 64u);
  if (!SumsRows(GetParam().name)) {
    ASSERT_EQ(one.metrics.find("null"), std::string::npos) << "it should learn, not diverge";
  }
  EXPECT_EQ(After("3x2", {"--processes", "3", "--slots", "2"}), one);
  // The rows of all clients are in one place.
  const bool pooled = GetParam().name == "pooled";
  Simulation owners("owners",
                    With({"--owners", pooled ? "0" : "4", "--processes", "2", "--slots", "1"}));
  ASSERT_EQ(owners.Wait(), 0) << owners.output();
  EXPECT_EQ(BytesOf(owners), one);
  const auto replay = RunMacaw(absl::StrCat("replay ", owners.folder(), " --out ", owners.folder(),
                                            "-again --processes 1 --slots 2"));
  EXPECT_EQ(replay.exit, 0) << replay.text;
  EXPECT_THAT(replay.text, HasSubstr("and the same model: " + one.model));

  Simulation first("killed", With(kSlowly));
  ASSERT_TRUE(first.WaitForEvent(RoundOver(1))) << first.output();
  std::vector<pid_t> workers = first.Children("macaw-worker");
  ASSERT_FALSE(workers.empty());
  ::kill(workers[0], SIGKILL);
  ASSERT_TRUE(first.WaitForEvent(RoundOver(3))) << first.output();
  std::vector<pid_t> children = first.Children("macaw-worker");
  for (const pid_t server : first.Children("macaw-server")) children.push_back(server);
  first.Signal(SIGKILL);
  EXPECT_EQ(first.Wait(), 128 + SIGKILL);
  EXPECT_TRUE(AllGone(children));
  Simulation resumed("resumed",
                     ResumeWithoutPauses(first) + Arguments{"--processes", "1", "--slots", "2"});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  EXPECT_EQ(BytesOf(resumed), one);
}

INSTANTIATE_TEST_SUITE_P(Of, AlgorithmLaw, testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

// One tensor of a safetensors file, as doubles.
std::vector<double> Doubles(const SafetensorsFile& file, const std::string& name) {
  const auto tensor = file.Get(name, "F64");
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  if (!tensor.ok()) return {};
  std::vector<double> values(tensor->bytes.size() / sizeof(double));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

// What the server keeps of the clients' states, and what the clients keep: equal to 1e-12, in
// double, under partial participation and with a worker killed in every round.
struct Invariant {
  std::string name, algorithm;
  bool weighted;
  std::string on_server, on_client;
};

class AlgorithmInvariant : public testing::TestWithParam<Invariant> {};

TEST_P(AlgorithmInvariant, HoldsWithAWorkerKilledInEveryRound) {
  const Invariant& invariant = GetParam();
  const TemporaryFolder folder;
  Case c = Of(invariant.name, {absl::StrCat("weighted=", invariant.weighted ? "true" : "false")},
              invariant.algorithm);
  Simulation run("killed",
                 Arguments{Small(folder, R"("linear 10")")} + c.arguments + kSlowly +
                     Arguments{"--set", "run.dtype=float64", "--set", "emulation.pause_seconds=0.1",
                               "--set", "run.client_records=true", "--rounds", "18"});
  std::set<pid_t> killed;
  for (size_t round = 1; round <= 5 && run.WaitForANewRound(); ++round) {
    const std::vector<pid_t> workers = run.Children("macaw-worker");
    if (!workers.empty() && ::kill(workers[round % workers.size()], SIGKILL) == 0)
      killed.insert(workers[round % workers.size()]);
  }
  ASSERT_EQ(run.Wait(), 0) << run.output();
  EXPECT_GE(killed.size(), 4u);

  std::map<uint64_t, double> examples;
  const auto records = ReadFile(run.folder() + "/clients.jsonl");
  ASSERT_TRUE(records.ok());
  for (const absl::string_view line : absl::StrSplit(*records, '\n', absl::SkipEmpty())) {
    const auto record = nlohmann::json::parse(line);
    examples[record["client"].get<uint64_t>()] = record["examples"].get<double>();
  }
  ASSERT_GE(examples.size(), 10u) << "clients that have a state";
  const auto config = ReadFile(run.folder() + "/config.toml");
  ASSERT_TRUE(config.ok());
  const size_t at = config->find("train_examples = ");
  ASSERT_NE(at, std::string::npos);
  const double all = std::stod(config->substr(at + 17));

  // Clients without a turn have a state of zeros, and add nothing.
  std::map<std::string, std::vector<double>> mean;
  double largest = 0;
  for (const auto& [client, rows] : examples) {
    const std::string file = folder / absl::StrCat(client, ".safetensors");
    const std::string command = absl::StrCat(MACAW_BIN_DIR "/macaw state export ", run.folder(),
                                             " ", client, " --out ", file, " > /dev/null");
    ASSERT_EQ(testing_support::RunShell(command).exit, 0) << command;
    const auto state = SafetensorsFile::Open(file);
    ASSERT_TRUE(state.ok()) << state.status();
    const double share = invariant.weighted ? rows / all : 1.0 / 14;
    for (const std::string tensor : {"0.weight", "0.bias"}) {
      const std::vector<double> values =
          Doubles(*state, absl::StrCat(invariant.on_client, "/", tensor));
      mean[tensor].resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        mean[tensor][i] += share * values[i];
        largest = std::max(largest, std::abs(values[i]));
      }
    }
  }
  EXPECT_GT(largest, 1e-3) << "the states should say something";

  const auto checkpoint =
      SafetensorsFile::Open(run.folder() + "/checkpoints/round-00000018.safetensors");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const std::vector<double> server = Doubles(*checkpoint, invariant.on_server);
  constexpr size_t kBias = 600;  // behind 10 x 60 weights, at a multiple of 64 bytes
  ASSERT_EQ(mean["0.weight"].size(), kBias);
  ASSERT_GE(server.size(), kBias + 10);
  for (size_t i = 0; i < kBias; ++i) ASSERT_NEAR(server[i], mean["0.weight"][i], 1e-12) << i;
  for (size_t i = 0; i < 10; ++i) ASSERT_NEAR(server[kBias + i], mean["0.bias"][i], 1e-12) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Of, AlgorithmInvariant,
    testing::Values(Invariant{"scaffold", "scaffold", false, "control", "control"},
                    Invariant{"scaffold_weighted", "scaffold", true, "control", "control"},
                    Invariant{"feddyn", "feddyn", false, "h", "gradient"},
                    Invariant{"feddyn_weighted", "feddyn", true, "h", "gradient"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace macaw
