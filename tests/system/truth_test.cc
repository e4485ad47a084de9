// Plain PyTorch and the real programs side by side (bench/truth.py), where a Python has PyTorch.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace macaw {
namespace {

struct Finished {
  int exit = -1;
  std::string output;
};

Finished RunShell(const std::string& command) {
  Finished result;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char piece[4096];
  while (std::fgets(piece, sizeof(piece), pipe) != nullptr) result.output += piece;
  const int status = ::pclose(pipe);
  result.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

TEST(Truth, PlainPyTorchTrainsTheSameModel) {
  const char* named = ::getenv("MACAW_PYTHON");
  const std::string python = named == nullptr ? "python3" : named;
  const Finished probe = RunShell(python + " -c 'import torch, safetensors.torch'");
  if (probe.exit != 0) {
    GTEST_SKIP() << python << " cannot import torch and safetensors; MACAW_PYTHON=/venv/bin/python "
                 << "names one that can. It said: " << probe.output;
  }
  const Finished truth = RunShell(absl::StrCat(python, " ", MACAW_SOURCE_DIR "/bench/truth.py",
                                               " --macaw ", MACAW_BIN_DIR "/macaw"));
  EXPECT_EQ(truth.exit, 0) << truth.output;
  std::fputs(truth.output.c_str(), stdout);
}

}  // namespace
}  // namespace macaw
