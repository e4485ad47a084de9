#pragma once

#include "absl/base/config.h"

// Everything that must be equal in a program and a plug-in so that they can exchange C++ objects:
// the release, the version of the interface (algorithms/api, training/api: increase it with every
// change there), the compiler, the standard library's ABI, abseil's release, and whether assertions
// are enabled. Both contain this text as compiled; the loader compares the two.
#define MACAW_TEXT_OF(x) #x
#define MACAW_TEXT(x) MACAW_TEXT_OF(x)

#ifdef NDEBUG
#define MACAW_TAG_ASSERTIONS "release"
#else
#define MACAW_TAG_ASSERTIONS "debug"
#endif

#define MACAW_INTERFACE "6"

#define MACAW_BUILD_TAG                                                                   \
  "macaw " MACAW_SDK_VERSION ", interface " MACAW_INTERFACE ", compiler " __VERSION__     \
  ", C++ " MACAW_TEXT(__cplusplus) ", ABI " MACAW_TEXT(__GXX_ABI_VERSION) "/" MACAW_TEXT( \
      _GLIBCXX_USE_CXX11_ABI) ", abseil " MACAW_TEXT(ABSL_LTS_RELEASE_VERSION) ", " MACAW_TAG_ASSERTIONS
