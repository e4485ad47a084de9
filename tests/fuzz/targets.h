#pragma once

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// The decoders of bytes that come from outside, each as a function of any bytes. libFuzzer runs one
// of them for as long as it is given (`./dev fuzz`); fuzz_test runs all of them for a moment.
namespace macaw::fuzz {

struct Target {
  const char* name;
  // Whether the decoder accepts the bytes. Returns for any bytes. Ends the process if a promise is
  // broken: a value that was accepted but cannot be encoded again, a refusal without a reason.
  bool (*feed)(absl::string_view bytes);
  std::vector<std::string> (*examples)();  // that are accepted
};

std::vector<Target> WireTargets();      // what a peer sends
std::vector<Target> IdentityTargets();  // codes, certificates, the files of an authority
std::vector<Target> FileTargets();      // data, models, states, the log of rounds, node files
std::vector<Target> ProgramTargets();   // what an owner's training program answers

std::vector<Target> AllTargets();

}  // namespace macaw::fuzz

// A promise of a decoder.
#define MACAW_FUZZ_EXPECT(condition)                                                      \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)
