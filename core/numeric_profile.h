#pragma once

#include <string>

namespace macaw {

// What decides the last bits of floating-point work on a node. Two runs with the same profile agree
// byte for byte. The server refuses a worker with another profile.
struct NumericProfile {
  std::string trainer;          // "eager"
  std::string instruction_set;  // "avx2", "avx512", ...: what LibTorch's kernels will use
  std::string libraries;        // "libtorch 2.11.0, glibc 2.36"
  friend bool operator==(const NumericProfile&, const NumericProfile&) = default;
};

}  // namespace macaw
