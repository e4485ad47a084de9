#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/config/key_error.h"
#include "cli/sweep/prepare.h"
#include "testing/temporary_folder.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {

// Reads sweep files beside a base of 50 synthetic clients, "run.toml".
class SweepPlanTest : public testing::Test {
 protected:
  SweepPlanTest() {
    folder_.Write("run.toml", absl::StrCat(kMinimal,
                                           "[run]\nrounds = 20\n"
                                           "[data.synthetic]\nclients = 50\nmax_size = 50\n"));
  }

  absl::StatusOr<PreparedSweep> Read(const std::string& text) const {
    const std::string path = folder_.Write("sweep.toml", text);
    const absl::StatusOr<SweepFile> file = ReadSweepFile(path);
    if (!file.ok()) return file.status();
    Output silent;
    return Prepare(
        *file, sdk::Catalogue::Builtins(), [](const Job&) { return false; }, silent);
  }
  PreparedSweep Sweep(const std::string& text) const {
    absl::StatusOr<PreparedSweep> sweep = Read("base = \"run.toml\"\n" + text);
    EXPECT_TRUE(sweep.ok()) << sweep.status();
    return sweep.ok() ? *std::move(sweep) : PreparedSweep();
  }
  // The message of a refused sweep, and the key that it is about.
  std::string Refused(const std::string& text, const std::string& key = "") const {
    const absl::Status status = Read(text).status();
    EXPECT_FALSE(status.ok()) << text;
    if (!key.empty()) {
      EXPECT_EQ(KeyErrorOf(status).key, key) << status;
    }
    return std::string(status.message());
  }

  const testing_support::TemporaryFolder folder_;
};

inline std::vector<std::string> NamesOf(const PreparedSweep& sweep) {
  std::vector<std::string> names;
  for (const Job& job : sweep.jobs) names.push_back(job.name);
  return names;
}

}  // namespace macaw::cli
