#pragma once

#include <string>

namespace macaw::cli {

// `macaw plugin check FILE`: loads a plug-in as a run would, and lists what it adds.
int PluginCheck(const std::string& path);

}  // namespace macaw::cli
