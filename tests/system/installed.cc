#include "tests/system/installed.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/system/simulation.h"

namespace macaw::testing_support {

void Install(const std::vector<std::string>& components, const std::string& folder) {
  for (const std::string& component : components) {
    const bool links = absl::StartsWith(component, "libtorch");
    const Printed installed =
        RunProgram(links ? "CMAKE_INSTALL_MODE=ABS_SYMLINK cmake" : "cmake",
                   absl::StrCat("--install ", MACAW_BIN_DIR, "/.. --strip --component ", component,
                                " --prefix ", folder));
    EXPECT_EQ(installed.exit, 0) << installed.text;
  }
}

}  // namespace macaw::testing_support
