// Plain PyTorch and the real programs side by side (tests/oracle). Skipped without PyTorch.

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "testing/python.h"
#include "testing/temporary_folder.h"

namespace macaw {
namespace {

using namespace testing_support;

TEST(Truth, PlainPyTorchTrainsTheSameModel) {
  if (const std::string why = WhyNoPython("torch, safetensors.torch"); !why.empty())
    GTEST_SKIP() << why;
  const Printed truth =
      RunShell(absl::StrCat(Python(), " ", MACAW_SOURCE_DIR "/tests/oracle/truth.py", " --macaw ",
                            MACAW_BIN_DIR "/macaw"));
  EXPECT_EQ(truth.exit, 0) << truth.text;
  std::fputs(truth.text.c_str(), stdout);
}

// Models of tokens on a play made here: steps, losses and final models agree.
TEST(Truth, PlainPyTorchTrainsTheSameModelOfText) {
  if (const std::string why = WhyNoPython("torch, safetensors.torch"); !why.empty())
    GTEST_SKIP() << why;
  std::string play;
  for (int speech = 0; speech < 12; ++speech) {
    absl::StrAppend(&play, "SPEAKER ", speech % 4, ":\n");
    for (int line = 0; line < 8; ++line)
      absl::StrAppend(&play, "the ", speech, "th of us counts ", line * (speech + 3), ", ");
    absl::StrAppend(&play, "and ends.\n\n");
  }
  const TemporaryFolder folder;
  const std::string path = folder.Write("play.txt", play);
  for (const char* const model : {"char_transformer", "char_gru"}) {
    const Printed text = RunShell(
        absl::StrCat(Python(), " ", MACAW_SOURCE_DIR "/tests/oracle/text.py ", path, " --model ",
                     model, " --rounds 2 --cohort 3 --macaw ", MACAW_BIN_DIR "/macaw"));
    EXPECT_EQ(text.exit, 0) << text.text;
    std::fputs(text.text.c_str(), stdout);
  }
}

}  // namespace
}  // namespace macaw
