#pragma once

#include <string>

namespace macaw::cli {

// `macaw plugin new NAME`: writes a complete project into `folder` ("": NAME). Existing files are
// not overwritten.
int PluginNew(const std::string& name, const std::string& folder);

// `macaw plugin check FILE`: loads a plug-in as a run would, and lists what it adds.
int PluginCheck(const std::string& path);

}  // namespace macaw::cli
