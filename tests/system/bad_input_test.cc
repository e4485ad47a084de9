// Bad input gives one clear line, a code other than zero, and no process left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::Simulation;
using testing_support::TemporaryFolder;
using testing_support::WriteConfig;

void ExpectRefused(std::vector<std::string> arguments, const std::vector<std::string>& words) {
  Simulation simulation("refused", std::move(arguments));
  EXPECT_NE(simulation.Wait(), 0);
  const std::string output = simulation.output();
  for (const std::string& word : words) EXPECT_THAT(output, HasSubstr(word));
  EXPECT_TRUE(simulation.Children("macaw-worker").empty());
  EXPECT_TRUE(simulation.Children("macaw-server").empty());
}

TEST(BadInput, AnUnknownKeyNamesTheNearestOne) {
  ExpectRefused({WriteConfig("c", "[local]\n")}, {"local"});  // a table given twice
  ExpectRefused({WriteConfig("c"), "--set", "local.momentumm=0.9"}, {"momentumm", "momentum"});
  ExpectRefused({WriteConfig("c"), "--set", "run.comm_round=5"}, {"rounds"});
}

TEST(BadInput, AWrongTypeOrValueIsNamed) {
  ExpectRefused({WriteConfig("c"), "--set", "run.rounds=many"}, {"rounds", "many"});
  ExpectRefused({WriteConfig("c"), "--set", "local.lr=-1"}, {"lr"});
}

TEST(BadInput, DataAndModelThatDoNotFitAreRefused) {
  ExpectRefused({WriteConfig("c"), "--set", R"(model.layers=["flatten", "linear 7"])"},
                {"7", "10"});
  ExpectRefused({WriteConfig("c"), "--set", "partition.min_size=1000"}, {"min_size"});
  ExpectRefused({WriteConfig("c"), "--set", "cohort.size=100000"}, {"cohort"});
  ExpectRefused({WriteConfig("c"), "--set", "data.path=/no/such/folder"}, {"/no/such/folder"});
}

TEST(BadInput, BrokenFilesAreNamedWithThePlace) {
  const TemporaryFolder place;
  const std::string csv = place.Write("nan.csv", "a,b,label\n1,2,0\n3,nan,1\n");
  ExpectRefused({WriteConfig("c"), "--set", "data.source=csv", "--set", "data.path=" + csv},
                {"nan.csv", "3"});
  place.Write("cut/t10k-images-idx3-ubyte",
              std::string("\0\0\x08\x03\0\0\0\x05\0\0\0\x1c\0\0\0\x1c..", 18));
  place.Write("cut/t10k-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x05\1\2\3\4\5", 13));
  ExpectRefused({WriteConfig("c"), "--set", "data.path=" + place / "cut"}, {"t10k-images"});
}

TEST(BadInput, GpusThatAreNotThereAreMissedBeforeTheRunHasAFolder) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is an NVIDIA driver here";
  const TemporaryFolder folder;
  const std::string out = folder / "without-gpus";
  ExpectRefused({WriteConfig("c"), "--set", "workers.backend=cuda", "--out", out}, {"NVIDIA"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(BadInput, AnOutputFolderThatCannotBeWrittenIsNamed) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("a-file", "not a folder");
  ExpectRefused({WriteConfig("c"), "--out", file + "/run"}, {"a-file"});
}

TEST(BadInput, ADivergingRunStopsWithTheReason) {
  ExpectRefused({WriteConfig("c"), "--set", "local.lr=1e30"}, {"left out"});
}

}  // namespace
}  // namespace macaw
