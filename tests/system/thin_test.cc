// The package of the programs on a machine without LibTorch: what it links, what it trains, and
// what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/installed.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;
using testing_support::Printed;
using testing_support::Simulation;
using testing_support::TemporaryFolder;

// The three programs, installed without a back end beside them.
class WithoutModules : public testing::Test {
 protected:
  WithoutModules() { testing_support::Install(testing_support::kPrograms, folder_.path()); }
  Printed Run(const std::string& arguments) {
    return testing_support::RunProgram(folder_ / "bin/macaw", arguments);
  }
  Printed Simulate(const std::string& settings) {
    return Run(absl::StrCat("simulate ", config_, " --out ", out_, " ", settings));
  }

  const TemporaryFolder folder_;
  const std::string config_ = testing_support::WriteConfig("thin");
  const std::string out_ = folder_ / "run";
};

TEST(ThinWorker, LinksNoLibTorch) {
  const Printed needed = testing_support::RunProgram("ldd", MACAW_BIN_DIR "/macaw-worker");
  ASSERT_EQ(needed.exit, 0) << needed.text;
  EXPECT_THAT(needed.text, AllOf(HasSubstr("libgrpc"), Not(HasSubstr("torch")),
                                 Not(HasSubstr("libc10")), Not(HasSubstr("gomp"))));
}

TEST_F(WithoutModules, TrainTheSameModelAsWithThem) {
  const Printed thin = Simulate("");
  ASSERT_EQ(thin.exit, 0) << thin.text;
  Simulation with("with_modules", {config_});
  ASSERT_EQ(with.Wait(), 0) << with.output();
  EXPECT_EQ(Json::parse(*ReadFile(out_ + "/summary.json"))["model_digest"], with.digest());
}

TEST_F(WithoutModules, SayBeforeTheRunWhatItNeedsThatIsNotThere) {
  const auto missing = [&](const std::string& settings) {
    const Printed printed = Simulate(settings);
    EXPECT_EQ(printed.exit, 5) << printed.text;
    EXPECT_THAT(printed.text, HasSubstr("install the package macaw-backend-torch"));
    EXPECT_FALSE(fs::exists(out_)) << "no folder is made in vain";
    return printed.text;
  };
  EXPECT_THAT(missing("--set model.name=resnet18_gn"), HasSubstr("layer 2"));
  EXPECT_THAT(missing("--set run.dtype=float64"), HasSubstr("float32"));
  EXPECT_THAT(missing("--set algorithm.name=mime"), HasSubstr("hooks"));
  EXPECT_THAT(missing("--set workers.backend=torch"), HasSubstr("workers.backend"));
  EXPECT_THAT(missing("--set local.optimizer=adam"), HasSubstr("adam"));
  EXPECT_THAT(missing("--check --set local.optimizer=adam"), HasSubstr("adam"));
  const Printed wrong = Simulate("--set run.dtype=float64 --set workers.backend=fused");
  EXPECT_THAT(wrong.text, HasSubstr("float32"));
  EXPECT_EQ(wrong.exit, 2) << "nothing to install helps";
}

TEST_F(WithoutModules, AreCheckedWithoutARun) {
  const Printed fine = Simulate("--check");
  EXPECT_EQ(fine.exit, 0) << fine.text;
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(WithoutModules, AreNamedByTheDoctor) {
  const Printed doctor = Run("doctor");
  EXPECT_THAT(doctor.text,
              AllOf(HasSubstr("fused: macaw-fused"), HasSubstr("torch: the LibTorch")));
  EXPECT_THAT(doctor.text, HasSubstr("install the package macaw-backend-torch"));
}

}  // namespace
}  // namespace macaw
