#pragma once

#include <string>
#include <vector>

namespace macaw::testing_support {

// The components with the three programs.
inline const std::vector<std::string> kPrograms = {"command", "server", "worker"};

// Installs these components of the build folder into `folder` as packages hold them, stripped.
// LibTorch's own files (the components libtorch and libtorch_dev) are links, to save the copy.
void Install(const std::vector<std::string>& components, const std::string& folder);

}  // namespace macaw::testing_support
