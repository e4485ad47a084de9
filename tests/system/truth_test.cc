// Plain PyTorch and the real programs side by side (bench/truth.py), where a Python has PyTorch.

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "testing/python.h"

namespace macaw {
namespace {

using namespace testing_support;

TEST(Truth, PlainPyTorchTrainsTheSameModel) {
  if (const std::string why = WhyNoPython("torch, safetensors.torch"); !why.empty())
    GTEST_SKIP() << why;
  const Finished truth = RunShell(absl::StrCat(Python(), " ", MACAW_SOURCE_DIR "/bench/truth.py",
                                               " --macaw ", MACAW_BIN_DIR "/macaw"));
  EXPECT_EQ(truth.exit, 0) << truth.output;
  std::fputs(truth.output.c_str(), stdout);
}

}  // namespace
}  // namespace macaw
