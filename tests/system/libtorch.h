#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace macaw::testing_support {

// Whether this build has the back end for LibTorch.
inline constexpr bool kHasLibTorch = MACAW_HAS_LIBTORCH;

// The back ends of this build that train layers on cores.
inline std::vector<std::string> Backends() {
  return kHasLibTorch ? std::vector<std::string>{"fused", "torch"}
                      : std::vector<std::string>{"fused"};
}

}  // namespace macaw::testing_support

// For a test of what only LibTorch trains, or of packages with it.
#define MACAW_NEEDS_LIBTORCH()                    \
  if (!::macaw::testing_support::kHasLibTorch) {  \
    GTEST_SKIP() << "this build has no LibTorch"; \
  }                                               \
  static_assert(true)
