// The owner's own program in a fleet: PyTorch code behind sdk/python/macaw_client.py, beside native
// workers and in their place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "testing/program.h"
#include "testing/python.h"
#include "testing/temporary_folder.h"
#include "tests/system/libtorch.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Program;
using testing_support::Python;
using testing_support::Simulation;
using testing_support::TemporaryFolder;
using testing_support::WhyNoPython;
using Json = nlohmann::json;

class SilosOwnCode : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoPython("torch, numpy"); !why.empty()) GTEST_SKIP() << why;
    // "python3" in a configuration is the Python of the tests.
    const std::string folder = std::filesystem::path(Python()).parent_path().string();
    if (!folder.empty())
      ::setenv("PATH", absl::StrCat(folder, ":", ::getenv("PATH")).c_str(), /*overwrite=*/1);
  }

  const TemporaryFolder folder_;
};

TEST_F(SilosOwnCode, TrainsBesideANativeWorkerInOneRun) {
  const std::string run = folder_ / "run";
  // Two generated clients are the native worker's, two are those of examples/process.
  const std::string config = folder_.Write("job.toml", R"([run]
rounds = 3
[data]
source = "synthetic"
[data.synthetic]
clients = 4
[model]
name = "logistic"
[cohort]
size = 4
[evaluation]
clients = true
[server]
workers = 2
mixed_profiles = true
)");
  Program server("macaw-server", {"--config", config, "--run-dir", run, "--listen", "127.0.0.1:0"});
  ASSERT_TRUE(server.WaitFor("listening on")) << server.text();
  const std::string text = *ReadFile(run + "/address"), address = text.substr(0, text.find('\n'));
  Program native("macaw-worker",
                 {"--config", config, "--server", address, "--name", "native", "--clients", "0:2"});
  Program silo("macaw-worker", {"--config", MACAW_SOURCE_DIR "/examples/process/node.toml",
                                "--server", address, "--name", "silo"});
  EXPECT_EQ(server.Wait(), 0) << server.text();
  EXPECT_EQ(native.Wait(), 0) << native.text();
  EXPECT_EQ(silo.Wait(), 0) << silo.text();

  const Json summary = Json::parse(*ReadFile(run + "/summary.json"));
  EXPECT_EQ(summary["reproducible"], false);
  ASSERT_EQ(summary["profiles"].size(), 2u);
  const size_t own = summary["profiles"][0]["trainer"] == "process" ? 0 : 1;
  EXPECT_EQ(summary["profiles"][1 - own]["trainer"], "fused");
  EXPECT_THAT(summary["profiles"][own]["libraries"].get<std::string>(), HasSubstr("torch"));
  EXPECT_EQ(summary["final"]["clients"], 4) << "all are counted";
  EXPECT_GT(summary["final"]["clients_test_accuracy"], 0.1) << "each worker evaluates its own";
}

// Rows that a CSV reader and a Python program see alike, of three clients.
std::string Rows() {
  std::string text = "client,x0,x1,x2,label\n";
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&text, i % 3, ",", (i * 7) % 11 / 4.0, ",", (i * 5) % 13 / 8.0 - 1, ",",
                    i % 2 == 0 ? 0.5 : -0.25, ",", (i / 3) % 2, "\n");
  }
  return text;
}

constexpr char kTrain[] = R"(
import csv, sys, torch
sys.path.insert(0, ")" MACAW_SOURCE_DIR R"(/sdk/python")
import macaw_client
rows = {}
for row in csv.DictReader(open("rows.csv")):
    x, y = rows.setdefault(row["client"], ([], []))
    x.append([float(row["x%d" % i]) for i in range(3)])
    y.append(int(row["label"]))

def train(weights, task):
    if sys.argv[1:] == [task.name] and task.round == 2:
        raise ValueError("the rows of " + task.name + " are locked")
    x, y = (torch.tensor(part) for part in rows[task.name])
    parameters = {n: torch.from_numpy(w).clone().requires_grad_() for n, w in weights.items()}
    optimizer = torch.optim.SGD(parameters.values(), lr=task.local["lr"],
                                momentum=task.local["momentum"])
    steps, losses = task.local["steps"] or task.local["epochs"], 0.0
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(
            x @ parameters["0.weight"].T + parameters["0.bias"], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += loss.item() * len(x)
    return parameters, steps * len(x), steps, losses

macaw_client.serve(train, name="plain PyTorch")
)";

class PlainPyTorch : public SilosOwnCode {
 protected:
  PlainPyTorch() {
    folder_.Write("rows.csv", Rows());
    folder_.Write("train.py", kTrain);
    folder_.Write("rows.json", R"({"input_shape": [3], "classes": 2, "clients": [
        {"name": "0", "train": 20}, {"name": "1", "train": 20}, {"name": "2", "train": 20}]})");
  }
  std::string Config(const std::string& name, const std::string& data,
                     const std::string& workers) const {
    return folder_.Write(name + ".toml", absl::StrCat(R"([run]
rounds = 4
[model]
name = "logistic"
[cohort]
size = 3
[local]
steps = 5
batch_size = 0
lr = 0.3
momentum = 0.5
[data]
)",
                                                      data, "[workers]\nslots = 1\n", workers));
  }
  std::string ByProgram(const std::string& command = R"(["python3", "train.py"])") const {
    return Config("program", "source = \"declared\"\npath = \"rows.json\"\n",
                  absl::StrCat("backend = \"process\"\ncommand = ", command, "\n"));
  }
  // All numbers of the model, as they lie in its file.
  static std::vector<float> ModelOf(const Simulation& run) {
    const std::string file = *ReadFile(run.folder() + "/model.safetensors");
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof(header));
    const std::string bytes = file.substr(sizeof(header) + header);
    std::vector<float> model(bytes.size() / sizeof(float));
    std::memcpy(model.data(), bytes.data(), bytes.size());
    return model;
  }
};

TEST_F(PlainPyTorch, GivesTheModelOfTheLibTorchBackEnd) {
  MACAW_NEEDS_LIBTORCH();
  Simulation program("program", {ByProgram()});
  ASSERT_EQ(program.Wait(), 0) << program.output();
  Simulation native("native",
                    {Config("native",
                            "source = \"csv\"\npath = \"rows.csv\"\nclient_column = \"client\"\n"
                            "test_fraction = 0\n",
                            "backend = \"torch\"\n")});
  ASSERT_EQ(native.Wait(), 0) << native.output();
  const std::vector<float> theirs = ModelOf(program), ours = ModelOf(native);
  ASSERT_EQ(theirs.size(), ours.size());
  ASSERT_GE(ours.size(), 8u);
  float largest = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(theirs[i], ours[i], 1e-6) << i;
    largest = std::max(largest, std::abs(ours[i]));
  }
  EXPECT_GT(largest, 0.1F) << "something was learnt";
  EXPECT_EQ(program.summary()["reproducible"], true) << "one program, one profile";
}

TEST_F(PlainPyTorch, WhoseRowsCannotBeReadSitsTheRoundOutWithItsOwnWords) {
  Simulation run("locked", {ByProgram(R"(["python3", "train.py", "1"])")});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  std::vector<std::string> left_out;
  for (const Json& event : run.events())
    if (event["event"] == "left_out") left_out.push_back(event.dump());
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_THAT(left_out[0], AllOf(HasSubstr("\"round\":2"),
                                 HasSubstr("ValueError: the rows of 1 are locked (train.py:")));
}

// Without PyTorch it starts in a moment. With "locked" as its argument it fails in round 2.
constexpr char kDrift[] = R"(
import sys
import numpy as np
sys.path.insert(0, ")" MACAW_SOURCE_DIR R"(/sdk/python")
import macaw_client

def train(weights, task):
    if "locked" in sys.argv and task.round == 2:
        raise ValueError("the rows are locked")
    for name, weight in weights.items():
        random = np.random.default_rng([int(task.name), task.round, len(name)])
        weight += random.standard_normal(weight.shape, np.float32)
    return None, task.rows, 1, 10.0

macaw_client.serve(train)
)";

// What it trains is sent through a codec, by one worker and by three.
class CodedDrift : public PlainPyTorch {
 protected:
  CodedDrift() { folder_.Write("train.py", kDrift); }

  std::string RunBothWays(const std::vector<std::string>& settings,
                          const std::string& argument = "") const {
    std::string first;
    for (const char* processes : {"1", "3"}) {
      std::vector<std::string> arguments = {
          ByProgram(absl::StrCat(R"(["python3", "train.py", ")", argument, "\"]")), "--processes",
          processes, "--set", R"(model.layers=["linear 2"])"};
      for (const std::string& setting : settings)
        arguments.insert(arguments.end(), {"--set", setting});
      Simulation run(processes, arguments);
      EXPECT_EQ(run.Wait(), 0) << run.output();
      EXPECT_THAT(run.output(), HasSubstr("each client keeps 128 bytes"));
      const Json summary = run.summary();
      const std::string all = absl::StrCat(summary.value("model_digest", ""), " ",
                                           summary.value("state_digest", ""), "\n", run.metrics());
      if (first.empty()) first = all;
      EXPECT_EQ(all, first);
    }
    return first;
  }
};

TEST_F(CodedDrift, HasTheSameBitsForAnyWorkers) {
  RunBothWays({R"(update.codec=["topk 0.3"])", "update.feedback=ef21", "cohort.size=2"});
  RunBothWays({R"(update.codec=["acpsgd 1"])", "update.feedback=residual"});
  RunBothWays({R"(update.codec=["powersgd 1"])", "update.feedback=residual"});
}

TEST_F(CodedDrift, OfWhichNobodyCountsInARoundKeepsWhatWasSentUnderEf21) {
  EXPECT_THAT(RunBothWays({R"(update.codec=["topk 0.3"])", "update.feedback=ef21"}, "locked"),
              HasSubstr(R"({"round":2,"clients":0,"left_out":3)"));
}

constexpr char kWrong[] = R"(
import math, sys
import numpy as np
sys.path.insert(0, ")" MACAW_SOURCE_DIR R"(/sdk/python")
import macaw_client

def train(weights, task):
    weights["0.bias"] += np.float32(0.5)
    good = (None, task.rows, 1, 10.0)
    if task.name != "1":
        return good
    if task.round == 2:
        return {**weights, "0.bias": np.zeros(7, np.float32)}, *good[1:]
    if task.round == 3:
        return {**weights, "0.bias": np.zeros(2)}, *good[1:]
    if task.round == 4:
        weights["0.bias"][0] = math.nan
    if task.round == 5:
        return *good[:3], math.nan
    if task.round == 6:
        return {"bias": weights["0.bias"]}, *good[1:]
    if task.round == 7:
        return None
    if task.round == 8:
        return *good[:3], 1e60
    return good

macaw_client.serve(train)
)";

TEST_F(PlainPyTorch, ThatGivesBackWhatDoesNotFitSitsTheRoundOut) {
  folder_.Write("train.py", kWrong);
  Simulation run("wrong", {ByProgram(), "--rounds", "9"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  std::vector<std::string> left_out;
  for (const Json& event : run.events())
    if (event["event"] == "left_out") left_out.push_back(event.dump());
  EXPECT_THAT(left_out,
              testing::ElementsAre(HasSubstr("0.bias as float32[7], the model has float32[2]"),
                                   HasSubstr("0.bias as float64[2], the model has float32[2]"),
                                   HasSubstr("is nan"), HasSubstr("its loss is not finite"),
                                   HasSubstr("train returned ['bias']"),
                                   HasSubstr("rows, steps, losses"), HasSubstr("beyond 1e+50")));
  // Each client that counts moves the bias by 0.5 a round.
  const std::vector<float> model = ModelOf(run);
  EXPECT_THAT(model, testing::Contains(testing::FloatNear(4.5F, 0.6F)));
}

TEST_F(PlainPyTorch, ThatCannotStartEndsTheRunWithItsOwnWords) {
  Simulation run("missing", {ByProgram(R"(["python3", "not_there.py"])")});
  EXPECT_NE(run.Wait(), 0);
  EXPECT_THAT(run.output(), AllOf(HasSubstr("workers.command"), HasSubstr("not_there.py")));
}

TEST_F(PlainPyTorch, AloneCanReadDeclaredRows) {
  Simulation run("declared",
                 {Config("fused", "source = \"declared\"\npath = \"rows.json\"\n", "")});
  EXPECT_NE(run.Wait(), 0);
  EXPECT_THAT(run.output(), HasSubstr("the data is only declared"));
}

}  // namespace
}  // namespace macaw
